import json
import runpy
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from simulator.calibrate.steps import StepCalibration, calibrate_steps
from simulator.cost.profile import DATA_DIRECTORY
from simulator.cost.step_profile import TERMS, read_step_profile
from simulator.errors import UserError
from simulator.held_out import plot_errors

TRUE_US = dict(zip(TERMS, (5000.0, 200.0, 0.15, 40.0, 250.0, 0.7, 150.0), strict=True))
BUILD = Path(__file__).resolve().parents[2] / "scripts" / "build_step_profile.py"


def log(num_steps: int = 400, noise: float = 0.0) -> pd.DataFrame:
    """Return steps that take exactly what their parts take, but for noise."""
    rng = np.random.default_rng(2)
    kind = rng.integers(3, size=num_steps)
    chunks = np.where(kind == 0, 0, rng.integers(1, 4, num_steps))
    tokens = chunks * rng.integers(4, 128, num_steps)
    pairs = tokens * rng.integers(1, 2000, num_steps)
    decodes = np.where(kind == 1, 0, rng.integers(1, 33, num_steps))
    context = decodes * rng.integers(20, 3000, num_steps)
    counts = [np.ones(num_steps), tokens, pairs, chunks, decodes, context, decodes > 0]
    us = sum(TRUE_US[name] * count for name, count in zip(TERMS, counts, strict=True))
    cpu_ms = us / 1e3 * rng.lognormal(0, noise, num_steps) if noise else us / 1e3
    new = (rng.random(num_steps) < 0.2).astype(int)
    start = np.concatenate([[1.0], 1.0 + np.cumsum(cpu_ms[:-1] + 0.1 + 0.05 * new[1:])])
    return pd.DataFrame(
        {
            "step": np.arange(num_steps),
            "t_start_ms": start,
            "wall_ms": cpu_ms,
            "cpu_ms": cpu_ms,
            "n_prefill": chunks,
            "prefill_tokens": tokens,
            "prefill_pairs": pairs,
            "n_decode": decodes,
            "decode_ctx": context,
            "n_admitted": new,
        }
    )


def written(table: pd.DataFrame, folder: Path) -> Path:
    path = folder / "log.csv"
    table.to_csv(path, index=False)
    return path


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> StepCalibration:
    folder = tmp_path_factory.mktemp("steps")
    return calibrate_steps([written(log(noise=0.02), folder)], source="a test", licence="none")


def test_coefficients_and_pauses_are_found(tmp_path: Path) -> None:
    exact = calibrate_steps([written(log(), tmp_path)]).profile.coefficients_us
    for name, us in TRUE_US.items():
        assert exact[name] == pytest.approx(us, rel=1e-4)
    assert exact["between_steps"] == pytest.approx(100, abs=0.2)
    assert exact["new_request"] == pytest.approx(50, abs=0.2)


def test_no_part_takes_less_than_no_time(tmp_path: Path) -> None:
    table = log()
    table["cpu_ms"] -= table["n_prefill"] * 0.5
    found = calibrate_steps([written(table, tmp_path)], time="cpu_ms").profile
    assert min(found.coefficients_us.values()) >= 0
    assert found.coefficients_us["prefill_chunk"] == 0


def test_held_out_steps_are_predicted_within_the_noise(report: StepCalibration) -> None:
    assert [(held.operator, held.split) for held in report.held_out] == [
        (kind, split)
        for split in ("interior", "extrapolation")
        for kind in ("decodes", "prompts", "mixed")
    ]
    assert all(held.mape < 0.03 and held.num_rows > 10 for held in report.held_out)


def test_without_starts_there_are_no_pauses_unless_given(tmp_path: Path) -> None:
    path = written(log().drop(columns=["t_start_ms"]), tmp_path)
    assert calibrate_steps([path]).profile.coefficients_us["between_steps"] == 0
    given = calibrate_steps([path], pauses_us={"between_steps": 170.0}).profile
    assert given.coefficients_us["between_steps"] == 170
    assert given.coefficients_us["new_request"] == 0


