"""How well a profile predicts rows that it was not built from."""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from simulator.calibrate.rows import KEYS, merge_repeats
from simulator.calibrate.tables import build_tables
from simulator.cost.attention import decode_attention
from simulator.cost.gpus import Gpu
from simulator.cost.models import Dtype, ModelArchitecture
from simulator.cost.operators import all_reduce_s, elementwise_s, gemm_s
from simulator.cost.profile import FloatArray, OperatorProfile, make_profile
from simulator.cost.prompts import compile_prompts
from simulator.errors import UserError
from simulator.held_out import FEWEST_ROWS, HELD_OUT, HeldOut

Frames = Mapping[str, pd.DataFrame]


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
