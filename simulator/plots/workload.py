"""Figures of a workload: rate over time, dispersion by scale, lengths and what fits them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter
from scipy import stats

from simulator.plots import line_style, new_axes, new_figure, style
from simulator.stats import Floats

Character = Mapping[str, Any]
"""What `workloads.characterise` returns."""


_WIDE = 5.0
"""Lengths that lie closer together are drawn on a linear axis."""

_HOURS = 3 * 3600.0
"""Longer spans are drawn in hours, seconds."""


def rate_over_time(character: Character, ax: Axes | None = None) -> Axes:
    """Draw the request rate in bins of equal length; return the axes."""
    ax = ax or new_axes()
    series = character["series"]
    width = float(series["bin_s"])
    counts = np.asarray(series["requests_per_bin"], float)
    unit, scale = ("h", 3600.0) if len(counts) * width > _HOURS else ("s", 1.0)
    ax.set_xlabel(f"Time ({unit})")
    ax.set_ylabel("Requests per second")
    if len(counts) == 0:
        return _nothing(ax, "no arrival times")
    edges = np.arange(len(counts) + 1) * width / scale
    ax.stairs(counts / width, edges, baseline=None, **line_style(0))
    ax.set_ylim(bottom=0)
    clock = str(character["arrivals"].get("clock") or "")
    if "no common clock" in clock:
        ax.set_title("each conversation starts at 0", fontsize=8)
    return ax


def dispersion_by_scale(character: Character, ax: Axes | None = None) -> Axes:
    """Draw variance over mean of the counts in windows of several lengths; return the axes."""
    ax = ax or new_axes()
    found = {
        float(label.removesuffix(" s")): value
        for label, value in character["arrivals"]["dispersion"].items()
        if value
    }
    ax.set_xlabel("Window (s)")
    ax.set_ylabel("Index of dispersion of counts")
    if len(found) < 2:
        return _nothing(ax, "too few windows to count in")
    ax.plot(list(found), list(found.values()), marker="o", label="workload", **line_style(0))
    ax.axhline(1.0, label="Poisson", **line_style(1))
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_ylim(min(0.5, *found.values()) / 1.2, max(10.0, *found.values()) * 1.5)
    ax.set_xticks(list(found))
    _plain_numbers(ax.xaxis, subs=())
    _plain_numbers(ax.yaxis)
    ax.legend(fontsize=8)
    return ax


def _nothing(ax: Axes, why: str) -> Axes:
    """Say in the middle of the axes why they are empty."""
    ax.text(0.5, 0.5, why, ha="center", va="center", transform=ax.transAxes)
    ax.set_xticks([])
    ax.set_yticks([])
    return ax


def _plain_numbers(axis: Axis, subs: Sequence[float] = (1.0, 2.0, 5.0)) -> None:
    """Write 1, 2, 5, 10 ... instead of powers at a logarithmic axis."""
    if subs:
        axis.set_major_locator(LogLocator(subs=subs, numticks=12))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.10g}"))
    axis.set_minor_formatter(NullFormatter())


def length_cdf(character: Character, what: str, ax: Axes | None = None) -> Axes:
    """Draw the distribution of prompt or output lengths with the laws that fit best.

    Parameters
    ----------
    character : mapping
        What `workloads.characterise` returns.
    what : {"prompt", "output"}
    ax : matplotlib.axes.Axes, optional
    """
    ax = ax or new_axes()
    quantiles = np.asarray(character["series"][f"{what}_quantiles"], float)
    percents = np.linspace(0, 1, len(quantiles))
    ax.step(quantiles, percents, where="post", label="workload", **line_style(0))
    grid = np.geomspace(max(quantiles[0], 1.0), max(quantiles[-1], 2.0), 200)
    for number, fit in enumerate(character[f"{what}_tokens"]["fits"][:2], 1):
        label = f"{fit['family']} (KS {fit['ks']:.3f})"
        ax.plot(grid, fitted_cdf(fit, grid), label=label, **line_style(number))
    if grid[-1] > _WIDE * grid[0]:
        ax.set_xscale("log")
        _plain_numbers(ax.xaxis, (1.0,) if grid[-1] > 100 * grid[0] else (1.0, 2.0, 5.0))
    ax.set_xlabel(f"{what.capitalize()} length (tokens)")
    ax.set_ylabel("Fraction of requests")
    ax.set_ylim(0, 1.01)
    ax.legend(fontsize=8)
    return ax


def prefix_reuse(character: Character, ax: Axes | None = None) -> Axes:
    """Draw how much of the prompts an unlimited prefix cache would save; return the axes."""
    ax = ax or new_axes()
    found = character["prefixes"]
    bars = {
        "tokens found": found["token_hit_fraction"],
        "requests with a hit": found["requests_with_hit_fraction"],
        "blocks used once": found["used_once_fraction"] or 0.0,
    }
    ax.barh(list(bars), list(bars.values()), color=line_style(0)["color"])
    ax.set_xlim(0, 1)
    ax.set_xlabel(f"Fraction (blocks of {found['block_size']} tokens, unlimited cache)")
    return ax


def client_shares(character: Character, ax: Axes | None = None) -> Axes:
    """Draw how many of the largest clients send which share of the requests; return the axes."""
    ax = ax or new_axes()
    shares = character["series"]["clients"]
    ax.plot(shares["largest"], shares["fraction"], marker=".", **line_style(0))
    if shares["largest"][-1] > 1:
        ax.set_xscale("log")
        _plain_numbers(ax.xaxis)
    else:
        ax.set_xticks([1])
    ax.set_ylim(0, 1.05)
    ax.set_xlabel("Largest clients (number)")
    ax.set_ylabel("Fraction of requests")
    return ax


def fitted_cdf(fit: Mapping[str, Any], x: Floats) -> Floats:
    """Return the distribution function of a fitted law.

    Examples
    --------
    >>> fitted_cdf({"family": "exponential", "mean": 2.0}, np.array([0.0, 2.0])).round(3)
    array([0.   , 0.632])
    """
    match fit["family"]:
        case "exponential":
            return np.asarray(stats.expon.cdf(x, scale=fit["mean"]))
        case "gamma":
            return np.asarray(stats.gamma.cdf(x, fit["shape"], scale=fit["scale"]))
        case "weibull":
            return np.asarray(stats.weibull_min.cdf(x, fit["shape"], scale=fit["scale"]))
        case "lognormal":
            return np.asarray(stats.norm.cdf(np.log(np.maximum(x, 1e-12)), fit["mu"], fit["sigma"]))
    parts = zip(fit["w"], fit["mu"], fit["sigma"], strict=True)
    logs = np.log(np.maximum(x, 1e-12))
    return np.asarray(sum(w * stats.norm.cdf(logs, mu, sigma) for w, mu, sigma in parts))


def overview(character: Character, title: str) -> Figure:
    """Draw everything on one page; return the figure."""
    extra = [
        draw
        for key, draw in (("prefixes", prefix_reuse), ("clients", client_shares))
        if "token_hit_fraction" in character.get(key, {})
        or "largest_fraction" in character.get(key, {})
    ]
    with style():
        figure = new_figure(9.0, 6.5 + 3.0 * bool(extra))
        axes = figure.subplots(3 if extra else 2, 2)
    rate_over_time(character, axes[0, 0])
    dispersion_by_scale(character, axes[0, 1])
    length_cdf(character, "prompt", axes[1, 0])
    length_cdf(character, "output", axes[1, 1])
    for draw, ax in zip(extra, axes[2] if extra else (), strict=False):
        draw(character, ax)
    if len(extra) == 1:
        axes[2, 1].set_axis_off()
    figure.suptitle(title)
    return figure
