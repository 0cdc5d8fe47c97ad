import gzip
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from simulator.calibrate import CalibrationReport, calibrate, own_gpu, plot_errors
from simulator.cost import GPUS, StepWork, TableSpec, load_profile, read_profile
from simulator.cost.operators import gemm_s
from simulator.errors import UserError
from tests.timings import MINE, SERIAL_US, TILE, physical_rows

KERNELS = Path(__file__).resolve().parents[3] / "shared" / "kernels"


@pytest.fixture(scope="module")
def rows() -> pd.DataFrame:
    return physical_rows()


@pytest.fixture(scope="module")
def report(rows: pd.DataFrame, tmp_path_factory: pytest.TempPathFactory) -> CalibrationReport:
    path = tmp_path_factory.mktemp("calibration") / "mine.csv"
    rows.to_csv(path, index=False)
    return calibrate([path], MINE, source="a test", licence="none")


def written(rows: pd.DataFrame, folder: Path, name: str = "t.csv") -> Path:
    path = folder / name
    rows.to_csv(path, index=False)
    return path


def test_held_out_rows_are_predicted_within_a_few_percent(report: CalibrationReport) -> None:
    errors = report.frame().set_index(["operator", "split"])
    assert set(errors.index.get_level_values(1)) == {
        "interior",
        "extrapolation",
        "shapes",
        "behind context",
    }
    assert errors.loc[("linear", "interior"), "mape"] < 0.05
    assert errors.loc[("decode", "interior"), "mape"] < 0.03
    assert errors.loc[("decode", "extrapolation"), "mape"] < 0.05
    assert errors.loc[("elementwise", "extrapolation"), "mape"] < 0.2
    assert errors.loc[("prefill", "behind context"), "mape"] < 0.1
    errors = errors.dropna()
    assert (errors["bias"].abs() <= errors["mape"] + 1e-12).all()
    assert (errors["p95"] >= errors["mape"]).all()


def test_the_serial_term_and_the_tile_are_found(report: CalibrationReport) -> None:
    metadata = report.profile.metadata
    assert metadata["serial_us_per_token"] == pytest.approx(SERIAL_US, rel=0.05)
    assert metadata["prefill_tile"] == TILE
    assert metadata["cold_hbm_fraction"] == pytest.approx(0.88, abs=0.02)


def test_a_profile_can_be_used_and_says_where_it_comes_from(
    report: CalibrationReport, tmp_path: Path
) -> None:
    path = tmp_path / "mine.npz"
    report.save(path)
    profile = read_profile(path)
    assert profile == report.profile
    assert profile.metadata["source"] == "a test"
    assert profile.metadata["files"] == ["mine.csv"]
    assert profile.gpu == MINE
    spec = TableSpec(profile=str(path), tp=2)
    assert (spec.gpu, spec.dtype) == ("mine", "bfloat16")
    assert TableSpec.model_validate(spec.model_dump()) == spec
    cost = spec.cost()
    assert cost.profile_sha256 == profile.sha256
    assert cost.kappa_mixed == 1.5
    assert 1e-3 < cost.step_time(StepWork(8, 8 * 1024, (), 8, 8)) < 0.1
    assert spec.kv_capacity().num_blocks > 0
    with pytest.raises(UserError, match="choose another name"):
        report.save(path)
    report.save(path, force=True)


def test_a_gpu_or_format_that_contradicts_the_profile_is_refused(
    report: CalibrationReport, tmp_path: Path
) -> None:
    report.save(tmp_path / "mine.npz")
    for other in ({"gpu": "h100"}, {"dtype": "fp8"}):
        with pytest.raises(ValueError, match="contradicts the file"):
            TableSpec(profile=str(tmp_path / "mine.npz"), **other)


def test_without_an_all_reduce_several_gpus_are_refused(rows: pd.DataFrame, tmp_path: Path) -> None:
    path = written(rows[rows["operator"] != "all_reduce"], tmp_path)
    calibrate([path], MINE).save(tmp_path / "one.npz")
    assert TableSpec(profile=str(tmp_path / "one.npz")).cost()
    with pytest.raises(UserError, match=r"no all-reduce timings of 2 mine \(there are: none\)"):
        TableSpec(profile=str(tmp_path / "one.npz"), tp=2).cost()


def test_equal_timings_give_equal_files(
    report: CalibrationReport, rows: pd.DataFrame, tmp_path: Path
) -> None:
    path = written(rows, tmp_path, "mine.csv")
    assert calibrate([path], MINE, source="a test", licence="none").data == report.data


