"""How well a profile predicts rows that it was not built from."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.calibrate_rows import KEYS, merge_repeats
from simulator.calibrate_tables import build_tables
from simulator.cost.attention import decode_attention
from simulator.cost.gpus import Gpu
from simulator.cost.models import Dtype, ModelArchitecture
from simulator.cost.operators import all_reduce_s, elementwise_s, gemm_s
from simulator.cost.profile import FloatArray, OperatorProfile, make_profile
from simulator.cost.prompts import compile_prompts
from simulator.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HELD_OUT = 0.2
"""Fraction of rows, of shapes, or of the top of the range that a split holds out."""
FEWEST_ROWS = 5
"""Held-out rows below which no error is given."""

Frames = Mapping[str, pd.DataFrame]


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


def hold_out(frames: Frames, gpu: Gpu, dtype: Dtype, seed: int) -> list[HeldOut]:
    """Build the profile without some rows, predict them, and return the errors.

    Parameters
    ----------
    frames : mapping of str to DataFrame
        Checked rows by operator.
    gpu : Gpu
        The GPU.
    dtype : {"bfloat16", "fp8"}
        Number format.
    seed : int
        Seed of the random splits.

    Returns
    -------
    list of HeldOut
        One entry per operator and split; splits with fewer than `FEWEST_ROWS` rows have no
        times.
    """
    merged = {operator: merge_repeats(frame, operator) for operator, frame in frames.items()}
    rng = np.random.default_rng(seed)
    results = []
    for split, (choose, operators) in _SPLITS.items():
        held = {
            operator: choose(merged[operator], operator, rng)
            for operator in operators
            if operator in merged
        }
        training = {
            name: table[~held[name]] if name in held else table for name, table in merged.items()
        }
        profile = _profile(training, gpu, dtype)
        for operator, chosen in held.items():
            results.append(_judge(operator, split, merged[operator][chosen], profile))
    return results


def predict_us(profile: OperatorProfile, operator: str, rows: pd.DataFrame) -> FloatArray:
    """Return the times that a profile gives for rows of one operator.

    Parameters
    ----------
    profile : OperatorProfile
        The profile.
    operator : str
        A key of `KEYS`.
    rows : DataFrame
        Its columns.

    Returns
    -------
    array
        µs, in the order of the rows.
    """
    predicted = np.empty(len(rows))
    together, one_by_one = _GROUPED[operator]
    keys = rows[together].to_numpy(dtype=np.int64)
    distinct, group = np.unique(keys, axis=0, return_inverse=True)
    for number, key in enumerate(distinct):
        index = np.flatnonzero(group.ravel() == number)
        sizes = rows[KEYS[operator][-1]].to_numpy()[index]
        index = index[np.argsort(sizes, kind="stable")]
        seconds = one_by_one(profile, tuple(key.tolist()), rows.iloc[index])
        predicted[index] = seconds * 1e6
    return predicted


def _judge(
    operator: str, split: str, rows: pd.DataFrame, profile: OperatorProfile | None
) -> HeldOut:
    """Predict held-out rows, unless they, or those left, are too few to say anything."""
    if len(rows) < FEWEST_ROWS or profile is None:
        return HeldOut(operator, split, len(rows), np.empty(0), np.empty(0))
    measured = rows["time_us"].to_numpy(dtype=np.float64)
    return HeldOut(operator, split, len(rows), measured, predict_us(profile, operator, rows))


def _profile(training: Frames, gpu: Gpu, dtype: Dtype) -> OperatorProfile | None:
    """Return the profile of the training rows, or nothing if too few are left."""
    try:
        arrays, metadata = build_tables(training, gpu, dtype)
    except UserError:
        return None
    return make_profile(arrays, metadata, "held out", "held out")


def _interior(table: pd.DataFrame, operator: str, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose random rows that are neither the first nor the last of their curve."""
    *curve, size = KEYS[operator]
    if operator == "prefill":
        return _behind(table, rng, past=False)
    groups = table.groupby(curve)[size] if curve else table[size]
    lowest = groups.transform("min") if curve else groups.min()
    highest = groups.transform("max") if curve else groups.max()
    inside: NDArray[np.bool_] = ((table[size] > lowest) & (table[size] < highest)).to_numpy()
    chosen: NDArray[np.bool_] = inside & (rng.random(len(table)) < HELD_OUT)
    return chosen


