"""Conversations: they start on their own, and their turns wait for the answers."""

from typing import Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from workloads.arrival_spec import ArrivalSpec
from workloads.base import FloatArray, IntArray, PositiveInt, Spec
from workloads.columns import Column
from workloads.length_spec import LengthSpec
from workloads.prefixes import SharedPrefix, build_chains
from workloads.provenance import origin
from workloads.sources import Source
from workloads.streams import Streams
from workloads.times import TimeSpec
from workloads.trace import Trace
from workloads.turns import TurnSource
from workloads.workload import Workload

_MOST_TURNS = 100_000


class Shrink(Spec):
    """What happens to a context that is compacted or cleared: a new text that shares nothing."""

    probability: float = Field(ge=0, le=1)
    """Probability at each turn after the first."""
    keep: float = Field(0.0, ge=0, lt=1)
    """Fraction of the conversation's own tokens that is left."""


class ConversationWorkload(Workload):
    """Conversations that start by a law of arrivals, with turns in a closed loop.

    The prompt of a turn is the shared prefixes, what was said before, and new tokens. Each
    turn comes a think time after the answer to the one before. All lengths and think times
    are drawn beforehand and belong to the conversation and the turn.

    Notes
    -----
    P(n + 1) = P(n) + D(n) + new tokens. Prefix chains hold the whole blocks of each prompt:
    conversations with the same shared prefix have its whole blocks in common, the turns of one
    conversation all that was said before, and a compacted context starts anew.

    Examples
    --------
    >>> workload = ConversationWorkload.model_validate(
    ...     {"arrivals": 1, "turns": 3, "first_prompt": 100, "new_tokens": 10,
    ...      "output_tokens": 20, "think_s": 5, "num_conversations": 2})
    >>> table = workload.source(Streams(1)).table
    >>> sorted(set(table.prompt_tokens.tolist()))
    [100, 130, 160]
    """

    kind: Literal["conversations"] = "conversations"
    arrivals: ArrivalSpec
    """Law of the starts of conversations; a bare number is the rate of a Poisson process."""
    turns: LengthSpec
    """Law of the number of turns; a bare number is always the same."""
    first_prompt: LengthSpec
    """Law of the first prompt's own tokens, without shared prefixes."""
    new_tokens: LengthSpec
    """Law of the tokens that each later turn adds."""
    output_tokens: LengthSpec
    """Law of the outputs."""
    think_s: TimeSpec
    """Law of the time between an answer and the next turn; a bare number is fixed."""
    keeps_output: bool = True
    """Whether an answer becomes part of the next prompt."""
    system: SharedPrefix | None = None
    """System prompts, shared by all conversations that have the same one."""
    group: SharedPrefix | None = None
    """A second shared layer after the system prompt, such as a repository or a document."""
    shrink: Shrink | None = None
    """Compaction of the context at random; none by default."""
    max_context: PositiveInt | None = None
    """Longest prompt plus output in tokens; no limit by default."""
    at_limit: Literal["end", "compact"] = "end"
    """A turn beyond it: the conversation ends before it, or starts again with a first prompt."""
    block_size: PositiveInt = 64
    """Tokens in a block of the prefix chains."""
    num_conversations: PositiveInt = 100
    """Number of conversations."""

    @model_validator(mode="after")
    def _limit_and_overlong(self) -> Self:
        if self.at_limit == "compact" and self.max_context is None:
            raise ValueError("expected a max_context, as at_limit is compact")
        return self

    @property
    def request_rate(self) -> None:
        """None: when turns come depends on how fast answers do."""
        return None

    @property
    def is_open(self) -> bool:
        """False: arrivals depend on completions."""
        return False

    def source(self, streams: Streams, max_model_len: int | None = None) -> Source:
        """Make the source that a simulation asks for requests."""
        return TurnSource(self._table(streams, max_model_len))

    def _rows(self, streams: Streams) -> Trace:
        n = self.num_conversations
        starts = self.arrivals.times(n, streams("arrivals"))
        turns = np.minimum(self.turns.sample(n, streams("turns")), _MOST_TURNS)
        shared, shared_ids = self._shared(n, streams)
        talk = _Talk(self, turns, shared, starts, streams)
        table = talk.table()
        order = np.argsort(table["arrival_s"], kind="stable")
        table = {name: column[order] for name, column in table.items()}
        chains = build_chains(
            table["prompt_tokens"],
            table["conversation"],
            table.pop("epoch"),
            shared_ids,
            self.block_size,
        )
        notes = {"seed": str(streams.seed), "replication": str(streams.replication)}
        notes |= {"conversations": str(n), "arrivals": "earliest possible"}
        account = origin("conversations", order.size, notes=notes)
        arrival_s, prompts, outputs = (
            table.pop(name) for name in ("arrival_s", "prompt_tokens", "output_tokens")
        )
        return Trace(arrival_s, prompts, outputs, columns=table, provenance=account, chains=chains)

    def _shared(self, n: int, streams: Streams) -> tuple[IntArray, list[tuple[IntArray, IntArray]]]:
        """Return each conversation's shared tokens, and per layer which prefix ends where."""
        total = np.zeros(n, np.int64)
        member = np.zeros(n, np.int64)
        layers: list[tuple[IntArray, IntArray]] = []
        for name, layer in (("system", self.system), ("group", self.group)):
            if layer is None:
                continue
            which, tokens = layer.draw(n, streams, name)
            # The same group under another system prompt is another text.
            member = member * layer.count + which
            total = total + tokens
            layers.append((member, total))
        return total, layers


