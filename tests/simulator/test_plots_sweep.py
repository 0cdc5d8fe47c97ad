"""Figures over sweeps, on tables whose answers are plain to see."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from simulator import UserError
from simulator.experiments.paired import difference, differences, parameters, verdict, with_variant
from simulator.plots.heat import heat_map
from simulator.plots.sweep import TOKENS_PER_USER, against_rate, overview, pareto

NOISE = (-1.0, 0.0, 1.0)
"""What the seeds add."""


def loads() -> pd.DataFrame:
    """Two policies at three rates: `fast` beats `slow` by a constant."""
    rows = [
        {
            "policy": policy,
            "request_rate": rate,
            "replication": seed,
            "num_requests": 10,
            "output_throughput": 100.0 * rate - (50 if policy == "slow" else 0),
            "p99_ttft_ms": (10.0 if policy == "fast" else 40.0) * rate + NOISE[seed],
            "p99_itl_ms": 0.0 if policy == "slow" else 5.0,
            "p99_e2el_ms": (100.0 if policy == "fast" else 400.0) * rate,
            "median_norm_ms": 10.0 * rate if policy == "fast" else 20.0 * rate,
            "request_goodput": rate * 0.9,
            "slo_attainment": 0.9,
        }
        for policy, rate, seed in product(("slow", "fast"), (1.0, 2.0, 4.0), range(3))
    ]
    return pd.DataFrame(rows)


def grid() -> pd.DataFrame:
    rows = [
        {
            "max_wait_ms": wait,
            "max_batch_size": size,
            "policy": "window-pull",
            "replication": seed,
            "num_requests": 10,
            "p99_e2el_ms": 100.0 + 2 * wait - size + (1 + seed) * NOISE[seed] * noise,
        }
        for wait, (size, noise), seed in product((0.0, 50.0), ((1, 0.1), (4, 10.0)), range(3))
    ]
    return pd.DataFrame(rows)


def test_a_line_a_policy_with_a_band_over_the_seeds() -> None:
    ax = against_rate(loads(), "p99_ttft_ms", objective=50.0)
    assert [line.get_label() for line in ax.get_lines()] == ["slow", "fast", "objective"]
    assert ax.get_lines()[0].get_xdata().tolist() == [1.0, 2.0, 4.0]
    assert ax.get_lines()[1].get_ydata().tolist() == pytest.approx([10.0, 20.0, 40.0])
    assert len(ax.collections) == 2
    assert ax.get_yscale() == "log"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("Offered rate (requests/s)", "P99 TTFT (ms)")


def test_latencies_of_zero_are_said_and_not_drawn() -> None:
    ax = against_rate(loads(), "p99_itl_ms")
    slow = ax.get_lines()[0]
    assert slow.get_label() == "slow: 0"
    assert np.isnan(slow.get_ydata()).all()


def test_the_attainment_has_its_usual_lines() -> None:
    heights = [line.get_ydata()[0] for line in against_rate(loads(), "slo_attainment").get_lines()]
    assert heights[-2:] == [0.9, 0.99]


def test_the_front_is_what_no_point_beats() -> None:
    ax = pareto(loads(), "p99_e2el_ms")
    front = ax.get_lines()[-1]
    assert front.get_label() == "front"
    assert list(front.get_xdata()) == [100.0, 200.0, 400.0]
    assert list(front.get_ydata()) == [100.0, 200.0, 400.0]
    assert [text.get_text() for text in ax.texts] == ["1", "2", "4"]


def test_speed_for_a_user_is_better_when_higher() -> None:
    ax = pareto(loads(), TOKENS_PER_USER, num_gpus=2)
    front = ax.get_lines()[-1]
    assert list(front.get_xdata()) == [25.0, 50.0, 100.0]
    assert list(front.get_ydata()) == [200.0, 100.0, 50.0]
    assert ax.get_ylabel() == "Output token throughput per GPU (tokens/s)"


def test_labels_do_not_lie_on_each_other() -> None:
    frame = loads().assign(p99_e2el_ms=lambda table: 100 + table["request_rate"] / 100)
    assert len(pareto(frame, "p99_e2el_ms").texts) == 3  # apart in throughput
    frame = frame.assign(output_throughput=lambda table: 100 + table["request_rate"] / 100)
    far = frame.head(1).assign(p99_e2el_ms=9e4, output_throughput=1.0, replication=0, policy="x")
    assert len(pareto(pd.concat([frame, far]), "p99_e2el_ms").texts) == 1


def test_a_heat_map_frames_the_best_and_hatches_what_seeds_leave_open() -> None:
    ax = heat_map(grid())
    assert [text.get_text() for text in ax.texts] == ["99.1", "199", "103", "203"]
    hatched = [patch.get_xy() for patch in ax.patches if patch.get_hatch()]
    (frame,) = [patch.get_xy() for patch in ax.patches if not patch.get_hatch()]
    assert frame == (-0.5, -0.5)
    assert hatched == [(-0.5, 0.5)]
    assert ax.get_title(loc="left") == "P99 E2E (ms); frame: best, hatched: not told from it"
    assert [label.get_text() for label in ax.get_xticklabels()] == ["0", "50"]


def test_a_heat_map_parts_what_meets_an_objective_from_what_does_not() -> None:
    ax = heat_map(grid(), objective=150.0)
    lines = sorted(tuple(map(tuple, line.get_xydata())) for line in ax.get_lines())
    assert lines == [((0.5, -0.5), (0.5, 0.5)), ((0.5, 0.5), (0.5, 1.5))]
    hatched = [patch.get_xy() for patch in ax.patches if patch.get_hatch()]
    assert hatched == [(-0.5, 0.5)]  # the noisy one


def test_cells_without_a_value_say_so() -> None:
    frame = grid()
    frame.loc[frame["max_wait_ms"] == 50, "p99_e2el_ms"] = None
    assert [text.get_text() for text in heat_map(frame).texts].count("n/a") == 2


def test_one_call_draws_a_sweep() -> None:
    figure = overview(loads(), "title")
    figure.draw_without_rendering()
    assert len(figure.axes) == 4


def test_a_missing_column_is_named() -> None:
    with pytest.raises(UserError, match="'p999_ttft_ms': the table of runs has no such column"):
        against_rate(loads(), "p999_ttft_ms")


def test_differences_are_paired_by_seed_and_load() -> None:
    frame = loads()
    assert parameters(frame) == ["policy", "request_rate"]
    assert with_variant(frame)["variant"].unique().tolist() == ["slow", "fast"]
    found = list(differences(frame, ["p99_ttft_ms"]))
    assert [(d.load, d.variant, d.verdict) for d in found] == [
        ((rate,), "fast", "better") for rate in (1.0, 2.0, 4.0)
    ]
    # the seeds add the same to both, so the difference has no spread
    assert found[0].relative == pytest.approx((-30 / 40,) * 3)


def test_verdicts() -> None:
    assert verdict((0.0, 0.0, 0.0), "p99_ttft_ms") == "equal"
    assert verdict((0.1, None, None), "p99_ttft_ms") == "one seed"
    assert verdict((None, None, None), "p99_ttft_ms") == "n/a"
    assert verdict((0.1, 0.05, 0.2), "request_goodput") == "better"
    rows = grid()
    nothing = rows.assign(p99_e2el_ms=None)
    assert difference(nothing, rows, "p99_e2el_ms") == (None, None, None)
    assert difference(rows, rows.assign(p99_e2el_ms=0.0), "p99_e2el_ms") == (None, None, None)
