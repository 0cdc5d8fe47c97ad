"""Requests made from laws: one of arrivals and one for each length."""

from workloads.arrivals import ArrivalProcess
from workloads.errors import check_num_requests
from workloads.lengths import LengthDistribution
from workloads.provenance import origin
from workloads.streams import Streams
from workloads.trace import Trace


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
        The requests; the clock starts at 0 s, the first arrival comes later.

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
    notes = {"seed": str(streams.seed), "replication": str(streams.replication)}
    return Trace(
        arrivals.times(num_requests, streams("arrivals")),
        prompt_tokens.sample(num_requests, streams("prompt_tokens")),
        output_tokens.sample(num_requests, streams("output_tokens")),
        provenance=origin(source, num_requests, notes=notes),
    )
