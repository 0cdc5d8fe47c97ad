"""Whole runs: the composition root, and what simulators of this kind get wrong.

Each test below the first section is an account that has to balance, or a bound that physics sets,
checked on a run through the real engine under a policy that users choose.
"""

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator import Result, RunSpec, UserError, simulate
from simulator.clock import up_to_grid
from simulator.cost import StepWork, profile
from tests.simulator.harness import SECOND, Odd, Tokens, column, given, run, steps_of

POLICIES: dict[str, dict[str, Any]] = {
    "none": {"kind": "none"},
    "static": {"kind": "static", "max_batch_size": 4},
    "static, streaming": {"kind": "static", "max_batch_size": 4, "release": "per-request"},
    "window-pull": {"kind": "window-pull", "max_batch_size": 4, "max_wait_ms": 30},
    "window-enqueue": {"kind": "window-enqueue", "max_batch_size": 4, "max_wait_ms": 30},
    "vllm-v1": {"kind": "vllm-v1", "max_num_batched_tokens": 32, "max_num_seqs": 6},
    "vllm-v1, whole prompts": {
        "kind": "vllm-v1",
        "max_num_batched_tokens": 64,
        "enable_chunked_prefill": False,
    },
}
LINEAR = {"kind": "linear", "fixed_ms": 5, "per_decode_us": 700, "per_prefill_token_us": 300}
SYNTHETIC = {
    "arrivals": {"request_rate": 12, "cv": 2},
    "prompt_tokens": {"kind": "uniform", "low": 1, "high": 60},
    "output_tokens": {"kind": "uniform", "low": 1, "high": 30},
    "num_requests": 150,
}


def busy_run(policy: str, **sections: Any) -> Result:
    """Serve bursts with a KV cache that is too small at times (`vllm-v1` preempts)."""
    spec = {
        "workload": SYNTHETIC,
        "policy": POLICIES[policy],
        "cost": LINEAR,
        "engine": {"block_size": 4, "num_blocks": 40},
    }
    options = {name: sections.pop(name) for name in ("observers", "stepper") if name in sections}
    return simulate(RunSpec.from_dict(spec | sections), **options)


@pytest.fixture(scope="module", params=POLICIES)
def result(request: pytest.FixtureRequest) -> Result:
    return busy_run(request.param)


def done(result: Result, name: str, table: str = "requests") -> Any:
    """Return a column of the finished requests as an array."""
    return result.tables[table][name][result.tables["requests"]["state"] == "finished"]


def test_replications_differ_and_each_is_repeatable() -> None:
    spec = RunSpec(workload=SYNTHETIC, policy="none", cost=LINEAR)
    first, again, other = (simulate(spec, replication=number) for number in (0, 0, 1))
    assert first.metrics == again.metrics
    assert column(first, "arrival_s") != column(other, "arrival_s")
    assert column(first, "output_tokens") != column(other, "output_tokens")


def test_the_cost_stream_is_not_that_of_the_workload() -> None:
    spec = {"workload": SYNTHETIC, "policy": "none"}
    costs = LINEAR, {"kind": "exponential", "mean_ms": 9}
    fixed, random = (simulate(RunSpec.from_dict(spec | {"cost": cost})) for cost in costs)
    assert column(fixed, "arrival_s") == column(random, "arrival_s")
    assert fixed.trace.content_hash() == random.trace.content_hash()


def test_a_request_that_can_never_fit_the_cache_is_refused_by_name() -> None:
    engine = {"block_size": 4, "num_blocks": 3}
    assert run([(0, 9, 4)], "vllm-v1", engine=engine).metrics["completed"] == 1
    message = (
        r"request 1 \(prompt 9, output 5 tokens\) can never fit the KV cache of 3 blocks "
        r"of 4 tokens \(2 of 3 requests cannot\)"
    )
    with pytest.raises(UserError, match=message):
        run([(0, 9, 4), (0, 9, 5), (1, 13, 1)], "vllm-v1", engine=engine)


def test_a_context_beyond_that_of_the_model_is_refused() -> None:
    spec = {"engine": {"max_model_len": 10**6}, "cost": {"kind": "table"}}
    with pytest.raises(UserError, match=r"engine\.max_model_len: 1000000 exceeds the \d+ tokens"):
        simulate(RunSpec.from_dict(spec))


