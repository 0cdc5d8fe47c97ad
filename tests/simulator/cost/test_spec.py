import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

import simulator.cost
from simulator.cost import COSTS, BaseCostSpec, CostSpec, StepWork, TableSpec

ADAPTER: TypeAdapter[BaseCostSpec] = TypeAdapter(CostSpec)
WORK = StepWork(num_decodes=2, context_tokens=64, num_sampled=2, num_rows=2)
WRITTEN: list[dict[str, Any]] = [
    {"kind": "fixed", "step_ms": 20},
    {"kind": "linear-batch", "fixed_ms": 5, "per_request_ms": 2},
    {"kind": "linear", "fixed_ms": 5, "per_decode_us": 20, "per_prefill_token_us": 40},
    {"kind": "step-linear", "profile": "cpu", "slowness": 1.5},
    {"kind": "exponential", "mean_ms": 10, "per": "request"},
    {"kind": "empirical", "values_ms": [10, 20], "probs": [0.9, 0.1]},
    {"kind": "table", "gpu": "h200", "model": "qwen3-32b", "tp": 2},
]


@pytest.mark.parametrize("written", WRITTEN, ids=lambda written: written["kind"])
def test_every_kind_builds_and_survives_a_round_trip(written: dict[str, Any]) -> None:
    spec = ADAPTER.validate_python(written)
    cost = spec.build(np.random.default_rng(1))
    assert cost.step_time(WORK) > 0
    assert cost.num_extrapolated == 0
    assert ADAPTER.validate_json(spec.model_dump_json()) == spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    assert hash(spec) == hash(ADAPTER.validate_python(written))


def test_every_kind_is_listed_once() -> None:
    kinds = [spec.model_fields["kind"].default for spec in COSTS]
    assert kinds == [written["kind"] for written in WRITTEN]


@pytest.mark.parametrize(
    ("written", "seconds"),
    [(WRITTEN[0], 0.02), (WRITTEN[1], 0.009), (WRITTEN[2], 0.00504)],
    ids=["fixed", "linear-batch", "linear"],
)
def test_units_are_converted_once(written: dict[str, Any], seconds: float) -> None:
    spec = ADAPTER.validate_python(written)
    assert spec.build(np.random.default_rng(1)).step_time(WORK) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ({"kind": "table", "gpu": "h10"}, r"unknown gpu 'h10': did you mean h100"),
        ({"kind": "table", "model": "llama-3.1-8"}, "did you mean llama-3.1-8b"),
        ({"kind": "table", "engine_profile": "generik"}, "did you mean generic"),
        ({"kind": "table", "model": "qwen2.5-7b", "tp": 8}, "does not divide the 28 heads"),
        ({"kind": "table", "dtype": "fp16"}, "bfloat16"),
        ({"kind": "table", "dtype": "fp8", "gpu": "a100"}, "no fp8 timings for a100"),
        ({"kind": "table", "profile": "none.npz"}, "none.npz: cannot read cost profile"),
        ({"kind": "table", "gpus": 2}, "Extra inputs"),
        ({"kind": "tables"}, "kind"),
        ({"kind": "fixed", "step_ms": 0}, "greater than 0"),
        ({"kind": "linear-batch", "fixed_ms": 0, "per_request_ms": 0}, "has to take time"),
        ({"kind": "empirical", "values_ms": [1], "probs": [0.5]}, "probs sum to 0.5"),
    ],
)
def test_nonsense_is_refused(written: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        ADAPTER.validate_python(written)


def test_a_spec_is_frozen() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TableSpec().gpu = "a100"


def test_each_run_counts_its_own_extrapolations() -> None:
    first, second = (TableSpec().build(np.random.default_rng(1)) for _ in range(2))
    first.step_time(StepWork(1, 100_000, (), 1, 1))
    assert (first.num_extrapolated, second.num_extrapolated) == (1, 0)


def test_the_capacity_comes_from_the_same_specification() -> None:
    small = TableSpec(memory_utilisation=0.5).kv_capacity(block_size=32)
    assert small.num_tokens < TableSpec().kv_capacity().num_tokens
    assert small.block_size == 32


def test_every_public_name_exists() -> None:
    for name in simulator.cost.__all__:
        assert getattr(simulator.cost, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Tpu'"):
        _ = simulator.cost.Tpu


def test_importing_the_package_loads_nothing_heavy() -> None:
    code = (
        "import sys, simulator.cost; "
        "print(sorted({'numpy', 'pydantic', 'pandas', 'scipy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == "[]"


def test_the_table_model_needs_neither_pandas_nor_simpy() -> None:
    code = (
        "import sys; from simulator.cost import TableSpec; "
        "print(sorted({'pandas', 'scipy', 'matplotlib', 'simpy'} & set(sys.modules)))"
    )
    command = [sys.executable, "-c", code]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    assert loaded.strip() == "[]"
