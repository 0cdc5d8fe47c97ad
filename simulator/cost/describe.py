"""One step taken apart: the time of every term, what bounds it, and how busy the GPU is."""

from collections.abc import Sequence

import numpy as np

from simulator.cost.base import StepWork
from simulator.cost.breakdown import StepBreakdown, Term
from simulator.cost.layers import linears_s
from simulator.cost.profile import FloatArray
from simulator.cost.table import TableCost
from simulator.cost.table_spec import TableSpec
from simulator.cost.traffic import StepColumns, Traffic, step_flops_bytes, step_traffic
from simulator.errors import UserError

LATENCY_SHARE = 0.25
"""A term whose roofline time is a smaller part of its time than this is bound by latency."""

_FIXED_BOUNDS = {
    "all_reduce": "link",
    "launch": "host",
    "sampler": "latency",
    "prefill_overhead": "host",
    "host": "host",
}


def describe_step(
    spec: TableSpec, decodes: int = 0, context: int = 0, chunks: Sequence[tuple[int, int]] = ()
) -> StepBreakdown:
    """Take one step apart.

    Parameters
    ----------
    spec : TableSpec
        Model, GPU and engine; noise is left out.
    decodes : int
        Decodes in the step.
    context : int
        Tokens that each of them attends, the new one included.
    chunks : sequence of (tokens, past)
        Prompt pieces and the tokens stored before them; each completes its prompt.

    Returns
    -------
    StepBreakdown
        Its parts.

    Raises
    ------
    UserError
        If the step is empty or a count is negative, or something was not measured.

    Examples
    --------
    >>> step = describe_step(TableSpec(), decodes=128, context=1024, chunks=[(512, 0)])
    >>> round(step.ms, 1), step.bound, round(step.mfu, 2)
    (23.5, 'compute', 0.4)
    """
    work = _work(decodes, context, chunks)
    cost = spec.cost()
    ms = cost.step_time(work) * 1e3
    model, profile = spec.find_model(), spec.find_profile()
    traffic = step_traffic(model, spec.tp, columns_of(work))
    terms = [
        _term(name, seconds, traffic.get(name), profile.peak_flops, profile.hbm_bytes_per_s)
        for name, seconds in _seconds(spec, cost, work).items()
    ]
    return StepBreakdown(
        gpu=profile.gpu.key,
        model=model.key,
        tp=spec.tp,
        dtype=profile.dtype,
        engine_profile=cost.engine_profile,
        decodes=decodes,
        context=context if decodes else 0,
        chunks=work.chunks,
        terms=tuple(term for term in terms if term.ms),
        ms=ms,
        peak_tflops=profile.peak_flops / 1e12,
        peak_gb_per_s=profile.hbm_bytes_per_s / 1e9,
        outside=_outside(cost, work),
        notes=(*cost.notes, *_unfit(spec)),
    )