def test_a_trace_that_is_not_there_is_the_users_error() -> None:
    with pytest.raises(UserError, match=r"no such trace\.csv"):
        simulate(RunSpec(workload={"path": "no such trace.csv"}))


def test_the_caches_size_comes_from_the_machine_unless_it_is_given() -> None:
    workload = {"name": "demo-chat", "num_requests": 3}
    sizes = [
        simulate(RunSpec.from_dict({"workload": workload, **sections})).num_blocks
        for sections in ({}, {"engine": {"num_blocks": 999}}, {"cost": LINEAR})
    ]
    assert sizes[0] == RunSpec().cost.kv_capacity().num_blocks  # type: ignore[union-attr]
    assert sizes[1:] == [999, None]


def test_the_busy_time_is_the_sum_of_the_step_times() -> None:
    times: list[float] = []

    def seconds(work: StepWork) -> float:
        times.append(0.005 + 0.0007 * work.num_decodes + 0.0003 * work.num_tokens)
        return times[-1]

    result = busy_run("vllm-v1", cost=Odd(seconds=seconds))
    total = sum(up_to_grid(time) for time in times)
    assert sum(end - start for start, end in steps_of(result)) == total
    metrics = result.metrics
    assert metrics["busy_fraction"] * metrics["duration_s"] == pytest.approx(total, rel=1e-12)
    assert metrics["num_steps"] == len(times)
    assert metrics["mean_step_ms"] == pytest.approx(total / len(times) * 1e3)


def test_one_step_runs_at_a_time(result: Result) -> None:
    spans = list(steps_of(result))
    assert all(start < end for start, end in spans)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))


@pytest.mark.parametrize(
    ("policy", "rows"),
    [
        ({"kind": "none"}, 1),
        ({"kind": "static", "max_batch_size": 4}, 4),
        ({"kind": "window-pull", "max_batch_size": 4}, 4),
        ({"kind": "vllm-v1", "max_num_seqs": 4}, 4),
        ({"kind": "vllm-v1", "max_num_batched_tokens": 7}, 7),
    ],
)
def test_a_step_makes_at_most_one_token_a_row(policy: dict[str, Any], rows: int) -> None:
    """However fast one-token requests come, a machine of 1 s a step gives `rows` a second."""
    result = run([(i / 100, 1, 1) for i in range(105)], policy)
    assert result.metrics["request_throughput"] <= rows
    finishes, counts = np.unique(result.tables["requests"]["finish_s"], return_counts=True)
    assert counts.max() == rows
    assert result.metrics["num_steps"] == len(finishes) >= 105 / rows
    assert np.diff(finishes).min() >= 1.0


@pytest.mark.parametrize("policy", POLICIES)
def test_a_step_that_empties_the_server_keeps_it_busy_to_its_end(policy: str) -> None:
    times = iter([1.0, 0.5])
    rows = [(0, 8, 1), (0.25, 8, 1)]
    result = run(rows, POLICIES[policy], Odd(seconds=lambda work: next(times)))
    window = 0.03 if policy.startswith("window") else 0.0
    start = window + 1.0 if window else 1.0
    assert column(result, "first_scheduled_s")[1] >= start
    assert sum(end - begin for begin, end in steps_of(result)) == 1.5


@pytest.mark.parametrize("policy", POLICIES)
def test_the_first_token_and_all_gaps_make_the_whole_latency(policy: str) -> None:
    tokens = Tokens()
    result = busy_run(policy, observers=(tokens,), stepper="reference")
    states = column(result, "state")
    table = zip(
        *(column(result, f"{name}_s") for name in ("arrival", "first_token", "last_token")),
        column(result, "target_output_tokens"),
        strict=True,
    )
    pooled: dict[float, int] = {}
    for rid, (arrival, first, last, asked) in enumerate(table):
        times = tokens.times[rid]
        if states[rid] == "rejected":
            assert times == []
            continue
        gaps = [late - early for early, late in pairwise(times)]
        assert len(times) == asked
        assert (times[0], times[-1]) == (first, last)
        assert min(gaps, default=0) >= 0
        assert (first - arrival) + sum(gaps) == last - arrival  # grid times: to the last bit
        for gap in gaps:
            pooled[gap] = pooled.get(gap, 0) + 1
    recorded: dict[float, int] = {}
    gaps_table = zip(column(result, "gap_s", "gaps"), column(result, "count", "gaps"), strict=True)
    for gap, count in gaps_table:
        recorded[gap] = recorded.get(gap, 0) + count
    assert recorded == pooled


