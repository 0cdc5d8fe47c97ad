"""Other loads from a recorded trace: which rows, how many copies, how long, how fast.

Each way of changing the rate keeps something and loses something. `time_warp` and
`Trace.rescale` keep the CV and move every time scale. `thin` keeps the time scales and moves
towards Poisson. `superpose` stands for more users and smooths.
"""

from collections.abc import Sequence

import numpy as np

from workloads.arrivals import ArrivalProcess
from workloads.base import IntArray
from workloads.chains import Chains
from workloads.errors import WorkloadError, check_num_requests
from workloads.moves import follow, moved
from workloads.trace import Trace


def pick(
    trace: Trace,
    *,
    models: Sequence[str] | None = None,
    log_types: Sequence[str] | None = None,
    tenants: Sequence[str] | None = None,
) -> Trace:
    """Keep the requests of some models, log types and clients.

    Raises
    ------
    WorkloadError
        The trace has no such column, a name does not occur in it, or no request is left.

    Examples
    --------
    >>> trace = Trace([0.0, 1.0], [5, 6], [1, 1], columns={"tenant": ["a", "b"]})
    >>> pick(trace, tenants=["b"]).prompt_tokens.tolist()
    [6]
    """
    wanted = {"model": models, "log_type": log_types, "tenant": tenants}
    keep = np.ones(len(trace), np.bool_)
    for name, values in wanted.items():
        if values is None:
            continue
        if name not in trace.columns:
            source = trace.provenance["source"]
            raise WorkloadError(f"expected a trace with a {name} a request, not {source}")
        known = np.unique(trace.columns[name]).tolist()
        for value in values:
            if value not in known:
                told = ", ".join(known[:10])
                raise WorkloadError(f"expected a {name} that occurs: {told}", value=value)
        keep &= np.isin(trace.columns[name], list(values))
    parameters = {f"{name}s": list(values) for name, values in wanted.items() if values is not None}
    return trace.derive("pick", parameters, keep=keep)


def thin(
    trace: Trace, share: float, rng: np.random.Generator, *, whole_conversations: bool = True
) -> Trace:
    """Keep each request with a probability, independently.

    Parameters
    ----------
    trace : Trace
        The requests.
    share : float
        Probability, above 0 and at most 1.
    rng : numpy.random.Generator
        Decides.
    whole_conversations : bool, default True
        Whether the requests of a conversation stay or go together.
    """
    _check_share("thin", share)
    draws = rng.random(len(trace))
    conversations = trace.columns.get("conversation")
    if whole_conversations and conversations is not None:
        # The draw of a conversation is that of its first request.
        _, first, member = np.unique(conversations, return_index=True, return_inverse=True)
        draws = np.where(conversations >= 0, draws[first][member], draws)
    parameters = {"share": share, "whole_conversations": whole_conversations}
    return trace.derive("thin", parameters, keep=draws < share)


def thin_clients(trace: Trace, share: float, rng: np.random.Generator) -> Trace:
    """Keep each client, with all its requests, with a probability.

    Raises
    ------
    WorkloadError
        The requests do not say whose they are, or no client is left.
    """
    _check_share("client_share", share)
    if "tenant" not in trace.columns:
        source = trace.provenance["source"]
        raise WorkloadError(f"expected a trace with a tenant a request, not {source}")
    clients, member = np.unique(trace.columns["tenant"], return_inverse=True)
    kept = rng.random(clients.size) < share
    parameters = {"share": share, "clients": int(clients.size), "clients_kept": int(kept.sum())}
    return trace.derive("thin_clients", parameters, keep=kept[member])


def superpose(trace: Trace, copies: int, *, common_blocks: int = 0) -> Trace:
    """Lay copies of a trace over each other, shifted in time: more users of the same kind.

    Parameters
    ----------
    trace : Trace
        The requests.
    copies : int
        Number of copies with the original, 1 or more. Copy i starts i/copies of the span
        later; what then lies beyond the end comes in at the beginning, unless conversations
        would be torn: then it stays where it is, and the ends are thinner.
    common_blocks : int, default 0
        Leading blocks of each prefix chain that the copies share, such as those of a common
        system prompt. All others are renamed, as other users have other text.

    Returns
    -------
    Trace
        The requests of all copies, in order of arrival.
    """
    if copies < 1:
        raise WorkloadError("expected a superpose of at least 1", value=copies)
    n, first = len(trace), float(trace.arrival_s[0])
    period = trace.span_s * n / max(n - 1, 1)
    wrap = "conversation" not in trace.columns
    copy = np.repeat(np.arange(copies), n)
    since = np.tile(trace.arrival_s - first, copies) + copy * (period / copies)
    if wrap and period > 0:
        since = np.mod(since, period)
    order = np.argsort(since, kind="stable")
    rows = np.tile(np.arange(n), copies)
    changed = follow(trace, rows[order], first + since[order])
    if not wrap:
        conversations = trace.columns["conversation"]
        renamed = np.tile(conversations, copies) + copy * (int(conversations.max()) + 1)
        changed["conversation"] = np.where(np.tile(conversations, copies) < 0, -1, renamed)[order]
    chains = _renamed(trace.chains, copies, common_blocks)
    chains = None if chains is None else chains.take(order)
    parameters = {"copies": copies, "wrap": wrap, "common_blocks": common_blocks}
    return trace.gather("superpose", parameters, rows[order], chains, **changed)


def _renamed(chains: Chains | None, copies: int, common_blocks: int) -> Chains | None:
    if chains is None:
        return None
    largest = int(chains.ids.max(initial=-1)) + 1
    depth = np.arange(chains.ids.size) - np.repeat(chains.ends - chains.lengths, chains.lengths)
    own = depth >= common_blocks
    ids = np.concatenate([chains.ids + own * largest * copy for copy in range(copies)])
    ends = np.concatenate([chains.ends + chains.ids.size * copy for copy in range(copies)])
    return Chains(ids, ends, chains.block_size)


