"""Errors of a model on measurements that it was not built from: figures, table and drawing."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FloatArray = NDArray[np.float64]

HELD_OUT = 0.2
"""Fraction of rows, of shapes, or of the top of the range that a split holds out."""
FEWEST_ROWS = 5
"""Held-out rows below which no error is given."""


@dataclass(frozen=True)
class HeldOut:
    """Errors of one operator in one split.

    Attributes
    ----------
    operator, split : str
        `interior` (random points between others), `extrapolation` (the largest sizes), `shapes`
        (whole linear layers), or `behind context` (chunks behind stored tokens).
    num_rows : int
        Rows held out.
    measured_us, predicted_us : array
        Their times.
    """

    operator: str
    split: str
    num_rows: int
    measured_us: FloatArray
    predicted_us: FloatArray

    @property
    def errors(self) -> FloatArray:
        """Signed relative errors."""
        return self.predicted_us / self.measured_us - 1.0

    @property
    def mape(self) -> float:
        """Mean absolute relative error."""
        return float(np.abs(self.errors).mean())

    @property
    def p95(self) -> float:
        """95th percentile of the absolute relative error."""
        return float(np.quantile(np.abs(self.errors), 0.95))

    @property
    def bias(self) -> float:
        """Mean relative error."""
        return float(self.errors.mean())


class Judged(Protocol):
    """Something that was judged on rows held out."""

    @property
    def title(self) -> str:
        """What was measured."""
        ...

    @property
    def held_out(self) -> tuple[HeldOut, ...]:
        """Errors by operator and split."""
        ...


def errors_frame(held_out: Iterable[HeldOut]) -> pd.DataFrame:
    """Return errors as a table, one row per operator and split; fractions, not percent."""
    rows = [
        {
            "operator": held.operator,
            "split": held.split,
            "rows": held.num_rows,
            "mape": held.mape if len(held.measured_us) else None,
            "p95": held.p95 if len(held.measured_us) else None,
            "bias": held.bias if len(held.measured_us) else None,
        }
        for held in held_out
    ]
    return pd.DataFrame(rows, columns=["operator", "split", "rows", "mape", "p95", "bias"])


def errors_records(held_out: Iterable[HeldOut]) -> list[dict[str, Any]]:
    """Return errors as plain data; None where there are too few rows."""
    records = errors_frame(held_out).to_dict("records")
    return [
        {str(key): None if value != value else value for key, value in record.items()}
        for record in records
    ]


def errors_lines(held_out: Iterable[HeldOut]) -> list[str]:
    """Return errors as lines of text, in percent."""
    lines = [f"{'operator':<12}{'held out':<16}{'rows':>7}{'MAPE %':>9}{'p95 %':>8}{'bias %':>8}"]
    for held in held_out:
        start = f"{held.operator:<12}{held.split:<16}{held.num_rows:>7}"
        if len(held.measured_us):
            errors = f"{held.mape:>9.1%}{held.p95:>8.1%}{held.bias:>+8.1%}".replace("%", " ")
            lines.append((start + errors).rstrip())
        else:
            lines.append(f"{start}{'n/a':>9}{'n/a':>8}{'n/a':>8}")
    return lines


def plot_errors(report: Judged, ax: "Axes") -> "Axes":
    """Draw predicted over measured time of all held-out rows.

    Parameters
    ----------
    report : Judged
        Of kernels, or of whole steps.
    ax : matplotlib.axes.Axes
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The same axes.
    """
    markers = ("o", "s", "^", "D", "v", "P", "X")
    shown = [held for held in report.held_out if len(held.measured_us)]
    for number, held in enumerate(shown):
        ax.plot(
            held.measured_us,
            held.predicted_us / held.measured_us,
            marker=markers[number % len(markers)],
            markersize=3,
            markeredgewidth=0,
            linestyle="none",
            alpha=0.5,
            label=f"{held.operator}, {held.split}",
        )
    ax.axhline(1.0, color="black", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_yscale("log", base=2)
    ax.set_yticks([0.25, 0.5, 1, 2, 4, 8], labels=["1/4", "1/2", "1", "2", "4", "8"])
    ax.set_xlabel("Measured time (µs)")
    ax.set_ylabel("Predicted / measured")
    ax.set_title(f"{report.title}, rows held out")
    if shown:
        ax.legend(markerscale=2.5, ncols=2, fontsize="small", loc="upper right")
    return ax
