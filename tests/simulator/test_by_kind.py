"""Unions told apart by kind: the same as pydantic's own, but only what is met gets built."""

import pickle
import subprocess
import sys
from functools import reduce
from operator import or_
from typing import Annotated, Any, get_args

import pytest
from pydantic import BaseModel, Field, TypeAdapter, ValidationError, create_model

from simulator.cost.spec import COSTS, CostSpec
from simulator.spec import RunSpec
from workloads.arrival_spec import ARRIVALS, ArrivalSpec
from workloads.caps import CAPS, CapSpec
from workloads.joint import JOINTS, JointSpec
from workloads.length_spec import LENGTHS, SIMPLE_LENGTHS, LengthSpec, SimpleLengthSpec
from workloads.rates import RATES, RateSpec
from workloads.simple import SIMPLE, SimpleArrivalSpec
from workloads.spec import WORKLOADS, WorkloadSpec
from workloads.times import SIMPLE_TIMES, TIMES, SimpleTime, TimeSpec

UNIONS: list[tuple[Any, tuple[type[BaseModel], ...]]] = [
    (ArrivalSpec, ARRIVALS),
    (CapSpec, CAPS),
    (CostSpec, COSTS),
    (JointSpec, JOINTS),
    (LengthSpec, LENGTHS),
    (RateSpec, RATES),
    (SimpleArrivalSpec, SIMPLE),
    (SimpleLengthSpec, SIMPLE_LENGTHS),
    (SimpleTime, SIMPLE_TIMES),
    (TimeSpec, TIMES),
    (WorkloadSpec, WORKLOADS),
]

POISSON = {"kind": "poisson", "request_rate": 3.0}
SPEC = {
    "workload": {"arrivals": POISSON, "prompt_tokens": 10, "output_tokens": 5, "num_requests": 3},
    "cost": {"kind": "fixed", "step_ms": 10},
}


@pytest.mark.parametrize(("annotation", "models"), UNIONS)
def test_table_and_annotation_name_the_same_classes(annotation: Any, models: Any) -> None:
    assert get_args(get_args(annotation)[0]) == models


@pytest.mark.parametrize(("annotation", "models"), UNIONS)
@pytest.mark.parametrize(
    "data",
    [
        None,
        3,
        [],
        {},
        {"kind": "nonsense"},
        {"kind": 3},
        {"kind": []},
        {"kind": "poisson", "request_rate": 0, "more": 1},
        {"kind": "mixture", "weights": [1], "parts": [{"kind": "fixed"}]},
        {"kind": "fixed", "step_ms": -1, "scale": "x"},
        Field,
    ],
)
def test_errors_are_those_of_an_ordinary_union(annotation: Any, models: Any, data: Any) -> None:
    union: Any = reduce(or_, models)
    ordinary: Any = Annotated[union, Field(discriminator="kind")]
    lazy: Any = Annotated[get_args(annotation)[:2]]  # without the guess of the kind
    problems = []
    for adapter in (TypeAdapter(lazy), TypeAdapter(ordinary)):
        with pytest.raises(ValidationError) as caught:
            adapter.validate_python(data)
        problems.append(caught.value.errors(include_url=False))
    assert problems[0] == problems[1]


def test_an_instance_is_taken_as_it_is() -> None:
    law = ARRIVALS[0].model_validate(POISSON)
    assert TypeAdapter(ArrivalSpec).validate_python(law) is law


class Below(ARRIVALS[0]):  # type: ignore[misc]
    """A class of one's own below one of the table."""

    more: object = object()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"mode": "json"},
        {"exclude_defaults": True},
        {"exclude_unset": True},
        {"exclude": {"law": {"kind"}}},
        {"include": {"law": {"request_rate"}}},
    ],
)
@pytest.mark.parametrize("law", [ARRIVALS[0](request_rate=3), Below(request_rate=4)])
def test_what_is_written_is_that_of_an_ordinary_union(law: Any, options: Any) -> None:
    ordinary: Any = Annotated[reduce(or_, ARRIVALS), Field(discriminator="kind")]
    written = []
    for annotation in (ArrivalSpec, ordinary):
        model = create_model("Holder", law=(annotation, ...))
        written.append(model(law=law).model_dump(**options))
    assert written[0] == written[1]
    assert "more" not in written[0].get("law", {})


def python(code: str) -> str:
    command = [sys.executable, "-c", code]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def test_only_the_classes_of_a_specification_are_built() -> None:
    built = python(
        "from simulator.spec import RunSpec\n"
        "from simulator.cost.spec import COSTS\n"
        "from policies import POLICIES\n"
        "from workloads import ARRIVALS, LENGTHS, WORKLOADS\n"
        f"RunSpec.from_dict({SPEC}).to_dict()\n"
        "models = (*POLICIES, *COSTS, *ARRIVALS, *LENGTHS, *WORKLOADS)\n"
        "print(*(m.__name__ for m in models if m.__pydantic_complete__))"
    )
    # the table cost is the default of the specification
    expected = "VllmV1 FixedSpec TableSpec PoissonArrivals FixedLength SyntheticWorkload"
    assert built.split() == expected.split()


def test_a_specification_that_came_by_pickle_can_be_written() -> None:
    spec = RunSpec.from_dict(SPEC)
    written = python(
        "import pickle\n"
        f"spec = pickle.loads({pickle.dumps(spec)!r})\n"
        "print(type(spec.workload.arrivals).__pydantic_complete__, spec.content_hash())"
    )
    assert written == f"False {spec.content_hash()}"