def test_the_busy_run_does_preempt() -> None:
    """Otherwise the accounts would not be put to the test."""
    metrics = busy_run("vllm-v1").metrics
    assert metrics["num_preemptions"] > 5
    assert metrics["recomputed_tokens"] > 50


def test_the_pooled_gaps_make_up_for_the_latencies(result: Result) -> None:
    gaps = result.tables["gaps"]
    spread = done(result, "last_token_s") - done(result, "first_token_s")
    assert (gaps["gap_s"] * gaps["count"]).sum() == spread.sum()
    assert gaps["count"].sum() == (done(result, "output_tokens") - 1).sum()


def test_every_token_asked_for_is_delivered_and_recomputed_ones_count_apart(
    result: Result,
) -> None:
    requests, steps = result.tables["requests"], result.tables["steps"]
    assert len(requests["request_id"]) == len(result.trace)
    assert done(result, "output_tokens").tolist() == done(result, "target_output_tokens").tolist()
    stored = done(result, "prompt_tokens") + done(result, "output_tokens") - 1
    again = requests["recomputed_tokens"].sum()
    assert steps["useful_tokens"].sum() == stored.sum() + again
    prompts = done(result, "prompt_tokens").sum()
    assert result.metrics["total_input_tokens"] == prompts
    assert result.metrics["total_output_tokens"] == done(result, "output_tokens").sum()
    assert (again > 0) == (result.metrics["num_preemptions"] > 0)


@pytest.mark.parametrize("policy", POLICIES)
def test_outputs_of_one_and_two_tokens(policy: str) -> None:
    rows = [(0, 5, 1), (10, 5, 2)]
    result = run(rows, POLICIES[policy])
    batched = POLICIES[policy]["kind"] not in ("none", "vllm-v1")
    batched = batched and POLICIES[policy].get("release") != "per-request"
    wait = 0.03 if "window" in policy else 0.0
    assert result.metrics["num_samples_tpot"] == 1  # undefined for a single token
    assert column(result, "count", "gaps") == [1]
    assert column(result, "gap_s", "gaps") == [0.0 if batched else 1.0]
    latencies = [end - row[0] for end, row in zip(column(result, "finish_s"), rows, strict=True)]
    assert latencies == pytest.approx([1 + wait, 2 + wait])
    assert column(result, "num_steps", "steps") == [1, 1, 1]


def test_no_prompt_is_shortened_in_silence() -> None:
    laws = {"arrivals": 5, "prompt_tokens": {"kind": "uniform", "low": 1, "high": 100}}
    laws |= {"output_tokens": 20, "num_requests": 50}
    spec = {"workload": laws, "policy": "none", "cost": SECOND, "engine": {"max_model_len": 60}}
    with pytest.raises(UserError, match=r"20 output tokens, expected at most max_model_len 60"):
        simulate(RunSpec.from_dict(spec))
    free = simulate(RunSpec.from_dict(spec | {"engine": {}}))
    long = np.array(column(free, "prompt_tokens")) > 40
    number, lost = int(long.sum()), int((np.array(column(free, "prompt_tokens"))[long] - 40).sum())
    assert 5 < number < 45
    found = {}
    for how in ("drop", "clip"):
        workload = laws | {"on_overlong": how}
        result = simulate(RunSpec.from_dict(spec | {"workload": workload}))
        found[how] = result
        (account,) = result.manifest()["workload"]["transforms"]
        assert (account["name"], account["how"]) == ("limit_context", how)
        assert account["too_long"] == number
    dropped, clipped = found["drop"], found["clip"]
    assert dropped.metrics["num_requests"] == 50 - number
    assert dropped.manifest()["workload"]["dropped"] == {"limit_context": number}
    assert clipped.metrics["num_requests"] == 50
    assert max(column(clipped, "prompt_tokens")) == 40
    assert clipped.manifest()["workload"]["transforms"][0]["tokens_lost"] == lost