def test_files_may_be_split_and_compressed(
    report: CalibrationReport, rows: pd.DataFrame, tmp_path: Path
) -> None:
    linear = rows["operator"] == "linear"
    first = written(rows[linear], tmp_path, "mine.csv")
    second = tmp_path / "rest.csv.gz"
    with gzip.open(second, "wt", encoding="utf-8") as file:
        rows[~linear].to_csv(file, index=False)
    again = calibrate([first, second], MINE, source="a test", licence="none")
    assert (again.profile.gemm_efficiency == report.profile.gemm_efficiency).all()
    assert again.rows == report.rows
    assert again.frame().equals(report.frame())


def test_the_report_as_text_and_as_data(report: CalibrationReport) -> None:
    text = report.text()
    assert "Test GPU in bfloat16: 78 linear, 80 decode, 56 prefill" in text
    assert "MAPE %" in text
    assert "behind context" in text
    data = json.loads(json.dumps(report.to_dict()))
    assert data["rows"]["linear"] == 78
    assert data["errors"][0].keys() == {"operator", "split", "rows", "mape", "p95", "bias"}


def test_the_figure(report: CalibrationReport) -> None:
    axes = plot_errors(report, Figure().subplots())
    assert axes.get_xscale() == "log"
    labels = axes.get_legend_handles_labels()[1]
    assert "linear, shapes" in labels


def changed(rows: pd.DataFrame, index: int, column: str, value: object) -> pd.DataFrame:
    copy = rows.astype({column: object})
    copy.loc[index, column] = value
    return copy


def refused(rows: pd.DataFrame, folder: Path) -> str:
    with pytest.raises(UserError) as caught:
        calibrate([written(rows, folder)], MINE)
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("time_us", 0.0, "t.csv: row 7: time_us is not above 0 (linear)"),
        ("time_us", -3.0, "t.csv: row 7: time_us is not above 0 (linear)"),
        ("time_us", "", "t.csv: row 7: time_us is not a finite number (linear)"),
        ("time_us", "fast", "t.csv: row 7: time_us is not a finite number (linear)"),
        ("time_us", "inf", "t.csv: row 7: time_us is not a finite number (linear)"),
        ("tokens", 32.5, "t.csv: row 7: tokens is not a whole number of at least 1 (linear)"),
        ("tokens", 0, "t.csv: row 7: tokens is not a whole number of at least 1 (linear)"),
        ("tokens", 16, "t.csv: row 7: repeats an earlier row (linear)"),
        ("tokens", 3, "t.csv: row 7: tokens is smaller than in the row before (linear)"),
    ],
)
def test_a_bad_row_is_named(
    rows: pd.DataFrame, tmp_path: Path, column: str, value: object, message: str
) -> None:
    assert refused(changed(rows, 5, column, value), tmp_path) == message


def test_rows_above_the_peak_arithmetic_are_named(rows: pd.DataFrame, tmp_path: Path) -> None:
    fast = rows.copy()
    large = (fast["operator"] == "linear") & (fast["tokens"] == 4096)
    fast.loc[large, "time_us"] *= 0.5
    message = refused(fast, tmp_path)
    numbers = ", ".join(str(index + 2) for index in fast.index[large][:5])
    assert message.startswith(f"t.csv: rows {numbers}")
    assert "TFLOP/s is above the peak of 100 of mine (linear)" in message


def test_rows_above_the_peak_bandwidth_are_named_unless_a_cache_explains_them(
    rows: pd.DataFrame, tmp_path: Path
) -> None:
    fast = rows.copy()
    decode = fast["operator"] == "decode"
    moved = fast["batch"] * fast["context"] * fast["kv_heads"] * 512
    fast.loc[decode & (moved < 20e6), "time_us"] *= 0.4
    assert calibrate([written(fast, tmp_path)], MINE).from_cache["decode"] > 0
    fast.loc[decode & (moved > 300e6), "time_us"] *= 0.5
    message = refused(fast, tmp_path)
    assert "GB/s is above the peak bandwidth of 1000 of mine (decode)" in message


@pytest.mark.parametrize("operator", ["linear", "decode", "prefill"])
def test_an_operator_that_is_needed_is_named(
    rows: pd.DataFrame, tmp_path: Path, operator: str
) -> None:
    assert refused(rows[rows["operator"] != operator], tmp_path) == (
        f"no {operator} timings in bfloat16: a profile needs them"
    )


def test_prompts_have_to_start_somewhere(rows: pd.DataFrame, tmp_path: Path) -> None:
    behind = rows[(rows["operator"] != "prefill") | (rows["past"] > 0)]
    assert "no prefill timings with past 0" in refused(behind, tmp_path)