def utilisation(
    spec: TableSpec, steps: StepColumns, seconds: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return how busy the GPU was in each step of a run.

    Parameters
    ----------
    spec : TableSpec
        Model and GPU.
    steps : StepColumns
        What the steps held.
    seconds : array
        Their durations (of the whole run of steps, where an entry stands for several).

    Returns
    -------
    mfu, bandwidth : array
        Arithmetic and memory traffic as fractions of the peaks.

    Examples
    --------
    >>> steps = StepColumns(decode_rows=[64], context_tokens=[64 * 1024])
    >>> mfu, bandwidth = utilisation(TableSpec(), steps, np.array([0.0115]))
    >>> mfu.round(2).tolist(), bandwidth.round(2).tolist()
    ([0.09], [0.63])
    """
    profile = spec.find_profile()
    flops, moved = step_flops_bytes(spec.find_model(), spec.tp, steps)
    return flops / seconds / profile.peak_flops, moved / seconds / profile.hbm_bytes_per_s


def columns_of(work: StepWork) -> StepColumns:
    """Return one step in the form that its traffic is counted from.

    Examples
    --------
    >>> columns_of(StepWork(chunks=((4, 10),))).prefill_pairs
    50.0
    """
    return StepColumns(
        decode_rows=work.num_decodes,
        context_tokens=work.context_tokens,
        prefill_tokens=work.num_tokens - work.num_decodes,
        prefill_chunks=len(work.chunks),
        prefill_pairs=work.prefill_pairs,
        prefill_context=work.prefill_context,
    )


def parse_chunk(text: str) -> tuple[int, int]:
    """Read a prompt chunk from `TOKENS` or `TOKENS:PAST`.

    Examples
    --------
    >>> parse_chunk("512"), parse_chunk("256:4096")
    ((512, 0), (256, 4096))
    """
    tokens, _, past = text.partition(":")
    try:
        return int(tokens), int(past or 0)
    except ValueError:
        raise UserError(f"chunk {text!r}: expected TOKENS or TOKENS:PAST, as 512:4096") from None


def _work(decodes: int, context: int, chunks: Sequence[tuple[int, int]]) -> StepWork:
    """Check the counts and return the step."""
    if decodes < 0 or (decodes and context < 1):
        raise UserError(f"{decodes} decodes at context {context}: expected counts of at least 1")
    for tokens, past in chunks:
        if tokens < 1 or past < 0:
            raise UserError(f"chunk {tokens}:{past}: expected at least 1 token behind at least 0")
    if not decodes and not chunks:
        raise UserError("an empty step: expected decodes with a context, or chunks")
    rows = decodes + len(chunks)
    return StepWork(decodes, decodes * context, tuple(chunks), rows, rows)


def _seconds(spec: TableSpec, cost: TableCost, work: StepWork) -> dict[str, float]:
    """Return the parts of the step, with the linear layers one by one."""
    parts = cost.breakdown(work)
    total = parts.pop("linears")
    tokens = np.array([float(work.num_tokens)])
    each = linears_s(spec.find_profile(), spec.find_model(), spec.tp, tokens)
    scale = total / sum(float(seconds[0]) for seconds in each.values())
    return {name: float(seconds[0]) * scale for name, seconds in each.items()} | parts


def _unfit(spec: TableSpec) -> tuple[str, ...]:
    """Say by how much the model does not fit the memory, if it does not."""
    try:
        spec.kv_capacity()
    except UserError as error:
        return (str(error),)
    return ()


def _term(
    name: str, seconds: float, traffic: Traffic | None, peak_flops: float, peak_bytes: float
) -> Term:
    """Return a term with what limits it."""
    flops = float(traffic.flops[0]) if traffic else 0.0
    moved = float(traffic.num_bytes[0]) if traffic else 0.0
    bound = _FIXED_BOUNDS.get(name)
    if bound is None:
        computing, moving = flops / peak_flops, moved / peak_bytes
        bound = "compute" if computing > moving else "memory"
        if max(computing, moving) < LATENCY_SHARE * seconds:
            bound = "latency"
    return Term(name, seconds * 1e3, flops, moved, bound)


def _outside(cost: TableCost, work: StepWork) -> tuple[str, ...]:
    """Say what of a step lies outside the measurements."""
    ranges = cost.calibration
    found = []
    if work.num_tokens > ranges["num_tokens"][1]:
        found.append(
            f"{work.num_tokens} tokens in a step (measured to {ranges['num_tokens'][1]:g})"
        )
    if work.num_sampled > ranges["num_sampled"][1]:
        found.append(f"{work.num_sampled} sampled rows (to {ranges['num_sampled'][1]:g})")
    if work.num_decodes:
        longest = cost.tables.decode_row(work.num_decodes).max_context
        if work.context_tokens / work.num_decodes > longest:
            found.append(f"decodes at that batch and context (to context {longest:.0f})")
    longest_chunk = cost.tables.prompts.longest
    if any(tokens + past > longest_chunk for tokens, past in work.chunks):
        found.append(f"a chunk and its past (to {longest_chunk} tokens)")
    return tuple(found)