@pytest.mark.parametrize("policy", POLICIES)
def test_unfinished_requests_stay_in_the_statistics(policy: str) -> None:
    whole = busy_run(policy)
    half = column(whole, "arrival_s")[-1] / 2
    cut = busy_run(policy, measure={"horizon_s": half, "goodput": {"e2el_ms": 1e9}})
    metrics = cut.metrics
    arrived = sum(time < half for time in column(whole, "arrival_s"))
    assert metrics["num_requests"] == arrived
    assert metrics["unfinished"] > 0
    assert metrics["completed"] + metrics["rejected"] + metrics["unfinished"] == arrived
    assert metrics["slo_attainment"] == metrics["completed"] / arrived
    assert any("were not finished" in warning for warning in cut.warnings)
    # Up to the cut, the same things happened.
    before = [time if time < half else None for time in column(whole, "finish_s")][:arrived]
    found = [None if np.isnan(time) else time for time in column(cut, "finish_s")]
    assert found == before


def test_a_cost_profile_is_known_by_its_data_not_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spec = RunSpec(workload={"name": "demo-chat", "num_requests": 5}, cost={"kind": "table"})
    files = profile.DATA_DIRECTORY
    plain = simulate(spec).metrics
    monkeypatch.setattr(profile, "DATA_DIRECTORY", tmp_path)
    (tmp_path / "h100.npz").write_bytes((files / "h100.npz").read_bytes())
    assert simulate(spec).metrics == plain
    (tmp_path / "h100.npz").write_bytes((files / "l40s.npz").read_bytes())
    assert simulate(spec).metrics["mean_step_ms"] > 1.5 * plain["mean_step_ms"]
    (tmp_path / "h100.npz").write_bytes((files / "h100.npz").read_bytes())
    assert simulate(spec).metrics == plain


@pytest.mark.parametrize(
    ("arrivals", "cv"),
    [
        ({"request_rate": 8}, 1.0),
        ({"request_rate": 0.02, "kind": "gamma", "cv": 2.5}, 2.5),
        ({"request_rate": 300, "kind": "gamma", "burstiness": 4}, 0.5),
        ({"request_rate": 8, "kind": "deterministic"}, 0.0),
    ],
    ids=["poisson", "bursty", "smooth", "deterministic"],
)
def test_the_offered_load_is_the_one_asked_for(arrivals: dict[str, Any], cv: float) -> None:
    number = 6000
    rate = arrivals["request_rate"]
    workload = {"arrivals": arrivals, "num_requests": number}
    workload |= {"prompt_tokens": 1, "output_tokens": 1}
    cost = {"kind": "fixed", "step_ms": 0.1 / rate}
    result = simulate(RunSpec(workload=workload, policy="vllm-v1", cost=cost))
    metrics = result.metrics
    assert metrics["request_rate"] == rate
    assert metrics["realised_rate"] == pytest.approx(rate, rel=4 * cv / number**0.5 + 1e-6)
    gaps = np.diff(result.tables["requests"]["arrival_s"])
    # The variance of a sample CV of gamma gaps is about cv²(1/2 + cv²)/n (for Poisson 3/2 by this
    # bound, in truth 1).
    bound = 4 * cv * ((0.5 + cv**2) / number) ** 0.5
    assert gaps.std() / gaps.mean() == pytest.approx(cv, abs=bound + 1e-6)
    assert metrics["request_throughput"] == pytest.approx(metrics["realised_rate"], rel=0.01)


def test_a_preempted_request_is_not_lost_and_keeps_its_place() -> None:
    engine = {"block_size": 4, "num_blocks": 5}
    rows = [(0, 6, 8), (0, 6, 8), (5, 1, 1)]
    spec = RunSpec(workload=given(rows), policy="vllm-v1", cost=SECOND, engine=engine)
    result = simulate(spec)
    # As in the manual: A alone to 8, then B from 8 to 13. The late request fits beside A, but
    # stands behind B.
    assert column(result, "finish_s") == [8.0, 13.0, 9.0]
    assert column(result, "num_preemptions") == [0, 1, 0]
