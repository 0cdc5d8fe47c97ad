"""Points of a sweep against each other, seed by seed: what they share cancels out."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from simulator.stats import mean_interval

if TYPE_CHECKING:
    import pandas as pd

Interval = tuple[float | None, float | None, float | None]
"""Mean and bounds of a 95 % interval; None where there is none."""

VARIANT = "variant"
"""Column that names the policy of a run and the parameters in which the runs differ."""

LOADS = ("request_rate", "workload", "num_requests", "name", "path")
"""Last parts of the names of parameters that say who asks, not how it is answered."""

HIGHER_IS_BETTER = ("throughput", "goodput", "attainment", "completed")


class Difference(NamedTuple):
    """A metric of one variant against the first one, at the same load and on the same seeds.

    Attributes
    ----------
    load : tuple
        Values of the parameters of the load.
    variant, metric : str
    relative : (float, float, float) or None
        Mean and 95 % bounds of (variant - first) / mean of first; None where there is none.
    verdict : {"better", "worse", "not resolved", "equal", "one seed"}
    """

    load: tuple[object, ...]
    variant: str
    metric: str
    relative: Interval
    verdict: str


def higher_is_better(metric: str) -> bool:
    """Return whether more of a metric is better.

    Examples
    --------
    >>> higher_is_better("request_goodput"), higher_is_better("p99_ttft_ms")
    (True, False)
    """
    return any(word in metric for word in HIGHER_IS_BETTER)


def parameters(frame: "pd.DataFrame") -> list[str]:
    """Return the columns of a table of runs that are parameters and vary, the policy first.

    Parameters stand before `replication`, metrics after it. If nothing varies, the policy does
    for all.
    """
    names = [str(name) for name in frame]
    end = names.index("replication") if "replication" in names else names.index("num_requests")
    known = sorted(names[:end], key=lambda name: name != "policy")
    varied = [n for n in known if n != "run" and frame[n].nunique(dropna=False) > 1]
    return varied or ["policy"]


def is_load(parameter: str) -> bool:
    """Return whether a parameter says who asks.

    Examples
    --------
    >>> is_load("workload.num_requests"), is_load("max_wait_ms")
    (True, False)
    """
    return parameter.rsplit(".", 1)[-1] in LOADS or parameter.startswith("workload.")


def with_variant(frame: "pd.DataFrame", ignore: Sequence[str] = ()) -> "pd.DataFrame":
    """Return the table with a column that names what differs, but for the load and `ignore`."""
    keys = [key for key in parameters(frame) if not is_load(key) and key not in ignore]
    words = [
        ", ".join(_word(key, row[key]) for key in keys if row[key] == row[key])
        or str(row["policy"])
        for row in frame.to_dict("records")
    ]
    return frame.assign(**{VARIANT: words})


def _word(key: str, value: object) -> str:
    return plain(value) if key == "policy" else f"{key}={plain(value)}"


def plain(value: object) -> str:
    """Return a value of a parameter as it would be typed.

    Examples
    --------
    >>> plain(2.0), plain("vllm-v1")
    ('2', 'vllm-v1')
    """
    return f"{value:g}" if isinstance(value, float) else str(value)


def difference(
    rows: "pd.DataFrame", first: "pd.DataFrame", metric: str, *, relative: bool = True
) -> Interval:
    """Return the mean difference of two points over their common seeds, and its 95 % interval.

    Parameters
    ----------
    rows, first : pandas.DataFrame
        Runs of one point each.
    metric : str
    relative : bool
        Divide by the mean of `first`.
    """
    import pandas as pd

    key = "replication"
    pairs = pd.merge(rows[[key, metric]], first[[key, metric]], on=key, suffixes=("", "_first"))
    values, base = (
        pd.to_numeric(pairs[name]).to_numpy(float) for name in (metric, f"{metric}_first")
    )
    known = np.isfinite(values) & np.isfinite(base)
    if not known.any():
        return None, None, None
    scale = float(base[known].mean()) if relative else 1.0
    if not scale:
        return None, None, None
    return mean_interval((values - base)[known] / scale)


def verdict(interval: Interval, metric: str) -> str:
    """Return what an interval of a difference says.

    Examples
    --------
    >>> verdict((-0.1, -0.12, -0.08), "p99_ttft_ms"), verdict((0.1, -0.1, 0.3), "p99_ttft_ms")
    ('better', 'not resolved')
    """
    mean, low, high = interval
    if mean is None:
        return "n/a"
    if low is None or high is None:
        return "one seed"
    if low == high == 0:
        return "equal"
    if low <= 0 <= high:
        return "not resolved"
    return "better" if (mean > 0) == higher_is_better(metric) else "worse"


def differences(frame: "pd.DataFrame", metrics: Sequence[str]) -> Iterator[Difference]:
    """Yield the differences of every variant from the first, load by load.

    Parameters
    ----------
    frame : pandas.DataFrame
        Table of runs, with a column `replication`.
    metrics : sequence of str
    """
    loads = [key for key in parameters(frame) if is_load(key)]
    named = with_variant(frame)
    for load, group in named.groupby(loads, sort=False, dropna=False) if loads else [((), named)]:
        points = list(group.groupby(VARIANT, sort=False))
        for name, rows in points[1:]:
            for metric in metrics:
                found = difference(rows, points[0][1], metric)
                yield Difference(load, str(name), metric, found, verdict(found, metric))
