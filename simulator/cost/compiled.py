"""Tables of one (GPU, model, TP): plain lists that a step only looks up."""

from dataclasses import dataclass, field
from functools import lru_cache

import numpy as np

from simulator.cost.attention import DecodeAttention, decode_attention, prefill_attention_s
from simulator.cost.models import ModelArchitecture
from simulator.cost.operators import all_reduce_s, elementwise_s, gemm_s
from simulator.cost.pieces import DecodeRow, cut_into_pieces, never_falling
from simulator.cost.profile import FloatArray, OperatorProfile
from simulator.cost.sum_table import SumTable, stable, tabulate

SERIAL_S_PER_TOKEN = 0.0135e-6
"""Time per attended token that one query tile needs however few queries there are, seconds."""

MAX_HEAD_ROWS = 4096
"""Rows of the output head that are tabulated."""

SAMPLER_SEQUENCES = (1.0, 32.0, 128.0, 256.0)
SAMPLER_S = (25e-6, 33e-6, 64e-6, 164e-6)
"""Sampler with a vocabulary of 128k (LLMServingSim, vLLM 0.19.0); the last slope is held."""


@dataclass(frozen=True)
class CompiledTables:
    """Everything that a step looks up, in seconds over all layers.

    Attributes
    ----------
    profile_sha256 : str
        Hash of the data the tables were compiled from.
    layers : SumTable
        Linears, elementwise work and all-reduce, by number of tokens.
    head : SumTable
        Output head and sampler, by number of sampled rows.
    prefill : list of float
        Attention of a prompt without stored context, by its length.
    prefill_rate : list of float
        Attention seconds per squared token, by total length; the last entry is held.
    floor : float
        Launch floor of attention.
    serial : float
        Serial attention time per attended token.
    decode : DecodeAttention
        Source of the rows.
    num_layers : int
        Layers of the model.
    calibration : dict of str to (least, greatest)
        Ranges within which a step does not count as extrapolated: tokens per step, decodes, mean
        context (of one decode, of the largest batch), chunk with its past, sampled rows.
    notes : tuple of str
        What was substituted for a missing measurement.
    rows : dict of int to DecodeRow
        Rows built so far, by batch size.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> tables = compile_tables(load_profile("h100"), MODELS["llama-3.1-8b"], 1)
    >>> round(tables.layers.parts_at(1)[0] * 1e3, 2)
    5.08
    """

    profile_sha256: str
    layers: SumTable
    head: SumTable
    prefill: list[float]
    prefill_rate: list[float]
    floor: float
    serial: float
    decode: DecodeAttention
    num_layers: int
    calibration: dict[str, tuple[float, float]]
    notes: tuple[str, ...]
    rows: dict[int, DecodeRow] = field(default_factory=dict, compare=False, repr=False)

    def decode_row(self, num_decodes: int) -> DecodeRow:
        """Return the row of a batch size of at least 1; built once, then kept."""
        row = self.rows.get(num_decodes)
        if row is None:
            if num_decodes < 1:
                raise ValueError("a step needs at least one token")
            row = cut_into_pieces(
                lambda contexts: self.num_layers * self.decode.seconds(num_decodes, contexts),
                self.decode.max_context(num_decodes),
            )
            self.rows[num_decodes] = row
        return row


@lru_cache(maxsize=16)
def compile_tables(profile: OperatorProfile, model: ModelArchitecture, tp: int) -> CompiledTables:
    """Compile the tables of a model on a GPU; calls with equal data share the result.

    Parameters
    ----------
    profile : OperatorProfile
        Measured operators.
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer: 1, 2, 4 or 8.

    Returns
    -------
    CompiledTables
        Look-up tables.

    Raises
    ------
    UserError
        If `tp` does not divide the model.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> tables = compile_tables(load_profile("h100"), MODELS["llama-3.1-8b"], 1)
    >>> round(tables.prefill[2048] / 32 * 1e6)
    89
    """
    decode = decode_attention(profile, model, tp)
    prefill, prefill_rate = _compile_prefill(profile, model, tp)
    return CompiledTables(
        profile_sha256=profile.sha256,
        layers=_compile_layers(profile, model, tp),
        head=_compile_head(profile, model, tp),
        prefill=prefill,
        prefill_rate=prefill_rate,
        floor=decode.floor_s * model.num_layers,
        serial=SERIAL_S_PER_TOKEN * model.num_layers,
        decode=decode,
        num_layers=model.num_layers,
        calibration=_calibration(profile, decode),
        notes=_notes(decode, model, tp),
    )