class _Talk:
    """Goes through the turns, all conversations at once."""

    def __init__(
        self,
        spec: ConversationWorkload,
        turns: IntArray,
        shared: IntArray,
        starts: FloatArray,
        streams: Streams,
    ) -> None:
        self._spec = spec
        self._streams = streams
        self._left = turns
        self._shared = shared
        self._earliest = starts.copy()
        self._own = np.zeros(turns.size, np.int64)
        self._epoch = np.zeros(turns.size, np.int64)

    def table(self) -> dict[str, Column]:
        """Return the columns of all requests, turn by turn."""
        rows = []
        turn, live = 0, np.arange(self._left.size)
        while live.size:
            row = self._turn(turn, live)
            live = row["conversation"]
            rows.append(row)
            turn += 1
            live = live[self._left[live] > turn]
        return {name: np.concatenate([row[name] for row in rows]) for name in rows[0]}

    def _turn(self, turn: int, live: IntArray) -> dict[str, Column]:
        spec = self._spec
        law = spec.new_tokens if turn else spec.first_prompt
        new = law.sample(live[-1] + 1, self._streams("prompt_tokens", turn))[live]
        outputs = spec.output_tokens.sample(live[-1] + 1, self._streams("output_tokens", turn))
        think = np.full(live.size, np.nan)
        if turn:
            think = spec.think_s.sample(live[-1] + 1, self._streams("think_s", turn))[live]
            self._earliest[live] += think
            self._shrink(turn, live)
        self._own[live] += new
        outputs = outputs[live]
        kept = self._within_limit(turn, live, outputs)
        live, outputs, think = live[kept], outputs[kept], think[kept]
        prompts = self._shared[live] + self._own[live]
        row = {
            "arrival_s": self._earliest[live],
            "prompt_tokens": prompts,
            "output_tokens": outputs,
            "conversation": live,
            "turn": np.full(live.size, turn),
            "think_s": think,
            "epoch": self._epoch[live],
        }
        if spec.keeps_output:
            self._own[live] += outputs
        return row

    def _shrink(self, turn: int, live: IntArray) -> None:
        shrink = self._spec.shrink
        if shrink is None:
            return
        hit = self._streams("shrink", turn).random(live[-1] + 1)[live] < shrink.probability
        cut = live[hit]
        self._own[cut] = (self._own[cut] * shrink.keep).astype(np.int64)
        self._epoch[cut] += 1

    def _within_limit(self, turn: int, live: IntArray, outputs: IntArray) -> NDArray[np.bool_]:
        """End or compact the conversations whose turn does not fit; say which go on."""
        limit = self._spec.max_context
        if limit is None:
            return np.ones(live.size, np.bool_)
        over = self._shared[live] + self._own[live] + outputs > limit
        if self._spec.at_limit == "compact":
            cut = live[over]
            law, rng = self._spec.first_prompt, self._streams("compact", turn)
            self._own[cut] = law.sample(int(live[-1]) + 1, rng)[cut]
            self._epoch[cut] += 1
            over = self._shared[live] + self._own[live] + outputs > limit
        self._left[live[over]] = turn
        return ~over
