"""The tables of a report: main metrics of every point, and paired differences."""

import csv
import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from simulator.experiments.paired import (
    VARIANT,
    difference,
    differences,
    higher_is_better,
    is_load,
    parameters,
    plain,
    with_variant,
)
from simulator.saved import Saved
from simulator.stats import mean_interval

if TYPE_CHECKING:
    import pandas as pd

HEADLINE = {
    "realised_rate": "rate (req/s)",
    "request_throughput": "done (req/s)",
    "output_throughput": "out (tok/s)",
    "p50_ttft_ms": "TTFT P50",
    "p90_ttft_ms": "TTFT P90",
    "p99_ttft_ms": "TTFT P99",
    "p50_tpot_ms": "TPOT P50",
    "p99_tpot_ms": "TPOT P99",
    "p99_itl_ms": "TBT P99",
    "p50_e2el_ms": "E2E P50",
    "p99_e2el_ms": "E2E P99",
    "request_goodput": "goodput (req/s)",
    "slo_attainment": "attainment",
    "busy_fraction": "busy",
    "mean_batch_size": "batch",
    "kv_usage_max": "KV max",
    "num_preemptions": "preemptions",
}
"""Metric to heading, latencies in ms."""

NEUTRAL = ("realised_rate", "busy_fraction", "mean_batch_size", "kv_usage_max")
"""Metrics of which neither more nor less is better."""

COMPARED = (
    "request_throughput",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p99_itl_ms",
    "p99_e2el_ms",
    "request_goodput",
)
"""Metrics whose paired differences are shown."""

MOST_DIFFERENCES = 60
"""Rows of the table of differences at most."""


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    bold: bool = False


Table = tuple[list[str], list[list[Cell]], str]
"""Headings, rows, note."""


def headline_table(saved: Saved) -> Table:
    """Return a row a point: means over the seeds with half-widths, the best marked."""
    frame = saved.frame
    keys = parameters(frame)
    shown = [key for key in HEADLINE if key in frame and frame[key].notna().any()]
    groups = list(frame.groupby(keys, sort=False, dropna=False))
    best = _best_points(frame, keys, shown)
    rows = []
    for at, group in groups:
        head = [Cell("-" if value != value else plain(value)) for value in at]
        cells = [Cell(_with_half(group[key]), (key, at) in best) for key in shown]
        rows.append(head + cells)
    note = (
        "Latencies in ms; mean ± half-width of the 95 % interval over the seeds. Bold: best at its "
        "load, and the paired difference from the second best is resolved."
        if frame["replication"].nunique() > 1
        else "Latencies in ms; one seed, so no intervals and nothing is marked as best."
    )
    return [*keys, *(HEADLINE[key] for key in shown)], rows, note


def _best_points(
    frame: "pd.DataFrame", keys: Sequence[str], metrics: Sequence[str]
) -> set[tuple[str, tuple[object, ...]]]:
    """Return (metric, point) pairs where a point is best at its load, and surely so."""
    loads = [key for key in keys if is_load(key)]
    found = set()
    for _, group in frame.groupby(loads, sort=False, dropna=False) if loads else [((), frame)]:
        points = list(group.groupby(list(keys), sort=False, dropna=False))
        for metric in metrics:
            if metric in NEUTRAL or len(points) < 2:
                continue
            sign = -1 if higher_is_better(metric) else 1
            known = [(sign * rows[metric].mean(), i) for i, (_, rows) in enumerate(points)]
            ranked = [i for value, i in sorted(known) if value == value]
            if len(ranked) < 2 or not points[ranked[0]][1][metric].any():
                continue  # a latency of 0 is how the policy delivers
            first, second = points[ranked[0]], points[ranked[1]]
            _, low, high = difference(first[1], second[1], metric, relative=False)
            if low is not None and high is not None and (low > 0 or high < 0):
                found.add((metric, first[0]))
    return found


def _with_half(column: "pd.Series") -> str:
    import pandas as pd

    mean, _, high = mean_interval(pd.to_numeric(column).dropna().to_numpy(float))
    if mean is None:
        return "n/a"
    if high is None and mean == int(mean):
        return f"{mean:,.0f}"
    digits = 0 if abs(mean) >= 100 else 1 if abs(mean) >= 10 else 2
    half = "" if high is None else f" ± {high - mean:.{digits}f}"
    return f"{mean:,.{digits}f}{half}"


def differences_table(saved: Saved) -> Table | None:
    """Return paired differences from the first variant at every load; None without a second."""
    frame = saved.frame
    metrics = [key for key in COMPARED if key in frame and frame[key].notna().any()]
    found = list(differences(frame, metrics)) if len(frame) > 1 else []
    if not found:
        return None
    loads = [key for key in parameters(frame) if is_load(key)]
    rows = []
    for start in range(0, len(found), len(metrics)):
        group = found[start : start + len(metrics)]
        head = [Cell(group[0].variant), *(Cell(plain(value)) for value in group[0].load)]
        rows.append(head + [_difference(d.relative, d.verdict) for d in group])
    first = str(with_variant(frame)[VARIANT].iloc[0])
    note = (
        f"Relative to {first} at the same load and on the same seeds; [95 % interval "
        "of this difference alone]. Bold: the interval does not hold 0."
    )
    if len(rows) > MOST_DIFFERENCES:
        note += f" The first {MOST_DIFFERENCES} of {len(rows)} rows."
    headings = ["variant", *loads, *(HEADLINE[key] for key in metrics)]
    return headings, rows[:MOST_DIFFERENCES], note


def _difference(relative: tuple[float | None, float | None, float | None], verdict: str) -> Cell:
    mean, low, high = relative
    if mean is None:
        return Cell("n/a")
    show = _times if abs(mean) > 10 else _percent
    text = show(mean)
    if low is None or high is None:
        return Cell(text)
    text += f" [{show(low)}, {show(high)}]"
    if verdict == "not resolved":
        return Cell(f"{text} not resolved")
    return Cell(f"{text} {verdict}", bold=verdict != "equal")


def _percent(share: float) -> str:
    """Return a difference in per cent, with a sign.

    Examples
    --------
    >>> _percent(-0.123), _percent(0.0012)
    ('-12%', '+0.1%')
    """
    return f"{share * 100:+.{0 if abs(share) >= 0.095 else 1}f}%"


def _times(share: float) -> str:
    """Return a large difference as a factor.

    Examples
    --------
    >>> _times(41.0), _times(2176.0)
    ('x42', 'x2,177')
    """
    return f"x{share + 1:,.0f}"


def as_csv(table: Table) -> str:
    r"""Return a table as comma-separated values.

    Examples
    --------
    >>> as_csv((["policy", "rate"], [[Cell("none"), Cell("1,000")]], ""))
    'policy,rate\nnone,"1,000"\n'
    """
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(table[0])
    writer.writerows([cell.text for cell in row] for row in table[1])
    return file.getvalue()


def as_latex(table: Table) -> str:
    """Return a table in LaTeX, for the package booktabs."""
    from tabulate import tabulate

    headings, rows, _ = table
    text = [[cell.text for cell in row] for row in rows]
    drawn = tabulate(text, headings, tablefmt="latex_booktabs", disable_numparse=True)
    return str(drawn).replace("±", "$\\pm$") + "\n"
