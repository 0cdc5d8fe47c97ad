import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from policies import VllmV1
from policies.predictors import (
    PREDICTORS,
    AnyPredictor,
    ClassMean,
    ConstantPredictor,
    NoisyOracle,
    OraclePredictor,
)
from policies.testing import ScriptedRequest, ScriptedView

VIEW = ScriptedView(oracle=dict.fromkeys(range(4000), 100) | {4000: 7})


def predicted(spec, rid: int) -> float:
    return spec.build().output_tokens(ScriptedRequest(rid), VIEW)


def test_oracle_knows_the_length():
    assert [predicted(OraclePredictor(), rid) for rid in (0, 4000)] == [100, 7]


def test_noise_belongs_to_the_request_and_the_seed():
    spec = NoisyOracle(sigma=0.7)
    assert predicted(spec, 3) == predicted(spec, 3) != predicted(spec, 4)
    assert predicted(spec, 3) != predicted(NoisyOracle(sigma=0.7, seed=1), 3)
    assert predicted(NoisyOracle(sigma=0), 3) == 100


@pytest.mark.parametrize("sigma", [0.2, 1.0])
def test_noise_is_log_normal_with_median_one(sigma):
    spec = NoisyOracle(sigma=sigma).build()
    factors = [spec.output_tokens(ScriptedRequest(rid), VIEW) / 100 for rid in range(4000)]
    logs = np.log(factors)
    assert abs(logs.mean()) < 4 * sigma / np.sqrt(4000)
    assert logs.std() == pytest.approx(sigma, rel=0.05)


def test_constant_expects_the_same_of_everyone():
    spec = ConstantPredictor(output_tokens=50)
    assert {predicted(spec, rid) for rid in range(5)} == {50}


def test_class_mean_learns_from_the_requests_that_left():
    predictor = ClassMean(first_output_tokens=50).build()

    def expected(tenant: str) -> float:
        return predictor.output_tokens(ScriptedRequest(0, tenant=tenant), VIEW)

    assert expected("a") == 50
    predictor.learn(ScriptedRequest(1, tenant="a", generated=10))
    predictor.learn(ScriptedRequest(2, tenant="a", generated=20))
    predictor.learn(ScriptedRequest(3, tenant="a"))  # rejected: it says nothing
    assert (expected("a"), expected("b")) == (15, 50)


@pytest.mark.parametrize("spec", [cls() for cls in PREDICTORS], ids=lambda spec: spec.kind)
def test_predictors_that_read_true_lengths_say_so_and_so_does_the_policy(spec):
    needs = spec.kind in ("oracle", "noisy-oracle")
    assert spec.build().needs_oracle is needs
    order = {"kind": "sjf", "predictor": spec}
    assert VllmV1(order=order).build().needs_oracle is needs


def test_policies_without_a_predictor_do_not_ask_for_the_oracle():
    for order in ("fcfs", "priority", "edf"):
        assert VllmV1(order=order).build().needs_oracle is False


def test_name_alone_stands_for_the_defaults():
    adapter = TypeAdapter(AnyPredictor)
    for cls in PREDICTORS:
        assert adapter.validate_python(cls.model_fields["kind"].default) == cls()


@pytest.mark.parametrize(
    "data",
    [
        "crystal-ball",
        {"kind": "noisy-oracle", "sigma": -1},
        {"kind": "noisy-oracle", "sigma": float("nan")},
        {"kind": "noisy-oracle", "seed": -1},
        {"kind": "constant", "output_tokens": 0},
        {"kind": "class-mean", "first_output_tokens": float("inf")},
        {"kind": "oracle", "sigma": 1},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(data):
    with pytest.raises(ValidationError):
        TypeAdapter(AnyPredictor).validate_python(data)
