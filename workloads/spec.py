"""The workload as a person describes it, checked before anything runs."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field, TypeAdapter, field_validator

from workloads.arrivals import ArrivalSpec
from workloads.base import PositiveInt, RequestRate, Spec, with_kind
from workloads.caps import CapSpec, OracleCap
from workloads.context import OnOverlong
from workloads.lengths import LengthSpec
from workloads.presets import get_preset
from workloads.readers import read_trace
from workloads.sources import Source, TraceSource
from workloads.streams import Streams
from workloads.synthetic import generate
from workloads.trace import Trace


class _Workload(Spec):
    """What all kinds share: caps, and requests that do not fit the context."""

    max_tokens: CapSpec = OracleCap()
    """Cap that clients send along; the true output length by default."""
    on_overlong: OnOverlong = "error"
    """A request beyond the context: `error`, `drop` it, or `clip` its prompt; counted."""

    def build(self, streams: Streams, max_model_len: int | None = None) -> Trace:
        """Make the trace.

        Parameters
        ----------
        streams : Streams
            Root of all random streams.
        max_model_len : int, optional
            Longest prompt plus output in tokens; no limit if left out.

        Returns
        -------
        Trace
            The requests with the account of their origin. `num_requests` counts requests
            before any are dropped for their length.

        Raises
        ------
        WorkloadError
            A file that cannot be used, more requests asked for than a trace holds, or a
            request that does not fit.
        """
        trace = self._rows(streams)
        if max_model_len is not None:
            trace = trace.limit_context(max_model_len, self.on_overlong)
        trace = self._at_rate(trace)
        if isinstance(self.max_tokens, OracleCap):
            return trace
        return self.max_tokens.apply(trace, max_model_len)

    def source(self, streams: Streams, max_model_len: int | None = None) -> Source:
        """Make the source that a simulation asks for requests; parameters as for `build`."""
        return TraceSource(self.build(streams, max_model_len))

    def _rows(self, streams: Streams) -> Trace:
        raise NotImplementedError

    def _at_rate(self, trace: Trace) -> Trace:
        return trace


class SyntheticWorkload(_Workload):
    """Requests made from laws.

    Examples
    --------
    >>> workload = SyntheticWorkload.model_validate(
    ...     {"arrivals": 8, "prompt_tokens": {"mean": 512, "cv": 1.2}, "output_tokens": 128}
    ... )
    >>> workload.arrivals.kind, workload.prompt_tokens.kind, workload.output_tokens.kind
    ('poisson', 'lognormal', 'fixed')
    >>> len(workload.build(Streams(seed=1)))
    1000
    """

    kind: Literal["synthetic"] = "synthetic"
    arrivals: ArrivalSpec
    """Law of the times of arrival; a bare number is the rate of a Poisson process."""
    prompt_tokens: LengthSpec
    """Law of the prompt lengths; a bare number is a fixed length."""
    output_tokens: LengthSpec
    """Law of the output lengths; a bare number is a fixed length."""
    num_requests: PositiveInt = 1000
    """Number of requests, 1 or more."""

    def _rows(self, streams: Streams) -> Trace:
        laws = (self.arrivals, self.prompt_tokens, self.output_tokens)
        return generate(*laws, self.num_requests, streams)


class TraceWorkload(_Workload):
    """Requests from a file, in the order and at the times recorded there."""

    kind: Literal["trace"] = "trace"
    path: Path
    """The file, plain or gzip."""
    format: str | None = None
    """Name of the format; found by the first line if left out."""
    request_rate: RequestRate | None = None
    """Requests per second to which time is stretched; as recorded if left out."""
    num_requests: PositiveInt | None = None
    """Number of leading rows to use; all if left out, and an error if there are fewer."""
    strict: bool = True
    """Whether a bad row is an error, or dropped and counted."""

    def _rows(self, streams: Streams) -> Trace:
        trace = read_trace(self.path, self.format, strict=self.strict)
        return trace if self.num_requests is None else trace.head(self.num_requests)

    def _at_rate(self, trace: Trace) -> Trace:
        return trace if self.request_rate is None else trace.rescale(self.request_rate)


class PresetWorkload(_Workload):
    """A workload by name.

    Examples
    --------
    >>> workload = PresetWorkload(name="demo-chat", num_requests=20)
    >>> len(workload.build(Streams(seed=1), max_model_len=8192))
    20
    """

    kind: Literal["preset"] = "preset"
    name: str
    """Name of the preset."""
    request_rate: RequestRate | None = None
    """Mean rate in requests per second; the preset's own if left out."""
    num_requests: PositiveInt | None = None
    """Number of requests; the preset's own if left out."""

    @field_validator("name")
    @classmethod
    def _known(cls, name: str) -> str:
        return get_preset(name).name

    def _rows(self, streams: Streams) -> Trace:
        preset = get_preset(self.name)
        return preset.trace(self.num_requests, self.request_rate, streams=streams)


def _kind(data: Mapping[str, Any]) -> str:
    return "trace" if "path" in data else "preset" if "name" in data else "synthetic"


WORKLOADS = (SyntheticWorkload, TraceWorkload, PresetWorkload)

WorkloadSpec: TypeAlias = Annotated[
    SyntheticWorkload | TraceWorkload | PresetWorkload,
    Field(discriminator="kind"),
    with_kind(_kind),
]
"""Any kind of workload; ``kind`` may be left out where the other keys tell it."""


def parse_workload(data: object) -> WorkloadSpec:
    """Check a description, as read from YAML or written in a notebook.

    Parameters
    ----------
    data : mapping or workload
        The keys of one kind. Without ``kind``, ``path`` makes it a trace, ``name`` a preset,
        and anything else synthetic.

    Returns
    -------
    SyntheticWorkload, TraceWorkload or PresetWorkload
        The description.

    Raises
    ------
    pydantic.ValidationError
        A key unknown, missing, or out of its range; names the key.

    Examples
    --------
    >>> parse_workload({"name": "demo-chat"}).kind
    'preset'
    """
    return _adapter().validate_python(data)


@cache
def _adapter() -> TypeAdapter[WorkloadSpec]:
    return TypeAdapter(WorkloadSpec)
