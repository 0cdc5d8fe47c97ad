"""The fast stepper is the reference stepper: same decisions, same tables, to the last bit."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from policies import POLICIES, PolicySpec
from policies.base import Machine
from simulator.engine import Engine
from simulator.fastforward import FastEngine
from simulator.observer import Observer
from simulator.recorder import DecisionLog, TableRecorder
from simulator.run import simulate
from simulator.spec import RunSpec
from tests.simulator.leaving import serve
from tests.strategies import TICK, Scenario, scenarios
from workloads.request import RequestSpec

BATCH = {
    "max_batch_size": st.integers(1, 5),
    "max_seq_len": st.sampled_from([None, 40, 64]),
    "drop_finished": st.booleans(),
    "release": st.sampled_from(["per-batch", "per-request"]),
}
BUDGETS = st.sampled_from(
    [
        "fixed",
        "fixed",
        {
            "kind": "ascend-table",
            "slo_ms": 150,
            "ctx_lens": [4, 16, 32],
            "d_nums": [1, 2, 4],
            "chunk_sizes": [2, 6, 20],
        },
        {"kind": "ascend-table", "slo_ms": 120, "on_miss": "default", "d_nums": [1, 4]},
        {"kind": "model-predictive", "tpot_slo_ms": 150, "min_chunk": 2},
    ]
)
ORDERS = (
    "fcfs",
    "priority",
    {"kind": "sjf", "predictor": "noisy-oracle"},
    {"kind": "sjf", "predictor": "class-mean", "work": "output-tokens"},
    "srpt",
    {"kind": "srpt", "predictor": "noisy-oracle"},
    {"kind": "edf", "ttft_slo_ms": 500, "tpot_slo_ms": 100},
    {"kind": "edf", "ttft_slo_ms": 500, "tpot_slo_ms": 100, "preemptive": True},
)
PARAMETERS = {
    "none": {},
    "static": BATCH,
    "window-pull": BATCH | {"max_wait_ms": st.sampled_from([0, 250, 1500])},
    "window-enqueue": BATCH
    | {
        "max_wait_ms": st.sampled_from([0, 250, 1500]),
        "max_enqueued_batches": st.sampled_from([1, 3, 100]),
    },
    "window-freeze": BATCH | {"max_wait_ms": st.sampled_from([0, 250, 1500])},
    "triton": BATCH
    | {
        "max_batch_size": st.integers(3, 5),
        "preferred_batch_size": st.sampled_from([[], [2], [1, 3]]),
        "max_queue_delay_microseconds": st.sampled_from([0, 250_000, 1_500_000]),
        "max_queue_size": st.sampled_from([0, 2, 100]),
        "default_timeout_microseconds": st.sampled_from([0, 200_000, 900_000]),
        "timeout_action": st.sampled_from(["REJECT", "DELAY"]),
    },
    "clipper-aimd": BATCH
    | {"slo_ms": st.sampled_from([30, 400, 3000]), "max_wait_ms": st.sampled_from([0, 250])},
    "orca": {
        "max_bs": st.integers(1, 8),
        "n_slots": st.sampled_from([None, 20, 45]),
    },
    "vllm-v0": {
        "max_num_seqs": st.integers(1, 8),
        "watermark": st.sampled_from([0.01, 0.2]),
        "scheduler_delay_factor": st.sampled_from([0, 0.5, 3]),
        "preemption_mode": st.sampled_from(["recompute", "swap"]),
    },
    "sarathi": {
        "chunk_size": st.sampled_from([1, 6, 30, 512]),
        "max_num_seqs": st.integers(1, 8),
        "watermark": st.sampled_from([0.01, 0.2]),
        "budget": BUDGETS,
    },
    "vllm-v1": {
        "max_num_batched_tokens": st.sampled_from([3, 8, 32, 2048]),
        "max_num_seqs": st.integers(1, 8),
        "long_prefill_token_threshold": st.sampled_from([0, 2, 5]),
        "watermark": st.sampled_from([0.0, 0.2]),
        "scheduler_reserve_full_isl": st.booleans(),
        "order": st.sampled_from(ORDERS),
        "budget": BUDGETS,
        "decodes_first": st.sampled_from([None, False, True]),
    },
}
ROUTERS = [
    {"kind": "round-robin"},
    {"kind": "random"},
    {"kind": "least-outstanding", "count": "tokens"},
    {"kind": "power-of-two", "refresh_interval_ms": 50.0},
]
COSTS = (
    {"kind": "fixed", "step_ms": 100},
    {"kind": "linear", "fixed_ms": 50, "per_decode_us": 1000, "per_prefill_token_us": 7000},
    {"kind": "exponential", "mean_ms": 100},
    {"kind": "table"},
)


@st.composite
def runs(draw: st.DrawFn) -> RunSpec:
    """Return a small run under any built-in policy."""
    kind = draw(st.sampled_from(sorted(PARAMETERS)))
    policy = {"kind": kind} | {key: draw(law) for key, law in PARAMETERS[kind].items()}
    step = policy.get("chunk_size", policy.get("max_num_batched_tokens", 16))
    lengths = st.sampled_from(
        [{"kind": "uniform", "low": 1, "high": 20}, 1, 2, {"kind": "uniform", "low": 1, "high": 4}]
    )
    return RunSpec.from_dict(
        {
            "workload": draw(asked(draw(lengths), draw(lengths))),
            "policy": policy,
            "engine": {
                "block_size": draw(st.sampled_from([size for size in (1, 3, 16) if size <= step])),
                "num_blocks": draw(st.sampled_from([64, 90, 10_000])),
                "num_replicas": draw(st.sampled_from([1, 1, 1, 2, 3])),
                "router": draw(st.sampled_from(ROUTERS)),
                "enable_prefix_caching": draw(st.sampled_from([False, False, False, True])),
            },
            "cost": draw(st.sampled_from(COSTS)),
            "measure": {"horizon_s": draw(st.sampled_from([None, 1.7, 12.0]))},
            "seed": draw(st.integers(0, 2**16)),
        }
    )


@st.composite
def asked(draw: st.DrawFn, prompt_tokens: object, output_tokens: object) -> dict[str, object]:
    """Return an open or a closed workload."""
    number = draw(st.integers(1, 25))
    workload = {
        "prompt_tokens": prompt_tokens,
        "output_tokens": output_tokens,
        "num_requests": number,
    }
    if draw(st.sampled_from([False, False, True])):
        users = draw(st.integers(1, min(number, 6)))
        think = draw(st.sampled_from([0, 0.3, {"kind": "exponential", "mean_s": 1.0}]))
        return workload | {"kind": "closed", "num_users": users, "think_s": think}
    arrivals = {
        "kind": "gamma",
        "request_rate": draw(st.sampled_from([0.2, 2, 20])),
        "cv": draw(st.sampled_from([0.5, 3])),
    }
    return workload | {"arrivals": arrivals, "max_concurrency": draw(st.sampled_from([None, 2]))}


def assert_same(spec: RunSpec) -> None:
    """Run both steppers and compare everything they leave."""
    logs = {"reference": DecisionLog(), "fast": DecisionLog()}
    results = {
        stepper: simulate(spec, observers=[log], stepper=stepper) for stepper, log in logs.items()
    }
    assert logs["fast"].lines == logs["reference"].lines
    results["unwatched"] = simulate(spec)  # with nobody to tell, decisions are left out
    reference = results.pop("reference")
    for stepper, result in results.items():
        for name, columns in reference.tables.items():
            for column, expected in columns.items():
                found = result.tables[name][column]
                assert found.tobytes() == expected.tobytes(), f"{stepper}: {name}.{column}"
        assert result.metrics == reference.metrics


@settings(deadline=None, derandomize=True, max_examples=150)
@given(spec=runs())
def test_both_steppers_leave_the_same_bytes(spec: RunSpec) -> None:
    assert_same(spec)


@settings(deadline=None, derandomize=True, max_examples=80)
@given(
    scenario=scenarios(),
    kind=st.sampled_from(sorted(PARAMETERS)),
    leaving=st.lists(st.tuples(st.integers(0, 250), st.integers(0, 7)), max_size=4),
    data=st.data(),
)
def test_both_steppers_let_clients_go_away(
    scenario: Scenario, kind: str, leaving: list[tuple[int, int]], data: st.DataObject
) -> None:
    drawn = {key: data.draw(law, label=key) for key, law in PARAMETERS[kind].items()}
    policy = RunSpec.from_dict({"policy": {"kind": kind} | drawn}).policy
    known = [(ticks * TICK, rid) for ticks, rid in leaving if rid < len(scenario.rows)]
    reference, fast = (by_hand(engine, scenario, policy, known) for engine in (Engine, FastEngine))
    assert fast == reference
    assert by_hand(FastEngine, scenario, policy, known, watched=False)[1:] == reference[1:]


def by_hand(
    kind: type[Engine],
    scenario: Scenario,
    policy: PolicySpec,
    leaving: list[tuple[float, int]],
    watched: bool = True,
) -> tuple[object, ...]:
    """Run a scenario whose clients go away at times; return everything it leaves."""
    rows = [RequestSpec(rid, *row) for rid, row in enumerate(scenario.rows)]
    log, recorder = DecisionLog(), TableRecorder([row.output_tokens for row in rows])
    known = [(time, rid) for time, rid in leaving if time >= rows[rid].arrival]
    cost = scenario.cost.build(np.random.default_rng(0))
    blocks = scenario.num_blocks, scenario.block_size
    observers = (log, recorder) if watched else (recorder,)
    _, end = serve(kind, rows, policy, cost, known, *blocks, 60, observers)
    tables = recorder.tables()
    columns = [column.tobytes() for table in tables.values() for column in table.values()]
    return log.lines, columns, end


@st.composite
def conversations(draw: st.DrawFn) -> RunSpec:
    """Return turns of conversations that find their past, or some of it, in a scarce cache."""
    kind = draw(st.sampled_from(["vllm-v1"] * 25 + sorted(PARAMETERS)))
    policy = {"kind": kind} | {key: draw(law) for key, law in PARAMETERS[kind].items()}
    workload = {
        "kind": "conversations",
        "arrivals": draw(st.sampled_from([0.5, 20])),
        "turns": draw(st.integers(2, 4)),
        "first_prompt": {"kind": "uniform", "low": 20, "high": 60},
        "new_tokens": {"kind": "uniform", "low": 1, "high": 30},
        "output_tokens": {"kind": "uniform", "low": 1, "high": 25},
        "think_s": draw(st.sampled_from([0, 0.7])),
        "num_conversations": draw(st.integers(2, 9)),
        "system": draw(st.sampled_from([None, {"count": 2, "tokens": 40}])),
    }
    block_size = draw(st.sampled_from([1, 4, 16]))
    engine = {
        "block_size": block_size,
        "num_blocks": draw(st.sampled_from([320, 480, 1600])) // block_size,
        "enable_prefix_caching": True,
    }
    sections = {"workload": workload, "policy": policy, "engine": engine}
    seed, cost = draw(st.integers(0, 99)), draw(st.sampled_from(COSTS))
    spec = RunSpec.from_dict(sections | {"cost": cost, "seed": seed})
    assume(spec.policy.refusal(Machine(block_size=block_size)) is None)
    return spec


@settings(deadline=None, derandomize=True, max_examples=50)
@given(spec=conversations())
def test_both_steppers_find_the_same_prefixes(spec: RunSpec) -> None:
    assert_same(spec)


def test_every_policy_is_covered() -> None:
    assert set(PARAMETERS) == {policy.model_fields["kind"].default for policy in POLICIES}


@pytest.mark.parametrize("policy", sorted(PARAMETERS))
def test_steppers_agree_on_a_preset(policy: str) -> None:
    spec = RunSpec.from_dict(
        {
            "workload": {"name": "azure-conv-2023", "num_requests": 80, "request_rate": 3},
            "policy": policy,
        }
    )
    assert_same(spec)


def test_steppers_agree_when_blocks_are_scarce() -> None:
    spec = RunSpec.from_dict(
        {
            "workload": {"name": "azure-conv-2023", "num_requests": 250, "request_rate": 8},
            "policy": {"kind": "vllm-v1", "max_num_batched_tokens": 512},
            "engine": {"num_blocks": 700},
        }
    )
    assert_same(spec)
    assert simulate(spec).metrics["num_preemptions"] > 20


@pytest.mark.parametrize("policy", ["vllm-v1", "sarathi"])
def test_steppers_agree_on_prompts_of_many_pieces(policy: str) -> None:
    limit = {"vllm-v1": "max_num_batched_tokens", "sarathi": "chunk_size"}[policy]
    spec = RunSpec.from_dict(
        {
            "workload": {"name": "arxiv-4k", "num_requests": 40, "request_rate": 0.7},
            "policy": {"kind": policy, limit: 256},
        }
    )
    assert_same(spec)
    count = Count()
    steps = simulate(spec, observers=[count]).tables["steps"]
    assert count.calls < 0.5 * len(steps["start_s"]), "pieces of a prompt follow without a decision"


class Count(Observer):
    """Counts decisions."""

    calls = 0

    def on_decision(self, *args: object) -> None:
        self.calls += 1


def test_the_fast_stepper_asks_the_policy_and_the_machine_less_often() -> None:
    counts = {"fast": Count(), "reference": Count()}
    spec = RunSpec.from_dict({"workload": {"name": "demo-chat", "num_requests": 100}})
    steps = 0
    for stepper, count in counts.items():
        steps = simulate(spec, observers=[count], stepper=stepper).metrics["num_steps"]
    assert counts["reference"].calls >= steps
    assert counts["fast"].calls < 4 * 100
    assert np.isfinite(steps)
