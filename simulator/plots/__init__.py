"""Figures. Every function takes an `ax` (None: a new one), draws into it and returns it.

Lines differ in dash pattern and marker as well as colour, so that they can be told apart in print.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from io import BytesIO
from pathlib import Path
from pkgutil import iter_modules
from types import ModuleType
from typing import IO, TYPE_CHECKING, Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.ticker import LogLocator, NullFormatter

from simulator.cost import TableSpec
from simulator.errors import UserError
from simulator.series import binned
from simulator.stats import Floats
from simulator.whole_file import whole_file

if TYPE_CHECKING:
    from simulator.result import Result

STYLE: dict[str, Any] = {
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": "medium",
    "figure.constrained_layout.use": True,
    "figure.dpi": 100,
    "font.size": 9,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "lines.linewidth": 1.5,
    "savefig.dpi": 150,
    "svg.hashsalt": "batchlab",
}
"""Settings of all figures."""

LATENCIES = {
    "ttft": ("Time to first token (ms)", "ttft_s"),
    "tbt": ("Time between tokens (ms)", ""),
    "e2e": ("End-to-end latency (ms)", "e2e_s"),
    "queue": ("Queueing delay (ms)", "queue_s"),
}
"""Latency name to axis label and column of the requests table."""

TIMELINES = {
    "batch_size": "Requests in the step",
    "num_waiting": "Requests waiting",
    "kv_usage": "KV blocks used (fraction)",
    "utilisation": "GPU busy (fraction)",
}
"""Quantity over time to axis label."""

GPU_TIMELINES = {
    "mfu": "Peak FLOP/s reached (fraction)",
    "bandwidth": "Memory bandwidth used (fraction)",
}
"""The same for what only a GPU as the cost model has."""

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_DASHES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS = ("o", "s", "^", "D", "v", "P", "X")


def __getattr__(name: str) -> ModuleType:
    """Load a module of further figures when it is asked for, such as `plots.sweep`."""
    if name in {module.name for module in iter_modules(__path__)}:
        return import_module(f"{__name__}.{name}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


@contextmanager
def style() -> Iterator[None]:
    """Apply the settings of all figures for a while."""
    with mpl.rc_context(STYLE):  # type: ignore[arg-type]  # keys are checked by matplotlib
        yield


class ShownFigure(Figure):
    """A figure that a notebook shows as it is, whether or not pyplot is in use."""

    def _repr_png_(self) -> bytes:
        file = BytesIO()
        with style():
            self.savefig(file, format="png")
        return file.getvalue()


def new_figure(width: float, height: float) -> Figure:
    """Return an empty figure, in inches; no window is opened."""
    with style():
        figure = ShownFigure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def new_axes(width: float = 6.0, height: float = 3.6) -> Axes:
    """Return empty axes on a figure of their own, in inches; no window is opened."""
    with style():
        return new_figure(width, height).add_subplot()


def marker(number: int) -> str:
    """Return the marker of the n-th line."""
    return _MARKERS[number % len(_MARKERS)]


def line_style(number: int) -> dict[str, Any]:
    """Return colour and dash pattern of the n-th line."""
    return {
        "color": _COLOURS[number % len(_COLOURS)],
        "linestyle": _DASHES[number % len(_DASHES)],
    }


def latency_cdf(
    results: "Sequence[Result]",
    latency: str = "ttft",
    ax: Axes | None = None,
    labels: Sequence[str] = (),
) -> Axes:
    """Draw the cumulative distribution of a latency, one line a result.

    Parameters
    ----------
    results : sequence of Result
    latency : {"ttft", "tbt", "e2e", "queue"}
    ax : matplotlib.axes.Axes, optional
    labels : sequence of str
        Names of the lines; policy names if empty.
    """
    label, column = choose(LATENCIES, latency)
    ax = ax or new_axes()
    for number, (name, result) in enumerate(named(results, labels)):
        values, counts = _samples(result, column)
        if not len(values):
            continue
        legend = f"{name} (n = {int(counts.sum()):,})"
        zeros = counts[values <= 0].sum() / counts.sum()
        if zeros:
            legend += f", {zeros:.0%} are 0"
        look = line_style(number)
        if zeros == 1:
            ax.plot([], [], label=legend, **look)
        else:
            thin(ax.ecdf(positive(values * 1e3), weights=counts, label=legend, **look))
    ax.set_xscale("log")
    tidy(ax.xaxis)
    ax.set_xlabel(label)
    ax.set_ylabel("Fraction of tokens" if latency == "tbt" else "Fraction of requests")
    ax.set_ylim(0, 1.01)
    add_legend(ax)
    return ax


def timeline(
    results: "Sequence[Result]",
    what: str = "batch_size",
    ax: Axes | None = None,
    labels: Sequence[str] = (),
    bins: int = 200,
) -> Axes:
    """Draw a quantity over time, averaged over equal intervals, one line a result.

    Parameters
    ----------
    results : sequence of Result
    what : {"batch_size", "num_waiting", "kv_usage", "utilisation", "mfu", "bandwidth"}
        The last two need a GPU as the cost model.
    ax : matplotlib.axes.Axes, optional
    labels : sequence of str
        Names of the lines; policy names if empty.
    bins : int
        Number of intervals.
    """
    offered = TIMELINES | GPU_TIMELINES
    label, _ = choose({key: (text, key) for key, text in offered.items()}, what)
    ax = ax or new_axes()
    for number, (name, result) in enumerate(named(results, labels)):
        edges, values = binned(result, what, bins)
        ax.stairs(values, edges, label=name, baseline=None, **line_style(number))
    ax.set_xlabel("Time (s)")
    ax.set_ylabel(label)
    ax.set_ylim(bottom=0)
    add_legend(ax)
    return ax


def overview(
    results: "Sequence[Result]", labels: Sequence[str], title: str, bins: int = 200
) -> Figure:
    """Draw all quantities over time below each other; return the figure."""
    names = list(TIMELINES)
    if results and all(isinstance(result.spec.cost, TableSpec) for result in results):
        names += GPU_TIMELINES
    with style():
        figure = new_figure(7.0, 2.0 * len(names))
        axes = figure.subplots(len(names), sharex=True)
    for ax, what in zip(axes, names, strict=True):
        timeline(results, what, ax, labels, bins)
        ax.label_outer()
        if ax is not axes[0] and ax.get_legend() is not None:
            ax.get_legend().remove()
    axes[0].set_title(title)
    return figure


def save(drawing: Axes | Figure, target: Path | IO[str], ending: str = "") -> None:
    """Write a figure to a file.

    Files of equal figures are equal: no date is written into them.

    Parameters
    ----------
    drawing : Axes or Figure
    target : path or text file
    ending : {"", "svg", "pdf", "png"}
        Format; that of the path's ending if empty.
    """
    figure = drawing.figure if isinstance(drawing, Axes) else drawing
    assert isinstance(figure, Figure)
    ending = ending or Path(str(target)).suffix.removeprefix(".")
    metadata = {"pdf": {"CreationDate": None}, "svg": {"Date": None}}
    with style():
        figure.savefig(target, format=ending, metadata=metadata.get(ending))


def save_whole(drawing: Axes | Figure, target: Path) -> None:
    """Write a figure to a file, all of it or nothing.

    Raises
    ------
    UserError
        If it cannot be written, or not in the format of the name's ending.
    """
    with whole_file(target) as path:
        try:
            save(drawing, path)
        except ValueError as error:
            raise UserError(f"{target}: cannot be written: {error}") from None


def _samples(result: "Result", column: str) -> tuple[Floats, Floats]:
    if not column:
        gaps = result.tables["gaps"]
        return gaps["gap_s"].astype(float), gaps["count"].astype(float)
    values = result.requests[column].dropna().to_numpy(float)
    return values, np.ones(len(values))


def thin(line: Line2D, most: int = 1000) -> None:
    """Keep at most that many points of a line, more than a figure can show."""
    x, y = (np.asarray(data) for data in line.get_data())
    if len(x) > most:
        kept = np.linspace(0, len(x) - 1, most).astype(int)
        line.set_data(x[kept], y[kept])


def positive(values: Floats) -> Floats:
    """Lift zeros onto a logarithmic axis, to a thousandth of a millisecond."""
    return np.maximum(values, 1e-3)


def named(results: "Sequence[Result]", labels: Sequence[str]) -> "list[tuple[str, Result]]":
    """Return results with their names: those given, or the names of their policies."""
    names = list(labels) or [result.spec.policy_kind for result in results]
    return list(zip(names, results, strict=True))


def choose(table: Mapping[str, tuple[str, str]], name: str) -> tuple[str, str]:
    """Return an entry of a table; an unknown name is the user's error."""
    if name not in table:
        raise UserError(f"{name!r}: expected one of {', '.join(table)}")
    return table[name]


def tidy(axis: Axis) -> None:
    """Label a logarithmic axis: powers of ten, or 1, 2, 5 within one decade."""
    low, high = axis.get_view_interval()
    if low > 0:
        axis.set_minor_formatter(NullFormatter())
    if low > 0 and high / low <= 10:
        axis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        axis.set_major_formatter("{x:g}")


def add_legend(ax: Axes) -> None:
    """Name the lines, if there are any."""
    if ax.get_legend_handles_labels()[0]:
        ax.legend(fontsize=8, framealpha=0.7)
