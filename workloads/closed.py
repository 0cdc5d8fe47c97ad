"""The closed loop: a fixed number of users who ask, wait, think, and ask again."""

from typing import Literal, Self

import numpy as np
from pydantic import Field, model_validator

from workloads.base import FloatArray, PositiveInt
from workloads.length_spec import LengthSpec
from workloads.provenance import origin
from workloads.sources import Source
from workloads.streams import Streams
from workloads.times import TimeSpec
from workloads.trace import Trace
from workloads.turns import TurnSource
from workloads.workload import Workload


class ClosedWorkload(Workload):
    """Users of whom each has at most one request under way.

    The rate is a result, not an input: it depends on how fast answers come. By Little's law it
    is users/(response time + think time). Two policies are therefore never compared at an
    equal rate here.

    All that a user asks is drawn beforehand and belongs to the user and the turn: more users,
    more turns, or answers in another order leave it as it is.

    Examples
    --------
    >>> workload = ClosedWorkload.model_validate(
    ...     {"num_users": 2, "think_s": 1.5, "prompt_tokens": 100, "output_tokens": 10,
    ...      "num_requests": 4})
    >>> source = workload.source(Streams(1))
    >>> [request.arrival for request in source.start()]
    [0.0, 0.0]
    >>> [request.arrival for request in source.on_finish(1, 0.5)]
    [2.0]
    """

    kind: Literal["closed"] = "closed"
    num_users: PositiveInt
    """Number of users."""
    think_s: TimeSpec
    """Law of the time between an answer and the next request; a bare number is fixed."""
    prompt_tokens: LengthSpec
    """Law of the prompt lengths; a bare number is a fixed length."""
    output_tokens: LengthSpec
    """Law of the output lengths; a bare number is a fixed length."""
    num_requests: PositiveInt = 1000
    """Number of requests in all; the users make equally many, give or take one."""
    ramp_up_s: float = Field(0.0, ge=0)
    """Time over which the users start, evenly."""

    @model_validator(mode="after")
    def _something_for_all(self) -> Self:
        if self.num_requests < self.num_users:
            told = f"{self.num_requests} for {self.num_users} users"
            raise ValueError(f"expected a num_requests of at least num_users, got {told}")
        return self

    @property
    def request_rate(self) -> None:
        """None: the rate is a result here."""
        return None

    @property
    def is_open(self) -> bool:
        """False: arrivals depend on completions."""
        return False

    def source(self, streams: Streams, max_model_len: int | None = None) -> Source:
        """Make the source that a simulation asks for requests."""
        return TurnSource(self._table(streams, max_model_len))

    def _rows(self, streams: Streams) -> Trace:
        users, n = self.num_users, self.num_requests
        turns = -(-n // users)
        wanted = np.arange(turns * users).reshape(turns, users) < n
        think = np.empty((turns, users))
        prompts, outputs = np.empty((2, turns, users), np.int64)
        for user in range(users):
            think[:, user] = self.think_s.sample(turns, streams("think_s", user))
            prompts[:, user] = self.prompt_tokens.sample(turns, streams("prompt_tokens", user))
            outputs[:, user] = self.output_tokens.sample(turns, streams("output_tokens", user))
        think[0] = 0.0
        earliest = np.cumsum(think, axis=0) + _starts(users, self.ramp_up_s)
        think[0] = np.nan
        rows = np.flatnonzero(wanted)
        rows = rows[np.argsort(earliest.ravel()[rows], kind="stable")]
        turn, user_of = np.divmod(rows, users)
        notes = {"seed": str(streams.seed), "replication": str(streams.replication)}
        return Trace(
            earliest.ravel()[rows],
            prompts.ravel()[rows],
            outputs.ravel()[rows],
            columns={"conversation": user_of, "turn": turn, "think_s": think.ravel()[rows]},
            provenance=origin("closed loop", n, notes=notes | {"arrivals": "earliest possible"}),
        )


def _starts(users: int, ramp_up_s: float) -> FloatArray:
    return np.arange(users, dtype=np.float64) * (ramp_up_s / users)
