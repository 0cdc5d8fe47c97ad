"""Arithmetic and memory traffic of steps: what a perfect machine would have to do.

Counts are per GPU and linear in the columns of a steps table, so that utilisation over a whole
run costs a few array operations. Every tensor counts once per kernel that reads or writes it.
"""

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from simulator.cost.layers import elementwise_bytes, linear_shapes
from simulator.cost.models import OTHER_BYTES, ModelArchitecture
from simulator.cost.profile import FloatArray


class Traffic(NamedTuple):
    """Operations and bytes, on each GPU.

    Attributes
    ----------
    flops : array
        Multiplications and additions.
    num_bytes : array
        Bytes read from and written to device memory.
    """

    flops: FloatArray
    num_bytes: FloatArray


class StepColumns(NamedTuple):
    """What steps held: one number or one array entry per step, or per run of equal steps.

    Attributes
    ----------
    decode_rows : array
        Decodes in each step.
    context_tokens : array
        Tokens attended by the decodes, summed over rows and steps.
    prefill_tokens, prefill_chunks : array
        Prompt tokens, and prompt pieces; summed over steps.
    num_steps : array
        Steps that the entry stands for.
    prefill_pairs : array, optional
        Sum over chunks of c tokens behind p stored ones of `c * (p + (c + 1) / 2)`; by default
        chunks are equal and nothing is stored before them, which is a lower bound.
    prefill_context : array, optional
        Sum over chunks of `c + p`; by default `prefill_tokens`.
    """

    decode_rows: ArrayLike
    context_tokens: ArrayLike
    prefill_tokens: ArrayLike = 0
    prefill_chunks: ArrayLike = 0
    num_steps: ArrayLike = 1
    prefill_pairs: ArrayLike | None = None
    prefill_context: ArrayLike | None = None


def step_flops_bytes(model: ModelArchitecture, tp: int, steps: StepColumns) -> Traffic:
    """Return the arithmetic and the memory traffic of steps.

    Parameters
    ----------
    model : ModelArchitecture
        The model, in its number format.
    tp : int
        Number of GPUs that share every layer.
    steps : StepColumns
        What the steps held.

    Returns
    -------
    Traffic
        Sum over all kernels, on each GPU.

    See Also
    --------
    step_traffic : The same by kernel.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> steps = StepColumns(decode_rows=[1, 64], context_tokens=[1024, 64 * 1024])
    >>> flops, moved = step_flops_bytes(MODELS["llama-3.1-8b"], 1, steps)
    >>> (flops / 1e9).round().tolist(), (moved / 1e9).round(1).tolist()
    ([16.0, 995.0], [15.2, 24.3])
    """
    terms = step_traffic(model, tp, steps)
    flops = sum((term.flops for term in terms.values()), np.zeros(1))
    moved = sum((term.num_bytes for term in terms.values()), np.zeros(1))
    return Traffic(flops, moved)


def step_traffic(model: ModelArchitecture, tp: int, steps: StepColumns) -> Mapping[str, Traffic]:
    """Return the arithmetic and the memory traffic of steps by kernel.

    Parameters
    ----------
    model : ModelArchitecture
        The model, in its number format.
    tp : int
        Number of GPUs that share every layer.
    steps : StepColumns
        What the steps held. Every decode, and every chunk, is taken to yield a token.

    Returns
    -------
    dict of str to Traffic
        The linear layers by name, `elementwise`, `attention_decode`, `attention_prefill` and
        `head`. Messages between GPUs are not counted.

    Notes
    -----
    A linear layer of n by k on m tokens: `2 m n k` operations, its weights once per step, its
    inputs and outputs. Attention over P pairs of query and key: `4 heads head_size P`
    operations; keys and values are read once per sequence, and written once per token.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> steps = StepColumns(1, 1024)
    >>> terms = step_traffic(MODELS["llama-3.1-8b"], 1, steps)
    >>> float(terms["attention_decode"].num_bytes[0]) / 131072  # 1024 read, 1 written, and q, o
    1029.0
    """
    rows, context, prompt, chunks, num_steps = (
        np.atleast_1d(np.asarray(column, dtype=np.float64)) for column in steps[:5]
    )
    decodes = rows * num_steps
    tokens = decodes + prompt
    pairs, attended = _prefill(steps, prompt, chunks)
    terms = _layer_traffic(model, tp, tokens, num_steps)
    heads, _ = model.heads(tp)
    width = float(model.num_layers * heads * model.head_size)
    kv = float(model.kv_bytes_per_token(tp))
    for name, keys, queries, seen in (
        ("attention_decode", context, decodes, context),
        ("attention_prefill", pairs, prompt, attended),
    ):
        moved = kv * (seen + queries) + 2.0 * OTHER_BYTES * width * queries
        terms[name] = Traffic(4.0 * width * keys, moved)
    sampled = decodes + chunks
    vocabulary = float(-(-model.vocabulary_size // tp))
    read = np.where(sampled > 0, num_steps, 0.0) * vocabulary * model.hidden_size
    moved = OTHER_BYTES * (read + sampled * (vocabulary + model.hidden_size))
    terms["head"] = Traffic(2.0 * sampled * vocabulary * model.hidden_size, moved)
    return terms


def _prefill(
    steps: StepColumns, prompt: FloatArray, chunks: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return pairs of query and key, and keys read, of the prompt chunks."""
    equal = prompt / np.maximum(chunks, 1.0)
    pairs, attended = prompt * (equal + 1.0) / 2.0, prompt
    if steps.prefill_pairs is not None:
        pairs = np.atleast_1d(np.asarray(steps.prefill_pairs, dtype=np.float64))
    if steps.prefill_context is not None:
        attended = np.atleast_1d(np.asarray(steps.prefill_context, dtype=np.float64))
    return pairs, attended


def _layer_traffic(
    model: ModelArchitecture, tp: int, tokens: FloatArray, num_steps: FloatArray
) -> dict[str, Traffic]:
    """Return linear layers, experts and elementwise work of all layers."""
    layers, size = float(model.num_layers), float(model.linear_bytes)
    terms = {}
    for name, (out_features, in_features) in linear_shapes(model, tp).items():
        weights = float(out_features) * in_features
        moved = num_steps * weights * size
        moved = moved + tokens * (in_features * size + out_features * OTHER_BYTES)
        terms[name] = Traffic(layers * 2.0 * tokens * weights, layers * moved)
    if model.num_experts:
        expert = 3.0 * model.hidden_size * model.ffn_size / tp
        active = tokens * model.num_active_experts
        used = np.minimum(active, num_steps * model.num_experts)
        moved = used * expert * size + 2.0 * OTHER_BYTES * tokens * model.hidden_size
        terms["experts"] = Traffic(layers * 2.0 * active * expert, layers * moved)
    per_token = layers * sum(elementwise_bytes(model, tp))
    terms["elementwise"] = Traffic(np.zeros_like(tokens), per_token * tokens)
    return terms
