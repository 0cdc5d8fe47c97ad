"""Times of the operators that see tokens only: linear layers, elementwise work, all-reduce.

Everything here runs once, when a table is compiled; nothing of it runs per step.
"""

import numpy as np
from numpy.typing import NDArray

from simulator.cost.models import ModelArchitecture
from simulator.cost.profile import FloatArray, OperatorProfile
from simulator.errors import UserError

NUM_NEIGHBOURS = 4
"""Measured shapes that stand in for one that was not measured."""

ELEMENTWISE_LAUNCH_S = 2.5e-6
ELEMENTWISE_HBM_FRACTION = 0.75


def roofline_s(
    tokens: FloatArray,
    out_features: float | FloatArray,
    in_features: float | FloatArray,
    peak_flops: float,
    hbm_bytes_per_s: float,
    weight_bytes: int = 2,
) -> FloatArray:
    """Return the shortest possible time of a linear layer with bfloat16 output, seconds.

    Parameters
    ----------
    tokens : array
        Rows of the input.
    out_features, in_features : float or array
        Shape of the weight.
    peak_flops : float
        Operations per second.
    hbm_bytes_per_s : float
        Bytes per second.
    weight_bytes : int
        Bytes of a weight, and of an input.

    Returns
    -------
    array
        The larger of the arithmetic time and the memory time.

    Examples
    --------
    >>> float(roofline_s(np.array([1.0]), 1000.0, 1000.0, 1e12, 2e9)[0])
    0.001002
    """
    flops = 2.0 * tokens * out_features * in_features
    moved = weight_bytes * (tokens * in_features + out_features * in_features)
    moved = moved + 2.0 * (tokens * out_features)
    return np.maximum(flops / peak_flops, moved / hbm_bytes_per_s)


def gemm_s(
    profile: OperatorProfile, out_features: int, in_features: int, tokens: FloatArray
) -> FloatArray:
    """Return the time of a linear layer, seconds.

    Parameters
    ----------
    profile : OperatorProfile
        Measured efficiencies.
    out_features, in_features : int
        Shape of the weight on one GPU.
    tokens : array
        Rows of the input, ascending, at least 1.

    Returns
    -------
    array
        Roofline time divided by the efficiency.

    Notes
    -----
    The efficiency of an unmeasured shape is the geometric mean over the four nearest measured
    ones in (log n, log k), weighted with the inverse squared distance. In the number of tokens
    it is log-log interpolated and held beyond the last measured point.

    Examples
    --------
    >>> from simulator.cost.profile import load_profile
    >>> microseconds = gemm_s(load_profile("h100"), 4096, 4096, np.array([1.0])) * 1e6
    >>> round(float(microseconds[0]))
    15
    """
    near, weights = _nearest_shapes(profile, out_features, in_features)
    log_efficiency = weights @ np.log(profile.gemm_efficiency[near])
    at_tokens = np.interp(np.log(tokens), np.log(profile.gemm_tokens), log_efficiency)
    shortest = roofline_s(
        tokens,
        out_features,
        in_features,
        profile.peak_flops,
        profile.hbm_bytes_per_s,
        profile.weight_bytes,
    )
    seconds: FloatArray = shortest * np.exp(-at_tokens)
    return seconds


def _nearest_shapes(
    profile: OperatorProfile, out_features: int, in_features: int
) -> tuple[NDArray[np.intp], FloatArray]:
    """Return indices and weights of the measured shapes that stand for this one."""
    offsets = np.log(profile.gemm_shapes) - np.log([out_features, in_features])
    squared = (offsets**2).sum(axis=1)
    near = np.argsort(squared, kind="stable")[:NUM_NEIGHBOURS]
    if squared[near[0]] < 1e-12:
        return near[:1], np.ones(1)
    weights: FloatArray = 1.0 / squared[near]
    return near, weights / weights.sum()


def elementwise_s(profile: OperatorProfile, num_bytes: FloatArray) -> FloatArray:
    """Return the time of one memory-bound kernel (norm, rotary embedding, activation), seconds.

    Parameters
    ----------
    profile : OperatorProfile
        Holds the memory bandwidth.
    num_bytes : array
        Bytes read and written.

    Returns
    -------
    array
        Measured times, log-log interpolated; beyond the largest kernel its bandwidth is held,
        below the smallest its time. Without measurements 2.5 µs of launch plus the transfer at
        75 % of the peak bandwidth.

    Examples
    --------
    >>> from simulator.cost.profile import load_profile
    >>> float(elementwise_s(load_profile("h100"), np.zeros(1))[0] * 1e6)
    2.5
    """
    if len(profile.elementwise_bytes):
        return _along(num_bytes, profile.elementwise_bytes, profile.elementwise_us) * 1e-6
    rate = ELEMENTWISE_HBM_FRACTION * profile.hbm_bytes_per_s
    return ELEMENTWISE_LAUNCH_S + num_bytes / rate