def test_one_head_size_per_profile(rows: pd.DataFrame, tmp_path: Path) -> None:
    odd = rows.copy()
    odd.loc[odd["operator"] == "decode", "head_size"] = 64
    assert "head sizes [64, 128]: a profile holds one" in refused(odd, tmp_path)


def test_files_that_hold_no_timings_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"x\.csv: unknown columns"):
        calibrate([path], MINE)
    path.write_text("operator,time_us\nlinear,3\n", encoding="utf-8")
    with pytest.raises(UserError, match="column out_features is missing for linear rows"):
        calibrate([path], MINE)
    path.write_text("", encoding="utf-8")
    with pytest.raises(UserError, match="not a CSV file"):
        calibrate([path], MINE)
    with pytest.raises(UserError, match="cannot read timings"):
        calibrate([tmp_path / "none.csv"], MINE)
    with pytest.raises(UserError, match="no timing files given"):
        calibrate([], MINE)


def test_few_rows_give_no_error_figures(rows: pd.DataFrame, tmp_path: Path) -> None:
    few = rows[(rows["operator"] != "linear") | (rows["out_features"] == 6144)]
    report = calibrate([written(few, tmp_path)], MINE)
    errors = report.frame().set_index(["operator", "split"])
    assert np.isnan(errors.loc[("linear", "shapes"), "mape"])
    assert "n/a" in report.text()
    assert json.loads(json.dumps(report.to_dict()))["errors"]


def test_the_record_of_an_own_gpu_is_checked() -> None:
    figures = {"bf16_tflops": 9.0, "memory_gib": 9.0, "num_sms": 9, "l2_mb": 9}
    with pytest.raises(UserError, match="hbm_gb_per_s 0 of gpu mine: expected a number above 0"):
        own_gpu("mine", hbm_gb_per_s=0, **figures)  # type: ignore[arg-type]
    gpu = own_gpu("mine", hbm_gb_per_s=9, attention_kernel="fa3", **figures)  # type: ignore[arg-type]
    assert gpu.mixing == (1.0, 1.0)


needs_tables = pytest.mark.skipif(
    not KERNELS.is_dir(), reason="the measured kernel tables are not here"
)


@pytest.mark.shared
@needs_tables
@pytest.mark.parametrize("gpu", ["a100", "l40s"])
def test_tables_of_aiconfigurator_give_the_shipped_profile(gpu: str, tmp_path: Path) -> None:
    folder = KERNELS / "aiconfigurator"
    key = {"a100": "a100_sxm"}.get(gpu, gpu)
    names = [f"gemm_{key}", "attention_decode", "attention_prefill", "collectives"]
    report = calibrate([folder / f"{name}.csv.gz" for name in names], gpu)
    shipped = load_profile(gpu)
    for name in ("gemm_shapes", "gemm_tokens", "gemm_efficiency", "decode_us", "prefill_us"):
        expected = getattr(shipped, name)
        assert np.allclose(getattr(report.profile, name), expected, rtol=1e-6, equal_nan=True)
    assert (report.profile.all_reduce_us == shipped.all_reduce_us).all()
    errors = report.frame().set_index(["operator", "split"])["mape"]
    assert errors["linear", "interior"] < 0.1
    assert errors["linear", "shapes"] < 0.12
    assert report.ignored["of another GPU"] > 0


@pytest.mark.shared
@needs_tables
def test_tables_of_vidur_hold_linear_layers_elementwise_work_and_all_reduce() -> None:
    from simulator.calibrate.checks import check_rows
    from simulator.calibrate.rows import read_timings

    names = ("linear_and_elementwise_ops", "all_reduce")
    paths = [KERNELS / "vidur" / f"{name}.csv.gz" for name in names]
    timings = read_timings(paths, GPUS["h100"], "bfloat16")
    assert set(timings.frames) == {"linear", "elementwise", "all_reduce"}
    check_rows(timings, GPUS["h100"], "bfloat16")
    linear = timings.frames["linear"]
    gate_up = (linear.out_features == 22016) & (linear.in_features == 4096)
    time = linear[gate_up & (linear.tokens == 2048)]["time_us"].median()
    same = gemm_s(load_profile("h100"), 22016, 4096, np.array([2048.0]))[0] * 1e6
    assert time == pytest.approx(same, rel=0.15)  # measured by AIConfigurator
    nothing = read_timings(paths[:1], GPUS["h100"], "fp8")
    assert nothing.frames == {}
