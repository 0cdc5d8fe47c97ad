"""The timeline of requests: what it keeps of a run, and what it draws."""

import pytest

from simulator import RunSpec, simulate
from simulator.plots import new_axes
from simulator.plots.request_timeline import Schedule, request_timeline


@pytest.fixture
def schedule(tmp_path):
    """Static batches of two: A is held for B, D is rejected; then a preemption on a small cache."""

    def run(rows, policy, **engine):
        file = tmp_path / "trace.csv"
        file.write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *rows]) + "\n")
        data = {"workload": {"path": str(file), "format": "csv"}, "policy": policy}
        data |= {"cost": {"kind": "fixed", "step_ms": 1000}, "engine": engine}
        kept = Schedule()
        result = simulate(RunSpec.from_dict(data), observers=[kept], stepper="reference")
        return kept, result

    return run


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def test_every_token_of_a_run_has_its_place(schedule):
    policy = {"kind": "static", "max_batch_size": 2, "max_seq_len": 8}
    kept, result = schedule(["0,4,1", "0,2,3", "1,3,2", "1,9,2"], policy)
    assert sum(piece.tokens for piece in kept.pieces) == result.steps["useful_tokens"].sum()
    assert [p.tokens for p in kept.pieces if p.rid == 1] == [2, 1, 1]
    assert [p.is_prompt for p in kept.pieces if p.rid == 1] == [True, False, False]
    ax = request_timeline(kept)
    words = ["prompt", "decode", "held for its batch", "arrives", "rejected", "leaves"]
    assert labels(ax) == words
    assert [tick.get_text() for tick in ax.get_yticklabels()] == ["A", "B", "C", "D"]


def test_preemptions_are_marked_and_recomputation_counts_as_prompt(schedule):
    kept, _ = schedule(["0,6,8", "0,6,8"], {"kind": "vllm-v1"}, block_size=4, num_blocks=5)
    assert kept.preemptions == [(3.0, 1)]
    assert next(p for p in kept.pieces if p.rid == 1 and p.start == 8)[3:] == (9, True)
    assert "preempted" in labels(request_timeline(kept))


def test_it_draws_into_axes_at_hand_in_ms_with_names(schedule):
    kept, _ = schedule(["0,2,1"], {"kind": "none"})
    ax = new_axes()
    assert request_timeline(kept, ax, unit="ms", names={0: "A on 1"}) is ax
    assert ax.get_xlabel() == "Time (ms)"
    assert ax.get_xlim()[1] > 1000
    assert ax.get_yticklabels()[0].get_text() == "A on 1"


def test_nothing_that_arrived_is_an_empty_figure():
    assert request_timeline(Schedule()).get_ylabel() == "Request"
