"""A recorded trace as a workload: what to read, and how to make another load of it."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, model_validator

from workloads import replay
from workloads.arrival_spec import ArrivalSpec
from workloads.base import PositiveInt, RequestRate, Spec
from workloads.errors import WorkloadError
from workloads.moves import time_warp
from workloads.readers.options import Failures, TimeUnit
from workloads.sources import Source
from workloads.streams import Streams
from workloads.ticks import Placement, detick
from workloads.trace import Trace
from workloads.turns import TurnSource
from workloads.workload import OpenWorkload, at_most_one

_RATES = ("request_rate", "time_warp", "thin", "superpose", "client_share")


class Columns(Spec):
    """The file's own names of the columns, for the formats csv, jsonl and parquet."""

    arrival: str = "arrival_s"
    """Time of arrival."""
    prompt_tokens: str = "prompt_tokens"
    """Length of the prompt."""
    output_tokens: str = "output_tokens"
    """Length of the output."""
    max_tokens: str = "max_tokens"
    """Cap on the output; may be missing."""
    tenant: str = "tenant"
    """Client; may be missing."""
    priority: str = "priority"
    """Priority; may be missing."""
    size: str = "size"
    """Batch rows that the request takes; may be missing."""
    ttft_slo: str = "ttft_slo_s"
    """Wanted time to the first token in seconds, or nothing; may be missing."""
    tpot_slo: str = "tpot_slo_s"
    """Wanted time between tokens in seconds, or nothing; may be missing."""
    conversation: str = "conversation"
    """Conversation; may be missing."""
    hash_ids: str = "hash_ids"
    """Prefix chain; may be missing, and does not exist in CSV files."""


