"""Tables of one (GPU, model, TP): plain lists that a step only looks up."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache

from simulator.cost.attention import DecodeAttention, decode_attention
from simulator.cost.layers import head_s, layer_elementwise_s, linears_s, sampler_s
from simulator.cost.models import OTHER_BYTES, ModelArchitecture
from simulator.cost.operators import all_reduce_s
from simulator.cost.pieces import DecodeRow, cut_into_pieces
from simulator.cost.profile import FloatArray, OperatorProfile
from simulator.cost.prompts import PromptTables, compile_prompts
from simulator.cost.sum_table import SumTable, tabulate

MAX_HEAD_ROWS = 4096
"""Rows of the output head that are tabulated."""


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
    prompts : PromptTables
        Attention of prompt chunks.
    floor : float
        Launch floor of attention.
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
    prompts: PromptTables
    floor: float
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
def compile_tables(
    profile: OperatorProfile,
    model: ModelArchitecture,
    tp: int,
    head_profile: OperatorProfile | None = None,
) -> CompiledTables:
    """Compile the tables of a model on a GPU; calls with equal data share the result.

    Parameters
    ----------
    profile : OperatorProfile
        Measured operators.
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer: 1, 2, 4 or 8.
    head_profile : OperatorProfile, optional
        Timings in bfloat16, of the output head and of a cache in that format; by default
        `profile`.

    Returns
    -------
    CompiledTables
        Look-up tables.

    Raises
    ------
    UserError
        If `tp` does not divide the model, or a table that the model needs was not measured.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> tables = compile_tables(load_profile("h100"), MODELS["llama-3.1-8b"], 1)
    >>> round(tables.prompts.alone[2048] / 32 * 1e6)
    89
    """
    head_profile = head_profile or profile
    attention = head_profile if model.kv_bytes == OTHER_BYTES else profile
    decode = decode_attention(attention, model, tp)
    floor = decode.floor_s * model.num_layers
    return CompiledTables(
        profile_sha256=profile.sha256,
        layers=_compile_layers(profile, model, tp),
        head=_compile_head(head_profile, model, tp),
        prompts=compile_prompts(attention, model, tp, floor),
        floor=floor,
        decode=decode,
        num_layers=model.num_layers,
        calibration=_calibration(profile, decode),
        notes=_notes(profile, decode, model, tp),
    )


def _compile_layers(profile: OperatorProfile, model: ModelArchitecture, tp: int) -> SumTable:
    """Tabulate all but attention up to the last measured token count."""
    layers = model.num_layers

    def all_reduce(tokens: FloatArray) -> FloatArray:
        return 2 * layers * all_reduce_s(profile, tp, 2.0 * tokens * model.hidden_size)

    return tabulate(
        [
            lambda tokens: layers * _sum(linears_s(profile, model, tp, tokens)),
            lambda tokens: layers * layer_elementwise_s(profile, model, tp, tokens),
            all_reduce,
        ],
        last=int(profile.gemm_tokens[-1]),
    )


def _sum(times: Mapping[str, FloatArray]) -> FloatArray:
    """Add in order."""
    first, *others = times.values()
    return sum(others, first)


def _compile_head(profile: OperatorProfile, model: ModelArchitecture, tp: int) -> SumTable:
    """Tabulate the output head and the sampler."""
    return tabulate(
        [lambda rows: head_s(profile, model, tp, rows), lambda rows: sampler_s(profile, rows)],
        last=MAX_HEAD_ROWS,
    )


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
        "num_sampled": (1.0, float(profile.metadata.get("max_sampled", MAX_HEAD_ROWS))),
    }


def _notes(
    profile: OperatorProfile, decode: DecodeAttention, model: ModelArchitecture, tp: int
) -> tuple[str, ...]:
    """Say what stands in for a missing measurement, and what is of low confidence."""
    notes = [*profile.metadata.get("notes", [])]
    if tp > 1:
        notes += profile.metadata.get("all_reduce_notes", [])
    if profile.dtype == "fp8":
        notes.append("fp8 is of low confidence: off by up to 35 % against published runs")
    if model.num_experts:
        notes.append("experts are timed with balanced routing: real routing wakes fewer of them")
    measured, wanted = decode.layout, model.heads(tp)
    if measured != wanted:
        notes.append(
            f"attention of {measured[0]}/{measured[1]} heads stands for {wanted[0]}/{wanted[1]}"
        )
    if model.head_size != profile.head_size:
        notes.append(f"attention of head size {profile.head_size} stands for {model.head_size}")
    return tuple(notes)
