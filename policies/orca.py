"""Continuous batching with a full reservation: the scheduler of ORCA.

Source: Yu et al., "ORCA: A Distributed Serving System for Transformer-Based Generative Models",
OSDI 2022, Algorithm 1; for `reserve: max_seq_len`, Vidur `orca_replica_scheduler.py` (2024).
"""

from typing import Literal, Self

from pydantic import Field, model_validator

from policies.base import (
    ALL_RUNNING,
    Decision,
    Limits,
    Plan,
    Policy,
    PolicySpec,
    RequestView,
    Trigger,
    View,
    Work,
)


class Orca(PolicySpec):
    """Let requests join and leave at every step; space for all their tokens is reserved first.

    A step holds one token of every running request and the whole prompts of those that join, in
    order of arrival, while fewer than `max_bs` run and their slots are free. The first that does
    not fit stops the others. Nobody is ever preempted.

    Notes
    -----
    Slots count what `reserve` says, as in the rule of the paper: `n_rsrv + max_tokens <= n_slots`.
    There, `max_tokens` is a property of the request as a whole; here it is the cap on *new*
    tokens. So that a request never runs out of KV blocks, those for prompt and `max_tokens` (or
    for `max_seq_len`) are held from its start to its end, and they have to be free too. Attention
    is charged request by request, the other operators by the tokens of the step (selective
    batching); that is the cost of a ragged step. One worker: no step overlaps another.

    Vidur takes running requests first, then new ones while the blocks of `max_seq_len` tokens are
    free. Running ones always arrived first, so that is the same rule with another reservation.

    Examples
    --------
    >>> from policies.testing import ScriptedView
    >>> decision = Orca(max_bs=2).build().decide(ScriptedView(waiting=[3, 2, 2]))
    >>> decision.admit, [work.tokens for work in decision.plan.chunks]
    ((0, 1), [3, 2])
    """

    kind: Literal["orca"] = "orca"
    max_bs: int = Field(128, ge=1)
    """Largest number of running requests (Vidur: 128)."""
    n_slots: int | None = Field(None, ge=1)
    """Slots for reserved tokens. None: as many as the KV cache holds."""
    reserve: Literal["max_tokens", "max_seq_len"] = "max_tokens"
    """Slots a request reserves: its own `max_tokens` (the paper), or `max_seq_len` (Vidur)."""
    max_seq_len: int | None = Field(None, ge=2)
    """Tokens reserved for each request with `reserve: max_seq_len`; longer ones are rejected."""

    @model_validator(mode="after")
    def _one_reservation(self) -> Self:
        if (self.max_seq_len is None) is (self.reserve == "max_seq_len"):
            raise ValueError(
                f"max_seq_len {self.max_seq_len} with reserve {self.reserve}: expected a number "
                "with reserve max_seq_len, and only there"
            )
        length, slots = self.max_seq_len, self.n_slots
        if length is not None and slots is not None and length > slots:
            raise ValueError(f"max_seq_len {length} exceeds n_slots {slots}")
        return self

    def build(self) -> Policy:
        """Return a new decision maker."""
        return _Orca(self.max_bs, self.n_slots, self.max_seq_len)


class _Orca(Policy):
    def __init__(self, max_bs: int, n_slots: int | None, max_seq_len: int | None) -> None:
        self.limits = Limits(max_num_seqs=max_bs)
        self._max_bs = max_bs
        self._n_slots = n_slots
        self._max_seq_len = max_seq_len
        self._slots: dict[int, int] = {}
        """Slots of each running request."""
        self._reserved = 0

    def on_submit(self, request: RequestView, view: View) -> str | None:
        length = request.prompt_tokens + request.max_tokens
        if self._max_seq_len is not None and length > self._max_seq_len:
            return f"prompt + max_tokens {length} exceed max_seq_len {self._max_seq_len}"
        if self._n_slots is not None and self._slots_of(request) > self._n_slots:
            return f"max_tokens {request.max_tokens} exceed n_slots {self._n_slots}"
        if view.kv.blocks_for(self._tokens_of(request)) > view.kv.total:
            return f"a reservation of {self._tokens_of(request)} tokens exceeds the KV cache"
        return None

    def on_finish(self, request: RequestView, view: View) -> None:
        self._reserved -= self._slots.pop(request.id, 0)

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        joining = self._select(view)
        if not joining and not len(view.running):
            return Decision()
        chunks = tuple(Work(request.id, request.remaining) for request in joining)
        drains = len(view.waiting) == len(joining)
        return Decision(
            plan=Plan(ALL_RUNNING, chunks, steady=not joining, until_arrival=drains),
            admit=tuple(request.id for request in joining),
            reserve=tuple((request.id, self._tokens_of(request)) for request in joining),
        )

    def _select(self, view: View) -> list[RequestView]:
        """Reserve for the waiting requests that can start now; return them."""
        joining: list[RequestView] = []
        room, free = self._max_bs - len(view.running), view.kv.free
        for request in view.waiting if room else ():
            slots = self._slots_of(request)
            free -= view.kv.blocks_for(self._tokens_of(request))
            full = self._n_slots is not None and self._reserved + slots > self._n_slots
            if full or free < 0 or len(joining) == room:
                break
            self._slots[request.id] = slots
            self._reserved += slots
            joining.append(request)
        return joining

    def _slots_of(self, request: RequestView) -> int:
        return request.max_tokens if self._max_seq_len is None else self._max_seq_len

    def _tokens_of(self, request: RequestView) -> int:
        """Return the tokens for which the request holds KV blocks."""
        if self._max_seq_len is not None:
            return self._max_seq_len
        return request.prompt_tokens + request.max_tokens