class TraceWorkload(OpenWorkload):
    """Requests from a file, in the order and at the times recorded there.

    The steps, in this order: read a window; pick requests; place those without a clock; undo
    a coarse clock; take the leading requests; scale lengths; shorten silences; fit the
    context; change the rate, in exactly one way if at all. The account of the trace lists
    each with its parameters and counts, after the SHA-256 of the file.

    Raises
    ------
    pydantic.ValidationError
        More than one way to change the rate.
    """

    kind: Literal["trace"] = "trace"
    path: Path
    """The file, plain, gzip or zstd, or a folder of conversations."""
    format: str | None = None
    """Name of the format; found by the content if left out."""
    columns: Columns | None = None
    """The file's names of its columns, for the generic formats."""
    time_unit: TimeUnit | None = None
    """Unit of the times in the file; what the format says if left out."""
    block_size: PositiveInt | None = None
    """Tokens in a block of a prefix chain; what the format says if left out."""
    default_output: PositiveInt | None = None
    """Output of rows that name none; an error if left out."""
    failures: Failures | None = None
    """Rows without output: `error`, `drop`, `prefill` or `impute`; as the format has it."""
    start_s: float | None = Field(None, ge=0)
    """Beginning of the window that is read, in seconds after the first row."""
    end_s: float | None = Field(None, gt=0)
    """End of that window, in seconds; not included."""
    models: tuple[str, ...] | None = None
    """Models whose requests are kept; all by default."""
    log_types: tuple[str, ...] | None = None
    """Types of request that are kept; all by default."""
    tenants: tuple[str, ...] | None = None
    """Clients whose requests are kept; all by default."""
    arrivals: ArrivalSpec | None = None
    """Law of the arrivals, for a file without times or of conversations without a clock."""
    detick: Placement | None = None
    """How a coarse clock is undone: `uniform` or `even`; not at all by default."""
    tick_s: float | None = Field(None, gt=0)
    """Length of its tick in seconds; found if left out."""
    num_requests: PositiveInt | None = None
    """Number of leading rows to use; all if left out, and an error if there are fewer."""
    loop: bool = False
    """Whether the trace starts again where more requests are asked for than it has."""
    prompt_scale: float | None = Field(None, gt=0)
    """Factor on all prompts."""
    output_scale: float | None = Field(None, gt=0)
    """Factor on all outputs."""
    max_gap_s: float | None = Field(None, gt=0)
    """Longest silence in seconds; longer ones are shortened, which raises the rate."""
    request_rate: RequestRate | None = None
    """Requests per second to which time is stretched; as recorded if left out."""
    time_warp: float | None = Field(None, gt=0)
    """Factor by which the clock runs faster."""
    thin: float | None = Field(None, gt=0, le=1)
    """Fraction of the requests, or of the conversations, that is kept at random."""
    superpose: PositiveInt | None = None
    """Number of copies, shifted in time, with other conversations and prefixes."""
    client_share: float | None = Field(None, gt=0, le=1)
    """Fraction of the clients that is kept at random, each with all its requests."""
    resample_s: float | None = Field(None, gt=0)
    """Draw windows of so many seconds with replacement; in order and once each by default."""
    turns: Literal["open", "closed"] = "open"
    """Later turns of a conversation: when recorded, or `closed`: after the answer before."""
    strict: bool = True
    """Whether a bad row is an error, or dropped and counted."""

    @model_validator(mode="after")
    def _one_rate(self) -> Self:
        at_most_one(self, _RATES)
        if self.turns == "closed" and self.max_concurrency is not None:
            raise ValueError("expected no max_concurrency, as turns are closed")
        if self.tick_s is not None and self.detick is None:
            raise ValueError("expected detick to be uniform or even, as tick_s is given")
        return self

    @property
    def is_open(self) -> bool:
        """Whether no arrival depends on a completion."""
        return super().is_open and self.turns == "open"

    def source(self, streams: Streams, max_model_len: int | None = None) -> Source:
        """Make the source that a simulation asks for requests; parameters as for `build`."""
        if self.turns == "closed":
            return TurnSource(self._table(streams, max_model_len))
        return super().source(streams, max_model_len)

    def _rows(self, streams: Streams) -> Trace:
        trace = self._placed(self._picked(self._read()), streams)
        if self.detick is not None:
            trace = detick(trace, streams("detick"), self.tick_s, self.detick)
        if self.resample_s is not None:
            trace = replay.bootstrap(trace, self.resample_s, streams("resample"))
        if self.num_requests is not None:
            trace = (replay.loop if self.loop else Trace.head)(trace, self.num_requests)
        if self.prompt_scale is not None or self.output_scale is not None:
            scales = (self.prompt_scale or 1.0, self.output_scale or 1.0)
            trace = replay.scale_lengths(trace, *scales)
        return trace if self.max_gap_s is None else replay.cap_gaps(trace, self.max_gap_s)

    def _read(self) -> Trace:
        from workloads.readers import read_trace

        return read_trace(
            self.path,
            self.format,
            strict=self.strict,
            failures=self.failures,
            start_s=self.start_s,
            end_s=self.end_s,
            time_unit=self.time_unit,
            block_size=self.block_size,
            default_output=self.default_output,
            columns=None if self.columns is None else self.columns.model_dump(),
        )

    def _picked(self, trace: Trace) -> Trace:
        wanted: dict[str, Any] = {
            "models": self.models,
            "log_types": self.log_types,
            "tenants": self.tenants,
        }
        if all(names is None for names in wanted.values()):
            return trace
        return replay.pick(trace, **wanted)

    def _placed(self, trace: Trace, streams: Streams) -> Trace:
        """Give times to rows that have none, or whose conversations all start at 0 s."""
        notes = trace.provenance["notes"]
        clock = notes.get("clock", "common")
        if self.arrivals is None:
            if clock == "none" and notes["format"] != "servegen-offline":
                told = "the file has no times: expected arrivals, a law of arrivals"
                raise WorkloadError(told, path=self.path)
            return trace
        if clock == "common":
            told = "the file has times of its own: expected no arrivals"
            raise WorkloadError(told, path=self.path)
        return replay.place(trace, self.arrivals, streams("arrivals"))

    def _at_rate(self, trace: Trace, streams: Streams) -> Trace:
        if self.request_rate is not None:
            return trace.rescale(self.request_rate)
        if self.time_warp is not None:
            return time_warp(trace, self.time_warp)
        if self.thin is not None:
            return replay.thin(trace, self.thin, streams("thin"))
        if self.client_share is not None:
            return replay.thin_clients(trace, self.client_share, streams("thin"))
        return trace if self.superpose is None else replay.superpose(trace, self.superpose)
