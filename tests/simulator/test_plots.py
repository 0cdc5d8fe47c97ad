from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from simulator import Result, RunSpec, UserError, plots, simulate
from simulator.plots import sweep as plots_sweep
from tests.simulator.harness import run

ROWS = [(0, 4, 2), (0, 2, 5), (0, 3, 3), (1, 2, 2)]
UNITS = ("(ms)", "(s)", "(fraction)", "(tokens/s)", "Requests", "Fraction of")


@pytest.fixture(scope="module")
def results() -> list[Result]:
    """Static batches, continuous ones with a small cache, and a run without any event."""
    engine = {"block_size": 4, "num_blocks": 10}
    return [
        run(ROWS, {"kind": "static", "max_batch_size": 3}),
        run(ROWS, {"kind": "vllm-v1"}, engine=engine),
        run([(5, 1, 1)], {"kind": "none"}, measure={"horizon_s": 2.0}),
    ]


def frame(rows: int = 3) -> pd.DataFrame:
    table = pd.DataFrame(
        {
            "policy": ["static", "static", "none"],
            "request_rate": [1.0, 2.0, 1.0],
            "output_throughput": [10.0, 18.0, 9.0],
            "p99_ttft_ms": [100.0, 900.0, None],
        }
    )
    return table.head(rows)


def check(ax: Axes) -> None:
    assert isinstance(ax, Axes)
    for label in (ax.get_xlabel(), ax.get_ylabel()):
        assert any(unit in label for unit in UNITS), label
    assert isinstance(ax.figure, Figure)
    ax.figure.draw_without_rendering()


@pytest.mark.parametrize("latency", plots.LATENCIES)
def test_a_distribution_names_runs_units_and_samples(results: list[Result], latency: str) -> None:
    ax = plots.latency_cdf(results, latency, labels=["a", "b", "c"])
    check(ax)
    texts = [text.get_text().split(",")[0] for text in ax.get_legend().get_texts()]
    number = 8 if latency == "tbt" else 4
    assert texts == [f"a (n = {number})", f"b (n = {number})"]  # the empty run has no line


def test_zeros_that_a_logarithmic_axis_cannot_show_are_counted(results: list[Result]) -> None:
    legend = plots.latency_cdf(results[:1], "tbt").get_legend()
    assert legend.get_texts()[0].get_text() == "static (n = 8), 100% are 0"


def test_a_distribution_is_that_of_the_samples(results: list[Result]) -> None:
    (line,) = plots.latency_cdf([results[1]], "e2e").get_lines()
    assert sorted(set(line.get_xdata())) == [2000.0, 3000.0, 5000.0]
    assert line.get_ydata()[-1] == pytest.approx(1.0)


@pytest.mark.parametrize("what", plots.TIMELINES)
def test_a_timeline_has_a_line_a_run_and_units(results: list[Result], what: str) -> None:
    ax = plots.timeline(results[:2], what, labels=["a", "b"])
    check(ax)
    assert ax.get_xlabel() == "Time (s)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["a", "b"]


def test_a_timeline_averages_over_its_intervals(results: list[Result]) -> None:
    averages = {what: plots.binned(results[1], what, 4)[1].tolist() for what in plots.TIMELINES}
    # [0,1) prompts of 4, 2, 3 · [1,2) three decodes and the prompt of 2 · then 3, 1 and 1 decodes.
    held = [1 + 1 + 1, 2 + 1 + 1 + 1, 1 + 2 + 1, 2, 2]
    bounds = np.linspace(0, 5, 5)
    steps = np.arange(5)
    weights = np.clip(
        np.minimum(bounds[1:, None], steps + 1) - np.maximum(bounds[:-1, None], steps), 0, None
    )
    assert averages["utilisation"] == [1.0] * 4
    assert averages["num_waiting"] == [0.0] * 4
    assert averages["batch_size"] == pytest.approx(weights @ [3, 4, 3, 1, 1] / 1.25)
    assert averages["kv_usage"] == pytest.approx(weights @ held / 1.25 / 10)


@pytest.mark.parametrize("what", plots.GPU_TIMELINES)
def test_a_gpu_shows_how_much_of_its_peaks_it_reaches(results: list[Result], what: str) -> None:
    spec = RunSpec.from_dict({"workload": {"name": "demo-chat", "num_requests": 30}})
    result = simulate(spec)
    check(plots.timeline([result], what))
    edges, values = plots.binned(result, what, 7)
    mean = result.metrics[{"bandwidth": "bandwidth_utilisation"}.get(what, what)]
    assert 0 < mean < 1
    assert np.average(values, weights=np.diff(edges)) == pytest.approx(mean)
    assert len(plots.overview([result], [""], "GPU").axes) == 6
    with pytest.raises(UserError, match=f"{what}: the cost model 'fixed' has no GPU"):
        plots.timeline(results[:1], what)


