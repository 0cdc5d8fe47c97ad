"""Attention of one layer: decode by (batch, context), prefill by prompt length.

Everything here runs when a table is compiled or a batch size is met for the first time.
"""

from dataclasses import dataclass
from math import log

import numpy as np

from simulator.cost.models import ModelArchitecture
from simulator.cost.profile import FloatArray, IntArray, OperatorProfile

WARM_HBM_FRACTION = 0.9
"""Bandwidth of the physical form that measured decode times are divided by."""


@dataclass(frozen=True)
class DecodeAttention:
    """Decode attention of one head layout.

    Attributes
    ----------
    floor_s : float
        Shortest measured time in the layout, seconds per layer.
    layout : tuple of (query heads, KV heads)
        Measured layout that the ratios come from.
    kv_bytes : float
        Keys and values of one token in one layer, bytes per GPU.
    batches, contexts : array
        Measured grid.
    last_contexts : array
        Longest measured context of each batch size.
    log_ratio : array (batches, contexts)
        Logarithm of measured over physical time, held where not measured.
    warm_bytes_per_s, cold_bytes_per_s : float
        Bandwidths of the physical form, and of reading KV that no cache holds.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> decode = decode_attention(load_profile("h100"), MODELS["llama-3.1-8b"], 1)
    >>> round(float(decode.seconds(32, np.array([1024.0]))[0] * 1e6))
    60
    """

    floor_s: float
    layout: tuple[int, int]
    kv_bytes: float
    batches: FloatArray
    contexts: FloatArray
    last_contexts: FloatArray
    log_ratio: FloatArray
    warm_bytes_per_s: float
    cold_bytes_per_s: float

    def seconds(self, num_decodes: int, contexts: FloatArray) -> FloatArray:
        """Return seconds per layer for equal contexts (tokens, ascending, at least 1).

        The ratio to the physical form is interpolated in log batch and log context. The result
        never falls below reading all keys and values from memory: one layer was measured over
        and over, so that a small cache came from L2, which a real step does not see.
        """
        low, fraction = self._position(num_decodes)
        ratio = self._ratio(low, contexts)
        if fraction > 0.0:
            ratio = ratio * (1.0 - fraction) + self._ratio(low + 1, contexts) * fraction
        moved = num_decodes * self.kv_bytes * contexts
        warm = np.exp(ratio) * (self.floor_s + moved / self.warm_bytes_per_s)
        seconds: FloatArray = np.maximum(warm, self.floor_s + moved / self.cold_bytes_per_s)
        return seconds

    def max_context(self, num_decodes: int) -> float:
        """Return the longest context calibrated at this batch size, 0 beyond the last batch."""
        if num_decodes > self.batches[-1]:
            return 0.0
        low, fraction = self._position(num_decodes)
        if fraction == 0.0:
            return float(self.last_contexts[low])
        pair = np.log(self.last_contexts[low : low + 2])
        return float(np.exp(pair[0] + (pair[1] - pair[0]) * fraction))

    def _position(self, num_decodes: int) -> tuple[int, float]:
        """Return the measured batch size at or below, and the log distance towards the next."""
        low = int(np.searchsorted(self.batches, num_decodes, side="right")) - 1
        if low + 1 >= len(self.batches):
            return low, 0.0
        below, above = float(self.batches[low]), float(self.batches[low + 1])
        return low, log(num_decodes / below) / log(above / below)

    def _ratio(self, batch: int, contexts: FloatArray) -> FloatArray:
        """Return the log ratio of one measured batch size."""
        ratio: FloatArray = np.interp(
            np.log(contexts), np.log(self.contexts), self.log_ratio[batch]
        )
        return ratio


def decode_attention(
    profile: OperatorProfile, model: ModelArchitecture, tp: int
) -> DecodeAttention:
    """Prepare decode attention for a model.

    Parameters
    ----------
    profile : OperatorProfile
        Measured times.
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.

    Returns
    -------
    DecodeAttention
        Ratios of the model's head layout, or of the nearest measured one.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> decode_attention(load_profile("h100"), MODELS["qwen2.5-7b"], 1).layout
    (32, 4)
    """
    index = nearest_layout(profile.decode_layouts, model.heads(tp))
    heads, kv_heads = (int(count) for count in profile.decode_layouts[index])
    measured = profile.decode_us[index] * 1e-6
    known = ~np.isnan(measured)
    rows = known.any(axis=1)
    batches, contexts = profile.decode_batches[rows], profile.decode_contexts
    floor = float(np.nanmin(measured))
    warm = WARM_HBM_FRACTION * profile.hbm_bytes_per_s
    moved = batches[:, None] * contexts * (kv_heads * profile.head_size * 2 * model.kv_bytes)
    log_ratio = np.log(measured[rows] / (floor + moved / warm))
    _hold_missing(log_ratio, np.log(contexts))
    last = [contexts[line.nonzero()[0][-1]] for line in known[rows]]
    kv_bytes = model.kv_bytes_per_token(tp) / model.num_layers
    return DecodeAttention(
        floor,
        (heads, kv_heads),
        kv_bytes,
        batches,
        contexts,
        np.array(last),
        log_ratio,
        warm,
        profile.cold_bytes_per_s,
    )


def prefill_attention_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> FloatArray:
    """Return causal attention of one prompt without stored context, seconds per layer.

    Parameters
    ----------
    profile : OperatorProfile
        Measured times.
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.
    tokens : array
        Prompt lengths, ascending, at least 1.

    Returns
    -------
    array
        Physical form (floor plus half of the full score matrix at peak rate) times the measured
        ratio, log-log interpolated and held beyond the last point.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> model, lengths = MODELS["llama-3.1-8b"], np.array([512.0, 2048.0])
    >>> (prefill_attention_s(load_profile("h100"), model, 1, lengths) * 1e6).round().tolist()
    [22.0, 89.0]
    """
    heads, _ = model.heads(tp)
    index = nearest_layout(profile.prefill_layouts, model.heads(tp))
    measured = profile.prefill_us[index] * 1e-6
    floor = float(measured.min())

    def physical(lengths: FloatArray, rows: float) -> FloatArray:
        return floor + 2.0 * rows * lengths * lengths / profile.peak_flops

    measured_rows = float(profile.prefill_layouts[index, 0]) * profile.head_size
    knots = profile.prefill_tokens
    ratio = np.log(measured / physical(knots, measured_rows))
    at_tokens = np.exp(np.interp(np.log(tokens), np.log(knots), ratio))
    seconds: FloatArray = at_tokens * physical(tokens, float(heads * model.head_size))
    return seconds


def nearest_layout(layouts: IntArray, wanted: tuple[int, int]) -> int:
    """Return the index of a head layout, or of the nearest: same group size first, then size.

    Parameters
    ----------
    layouts : array (n, 2)
        Measured query and KV heads.
    wanted : tuple of int
        Query and KV heads asked for.

    Returns
    -------
    int
        Row of `layouts`.

    Examples
    --------
    >>> nearest_layout(np.array([[32, 8], [16, 4], [16, 2]]), (20, 5))
    1
    """
    distance = np.log(layouts) - np.log(wanted)
    group = np.abs(distance[:, 0] - distance[:, 1]).round(9)
    size = np.abs(distance[:, 0])
    return int(np.lexsort((size, group))[0])


def _hold_missing(log_ratio: FloatArray, log_contexts: FloatArray) -> None:
    """Fill the gaps of each row by interpolation, and hold its ends."""
    for row in log_ratio:
        known = ~np.isnan(row)
        row[~known] = np.interp(log_contexts[~known], log_contexts[known], row[known])
