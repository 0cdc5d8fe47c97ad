"""Running decodes as one body: what all of them do in a step costs the same for any number.

While every decode advances by one token a step, a clock of steps tells everything about each of
them: its stored tokens, when it needs its next KV block, when it ends. Nothing is touched until it
leaves. All of it is exact: a member shows the same values as if it had been stepped.
"""

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from simulator.cohort_ledgers import CachedCohortLedger, CohortLedger
from simulator.request import Request


class CohortRequest(Request):
    """A request that becomes a `Member` while it advances with a cohort."""

    __slots__ = ("_cohort", "_joined")

    def enter(self, cohort: "Cohort") -> None:
        """Become a member."""
        self._joined = cohort.clock
        self._cohort = cohort
        self.__class__ = Member


def _counted(name: str) -> Any:
    """Return an attribute that grows with the clock, from what it was when the member joined."""
    stored: Callable[[CohortRequest], int] = vars(Request)[name].__get__

    def value(request: "Member") -> int:
        return stored(request) + request._cohort.clock - request._joined

    return property(value)


class Member(CohortRequest):
    """A request that advances with a cohort: its progress follows from the clock."""

    __slots__ = ()

    computed = _counted("computed")
    generated = _counted("generated")
    known = _counted("known")

    @property
    def last_token(self) -> float | None:  # type: ignore[override]  # nobody sets it meanwhile
        """When the newest token was delivered."""
        return self._cohort.late.get(self.id, self._cohort.last_token)

    def exit(self, last_token: float | None) -> None:
        """Stop being a member; keep what was reached."""
        steps = self._cohort.clock - self._joined
        request: CohortRequest = self
        request.__class__ = CohortRequest
        request.computed += steps
        request.generated += steps
        request.known += steps
        request.last_token = last_token


class Cohort:
    """The running decodes, all of which take part in every step.

    Parameters
    ----------
    kv : CohortLedger or CachedCohortLedger
        Ledger in which the members hold their blocks.
    """

    def __init__(self, kv: CohortLedger | CachedCohortLedger) -> None:
        self.members: dict[int, Member] = {}
        self.clock = 0
        self.context_tokens = 0
        """Tokens the members attend to in the next step, the new ones included."""
        self.num_rows = 0
        self.last_token: float | None = None
        """When the members got their newest token; None: not delivered yet."""
        self.late: dict[int, float | None] = {}
        """The same for those members that got theirs at another time."""
        self._kv = kv
        self.due = [0] * kv.block_size
        """How many members need a block in the step that starts at clock 0, 1, ... (cyclic)."""
        self._ends: list[tuple[int, int, int]] = []
        self._end_of: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self.members)

    @property
    def kv_used(self) -> int:
        """Blocks held by everyone on the replica."""
        return self._kv.used

    @property
    def kv_free(self) -> int:
        """Blocks that nobody holds."""
        return self._kv.free

    @property
    def growth(self) -> int:
        """Blocks that the next step needs and that are not held yet."""
        return 0 if self._kv.in_step else self.due[self.clock % len(self.due)]

    @property
    def next_end(self) -> int | None:
        """Clock at which the first member ends."""
        ends = self._ends
        while ends:
            end, _, rid = ends[0]
            if self._end_of.get(rid) == end:
                return end
            heappop(ends)  # left before its end
        return None

    def num_eventless_steps(self) -> int:
        """Return the steps from now on in which nobody ends and after which blocks are found."""
        last = self.next_end
        if last is None or last - self.clock < 2:
            return 0
        steps, cycle, free = last - self.clock - 1, len(self.due), self._kv.free
        if (steps // cycle + 1) * len(self._kv.growing) <= free:
            return steps
        needed = self.due[self.clock % cycle]
        for step in range(steps):
            needed += self.due[(self.clock + step + 1) % cycle]
            if needed > free:
                return step
        return steps

    def join(self, request: CohortRequest, output_tokens: int) -> bool:
        """Let a decode join that will generate `output_tokens` in all; False if it cannot.

        Its blocks have to be held for now, or for its life, and either all members have delivered
        tokens or none has.
        """
        computed, time, size = request.computed, request.last_token, self._kv.block_size
        if not self.members:
            self.last_token = time
        elif (time is None) is not (self.last_token is None):
            return False
        held, slot = self._kv.held(request), (self.clock - computed) % size
        grows = held == -(-computed // size)
        if not grows and held < -(-(request.prompt_tokens + output_tokens - 1) // size):
            return False
        if not self._kv.enter(request, request.order, slot, grows):
            return False
        self.due[slot] += grows
        if time != self.last_token:
            self.late[request.id] = time
        end = self._end_of[request.id] = self.clock + output_tokens - request.generated
        request.enter(self)
        assert isinstance(request, Member)
        self.members[request.id] = request
        self.context_tokens += computed + 1
        self.num_rows += request.size
        heappush(self._ends, (end, request.order, request.id))
        return True

    def leave(self, request: Member) -> None:
        """Let a member go, with everything it reached."""
        rid = request.id
        request.exit(self.late.pop(rid, self.last_token))
        computed = request.computed
        self.context_tokens -= computed + 1
        self.num_rows -= request.size
        del self.members[rid]
        self._end_of.pop(rid, None)
        slot = (self.clock - computed) % len(self.due)
        self.due[slot] -= self._kv.settle(request, request.order, slot)

    def dissolve(self) -> None:
        """Let everyone go."""
        for request in list(self.members.values()):
            self.leave(request)
        self._kv.in_step = 0

    def begin_step(self) -> None:
        """Take the blocks of the next step, unless they are held already."""
        if not self._kv.in_step:
            self._kv.grow(self.clock, self.due, 1)
            self._kv.in_step = 1

    def begin_last_of(self, steps: int) -> None:
        """Do all but the last of some steps, and begin that one.

        The caller has seen that blocks suffice and that nobody ends before it.
        """
        self._kv.grow(self.clock, self.due, steps)
        self._kv.in_step = 1
        self.clock += steps - 1
        self.context_tokens += (steps - 1) * len(self.members)

    def end_step(self, now: float | None) -> dict[float, int]:
        """Advance every member by one token, which its client gets at `now`, or not yet (None).

        Return how many tokens came after each gap.
        """
        number = len(self.members)
        self._kv.in_step = 0
        self.clock += 1
        self.context_tokens += number
        if now is None or not number:
            return {}
        assert self.last_token is not None, "a decode has delivered a token"
        if not self.late:
            gap = now - self.last_token
            self.last_token = now
            return {gap: number}
        gaps: dict[float, int] = {}
        for time in self.late.values():
            assert time is not None, "checked by accepts"
            gaps[now - time] = gaps.get(now - time, 0) + 1
        if len(self.late) < number:
            gap = now - self.last_token
            gaps[gap] = gaps.get(gap, 0) + number - len(self.late)
        self.last_token = now
        self.late.clear()
        return gaps

    def ended(self) -> list[Member]:
        """Return the members that have all their tokens."""
        ends, done = self._ends, list[Member]()
        while ends and ends[0][0] <= self.clock:
            end, _, rid = heappop(ends)
            if self._end_of.get(rid) == end:  # else it left before, and perhaps came back
                del self._end_of[rid]
                done.append(self.members[rid])
        return done
