"""Measurements become runs, and predictions are held to the right levels."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simulator.cost.engine_profiles import ENGINE_PROFILES
from simulator.cost.gpus import GPUS
from simulator.cost.models import MODELS
from simulator.errors import UserError
from simulator.plots.validation import panels, scatter
from simulator.validation.engines import find_engine
from simulator.validation.levels import judge, judge_replays, judge_sweeps
from simulator.validation.loads import Unrunnable, make_load
from simulator.validation.orderings import Ordering, judge_ordering, read_orderings
from simulator.validation.predict import Prediction, predict, predict_all
from simulator.validation.report import Validation, errors_by_source
from simulator.validation.request_log import RequestLog, read_request_logs
from simulator.validation.rows import Measurement, read_measurements
from simulator.validation.scenario import Scenario, make_scenario

ROW = Measurement(
    record_id="a-1",
    sweep_id="a",
    source_id="src",
    quality="A",
    model="Llama-3.1-8B-Instruct",
    gpu="H100-SXM-80GB",
    engine="vLLM V1",
    engine_version="0.11.0",
    arrival_kind="constant",
    regime="open_loop_stable",
    request_rate_rps=4.0,
    num_requests=20.0,
    isl_mean_tok=100.0,
    osl_mean_tok=10.0,
)


def engine_of(**changes: object):
    return find_engine(replace(ROW, **changes), GPUS["h100"], MODELS["llama-3.1-8b"])


def scenario_of(**changes: object) -> Scenario:
    return make_scenario(replace(ROW, **changes))


def prediction_of(**values: float) -> Prediction:
    return Prediction(values, 0.1, 0, 1000, 0.01, 0.0)


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


# Reading


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("record_id,model\na,b\n", "no column gpu, engine, arrival_kind"),
        ("record_id,model,gpu,engine,arrival_kind\n", "holds no row"),
        ("record_id,model,gpu,engine,arrival_kind\na,m,,e,burst\n", "line 2: gpu is empty"),
        ("record_id,model,gpu,engine,arrival_kind\na,m,g,e,c\na,m,g,e,c\n", "stands twice"),
        ("record_id,model,gpu,engine,arrival_kind\na,m,g\n", "line 2: expected 5 cells"),
        (
            "record_id,model,gpu,engine,arrival_kind,tp\na,m,g,e,burst,nan\n",
            "line 2: tp 'nan': expected a number greater than 0",
        ),
        (
            "record_id,model,gpu,engine,arrival_kind,tpot_mean_ms\na,m,g,e,burst,0\n",
            "tpot_mean_ms '0': expected a number greater than 0",
        ),
    ],
)
def test_wrong_rows_are_refused_in_one_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        read_measurements(write(tmp_path / "m.csv", text))


def test_a_missing_file_is_an_error_of_the_user(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot be read"):
        read_measurements(tmp_path / "none.csv")


def test_rows_are_read_with_empty_cells_and_infinite_rates(tmp_path: Path) -> None:
    text = (
        "record_id,model,gpu,engine,arrival_kind,request_rate_rps,tpot_mean_ms,more\n"
        "a,m,g,e,burst,inf,,x\n"
    )
    (row,) = read_measurements(write(tmp_path / "m.csv", text))
    assert (row.request_rate_rps, row.tpot_mean_ms) == (np.inf, None)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("400", "x"), "line 2: expected lengths"),
        (("0.5,0.9", "0.5,0.4"), "line 2: expected lengths"),
        (("input_tokens", "in"), "no column input_tokens"),
    ],
)
def test_wrong_logs_are_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    text = (
        "gpu,model,tp_size,max_num_seqs,max_num_batched_tokens,input_tokens,output_tokens,"
        "arrival_s,first_token_s,last_token_s\nh100,m,1,8,512,400,10,0.1,0.5,0.9\n"
    )
    (log,) = read_request_logs(write(tmp_path / "good.csv", text))
    assert log.ttft_s.tolist() == [pytest.approx(0.4)]
    with pytest.raises(UserError, match=message):
        read_request_logs(write(tmp_path / "bad.csv", text.replace(*change)))


# Engines


def test_stated_limits_win_and_defaults_depend_on_the_gpu() -> None:
    assert engine_of().policy["max_num_seqs"] == 1024
    assert engine_of(max_num_seqs="default(256)").policy["max_num_seqs"] == 256
    small = find_engine(ROW, GPUS["a100"], MODELS["llama-3.1-8b"])
    assert small is not None
    assert small.policy["max_num_batched_tokens"] == 2048


@pytest.mark.parametrize(
    ("changes", "policy", "profile", "has_level"),
    [
        ({}, "vllm-v1", "vllm-0.11", True),
        ({"engine": "vLLM", "engine_version": "0.12.1"}, "vllm-v1", "vllm-0.11", True),
        ({"engine_version": "0.18"}, "vllm-v1", "vllm-0.19", True),
        ({"engine": "vLLM", "engine_version": "0.6.0"}, "vllm-v0", "vllm-v0", True),
        ({"engine": "vLLM V0", "engine_version": "0.9.0"}, "vllm-v0", "vllm-v0", True),
        ({"engine_flags": "num-scheduler-steps=10"}, "vllm-v1", "vllm-0.11", False),
        ({"engine": "TensorRT-LLM (PyTorch)"}, "vllm-v1", "trtllm-1.0", False),
        ({"engine": "SGLang"}, "vllm-v1", "generic", False),
    ],
)
def test_engines_have_policies_and_profiles(
    changes: dict[str, str], policy: str, profile: str, has_level: bool
) -> None:
    setting = engine_of(**changes)
    assert setting is not None
    assert (setting.policy["kind"], setting.profile.name) == (policy, profile)
    assert (not setting.no_level) is has_level


def test_graphs_cover_twice_the_sequences_at_most_512() -> None:
    assert engine_of(max_num_seqs="128").graph_tokens == 256
    assert engine_of(max_num_seqs="1024").graph_tokens == 512


def test_an_unknown_version_is_said() -> None:
    setting = engine_of(engine_version="2025-10 release, not stated")
    assert setting.notes == ("version not stated: profile vllm-0.11",)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"gpu": "MI300X"}, "GPU MI300X has no tables"),
        ({"model": "gemma-3-27b"}, "model gemma-3-27b is not known"),
        ({"weight_dtype": "int4"}, "was not measured"),
        ({"num_gpus": 2.0}, "parallelism is not modelled"),
        ({"engine": "TGI"}, "engine TGI is not known"),
        ({"osl_mean_tok": None}, "length not stated"),
        ({"num_requests": None}, "number of requests not stated"),
        ({"request_rate_rps": None}, "request rate not stated"),
        ({"arrival_kind": "weekly"}, "arrivals 'weekly' are not known"),
        ({"tp": 3.0}, "tp 3"),
    ],
)
def test_what_cannot_be_run_says_why(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(Unrunnable, match=reason):
        scenario_of(**changes)


# Loads


def test_loads_have_the_stated_arrivals_lengths_and_cap() -> None:
    load = make_load(replace(ROW, max_concurrency=7.0, osl_dist="uniform 0.5-1.0 of nominal"))
    assert np.diff(load.trace.arrival_s).tolist() == [0.25] * 19
    assert load.max_concurrency == 7
    assert set(load.trace.prompt_tokens) == {100}
    assert 5 <= load.trace.output_tokens.min() < load.trace.output_tokens.max() <= 10


def test_a_closed_loop_is_a_burst_with_a_cap() -> None:
    load = make_load(replace(ROW, arrival_kind="closed", max_concurrency=4.0, num_requests=None))
    assert (len(load.trace), load.max_concurrency, load.trace.span_s) == (40, 4, 0.0)


def test_empirical_lengths_have_the_stated_means() -> None:
    row = replace(ROW, isl_dist="empirical", num_requests=500.0, isl_mean_tok=217.4)
    load = make_load(row)
    assert load.trace.prompt_tokens.mean() == pytest.approx(217.4, rel=0.01)
    assert load.notes


def test_repeated_prompts_share_their_blocks() -> None:
    row = replace(
        ROW,
        prefix_caching="on",
        dataset="synthetic shared-prefix",
        notes="3 distinct prompts repeated",
    )
    load = make_load(row)
    assert load.trace.chains is not None
    assert len({load.trace.chains[n] for n in range(20)}) == 3
    silent = make_load(replace(row, notes=""))
    assert (silent.is_shared, silent.no_level) == (
        False,
        ("how often prompts repeat is not stated",),
    )


def test_a_stated_kv_capacity_sets_the_blocks() -> None:
    scenario = scenario_of(kv_capacity_tokens=41408.0)
    assert (scenario.spec.engine.num_blocks, scenario.is_kv_known) == (2588, True)


def test_fp8_weights_have_a_bfloat16_cache_unless_stated() -> None:
    wide, narrow = scenario_of(weight_dtype="fp8"), scenario_of(weight_dtype="fp8", kv_dtype="fp8")
    bytes_of = [s.spec.cost.find_model().kv_bytes for s in (wide, narrow)]
    assert bytes_of == [2, 1]
    assert wide.notes


# Runs and levels


def test_predictions_come_in_the_order_of_the_rows() -> None:
    slow, fast = predict_all([scenario_of(), scenario_of(num_requests=40.0, osl_mean_tok=20.0)])
    assert isinstance(slow, Prediction)
    assert isinstance(fast, Prediction)
    assert slow == predict(scenario_of())
    assert fast.values["e2e_mean_ms"] > slow.values["e2e_mean_ms"]
    assert slow.values["ttft_mean_ms"] > ENGINE_PROFILES["vllm-0.11"].request_ms


@pytest.mark.slow
def test_predictions_do_not_depend_on_the_number_of_jobs() -> None:
    scenarios = [scenario_of(), scenario_of(request_rate_rps=8.0)]
    assert predict_all(scenarios) == predict_all(scenarios, jobs=2)


def test_what_fails_while_it_runs_gives_a_reason() -> None:
    outcome = predict(scenario_of(kv_capacity_tokens=64.0))
    assert isinstance(outcome, str)
    assert "can never fit" in outcome


@pytest.mark.parametrize(
    ("changes", "values", "verdict"),
    [
        ({"tpot_mean_ms": 10.0}, {"tpot_mean_ms": 10.9}, "PASS"),
        ({"tpot_mean_ms": 10.0}, {"tpot_mean_ms": 11.1}, "FAIL"),
        ({"tpot_mean_ms": 10.0, "quality": "B"}, {"tpot_mean_ms": 11.9}, "PASS"),
        ({"tpot_mean_ms": 10.0, "quality": "C"}, {"tpot_mean_ms": 10.0}, "-"),
        ({"ttft_p50_ms": 20.0}, {"ttft_p50_ms": 29.9}, "PASS"),
        ({"ttft_p50_ms": 100.0}, {"ttft_p50_ms": 119.0}, "PASS"),
        ({"ttft_p50_ms": 100.0}, {"ttft_p50_ms": 79.0}, "FAIL"),
        ({"req_throughput_rps": 4.0}, {"req_throughput_rps": 1.0}, "-"),
        (
            {"req_throughput_rps": 4.0, "regime": "open_loop_overload"},
            {"req_throughput_rps": 3.5},
            "FAIL",
        ),
    ],
)
def test_levels_hold_by_quality_and_regime(
    changes: dict[str, object], values: dict[str, float], verdict: str
) -> None:
    row = replace(ROW, **changes)
    assert judge(row, make_scenario(row), prediction_of(**values)).verdict == verdict


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"sweep_id": "ipk-0"}, "was fitted on it"),
        ({"engine": "SGLang"}, "the policy of SGLang"),
        ({"engine": "vLLM V0", "engine_version": "0.9"}, "levels are for vLLM V1"),
    ],
)
def test_rows_without_a_level_say_why(changes: dict[str, object], reason: str) -> None:
    row = replace(ROW, tpot_mean_ms=10.0, **changes)
    outcome = judge(row, make_scenario(row), prediction_of(tpot_mean_ms=10.0))
    assert (outcome.verdict, outcome.error("tpot_mean_ms")) == ("-", 0.0)
    assert reason in outcome.no_level[0]


def test_an_unknown_capacity_that_binds_lifts_the_level() -> None:
    row = replace(ROW, tpot_mean_ms=10.0)
    bound = replace(prediction_of(tpot_mean_ms=10.0), num_preemptions=1)
    assert judge(row, make_scenario(row), bound).no_level == ("KV capacity unknown and binding",)
    known = replace(row, kv_capacity_tokens=5000.0)
    assert judge(known, make_scenario(known), bound).verdict == "PASS"


def test_the_knee_is_where_throughput_leaves_the_rate() -> None:
    outcomes = []
    for rate, seen, regime in ((5, 5, "stable"), (10, 8, "overload"), (20, 8.4, "overload")):
        changes = {"request_rate_rps": float(rate), "req_throughput_rps": float(seen)}
        row = replace(ROW, record_id=str(rate), regime=f"open_loop_{regime}", **changes)
        predicted = prediction_of(req_throughput_rps=min(seen, 9.0) * (1 if rate == 5 else 1.05))
        outcomes.append(judge(row, make_scenario(row), predicted))
    ((check, holds),) = judge_sweeps(outcomes)
    assert (check.measured, check.error) == (pytest.approx(8.2), pytest.approx(0.05))
    assert check.passed
    assert holds


def log_of(scale: float = 1.0) -> RequestLog:
    times = np.arange(4.0)
    ones = np.ones(4, np.int64)
    return RequestLog(
        "h100", "Llama-3.1-8B", 1, 8, 512, times, times, times + 0.1 * scale,
        times + (0.1 + 0.9) * scale, 100 * ones, 10 * ones,
    )  # fmt: skip


@pytest.mark.parametrize(("scale", "passed"), [(1.02, True), (1.04, False)])
def test_replayed_requests_are_compared_one_by_one(scale: float, passed: bool) -> None:
    row = replace(ROW, num_requests=4.0, isl_dist="empirical, per-request log available")
    log = log_of()
    assert log.belongs_to(row)
    slower = log_of(scale)
    found = replace(prediction_of(), ttft_s=slower.ttft_s, tpot_s=slower.tpot_s)
    checks = judge_replays([judge(row, make_scenario(row, log), found)])
    assert [check.passed for check in checks] == [passed] * 3
    assert [check.error for check in checks] == pytest.approx([scale - 1] * 3)


def test_requests_that_were_fitted_on_are_not_judged() -> None:
    record = "lss-rtxpro6000-llama-3.1-8b"
    row = replace(ROW, record_id=record, engine_version="0.19", isl_dist="log available")
    outcome = judge(
        row,
        make_scenario(row, log_of()),
        replace(prediction_of(), ttft_s=log_of().ttft_s, tpot_s=log_of().tpot_s),
    )
    assert judge_replays([outcome]) == []  # all four are among the first hundred


# Pairs and reports


def pair_outcome(kind: str, predicted: tuple[float, float], **changes: object):
    rows = [replace(ROW, record_id=name, tpot_mean_ms=10.0, **changes) for name in ("x", "y")]
    outcomes = {
        row.record_id: judge(row, make_scenario(row), prediction_of(tpot_mean_ms=value))
        for row, value in zip(rows, predicted, strict=True)
    }
    return judge_ordering(Ordering("o", "", "tpot_mean_ms", kind, "x", "y"), outcomes)


@pytest.mark.parametrize(
    ("kind", "predicted", "verdict"),
    [
        ("order", (11.0, 10.0), "PASS"),
        ("order", (10.0, 10.0), "FAIL"),
        ("tie", (10.7, 10.0), "PASS"),
        ("tie", (9.0, 10.0), "FAIL"),
    ],
)
def test_pairs_have_a_sign_or_tie(kind: str, predicted: tuple[float, float], verdict: str) -> None:
    assert pair_outcome(kind, predicted).verdict == verdict


def test_pairs_of_other_engines_have_no_level() -> None:
    pair = pair_outcome("order", (1.0, 2.0), engine="SGLang")
    assert (pair.verdict, pair.no_level) == ("-", "the policy of SGLang is not modelled")
    missing = judge_ordering(Ordering("o", "", "tpot_mean_ms", "tie", "x", "z"), {})
    assert missing.no_level == "no record x"


@pytest.mark.parametrize(
    ("line", "message"),
    [("o,more,tpot_mean_ms,a,b", "kind 'more'"), ("o,tie,speed,a,b", "metric 'speed'")],
)
def test_wrong_pairs_are_refused(tmp_path: Path, line: str, message: str) -> None:
    head = "ordering_id,kind,metric,greater_record_id,lesser_record_id\n"
    with pytest.raises(UserError, match=message):
        read_orderings(write(tmp_path / "o.csv", head + line + "\n"))


def test_errors_are_averaged_by_source_and_quality() -> None:
    outcomes = []
    for name, value in (("x", 11.0), ("y", 8.0)):
        row = replace(ROW, record_id=name, tpot_mean_ms=10.0)
        outcomes.append(judge(row, make_scenario(row), prediction_of(tpot_mean_ms=value)))
    (line,) = errors_by_source(outcomes)
    assert (line["run"], line["rows"]) == (2, 2)
    assert line["tpot_mean_ms_mape"] == pytest.approx(0.15)
    assert line["tpot_mean_ms_bias"] == pytest.approx(-0.05)
    validation = Validation.of(outcomes, [])
    assert not validation.passed
    text = validation.text()
    assert "missed: y TPOT 8 for 10 (-20.0%, bound 10%)" in text
    assert "Rows: 2; levels met 0, missed 2, none holds 0" in text


def test_the_scatter_draws_one_mark_a_row_and_names_the_sources() -> None:
    row = replace(ROW, tpot_mean_ms=10.0)
    outcomes = [
        judge(one, make_scenario(one), prediction_of(tpot_mean_ms=9.0))
        for one in (row, replace(row, record_id="b", quality="C", source_id="other"))
    ]
    ax = scatter(outcomes)
    assert ax.get_xlabel() == "measured mean TPOT (ms)"
    points = [line.get_xydata().tolist() for line in ax.lines if len(line.get_xydata()) == 1]
    assert points == [[[10.0, 9.0]]] * 2
    assert ax.get_legend_handles_labels()[1] == ["src", "other"]
    assert len(panels(outcomes).axes) == 3
