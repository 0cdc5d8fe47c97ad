"""Makes a workload fit for advice: of bounded size, and different from seed to seed."""

from dataclasses import dataclass

from simulator.errors import UserError
from simulator.settings import Nested, merge
from simulator.spec import RunSpec
from workloads.errors import WorkloadError
from workloads.streams import Streams
from workloads.trace import Trace
from workloads.trace_spec import TraceWorkload

NUM_REQUESTS = 600
"""Requests of a run, unless more or fewer are asked for."""

NUM_WINDOWS = 20
"""A trace without chance in it is put together for every seed from about so many windows."""


@dataclass(frozen=True)
class Prepared:
    """A specification for advice.

    Attributes
    ----------
    base : dict
    about : str
        What the workload is, in words.
    """

    base: Nested
    about: str


def prepare(base: Nested, target: float, *, is_sized: bool) -> Prepared:
    """Bound the size of the workload and let its replications differ.

    A trace that is replayed as it is would be the same for every seed, and intervals over seeds
    would say nothing. Its windows are drawn with replacement instead (`resample_s`).

    Parameters
    ----------
    base : dict
        Specification.
    target : float
        Fraction of requests that have to meet the objectives; its percentile is measured.
    is_sized : bool
        Whether the number of requests was asked for.

    Raises
    ------
    UserError
        If the specification is wrong, has no objective, or the workload cannot be made.
    """
    spec = RunSpec.from_dict(base)
    goodput = spec.measure.goodput
    if goodput is None or not goodput.model_dump(exclude_none=True):
        raise UserError("no objective: give --goodput ttft:500 tpot:50")
    percentiles = sorted({*spec.measure.percentiles, float(f"{100 * target:g}")})
    base = merge(base, {"measure": {"percentiles": percentiles}})
    trace = _made(spec)
    if not is_sized and "num_requests" in type(spec.workload).model_fields:
        number = min(NUM_REQUESTS, len(trace)) if spec.workload.kind == "trace" else NUM_REQUESTS
        base = merge(base, {"workload": {"num_requests": number}})
        spec = RunSpec.from_dict(base)
        trace = _made(spec)
    note = ""
    if isinstance(spec.workload, TraceWorkload) and spec.workload.resample_s is None:
        other = _made(spec, 1)
        if trace.content_hash() == other.content_hash() and trace.span_s > 0:
            width = float(f"{trace.span_s / NUM_WINDOWS:.3g}")
            drawn = {"resample_s": width, "loop": True, "num_requests": len(trace)}
            base = merge(base, {"workload": drawn})
            _made(RunSpec.from_dict(base))
            note = f"; every seed draws its windows of {width:g} s with replacement"
    rate = f"{trace.rate:.3g} requests/s"
    about = f"{trace.provenance['source']} ({len(trace)} requests at about {rate}{note})"
    return Prepared(base, about)


def _made(spec: RunSpec, replication: int = 0) -> Trace:
    try:
        streams = Streams(spec.seed, replication)
        return spec.workload.source(streams, spec.engine.max_model_len).table
    except WorkloadError as error:
        raise UserError(str(error)) from None
