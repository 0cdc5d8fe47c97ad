"""What one transformer layer consists of besides attention, and the output head.

Everything here runs once, when a table is compiled, or when a step is described.
"""

import numpy as np

from simulator.cost.models import ModelArchitecture
from simulator.cost.operators import elementwise_s, gemm_s, moe_s
from simulator.cost.profile import FloatArray, OperatorProfile

SAMPLER_SEQUENCES = (1.0, 32.0, 128.0, 256.0)
SAMPLER_S = (25e-6, 33e-6, 64e-6, 164e-6)
"""Sampler with a vocabulary of 128k (LLMServingSim, RTX PRO 6000, vLLM 0.19.0)."""


def linear_shapes(model: ModelArchitecture, tp: int) -> dict[str, tuple[int, int]]:
    """Return (output, input) features of the linear layers of one layer on each GPU.

    Parameters
    ----------
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.

    Returns
    -------
    dict of str to tuple
        `qkv`, `o`, and `gate_up` and `down`, or `router` for a mixture of experts.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> linear_shapes(MODELS["llama-3.1-8b"], 2)["gate_up"]
    (14336, 4096)
    """
    heads, kv_heads = model.heads(tp)
    hidden, ffn = model.hidden_size, model.ffn_size // tp
    shapes = {
        "qkv": ((heads + 2 * kv_heads) * model.head_size, hidden),
        "o": (hidden, heads * model.head_size),
    }
    if model.num_experts:
        return {**shapes, "router": (model.num_experts, hidden)}
    return {**shapes, "gate_up": (2 * ffn, hidden), "down": (hidden, ffn)}


def linears_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> dict[str, FloatArray]:
    """Return the linear layers, and the experts, of one layer.

    Parameters
    ----------
    profile : OperatorProfile
        Measured times.
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.
    tokens : array
        Tokens of the step, ascending, at least 1.

    Returns
    -------
    dict of str to array
        Seconds by the names of `linear_shapes`, and `experts`.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> times = linears_s(load_profile("h100"), MODELS["llama-3.1-8b"], 1, np.array([1.0]))
    >>> {name: round(float(seconds[0] * 1e6)) for name, seconds in times.items()}
    {'qkv': 20, 'o': 15, 'gate_up': 80, 'down': 43}
    """
    times = {
        name: gemm_s(profile, out_features, in_features, tokens)
        for name, (out_features, in_features) in linear_shapes(model, tp).items()
    }
    if model.num_experts:
        times["experts"] = moe_s(profile, model, tp, tokens)
    return times


def elementwise_bytes(model: ModelArchitecture, tp: int) -> tuple[float, ...]:
    """Return the bytes per token that each memory-bound kernel of one layer reads and writes.

    Parameters
    ----------
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.

    Returns
    -------
    tuple of float
        Two norms with residual, rotary embedding, activation (dense models), head norms (Qwen3).

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> elementwise_bytes(MODELS["llama-3.1-8b"], 1)
    (32768.0, 32768.0, 20480.0, 86016.0)
    """
    heads, kv_heads = model.heads(tp)
    norm = 8.0 * model.hidden_size
    kernels = [norm, norm, 4.0 * (heads + kv_heads) * model.head_size]
    if not model.num_experts:
        kernels.append(6.0 * (model.ffn_size // tp))
    if model.qk_norm:
        kernels += [4.0 * heads * model.head_size, 4.0 * kv_heads * model.head_size]
    return tuple(kernels)


def layer_elementwise_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> FloatArray:
    """Return all memory-bound kernels of one layer, seconds, for an array of token counts."""
    total = np.zeros_like(tokens)
    for per_token in elementwise_bytes(model, tp):
        total = total + elementwise_s(profile, per_token * tokens)
    return total


def head_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, rows: FloatArray
) -> FloatArray:
    """Return the output head, seconds, for an array of row counts; `profile` is in bfloat16."""
    return gemm_s(profile, -(-model.vocabulary_size // tp), model.hidden_size, rows)


def sampler_s(profile: OperatorProfile, rows: FloatArray) -> FloatArray:
    """Return the sampler, seconds: linear between its measured points and beyond the last.

    Examples
    --------
    >>> from simulator.cost.profile import load_profile
    >>> (sampler_s(load_profile("h100"), np.array([1.0, 256.0])) * 1e6).tolist()
    [25.0, 164.0]
    """
    knots, seconds = np.array(SAMPLER_SEQUENCES), np.array(SAMPLER_S)
    if len(profile.sampler_rows):
        knots, seconds = profile.sampler_rows, profile.sampler_us * 1e-6
    slope = (seconds[-1] - seconds[-2]) / (knots[-1] - knots[-2])
    beyond = np.maximum(rows - knots[-1], 0.0)
    result: FloatArray = np.interp(rows, knots, seconds) + slope * beyond
    return result
