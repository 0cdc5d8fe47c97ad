import numpy as np
import pytest
from pydantic import TypeAdapter, ValidationError

from workloads import TIMES, TimeSpec

SPEC = TypeAdapter(TimeSpec)
FAST_AND_SLOW = {
    "weights": [0.6, 0.4],
    "parts": [
        {"kind": "lognormal", "mu": 2.0, "sigma": 0.5},
        {"kind": "exponential", "mean_s": 60},
    ],
}


@pytest.mark.parametrize(
    "data", [5, {"mean_s": 5}, {"mean_s": 5, "cv": 2}, {"mu": 0.5, "sigma": 1}, FAST_AND_SLOW]
)
def test_mean_is_the_one_stated_and_first_draws_do_not_depend_on_their_number(data):
    law = SPEC.validate_python(data)
    sample = law.sample(100_000, np.random.default_rng(1))
    assert sample.min() >= 0
    assert abs(sample.mean() - law.mean) <= 4 * sample.std() / np.sqrt(sample.size)
    assert law.sample(9, np.random.default_rng(1)).tolist() == sample[:9].tolist()
    assert SPEC.validate_python(law.model_dump()) == law


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (-1, "seconds"),
        ({"mean_s": 0}, "mean_s"),
        ({"mean_s": 1, "cv": 0}, "cv"),
        ({"mu": 1}, "exactly one pair"),
        ({"mu": 1, "sigma": 1, "mean_s": 2}, "exactly one pair"),
        ({"mu": 99, "sigma": 99}, "number can hold"),
        (FAST_AND_SLOW | {"weights": [0.6, 0.3]}, "add up to 1"),
        (FAST_AND_SLOW | {"weights": [1.0]}, "as many weights"),
    ],
)
def test_nonsense_is_refused(data, told):
    with pytest.raises(ValidationError, match=told):
        SPEC.validate_python(data)


def test_table_and_union_name_the_same_kinds():
    mapping = SPEC.json_schema()["discriminator"]["mapping"]
    assert set(mapping) == {law.model_fields["kind"].default for law in TIMES}