def _behind(table: pd.DataFrame, rng: np.random.Generator, *, past: bool) -> NDArray[np.bool_]:
    """Choose random prefill rows with, or inside the curves without, a stored context."""
    drawn = rng.random(len(table)) < HELD_OUT
    stored: NDArray[np.bool_] = table["past"].to_numpy() > 0
    if past:
        return drawn & stored
    tokens = table["tokens"].to_numpy()
    inside = (tokens > tokens.min()) & (tokens < tokens[~stored].max(initial=0))
    chosen: NDArray[np.bool_] = drawn & ~stored & inside
    return chosen


def _beyond(table: pd.DataFrame, operator: str, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose the largest sizes: those above the fraction `1 - HELD_OUT` of all sizes."""
    size = table[KEYS[operator][-1]]
    if operator == "decode":
        size = table["batch"] * table["context"]
    levels = np.unique(size)
    if len(levels) < FEWEST_ROWS:
        return np.zeros(len(table), dtype=bool)
    cut = levels[int(np.ceil(len(levels) * (1 - HELD_OUT))) - 1]
    largest = size > cut
    if operator == "prefill":
        largest &= table["past"] == 0
    return np.asarray(largest, dtype=bool)


def _shapes(table: pd.DataFrame, operator: str, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose whole shapes of linear layers."""
    shape = table.groupby(["out_features", "in_features"]).ngroup().to_numpy()
    count = int(shape.max()) + 1
    held = rng.permutation(count)[: int(count * HELD_OUT)]
    return np.isin(shape, held)


def _contexts(table: pd.DataFrame, operator: str, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Choose prompt chunks behind a stored context."""
    return _behind(table, rng, past=True)


_Chooser = Callable[[pd.DataFrame, str, np.random.Generator], NDArray[np.bool_]]
_SPLITS: dict[str, tuple[_Chooser, tuple[str, ...]]] = {
    "interior": (_interior, tuple(KEYS)),
    "extrapolation": (_beyond, tuple(KEYS)),
    "shapes": (_shapes, ("linear",)),
    "behind context": (_contexts, ("prefill",)),
}


def _layout(profile: OperatorProfile, heads: int, kv_heads: int) -> ModelArchitecture:
    """Return one layer of attention with a head layout, as a model."""
    size = profile.head_size
    return ModelArchitecture(
        "layout", 1, heads * size, heads, kv_heads, size, 1, 1, 1, kv_bytes=profile.weight_bytes
    )


def _linear_s(profile: OperatorProfile, key: tuple[int, ...], rows: pd.DataFrame) -> FloatArray:
    out_features, in_features = key
    return gemm_s(profile, out_features, in_features, rows["tokens"].to_numpy(dtype=np.float64))


def _decode_s(profile: OperatorProfile, key: tuple[int, ...], rows: pd.DataFrame) -> FloatArray:
    heads, kv_heads, batch = key
    decode = decode_attention(profile, _layout(profile, heads, kv_heads), 1)
    return decode.seconds(batch, rows["context"].to_numpy(dtype=np.float64))


def _prefill_s(profile: OperatorProfile, key: tuple[int, ...], rows: pd.DataFrame) -> FloatArray:
    heads, kv_heads = key
    layout = _layout(profile, heads, kv_heads)
    prompts = compile_prompts(profile, layout, 1, decode_attention(profile, layout, 1).floor_s)
    pairs = zip(rows["tokens"].astype(int), rows["past"].astype(int), strict=True)
    return np.array([prompts.chunk(tokens, past) for tokens, past in pairs])


def _elementwise_s(
    profile: OperatorProfile, key: tuple[int, ...], rows: pd.DataFrame
) -> FloatArray:
    return elementwise_s(profile, rows["num_bytes"].to_numpy(dtype=np.float64))


def _all_reduce_s(profile: OperatorProfile, key: tuple[int, ...], rows: pd.DataFrame) -> FloatArray:
    return all_reduce_s(profile, key[0], rows["num_bytes"].to_numpy(dtype=np.float64))


_Predictor = Callable[[OperatorProfile, tuple[int, ...], pd.DataFrame], FloatArray]
_GROUPED: dict[str, tuple[list[str], _Predictor]] = {
    "linear": (["out_features", "in_features"], _linear_s),
    "decode": (["q_heads", "kv_heads", "batch"], _decode_s),
    "prefill": (["q_heads", "kv_heads"], _prefill_s),
    "elementwise": ([], _elementwise_s),
    "all_reduce": (["num_gpus"], _all_reduce_s),
}
