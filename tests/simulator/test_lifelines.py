"""What every request does and when: on worked examples, and as laws of any run."""

from itertools import pairwise

import pytest

from simulator import RunSpec, simulate
from simulator.lifelines import Lifelines, phase_table, spans_from, spans_of
from tests.simulator.harness import run

STATIC = {"kind": "static", "max_batch_size": 2}
ROWS = [(0, 4, 3), (0, 2, 1), (1, 3, 1)]


def phases(spans: dict[int, list], rid: int) -> list[tuple[str, float, float]]:
    return [tuple(span) for span in spans[rid]]


def test_a_batch_holds_what_is_done_until_its_end() -> None:
    watch = Lifelines()
    result = run(ROWS, STATIC, observers=[watch])
    spans = spans_of(result.tables, watch)
    assert phases(spans, 0) == [("prefill", 0, 1), ("decode", 1, 3)]
    assert phases(spans, 1) == [("prefill", 0, 1), ("held", 1, 3)]
    assert phases(spans, 2) == [("queued", 1, 3), ("prefill", 3, 4)]


def test_unwatched_batches_are_one_span() -> None:
    spans = spans_of(run(ROWS, STATIC).tables)
    assert phases(spans, 0) == [("batch", 0, 3)]


def test_a_preempted_request_shows_when_it_was_out() -> None:
    watch = Lifelines()
    engine = {"block_size": 4, "num_blocks": 5}
    policy = {"kind": "vllm-v0", "watermark": 0}
    result = run([(0, 6, 8), (0, 6, 8)], policy, engine=engine, observers=[watch])
    spans = spans_of(result.tables, watch)
    out = [span for span in spans[1] if span.phase == "preempted"]
    assert len(out) == result.metrics["num_preemptions"] == 1
    assert out[0].end == result.requests["finish_s"][0]
    assert [span.phase for span in spans[1]] == ["prefill", "decode", "preempted", "decode"]


def test_what_a_cut_run_leaves_undone_goes_on_to_its_end() -> None:
    result = run([(0, 1, 4), (1, 1, 1)], {"kind": "none"}, measure={"horizon_s": 2.5})
    spans = spans_of(result.tables)
    assert phases(spans, 0) == [("prefill", 0, 1), ("decode", 1, 3)]
    assert phases(spans, 1) == [("queued", 1, 3)]


SETTINGS = [
    {"policy": "vllm-v1", "engine": {"num_blocks": 900}},
    {"policy": {"kind": "static", "max_batch_size": 8}},
    {"policy": {"kind": "window-pull", "max_batch_size": 8, "release": "per-request"}},
    {"policy": "sarathi", "engine": {"num_replicas": 2, "num_blocks": 900}},
    {"policy": "vllm-v1", "engine": {"async_scheduling": True}},
]


@pytest.mark.parametrize("setting", SETTINGS)
def test_spans_fill_the_life_of_a_request_under_both_steppers(setting: dict) -> None:
    workload = {"name": "azure-conv-2023", "num_requests": 60, "request_rate": 16}
    spec = RunSpec.from_dict({"workload": workload, **setting})
    found = []
    for stepper in ("fast", "reference"):
        watch = Lifelines()
        result = simulate(spec, observers=[watch], stepper=stepper)
        requests = result.requests
        spans = spans_of(result.tables, watch)
        for row in requests.itertuples():
            life = spans[row.request_id]
            assert life[0].start == row.arrival_s
            assert life[-1].end == row.finish_s
            assert all(a.end == b.start for a, b in pairwise(life))
            queued = sum(s.end - s.start for s in life if s.phase == "queued")
            assert queued == row.first_scheduled_s - row.arrival_s
        found.append(spans)
    assert found[0] == found[1]
    table = phase_table(found[0], result.tables["requests"])
    assert spans_from(table) == found[0]