def all_reduce_s(profile: OperatorProfile, tp: int, num_bytes: FloatArray) -> FloatArray:
    """Return the time of one all-reduce, seconds.

    Parameters
    ----------
    profile : OperatorProfile
        Measured times.
    tp : int
        Number of GPUs: 1, 2, 4 or 8.
    num_bytes : array
        Message size, ascending.

    Returns
    -------
    array
        Log-log interpolated time; beyond the largest message the bandwidth is held, below the
        smallest the time.

    Examples
    --------
    >>> from simulator.cost.profile import load_profile
    >>> microseconds = all_reduce_s(load_profile("h100"), 2, np.array([65536.0])) * 1e6
    >>> round(float(microseconds[0]), 1)
    4.5
    """
    if tp == 1:
        return np.zeros_like(num_bytes)
    measured = profile.all_reduce_gpus.tolist()
    if tp not in measured:
        known = ", ".join(map(str, measured)) or "none"
        raise UserError(f"no all-reduce timings of {tp} {profile.gpu.key} (there are: {known})")
    row = profile.all_reduce_us[measured.index(tp)]
    return _along(num_bytes, profile.all_reduce_bytes, row) * 1e-6


def _along(sizes: FloatArray, knots: FloatArray, values: FloatArray) -> FloatArray:
    """Interpolate log-log; hold the first value below, and the last rate above."""
    at_least_one = np.maximum(sizes, 1.0)
    inside = np.exp(np.interp(np.log(at_least_one), np.log(knots), np.log(values)))
    result: FloatArray = inside * np.maximum(sizes / knots[-1], 1.0)
    return result


def moe_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> FloatArray:
    """Return the time of an expert layer, seconds.

    Parameters
    ----------
    profile : OperatorProfile
        Measured times.
    model : ModelArchitecture
        A mixture of experts.
    tp : int
        Number of GPUs that share every expert.
    tokens : array
        Rows of the input, ascending, at least 1.

    Returns
    -------
    array
        Roofline time, as if every expert saw the same number of tokens, times the measured
        ratio; never less than reading the weights of those experts from memory.

    Raises
    ------
    UserError
        If this layer was not measured on that many GPUs.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> times = moe_s(load_profile("h100"), MODELS["mixtral-8x7b"], 1, np.array([1.0, 64.0]))
    >>> (times * 1e6).round().tolist()
    [259.0, 969.0]
    """
    layer = [model.hidden_size, model.ffn_size, model.num_experts, model.num_active_experts]
    same = (profile.moe_layers[:, :4] == layer).all(axis=1)
    sizes = profile.moe_layers[same, 4].tolist()
    if tp not in sizes:
        known = ", ".join(map(str, sorted(sizes))) or "none"
        raise UserError(
            f"no expert-layer timings of {model.key} in {profile.dtype} on {profile.gpu.key} at tp "
            f"{tp} (there are for tp: {known})"
        )
    measured = profile.moe_us[same][sizes.index(tp)] * 1e-6
    ratio = np.log(measured / _moe_roofline_s(profile, model, tp, profile.moe_tokens)[0])
    shortest, weights = _moe_roofline_s(profile, model, tp, tokens)
    at_tokens = np.exp(np.interp(np.log(tokens), np.log(profile.moe_tokens), ratio))
    cold = weights / profile.cold_bytes_per_s
    seconds: FloatArray = np.maximum(shortest * at_tokens, cold)
    return seconds


def _moe_roofline_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the shortest time of an expert layer, and the bytes of the weights it reads."""
    expert = 3.0 * model.hidden_size * model.ffn_size / tp
    used = np.minimum(tokens * model.num_active_experts, float(model.num_experts))
    weights = used * expert * profile.weight_bytes
    flops = 2.0 * tokens * model.num_active_experts * expert
    shortest = np.maximum(flops / profile.peak_flops, weights / profile.hbm_bytes_per_s)
    return shortest, weights