def test_waiting_is_counted_until_the_first_step() -> None:
    result = run([(0, 1, 1), (0, 1, 1), (0.5, 1, 1), (3, 1, 1)], {"kind": "none"})
    edges, waiting = plots.binned(result, "num_waiting", 8)
    assert edges.tolist() == [0, 0.5, 1, 1.5, 2, 2.5, 3, 3.5, 4]
    assert waiting.tolist() == [1, 2, 1, 1, 0, 0, 0, 0]
    assert plots.binned(result, "utilisation", 8)[1].tolist() == [1] * 6 + [1, 1]


def test_every_plot_works_without_data(results: list[Result]) -> None:
    for latency in plots.LATENCIES:
        check(plots.latency_cdf([], latency))
        check(plots.latency_cdf(results[2:], latency))
    for what in plots.TIMELINES:
        check(plots.timeline([], what))
    check(plots_sweep.throughput_latency(frame(0), "p99_ttft_ms"))


@pytest.mark.parametrize("what", plots.TIMELINES)
def test_a_timeline_of_a_run_without_events_is_empty(results: list[Result], what: str) -> None:
    check(plots.timeline(results[2:], what))


def test_an_overview_of_nothing_is_a_figure() -> None:
    assert len(plots.overview([], [], "nothing").axes) == len(plots.TIMELINES)


def test_an_overview_has_one_title_one_legend_and_one_time_axis(results: list[Result]) -> None:
    figure = plots.overview(results[:2], ["a", "b"], "both")
    figure.draw_without_rendering()
    assert len(figure.axes) == len(plots.TIMELINES)
    assert [ax.get_title() for ax in figure.axes] == ["both", "", "", ""]
    assert [ax.get_legend() is not None for ax in figure.axes] == [True, False, False, False]
    assert [ax.get_ylabel() for ax in figure.axes] == list(plots.TIMELINES.values())
    assert figure.axes[-1].get_xlabel() == "Time (s)"


def test_throughput_and_latency_name_rates_and_policies() -> None:
    ax = plots_sweep.throughput_latency(frame(), "p99_ttft_ms")
    check(ax)
    assert ax.get_ylabel() == "P99 TTFT (ms)"
    assert [text.get_text() for text in ax.get_legend().get_texts()] == ["static", "none"]
    assert {text.get_text() for text in ax.texts} == {"1", "2"}


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("p99_ttft_ms", "P99 TTFT (ms)"),
        ("median_itl_ms", "Median TBT (ms)"),
        ("p99.9_e2el_ms", "P99.9 E2E (ms)"),
    ],
)
def test_metric_labels(key: str, label: str) -> None:
    assert plots_sweep.metric_label(key) == label


def test_given_axes_are_used_and_returned(results: list[Result]) -> None:
    axes = [plots.new_axes() for _ in range(3)]
    assert plots.latency_cdf(results[:1], "ttft", axes[0]) is axes[0]
    assert plots.timeline(results[:1], "batch_size", axes[1]) is axes[1]
    assert plots_sweep.throughput_latency(frame(), "p99_ttft_ms", axes[2]) is axes[2]
    assert results[0].plot_ttft(axes[0]) is results[0].plot_tbt(axes[0]) is axes[0]
    assert results[0].plot_timeline(ax=axes[1]) is axes[1]


def test_lines_can_be_told_apart_without_colour(results: list[Result]) -> None:
    styles = [
        (str(plots.line_style(i)["linestyle"]), plots.line_style(i)["color"]) for i in range(7)
    ]
    assert len({dash for dash, _ in styles}) == len({colour for _, colour in styles}) == 7


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_equal_figures_are_equal_files(results: list[Result], tmp_path: Path, ending: str) -> None:
    paths = [tmp_path / f"{name}.{ending}" for name in "ab"]
    for path in paths:
        plots.save(plots.overview(results[:2], ["a", "b"], "both"), path)
    first, second = (path.read_bytes() for path in paths)
    assert len(first) > 1000
    assert first == second


def test_an_unknown_quantity_is_the_users_error(results: list[Result]) -> None:
    with pytest.raises(UserError, match="'ttfb': expected one of ttft, tbt, e2e, queue"):
        plots.latency_cdf(results, "ttfb")
    with pytest.raises(UserError, match="'speed': expected one of batch_size, num_waiting"):
        plots.timeline(results, "speed")


def test_drawing_leaves_the_settings_of_others_alone(results: list[Result]) -> None:
    import matplotlib as mpl

    before = dict(mpl.rcParams)
    plots.overview(results[:1], ["a"], "one")
    assert dict(mpl.rcParams) == before


def test_a_notebook_shows_a_figure_without_pyplot() -> None:
    figure = plots.new_axes().figure
    assert getattr(figure, "_repr_png_")().startswith(b"\x89PNG")  # noqa: B009
