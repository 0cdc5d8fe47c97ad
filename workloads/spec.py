"""The workload as a person describes it, checked before anything runs."""

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter, field_validator, model_validator

from workloads.arrival_spec import ArrivalSpec
from workloads.base import ByKind, PositiveInt, RequestRate, with_kind
from workloads.clients import ClientsWorkload
from workloads.closed import ClosedWorkload
from workloads.conversation import ConversationWorkload
from workloads.joint import JointSpec, ReasoningShare
from workloads.length_spec import LengthSpec
from workloads.sources import Source
from workloads.streams import Streams
from workloads.synthetic import assemble, generate
from workloads.trace import Trace
from workloads.trace_spec import TraceWorkload
from workloads.turns import TurnSource
from workloads.workload import OpenWorkload

if TYPE_CHECKING:
    from workloads.presets import Preset


class SyntheticWorkload(OpenWorkload):
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
    prompt_tokens: LengthSpec | None = None
    """Law of the prompt lengths; a bare number is a fixed length."""
    output_tokens: LengthSpec | None = None
    """Law of the output lengths; a bare number is a fixed length."""
    lengths: JointSpec | None = None
    """Law of both lengths together, instead of one for each."""
    reasoning: ReasoningShare | None = None
    """Share of the outputs that is reasoning: column ``reasoning_tokens``; none by default."""
    num_requests: PositiveInt = 1000
    """Number of requests, 1 or more."""
    horizon_s: float | None = Field(None, gt=0)
    """Requests that would arrive then, in seconds, or later are left out; none by default."""

    @model_validator(mode="after")
    def _lengths_once(self) -> Self:
        apart = [self.prompt_tokens, self.output_tokens]
        if self.lengths is None and None in apart:
            raise ValueError("expected prompt_tokens and output_tokens, or lengths for both")
        if self.lengths is not None and apart != [None, None]:
            raise ValueError("expected either lengths, or prompt_tokens and output_tokens")
        return self

    def _rows(self, streams: Streams) -> Trace:
        trace = self._drawn(streams)
        if self.reasoning is not None:
            thought = self.reasoning.split(trace.output_tokens, streams("reasoning"))
            trace = trace.derive("reasoning", {}, reasoning_tokens=thought)
        if self.horizon_s is None:
            return trace
        return trace.select(end_s=self.horizon_s)

    def _drawn(self, streams: Streams) -> Trace:
        if self.lengths is not None:
            pairs = self.lengths.sample(self.num_requests, streams)
            return assemble(self.arrivals, *pairs, streams, "synthetic")
        assert self.prompt_tokens is not None
        assert self.output_tokens is not None
        laws = (self.arrivals, self.prompt_tokens, self.output_tokens)
        return generate(*laws, self.num_requests, streams)


class PresetWorkload(OpenWorkload):
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
        return _preset(name).name

    @model_validator(mode="after")
    def _cap_needs_arrivals(self) -> Self:
        if self.max_concurrency is not None and not _preset(self.name).is_open:
            raise ValueError(f"expected no max_concurrency, as turns of {self.name} are closed")
        return self

    @property
    def is_open(self) -> bool:
        """Whether no arrival depends on a completion."""
        return super().is_open and _preset(self.name).is_open

    def source(self, streams: Streams, max_model_len: int | None = None) -> Source:
        """Make the source that a simulation asks for requests; parameters as for `build`."""
        if not _preset(self.name).is_open:
            return TurnSource(self._table(streams, max_model_len))
        return super().source(streams, max_model_len)

    def _rows(self, streams: Streams) -> Trace:
        preset = _preset(self.name)
        return preset.trace(self.num_requests, self.request_rate, streams=streams)


def _preset(name: str) -> "Preset":
    from workloads.presets import get_preset

    return get_preset(name)


def _kind(data: Mapping[str, Any]) -> str:
    marks = {
        "path": "trace",
        "name": "preset",
        "num_users": "closed",
        "clients": "clients",
        "turns": "conversations",
    }
    return next((kind for mark, kind in marks.items() if mark in data), "synthetic")


WORKLOADS = (
    SyntheticWorkload,
    TraceWorkload,
    PresetWorkload,
    ClosedWorkload,
    ClientsWorkload,
    ConversationWorkload,
)

WorkloadSpec: TypeAlias = Annotated[
    SyntheticWorkload
    | TraceWorkload
    | PresetWorkload
    | ClosedWorkload
    | ClientsWorkload
    | ConversationWorkload,
    ByKind(WORKLOADS),
    with_kind(_kind),
]
"""Any kind of workload; ``kind`` may be left out where the other keys tell it."""


def parse_workload(data: object) -> WorkloadSpec:
    """Check a description, as read from YAML or written in a notebook.

    Parameters
    ----------
    data : mapping or workload
        The keys of one kind. Without ``kind``, ``path`` makes it a trace, ``name`` a preset,
        ``num_users`` a closed loop, ``clients`` a sum of clients, ``turns`` conversations,
        and anything else synthetic.

    Returns
    -------
    one of WORKLOADS
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
