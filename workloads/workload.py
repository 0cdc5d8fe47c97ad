"""What all kinds of workload share: caps, the context limit, and how they become requests."""

from workloads.base import PositiveInt, Spec
from workloads.caps import CapSpec, OracleCap
from workloads.context import OnOverlong
from workloads.errors import WorkloadError
from workloads.sources import CappedSource, Source, TraceSource
from workloads.streams import Streams
from workloads.trace import Trace


class Workload(Spec):
    """Base of the kinds: what happens to requests once their rows are known."""

    max_tokens: CapSpec = OracleCap()
    """Cap that clients send along; the true output length by default."""
    on_overlong: OnOverlong = "error"
    """A request beyond the context: `error`, `drop` it, or `clip` its prompt; counted."""

    @property
    def is_open(self) -> bool:
        """Whether all arrivals are known beforehand, so that `build` can make them."""
        return True

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
            Arrivals depend on completions (see `is_open`), a file cannot be used, more
            requests are asked for than a trace holds, or a request does not fit.
        """
        if not self.is_open:
            told = "arrivals depend on completions here: expected a run that asks the source"
            raise WorkloadError(told)
        return self._table(streams, max_model_len)

    def _table(self, streams: Streams, max_model_len: int | None) -> Trace:
        """Make the rows as if the workload were open."""
        trace = self._rows(streams)
        if max_model_len is not None:
            trace = trace.limit_context(max_model_len, self.on_overlong)
        trace = self._at_rate(trace, streams)
        if isinstance(self.max_tokens, OracleCap):
            return trace
        return self.max_tokens.apply(trace, max_model_len)

    def source(self, streams: Streams, max_model_len: int | None = None) -> Source:
        """Make the source that a simulation asks for requests; parameters as for `build`."""
        return TraceSource(self.build(streams, max_model_len))

    def _rows(self, streams: Streams) -> Trace:
        raise NotImplementedError

    def _at_rate(self, trace: Trace, streams: Streams) -> Trace:
        return trace


class OpenWorkload(Workload):
    """Base of the kinds whose arrivals do not depend on completions."""

    max_concurrency: PositiveInt | None = None
    """Most requests that the client has under way at once; the others wait at the client."""

    @property
    def is_open(self) -> bool:
        """False where the client holds requests back."""
        return self.max_concurrency is None

    def source(self, streams: Streams, max_model_len: int | None = None) -> Source:
        """Make the source that a simulation asks for requests; parameters as for `build`."""
        trace = self._table(streams, max_model_len)
        if self.max_concurrency is None:
            return TraceSource(trace)
        return CappedSource(trace, self.max_concurrency)


def at_most_one(model: Spec, names: tuple[str, ...]) -> None:
    """Refuse a model in which more than one of some fields is given.

    Raises
    ------
    ValueError
        Names the fields.
    """
    given = [name for name in names if getattr(model, name) is not None]
    if len(given) > 1:
        raise ValueError(f"expected at most one of {', '.join(names)}, got {', '.join(given)}")
