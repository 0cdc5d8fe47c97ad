"""Figures of the steps and requests of a run, on worked examples."""

import numpy as np
import pytest
from matplotlib.colors import to_hex

from simulator import Result, RunSpec, simulate
from simulator.lifelines import Lifelines, spans_of
from simulator.plots import requests as plots_requests
from simulator.plots import steps as plots_steps
from tests.simulator.harness import run

ROWS = [(0, 4, 2), (0, 2, 5), (0, 3, 3), (1, 2, 2)]
EMPTY = [(5, 1, 1)]


@pytest.fixture(scope="module")
def result() -> Result:
    return run(ROWS, {"kind": "vllm-v1"}, engine={"block_size": 4, "num_blocks": 10})


@pytest.fixture(scope="module")
def nothing() -> Result:
    """A run that is cut before anything happens."""
    return run(EMPTY, {"kind": "none"}, measure={"horizon_s": 2.0})


def test_counts_over_time(result: Result) -> None:
    ax = plots_steps.request_counts(result, bins=5)
    labels = [patch.get_label() for patch in ax.patches]
    assert labels == ["running", "waiting", "in the step"]
    assert ax.patches[0].get_data().values.tolist() == [3, 4, 3, 1, 1]


def test_steps_are_told_apart_by_kind(result: Result) -> None:
    ax = plots_steps.step_tokens(result)
    marks = {line.get_label(): line.get_xydata().tolist() for line in ax.get_lines()}
    # [0,1) prompts of 9 tokens · [1,2) three decodes and a prompt of 2 · then decodes
    assert marks == {"decode": [[2, 3], [3, 1]], "prefill": [[0, 9]], "mixed": [[1, 5]]}
    assert len({line.get_marker() for line in ax.get_lines()}) == 3


def test_of_many_steps_every_kth_is_drawn(result: Result, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plots_steps, "MOST_STEPS", 1)
    labels = [line.get_label() for line in plots_steps.step_tokens(result).get_lines()]
    assert labels == ["decode (every 2th)", "prefill", "mixed"]


def test_blocks_stand_beside_their_limit_and_preemptions(result: Result) -> None:
    ax = plots_steps.kv_blocks(result, preempted=[1.0, 2.0], bins=5)
    assert ax.patches[0].get_data().values.tolist() == [3, 5, 4, 2, 2]
    assert [line.get_label() for line in ax.get_lines()] == ["all 10", "preemption (2)"]


def test_batch_sizes_are_weighted_by_time(result: Result) -> None:
    (patch,) = plots_steps.batch_sizes([result]).patches
    assert patch.get_data().values.tolist() == pytest.approx([0.4, 0, 0.4, 0.2])


def test_arrivals_name_rate_and_variation(result: Result) -> None:
    (patch,) = plots_requests.arrivals([result], labels=["a"]).patches
    assert patch.get_label() == "a: 3/s, CV 1.41"


def test_a_row_a_request(result: Result) -> None:
    ax = plots_requests.request_gantt(result)
    bars = {(round(p.get_y() + p.get_height() / 2), p.get_x(), p.get_width()) for p in ax.patches}
    assert {(0, 0, 1), (0, 1, 1), (3, 1, 1), (3, 2, 1)} <= bars
    few = plots_requests.request_gantt(result, most=2)
    assert few.get_ylabel() == "Request number (first 2 of 4 to arrive)"


def test_the_parts_of_a_request_add_up_to_its_time(result: Result) -> None:
    parts = plots_requests.mean_phases(result, spans_of(result.tables))
    life = result.requests["finish_s"] - result.requests["arrival_s"]
    assert sum(parts.values()) == pytest.approx(life.mean())
    # requests 0, 1, 2 decode for a second beside the prompt of request 3
    assert parts["decode beside prompts"] == pytest.approx(3 / 4)
    ax = plots_requests.breakdown([result], labels=["a"])
    assert sum(patch.get_width() for patch in ax.patches) == pytest.approx(life.mean())


def test_parts_add_up_with_replicas_and_preemptions() -> None:
    workload = {"name": "azure-conv-2023", "num_requests": 80, "request_rate": 30}
    engine = {"num_blocks": 900, "num_replicas": 2}
    watch = Lifelines()
    data = {"workload": workload, "policy": "vllm-v1", "engine": engine}
    result = simulate(RunSpec.from_dict(data), observers=[watch])
    parts = plots_requests.mean_phases(result, spans_of(result.tables, watch))
    life = result.requests["finish_s"] - result.requests["arrival_s"]
    assert result.metrics["num_preemptions"] > 0
    assert parts["preempted"] > 0
    assert sum(parts.values()) == pytest.approx(life.mean())


def test_phases_can_be_told_apart_in_grey() -> None:
    def grey(colour: object) -> float:
        text = to_hex(colour)  # type: ignore[arg-type]
        red, green, blue = (int(text[i : i + 2], 16) for i in (1, 3, 5))
        return 0.299 * red + 0.587 * green + 0.114 * blue

    looks = [
        (look.get("hatch"), grey(look["facecolor"])) for look in plots_requests._LOOKS.values()
    ]
    for number, (hatch, shade) in enumerate(looks):
        for other, there in looks[number + 1 :]:
            assert hatch != other or abs(shade - there) > 40


def test_a_run_without_events_can_be_drawn(nothing: Result) -> None:
    drawn = [
        plots_steps.request_counts(nothing),
        plots_steps.step_tokens(nothing),
        plots_steps.kv_blocks(nothing),
        plots_steps.batch_sizes([nothing]),
        plots_requests.arrivals([nothing]),
        plots_requests.request_gantt(nothing),
        plots_requests.breakdown([nothing]),
    ]
    for ax in drawn:
        ax.figure.draw_without_rendering()
        assert np.isfinite(ax.get_xlim()).all()
