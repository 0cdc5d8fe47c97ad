"""Paired differences as text."""

from collections.abc import Mapping, Sequence

from tabulate import tabulate

from simulator.compare import Difference
from simulator.stats import each_confidence


def compare_text(
    first: str, found: Mapping[str, Sequence[Difference]], seeds: int, confidence: float
) -> str:
    """Return a table for each specification that was compared with the first.

    Parameters
    ----------
    first : str
        Name of the first.
    found : dict
        Name of a specification to its differences.
    seeds : int
        Replications of each.
    confidence : float
        With which all intervals of a table hold.
    """
    parts: list[str] = []
    for name, differences in found.items():
        rows = [
            [d.metric, _number(d.first), _number(d.second), _number(d.mean), _bounds(d),
             _percent(d), _verdict(d)]
            for d in differences
        ]  # fmt: skip
        heads = ["metric", "A", "B", "B - A", "interval", "%", "B is"]
        parts += [
            f"A: {first}",
            f"B: {name}",
            str(tabulate(rows, heads, disable_numparse=True)),
            "",
        ]
    number = len(next(iter(found.values())))
    return "\n".join(parts) + (
        f"{seeds} seeds, paired: A and B meet the same random numbers. The {number} intervals of "
        f"a table hold together\nwith {confidence:.0%} confidence "
        f"({each_confidence(confidence, number):.2%} each)."
    )


def _number(value: float | None) -> str:
    return "n/a" if value is None else f"{value:.4g}"


def _bounds(d: Difference) -> str:
    return "n/a" if d.low is None or d.high is None else f"[{d.low:.4g}, {d.high:.4g}]"


def _percent(d: Difference) -> str:
    share = d.relative(d.mean)
    if share is None:
        return "n/a"
    return f"{share:+.1%}" if share < 10 else f"x {1 + share:.3g}"


def _verdict(d: Difference) -> str:
    if d.verdict != "not resolved":
        return d.verdict
    return f"{d.verdict}; about {d.seeds_needed} seeds would" if d.seeds_needed else d.verdict