def place(trace: Trace, arrivals: ArrivalProcess, rng: np.random.Generator) -> Trace:
    """Give times to a trace that has none of its own.

    Parameters
    ----------
    trace : Trace
        Requests that all stand at 0 s, or conversations that all start there.
    arrivals : ArrivalProcess
        Law of the times of arrival, of requests or of the starts of conversations.
    rng : numpy.random.Generator
        Draws them.

    Returns
    -------
    Trace
        The requests in order of arrival. Within a conversation, recorded times are kept.
    """
    conversations = trace.columns.get("conversation")
    if conversations is None:
        arrival_s = arrivals.times(len(trace), rng)
    else:
        # Requests of no conversation start on their own.
        alone = -1 - np.arange(len(trace))
        labels = np.where(conversations < 0, alone, conversations)
        _, first, member = np.unique(labels, return_index=True, return_inverse=True)
        starts = np.empty(first.size)
        starts[np.argsort(first)] = arrivals.times(first.size, rng)
        arrival_s = starts[member] + trace.arrival_s
    order = np.argsort(arrival_s, kind="stable")
    changed = follow(trace, order, arrival_s[order])
    return trace.gather("place", {"arrivals": repr(arrivals)}, order, **changed)


def scale_lengths(trace: Trace, prompt: float = 1.0, output: float = 1.0) -> Trace:
    """Multiply all lengths, rounded half up, at least 1; caps grow with the outputs.

    Examples
    --------
    >>> scale_lengths(Trace([0.0], [5], [3]), prompt=0.5, output=2).prompt_tokens.tolist()
    [3]
    """
    for name, factor in (("prompt_scale", prompt), ("output_scale", output)):
        if not 0 < factor < float("inf"):
            raise WorkloadError(f"expected a {name} greater than 0", value=factor)
    return trace.derive(
        "scale_lengths",
        {"prompt": prompt, "output": output},
        prompt_tokens=_scaled(trace.prompt_tokens, prompt),
        output_tokens=_scaled(trace.output_tokens, output),
        max_tokens=_scaled(trace.max_tokens, output),
    )


def cap_gaps(trace: Trace, max_gap_s: float) -> Trace:
    """Shorten silences: no gap is longer than `max_gap_s` seconds. This raises the rate."""
    if not 0 < max_gap_s < float("inf"):
        raise WorkloadError("expected a max_gap_s greater than 0", value=max_gap_s)
    gaps = np.diff(trace.arrival_s)
    short = np.minimum(gaps, max_gap_s)
    # Gaps are taken out where they are too long, so that all others stay to the last bit.
    removed = np.concatenate(([0.0], np.cumsum(gaps - short)))
    parameters = {
        "max_gap_s": max_gap_s,
        "gaps_capped": int(np.count_nonzero(gaps > max_gap_s)),
        "removed_s": float(removed[-1]),
        "rate_before": trace.rate,
    }
    return moved(trace, "cap_gaps", parameters, np.maximum.accumulate(trace.arrival_s - removed))


def loop(trace: Trace, num_requests: int) -> Trace:
    """Repeat a trace until it has enough requests; rounds are one mean gap apart.

    Parameters
    ----------
    trace : Trace
        The requests.
    num_requests : int
        Number of requests, 1 or more.
    """
    check_num_requests(num_requests)
    n = len(trace)
    if num_requests <= n:
        return trace.head(num_requests)
    rounds, rows = np.divmod(np.arange(num_requests), n)
    period = trace.span_s * n / max(n - 1, 1)
    changed = follow(trace, rows, trace.arrival_s[rows] + rounds * period)
    if "conversation" in trace.columns:
        old = trace.columns["conversation"]
        renamed = old[rows] + rounds * (int(old.max()) + 1)
        changed["conversation"] = np.where(old[rows] < 0, -1, renamed)
    parameters = {"num_requests": num_requests, "period_s": period}
    return trace.gather("loop", parameters, rows, **changed)


def bootstrap(trace: Trace, block_s: float, rng: np.random.Generator) -> Trace:
    """Draw windows of a trace with replacement: another hour of the same service.

    Within a window of `block_s` seconds, requests stay as they are, so that rates, lengths and
    what they have in common survive up to that time scale; longer drifts are lost.

    Raises
    ------
    WorkloadError
        `block_s` is not between 0 and the span, or the windows drawn are all empty.
    """
    if not 0 < block_s <= trace.span_s:
        told = f"expected a block_s between 0 and the span of {trace.span_s:g} s"
        raise WorkloadError(told, value=block_s)
    since = trace.arrival_s - trace.arrival_s[0]
    number = int(np.ceil(trace.span_s / block_s))
    edges = np.searchsorted(since, np.arange(number + 1) * block_s)
    edges[-1] = len(trace)
    drawn = rng.integers(0, number, number)
    rows = np.concatenate([np.arange(edges[block], edges[block + 1]) for block in drawn])
    shift = np.repeat((np.arange(number) - drawn) * block_s, np.diff(edges)[drawn])
    parameters = {"block_s": block_s, "blocks": number}
    arrival_s = np.maximum.accumulate(trace.arrival_s[rows] + shift)
    return trace.gather("bootstrap", parameters, rows, **follow(trace, rows, arrival_s))


def _scaled(lengths: IntArray, factor: float) -> IntArray:
    scaled: IntArray = np.maximum(np.floor(lengths * factor + 0.5), 1).astype(np.int64)
    return scaled


def _check_share(name: str, share: float) -> None:
    if not 0 < share <= 1:
        raise WorkloadError(f"expected a {name} above 0 and at most 1", value=share)
