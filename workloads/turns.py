"""Conversations and users: the next request waits for the answer to the one before."""

from collections import defaultdict
from itertools import pairwise

import numpy as np

from workloads.errors import WorkloadError
from workloads.request import RequestSpec
from workloads.trace import Trace


class TurnSource:
    """Requests that take turns within their conversation.

    The first request of a conversation arrives at its own time. Each later one arrives its
    think time after the answer to the one before; where it has none, at its own time, but not
    before that answer. A request that was rejected counts as answered. Requests of no
    conversation arrive at their own times.

    Parameters
    ----------
    trace : Trace
        Requests with the columns ``conversation`` and ``turn``, and ``think_s`` where think
        times are known (NaN: not known). Lengths and think times belong to the row, so they do
        not depend on the order in which requests finish.

    Raises
    ------
    WorkloadError
        The requests do not say which conversation they belong to.

    Examples
    --------
    >>> trace = Trace(
    ...     [0.0, 5.0], [10, 20], [2, 2],
    ...     columns={"conversation": [0, 0], "turn": [0, 1], "think_s": [np.nan, 5.0]})
    >>> source = TurnSource(trace)
    >>> [request.id for request in source.start()]
    [0]
    >>> [request.arrival for request in source.on_finish(0, 1.5)]
    [6.5]
    """

    def __init__(self, trace: Trace) -> None:
        if "conversation" not in trace.columns:
            source = trace.provenance["source"]
            raise WorkloadError(f"expected requests with a conversation and a turn, not {source}")
        self.table = trace
        self._next = _followers(trace)
        self._waiting: dict[int, RequestSpec] = {}
        self._think = trace.columns.get("think_s", np.full(len(trace), np.nan)).tolist()

    def start(self) -> list[RequestSpec]:
        """Return the first request of each conversation, and those of none."""
        later = set(self._next.values())
        first: list[RequestSpec] = []
        for request in self.table.requests():
            if request.id in later:
                self._waiting[request.id] = request
            else:
                first.append(request)
        return first

    def on_finish(self, request_id: int, time: float) -> list[RequestSpec]:
        """Return the next turn of the conversation, if there is one."""
        follower = self._next.get(request_id)
        if follower is None:
            return []
        request, think = self._waiting.pop(follower), self._think[follower]
        arrival = time + think if think == think else max(time, request.arrival)
        return [request.at(arrival)]


def _followers(trace: Trace) -> dict[int, int]:
    """Return for each row the row of the next turn."""
    rows: dict[int, list[int]] = defaultdict(list)
    turns = trace.columns.get("turn", np.arange(len(trace)))
    for row in np.lexsort((np.arange(len(trace)), turns)).tolist():
        rows[int(trace.columns["conversation"][row])].append(row)
    rows.pop(-1, None)
    return {one: other for members in rows.values() for one, other in pairwise(members)}
