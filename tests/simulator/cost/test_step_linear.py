import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from simulator import RunSpec, simulate
from simulator.cost import StepLinearCost, StepLinearSpec, StepProfile, StepWork, read_step_profile
from simulator.cost.profile import DATA_DIRECTORY
from simulator.cost.step_profile import FORMAT, PAUSES, RANGES, TERMS
from simulator.errors import UserError
from simulator.explain import validated

LARGEST = {"prefill_token": 64, "prefill_pair": 5000, "decode": 8, "context_token": 900}
PROFILE = StepProfile(
    {
        "step": 4000,
        "prefill_token": 200,
        "prefill_pair": 0.5,
        "prefill_chunk": 30,
        "decode": 250,
        "context_token": 0.7,
        "any_decode": 160,
        "between_steps": 100,
        "new_request": 50,
    },
    LARGEST,
    {},
)


@pytest.mark.parametrize(
    ("work", "us"),
    [
        (StepWork(), 4000),
        (StepWork(3, 90, (), 3, 3), 4000 + 160 + 3 * 250 + 90 * 0.7),
        (StepWork(0, 0, ((8, 4),), 0, 1), 4000 + 30 + 8 * 200 + (32 + 36) * 0.5),
        (
            StepWork(1, 9, ((2, 0), (3, 5)), 1, 3),
            4000 + 160 + 250 + 9 * 0.7 + 60 + 5 * 200 + (3 + 15 + 6) * 0.5,
        ),
    ],
)
def test_a_step_is_the_sum_of_its_parts(work: StepWork, us: float) -> None:
    alone = StepLinearCost(PROFILE, pauses=False)
    assert alone.step_time(work) == pytest.approx(us / 1e6, rel=1e-12)
    new = sum(past == 0 for _, past in work.chunks)
    slow = StepLinearCost(PROFILE, slowness=2.0).step_time(work)
    assert slow == pytest.approx((2 * us + 100 + 50 * new) / 1e6, rel=1e-12)


@pytest.mark.parametrize(("decodes", "context"), [(1, 5), (7, 40), (8, 100), (9, 10), (3, 901)])
def test_a_run_gives_the_bits_of_its_steps(decodes: int, context: int) -> None:
    vector, scalar = StepLinearCost(PROFILE, 1.07), StepLinearCost(PROFILE, 1.07)
    run = vector.decode_run(decodes, context, 200)
    works = [StepWork(decodes, context + k * decodes, (), decodes, decodes) for k in range(200)]
    assert run.tobytes() == np.array([scalar.step_time(work) for work in works]).tobytes()
    assert vector.num_extrapolated == scalar.num_extrapolated
    lazy = StepLinearCost(PROFILE, 1.07)
    assert list(islice(lazy.decode_times(decodes, context), 200)) == run.tolist()
    assert lazy.num_extrapolated == scalar.num_extrapolated
    vector.take_back(decodes, context + 150 * decodes, 50)
    fewer = StepLinearCost(PROFILE)
    for work in works[:150]:
        fewer.step_time(work)
    assert vector.num_extrapolated == fewer.num_extrapolated


@pytest.mark.parametrize(
    ("work", "outside"),
    [
        (StepWork(8, 900, ((32, 0), (32, 0)), 10, 10), 0),
        (StepWork(9, 9, (), 9, 9), 1),
        (StepWork(1, 901, (), 1, 1), 1),
        (StepWork(0, 0, ((65, 0),), 1, 1), 1),
        (StepWork(0, 0, ((60, 80),), 1, 1), 1),
    ],
)
def test_steps_that_hold_more_than_any_of_the_fit_are_counted(work: StepWork, outside: int) -> None:
    cost = StepLinearCost(PROFILE)
    cost.step_time(work)
    assert cost.num_extrapolated == outside


def test_both_steppers_agree_and_a_slow_machine_is_slower(tmp_path: Path) -> None:
    path = tmp_path / "p.json"
    path.write_bytes(PROFILE.encode())
    spec = RunSpec(
        workload={"arrivals": {"request_rate": 4.0}, "num_requests": 40,
                  "prompt_tokens": 30, "output_tokens": 60},
        cost={"kind": "step-linear", "profile": str(path)},
    )  # fmt: skip
    fast, plain = simulate(spec), simulate(spec, stepper="reference")
    for name, columns in fast.tables.items():
        for column, values in columns.items():
            assert values.tobytes() == plain.tables[name][column].tobytes()
    slow = spec.model_copy(update={"cost": StepLinearSpec(profile=str(path), slowness=2.0)})
    ratio = simulate(slow).metrics["mean_tpot_ms"] / fast.metrics["mean_tpot_ms"]
    assert ratio > 1.9


def test_the_shipped_profile_says_where_it_comes_from() -> None:
    profile = read_step_profile("cpu")
    assert set(profile.coefficients_us) == {*TERMS, *PAUSES}
    assert set(profile.largest) == set(RANGES)
    assert all(profile.about[name] for name in ("source", "licence", "files", "how_made"))


def written(folder: Path, text: str) -> str:
    path = folder / "p.json"
    path.write_text(text, encoding="utf-8")
    return str(path)


TEXT = PROFILE.encode().decode()
BROKEN = {
    "truncated": (TEXT[:-40], "p.json: not a step profile, or truncated"),
    "edited": (TEXT.replace("4000", "3000"), "p.json: contents do not match their checksum"),
    "version": (
        TEXT.replace(FORMAT, "batchlab-step-profile/9"),
        f"p.json: format batchlab-step-profile/9: expected a step profile, {FORMAT}",
    ),
    "other": ("[1]", f"p.json: format None: expected a step profile, {FORMAT}"),
    "negative": (
        StepProfile(dict(PROFILE.coefficients_us) | {"decode": -1}, LARGEST, {}).encode().decode(),
        "p.json: decode is -1: expected at least 0",
    ),
    "empty": (
        StepProfile(dict(PROFILE.coefficients_us) | {"step": 0}, LARGEST, {}).encode().decode(),
        "p.json: step is 0: an empty step has to take time",
    ),
    "incomplete": (
        StepProfile(PROFILE.coefficients_us, {}, {}).encode().decode(),
        "p.json: expected numbers for prefill_token, prefill_pair, decode, context_token",
    ),
}


@pytest.mark.parametrize("case", BROKEN)
def test_a_profile_that_cannot_be_used_is_refused(tmp_path: Path, case: str) -> None:
    text, message = BROKEN[case]
    name = written(tmp_path, text)
    with pytest.raises(UserError) as caught:
        validated(StepLinearSpec, {"profile": name}, "cost")
    assert str(caught.value).startswith(f"cost: profile: {message}")
    assert "\n" not in str(caught.value)


def test_a_profile_of_gpu_kernels_is_told_apart(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"h100\.npz: a profile of GPU kernels: .* kind table"):
        read_step_profile(str(DATA_DIRECTORY / "h100.npz"))
    with pytest.raises(UserError, match=r"cost\.profile: p\.json: a step profile: .* step-linear"):
        RunSpec.from_dict({"cost": {"profile": written(tmp_path, TEXT)}}, "")


def test_a_name_that_is_not_shipped_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="unknown step profile 'gpu'"):
        read_step_profile("gpu")
    with pytest.raises(UserError, match="cannot read step profile: No such file"):
        read_step_profile(str(tmp_path / "none.json"))


def test_what_is_written_is_read(tmp_path: Path) -> None:
    assert read_step_profile(written(tmp_path, TEXT)) == PROFILE
    assert json.loads(TEXT)["format"] == FORMAT
