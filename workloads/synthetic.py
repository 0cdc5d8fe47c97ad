"""Requests made from laws: one of arrivals, and one for each length or for both."""

from dataclasses import dataclass

from workloads.arrivals import ArrivalProcess
from workloads.base import IntArray
from workloads.errors import check_num_requests
from workloads.lengths import LengthDistribution
from workloads.provenance import origin
from workloads.streams import Streams
from workloads.trace import Trace


@dataclass(frozen=True, slots=True)
class Independent:
    """Two laws of lengths that have nothing to do with each other."""

    prompt_tokens: LengthDistribution
    output_tokens: LengthDistribution

    def sample(self, n: int, streams: Streams) -> tuple[IntArray, IntArray]:
        """Return `n` prompts and `n` outputs, each from a stream of its own."""
        prompts = self.prompt_tokens.sample(n, streams("prompt_tokens"))
        return prompts, self.output_tokens.sample(n, streams("output_tokens"))


def generate(
    arrivals: ArrivalProcess,
    prompt_tokens: LengthDistribution,
    output_tokens: LengthDistribution,
    num_requests: int,
    streams: Streams,
    source: str = "synthetic",
) -> Trace:
    """Draw requests, each property from a stream of its own.

    Parameters
    ----------
    arrivals : ArrivalProcess
        Law of the times of arrival.
    prompt_tokens, output_tokens : LengthDistribution
        Laws of the lengths, independent of each other and of the arrivals.
    num_requests : int
        Number of requests, 1 or more.
    streams : Streams
        Root of the streams ``arrivals``, ``prompt_tokens`` and ``output_tokens``.
    source : str, default 'synthetic'
        Name in the provenance.

    Returns
    -------
    Trace
        The requests; the clock starts at 0 s, the first arrival comes later. The account
        states the rate and the mean lengths asked for beside those drawn.

    Raises
    ------
    WorkloadError
        No requests asked for, or a law that cannot be drawn from.

    Examples
    --------
    >>> from workloads import FixedLength, PoissonArrivals
    >>> law = FixedLength(tokens=8)
    >>> len(generate(PoissonArrivals(request_rate=2), law, law, 5, Streams(1)))
    5
    """
    check_num_requests(num_requests)
    lengths = Independent(prompt_tokens, output_tokens)
    prompts, outputs = lengths.sample(num_requests, streams)
    trace = assemble(arrivals, prompts, outputs, streams, source)
    account = trace.provenance
    for name, law, drawn in (
        ("prompt_tokens", prompt_tokens, prompts),
        ("output_tokens", output_tokens, outputs),
    ):
        account["notes"][name] = f"mean {drawn.mean():.6g}, asked {law.mean:.6g}"
    return trace.with_provenance(account)


def assemble(
    arrivals: ArrivalProcess,
    prompts: IntArray,
    outputs: IntArray,
    streams: Streams,
    source: str,
) -> Trace:
    """Put lengths and drawn arrivals together; the account states the rate beside that asked."""
    times = arrivals.times(prompts.size, streams("arrivals"))
    realised = prompts.size / times[-1] if times[-1] > 0 else float("inf")
    notes = {
        "seed": str(streams.seed),
        "replication": str(streams.replication),
        "request_rate": f"{realised:.6g}, asked {arrivals.rate:.6g}",
    }
    return Trace(times, prompts, outputs, provenance=origin(source, prompts.size, notes=notes))
