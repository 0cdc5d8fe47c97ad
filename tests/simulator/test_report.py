import shlex

import pandas as pd
import pytest

from simulator import Result, RunSpec, simulate
from simulator.report import (
    COMPARISON,
    WIDTH,
    comparison_text,
    machine,
    number,
    parameters,
    reproduce,
    run_text,
)
from simulator.settings import merge, split_options
from tests.simulator.test_spec import WRITTEN, Own


@pytest.fixture(scope="module")
def result() -> Result:
    """A small run with a rejection, a cut and objectives, whose text names all of them."""
    return simulate(spec())


def spec() -> RunSpec:
    return RunSpec.from_dict(
        {
            "workload": {
                "arrivals": 2,
                "num_requests": 50,
                "prompt_tokens": {"mean": 40, "cv": 1},
                "output_tokens": {"kind": "uniform", "low": 1, "high": 9},
            },
            "policy": {"kind": "static", "max_batch_size": 4, "max_seq_len": 90},
            "cost": {"kind": "fixed", "step_ms": 400},
            "measure": {"horizon_s": 20.05, "goodput": {"ttft_ms": 500, "e2el_ms": 900}},
        }
    )


def test_the_report_shows_every_metric_it_promises(result: Result) -> None:
    text, metrics = run_text(result), result.metrics
    lines = text.splitlines()
    assert "static (max_batch_size=4, max_seq_len=90)" in lines[0]
    assert "fixed cost (step_ms=400.0); seed 0" in lines[1]
    counts = " / ".join(str(metrics[key]) for key in ("completed", "rejected", "unfinished"))
    assert metrics["rejected"] > 0
    assert metrics["unfinished"] > 0
    (found,) = (line for line in lines if line.startswith("Requests completed"))
    assert found.split(":")[1].strip() == counts
    (goodput,) = (line for line in lines if line.startswith("Request goodput"))
    assert "[ttft <= 500 ms, e2el <= 900 ms]" in goodput
    assert number(metrics["slo_attainment"], 3) in goodput
    (rates,) = (line for line in lines if line.startswith("Request rate configured / realised"))
    assert rates.split(":")[1].split() == ["2.000", "/", number(metrics["realised_rate"], 3)]
    for name in ("ttft", "tpot", "itl", "e2el", "queue"):
        assert number(metrics[f"mean_{name}_ms"]) in text
    assert f"GPU busy {metrics['busy_fraction']:.2f}" in text


def test_every_percentile_stands_with_its_number_of_samples(result: Result) -> None:
    blocks = run_text(result).split("Time to First Token")[1].split("-\n")[1]
    first, second = blocks.splitlines()[:2]
    values = first.split(":")[1].split(" / ")
    assert first.startswith("Mean / P50 / P90 / P99 (ms):")
    assert values[-1] == "n/a"  # 50 requests do not bear a P99
    assert second.split() == ["Samples:", str(result.metrics["num_samples_ttft"])]


def test_warnings_stand_at_the_end(result: Result) -> None:
    lines = run_text(result).splitlines()
    number = len(result.warnings)
    assert number >= 2
    assert lines[-number:] == [f"Warning: {warning}." for warning in result.warnings]
    assert lines[-number - 1] == "=" * WIDTH


def test_the_report_of_the_same_run_is_the_same(result: Result) -> None:
    assert run_text(simulate(spec())) == run_text(result)


def read_back(command: str) -> RunSpec:
    """Return the specification that a printed command leads to."""
    words = shlex.split(command)
    assert words[:2] == ["batchlab", "run"]
    rest, settings = split_options(words[2:])
    if rest:
        assert rest[0] == "--seed"
        settings["seed"] = rest[1]
    return RunSpec.from_dict(merge(RunSpec().to_dict(), settings))


@pytest.mark.parametrize("name", WRITTEN)
def test_the_printed_command_reproduces_the_run(name: str) -> None:
    written = RunSpec.from_dict(WRITTEN[name])
    assert read_back(reproduce(written)) == written


@pytest.mark.parametrize(
    "policy",
    [
        {"kind": "vllm-v1", "enable_chunked_prefill": False, "max_num_seqs": 7},
        {"kind": "static", "max_seq_len": 100, "drop_finished": True, "release": "per-request"},
        {"kind": "window-enqueue", "max_wait_ms": 1e-3, "max_enqueued_batches": 2},
        Own(patience=2, hope=None),
    ],
    ids=str,
)
def test_the_printed_command_reproduces_the_policy(policy: object) -> None:
    written = RunSpec(policy=policy)
    assert read_back(reproduce(written)) == written


def test_only_what_differs_from_the_default_is_printed() -> None:
    assert reproduce(RunSpec()) == "batchlab run"
    assert reproduce(RunSpec(seed=3)) == "batchlab run --seed 3"
    command = reproduce(RunSpec(policy={"kind": "vllm-v1", "max_num_seqs": 7}))
    assert command == "batchlab run --policy.max-num-seqs 7"


def test_awkward_values_are_quoted() -> None:
    written = RunSpec(workload={"path": "my traces/it's.csv"})
    assert read_back(reproduce(written)) == written


def test_parameters_and_machine_in_one_line() -> None:
    assert parameters(RunSpec()) == "vllm-v1 (defaults)"
    policy = {"kind": "window-pull", "max_batch_size": 4, "max_wait_ms": 5}
    assert parameters(RunSpec(policy=policy)) == "window-pull (max_batch_size=4, max_wait_ms=5.0)"
    table = {"kind": "table", "gpu": "h200", "model": "qwen3-32b", "tp": 2}
    line = "qwen3-32b on 2 x h200 (table, engine profile generic)"
    assert machine(RunSpec(cost=table)) == line
    assert "generic" in machine(RunSpec())  # every result names its engine profile


def test_a_comparison_has_a_row_a_run_and_says_what_it_does_not_know() -> None:
    row = dict.fromkeys(COMPARISON, 1.25) | {"policy": "static", "unfinished": 3}
    rows = [row, row | {"policy": "none", "p99_ttft_ms": None, "slo_attainment": float("nan")}]
    heading, rule, *lines = comparison_text(pd.DataFrame(rows)).splitlines()
    assert heading.split()[0] == "policy"
    assert set(rule) == {"-", " "}
    assert [line.split()[0] for line in lines] == ["static", "none"]
    assert "n/a" not in lines[0]
    assert lines[1].split().count("n/a") == 2
    assert lines[0].split()[1:3] == ["1.25", "1.25"]
    assert lines[0].split()[-1] == "3"


def test_an_awkward_number_is_not_shown() -> None:
    assert [number(0.0), number(1234.56), number(None)] == ["0.0", "1234.6", "n/a"]