def _compile_layers(profile: OperatorProfile, model: ModelArchitecture, tp: int) -> SumTable:
    """Tabulate all but attention up to the last measured token count."""
    layers = model.num_layers

    def all_reduce(tokens: FloatArray) -> FloatArray:
        return 2 * layers * all_reduce_s(profile, tp, 2.0 * tokens * model.hidden_size)

    return tabulate(
        [
            lambda tokens: layers * _linears_s(profile, model, tp, tokens),
            lambda tokens: layers * _elementwise_s(profile, model, tp, tokens),
            all_reduce,
        ],
        last=int(profile.gemm_tokens[-1]),
    )


def _linears_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> FloatArray:
    """Return the four linear layers of one transformer layer, seconds."""
    heads, kv_heads = model.heads(tp)
    hidden, ffn = model.hidden_size, model.ffn_size // tp
    qkv = gemm_s(profile, (heads + 2 * kv_heads) * model.head_size, hidden, tokens)
    output = gemm_s(profile, hidden, heads * model.head_size, tokens)
    gate_up = gemm_s(profile, 2 * ffn, hidden, tokens)
    down = gemm_s(profile, hidden, ffn, tokens)
    return qkv + output + gate_up + down


def _elementwise_s(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> FloatArray:
    """Return norms, rotary embedding and activation of one layer, seconds."""
    heads, kv_heads = model.heads(tp)
    norms = 2.0 * elementwise_s(profile, 8.0 * tokens * model.hidden_size)
    rotary = elementwise_s(profile, 4.0 * tokens * ((heads + kv_heads) * model.head_size))
    activation = elementwise_s(profile, 6.0 * tokens * (model.ffn_size // tp))
    if not model.qk_norm:
        return norms + rotary + activation
    q_norm = elementwise_s(profile, 4.0 * tokens * (heads * model.head_size))
    k_norm = elementwise_s(profile, 4.0 * tokens * (kv_heads * model.head_size))
    return norms + rotary + activation + q_norm + k_norm


def _compile_head(profile: OperatorProfile, model: ModelArchitecture, tp: int) -> SumTable:
    """Tabulate the output head and the sampler."""
    vocabulary = -(-model.vocabulary_size // tp)
    return tabulate(
        [lambda rows: gemm_s(profile, vocabulary, model.hidden_size, rows), _sampler_s],
        last=MAX_HEAD_ROWS,
    )


def _sampler_s(rows: FloatArray) -> FloatArray:
    """Return the sampler, linear between its measured points and beyond the last."""
    last = SAMPLER_SEQUENCES[-1]
    slope = (SAMPLER_S[-1] - SAMPLER_S[-2]) / (last - SAMPLER_SEQUENCES[-2])
    beyond = np.maximum(rows - last, 0.0)
    return np.interp(rows, SAMPLER_SEQUENCES, SAMPLER_S) + slope * beyond


def _compile_prefill(
    profile: OperatorProfile, model: ModelArchitecture, tp: int
) -> tuple[list[float], list[float]]:
    """Tabulate prompt attention, and its time per squared token, up to the longest prompt."""
    tokens = np.arange(1, int(profile.prefill_tokens[-1]) + 1, dtype=np.float64)
    seconds = model.num_layers * prefill_attention_s(profile, model, tp, tokens)
    seconds = stable(never_falling(seconds))
    rate = stable(seconds / (tokens * tokens))
    return [0.0, *seconds.tolist()], [0.0, *rate.tolist()]


def _calibration(
    profile: OperatorProfile, decode: DecodeAttention
) -> dict[str, tuple[float, float]]:
    """Return the ranges of the measurements."""
    shortest = float(decode.contexts[0])
    return {
        "num_tokens": (1.0, float(profile.gemm_tokens[-1])),
        "num_decodes": (1.0, float(decode.batches[-1])),
        "mean_context_of_one": (shortest, float(decode.last_contexts[0])),
        "mean_context_of_largest_batch": (shortest, float(decode.last_contexts[-1])),
        "chunk_and_past": (1.0, float(profile.prefill_tokens[-1])),
        "num_sampled": (1.0, float(MAX_HEAD_ROWS)),
    }


def _notes(decode: DecodeAttention, model: ModelArchitecture, tp: int) -> tuple[str, ...]:
    """Say which head layout stands in for an unmeasured one."""
    measured, wanted = decode.layout, model.heads(tp)
    notes = []
    if measured != wanted:
        notes.append(
            f"attention of {measured[0]}/{measured[1]} heads stands for {wanted[0]}/{wanted[1]}"
        )
    if model.head_size != 128:
        notes.append(f"attention of head size 128 stands for {model.head_size}")
    return tuple(notes)