def test_the_report_in_every_form(report: StepCalibration, tmp_path: Path) -> None:
    assert "400 steps of log.csv, cpu_ms" in report.text()
    assert "us  context_token" in report.text()
    data = json.loads(json.dumps(report.to_dict()))
    assert data["about"]["source"] == "a test"
    assert data["errors"][0].keys() == {"operator", "split", "rows", "mape", "p95", "bias"}
    assert plot_errors(report, Figure().subplots()).get_title().startswith("400 steps")
    path = tmp_path / "p.json"
    report.save(path)
    assert read_step_profile(str(path)) == report.profile
    with pytest.raises(UserError, match="choose another name"):
        report.save(path)


ROWS = {
    "zero": ("cpu_ms", 0.0, "row 7: cpu_ms is not above 0"),
    "negative": ("cpu_ms", -1.0, "row 7: cpu_ms is not above 0"),
    "nan": ("cpu_ms", "", "row 7: cpu_ms is no number"),
    "word": ("n_decode", "many", "row 7: n_decode is no number"),
    "infinite": ("decode_ctx", "inf", "row 7: decode_ctx is no number"),
    "fraction": ("n_decode", 1.5, "row 7: n_decode is not a whole number of at least 0"),
    "repeated": ("step", 4, "row 7: repeats an earlier step"),
    "unsorted": ("step", 3.5, "row 7: step is smaller than in the row before"),
    "backwards": ("t_start_ms", 0.5, "row 7: t_start_ms is not after the row before"),
    "short context": ("decode_ctx", 0, "row 7: decode_ctx is smaller than n_decode"),
}


@pytest.mark.parametrize("case", ROWS)
def test_a_bad_row_is_named(tmp_path: Path, case: str) -> None:
    column, value, message = ROWS[case]
    table = log(40).astype({column: object})
    table.loc[5, ["n_decode", "decode_ctx"]] = [2, 90]
    table.loc[5, column] = value
    with pytest.raises(UserError) as caught:
        calibrate_steps([written(table, tmp_path)])
    assert str(caught.value) == f"log.csv: {message}"


def test_a_step_that_cannot_be_is_named(tmp_path: Path) -> None:
    table = log(40)
    table.loc[3, ["n_prefill", "prefill_tokens", "n_decode", "decode_ctx"]] = 0
    with pytest.raises(UserError, match=r"log\.csv: row 5: the step holds nothing"):
        calibrate_steps([written(table, tmp_path)])
    table = log(40)
    table["prefill_pairs"] = 0
    with pytest.raises(UserError, match=r"rows .* more: fewer prefill_pairs than prefill_tokens"):
        calibrate_steps([written(table, tmp_path)])


def test_files_that_hold_no_steps_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="column decode_ctx is missing in a log of steps"):
        calibrate_steps([written(log(40).drop(columns=["decode_ctx"]), tmp_path)])
    with pytest.raises(UserError, match="column gpu_ms is missing"):
        calibrate_steps([written(log(40), tmp_path)], time="gpu_ms")
    with pytest.raises(UserError, match="19 steps: a fit needs at least 20"):
        calibrate_steps([written(log(19), tmp_path)])
    with pytest.raises(UserError, match="no steps"):
        calibrate_steps([written(log(40).head(0), tmp_path)])
    with pytest.raises(UserError, match="cannot read steps"):
        calibrate_steps([tmp_path / "none.csv"])
    (tmp_path / "bad.csv.gz").write_bytes(b"\x1f\x8bnot gzip at all")
    with pytest.raises(UserError, match=r"bad\.csv\.gz"):
        calibrate_steps([tmp_path / "bad.csv.gz"])
    with pytest.raises(UserError, match="expected at least one CSV file"):
        calibrate_steps([])


@pytest.mark.shared
def test_the_shipped_profile_is_the_fit_to_the_sweeps(shared: Path) -> None:
    build = runpy.run_path(str(BUILD))["build"]
    found = build(shared / "goldens" / "vllm_cpu_engine")
    assert found.profile.encode() == (DATA_DIRECTORY / "cpu.json").read_bytes()
    assert all(held.mape < 0.05 for held in found.held_out)
