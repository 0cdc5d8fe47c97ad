"""Swapping: blocks go to host memory and come back, and the copies take time."""

import pytest

from policies.base import ALL_RUNNING, Decision, Mode, Plan, Policy, Trigger, View, Work
from simulator import PolicyStalled, RuleBroken
from simulator.ahead import AheadEngine
from simulator.clock import ARRIVAL, CANCEL, At, Clock
from simulator.cost.analytic import FixedCost
from simulator.engine import Engine
from simulator.fastforward import FastEngine
from simulator.kv_cache import BlockManager
from simulator.prefix_cache import PrefixLedger
from simulator.recorder import TableRecorder
from simulator.request import State
from simulator.swap import SwapSpace
from workloads.request import RequestSpec


class Commuting(Policy):
    """Admits all at once, swaps request 0 out at `out` and in again from `back` on.

    Parameters
    ----------
    out, back : float
        Seconds.
    rest : bool
        Whether nothing runs while request 0 is away.
    """

    def __init__(self, out: float, back: float, rest: bool = False) -> None:
        self._out = out
        self._back = back
        self._rest = rest
        self.seen: list[tuple[float, list[int], int, int]] = []

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        away = [request.id for request in view.swapped]
        self.seen.append((view.now, away, view.kv.free, view.kv.host_free))
        if away and view.now >= self._back:
            return Decision(Plan(ALL_RUNNING), swap_in=(0,))
        if away and self._rest:
            return Decision(wake_at=self._back)
        if view.now == self._out and not away:
            leave = ((0, Mode.SWAP),)
            stay = len(view.running) > 1 and not self._rest
            return Decision(Plan(ALL_RUNNING) if stay else None, preempt=leave)
        joining = tuple(view.waiting)
        if not joining and not len(view.running):
            return Decision()
        chunks = tuple(Work(r.id, r.remaining) for r in joining)
        return Decision(Plan(ALL_RUNNING, chunks), admit=tuple(r.id for r in joining))


class Replica:
    """Two requests, (P4, D4) and (P2, D6), on a machine with steps of one second."""

    def __init__(
        self,
        policy: Policy,
        kind: type[Engine] = Engine,
        swap: SwapSpace | None = None,
        kv: BlockManager | None = None,
        cancel_at: float | None = None,
    ) -> None:
        outputs = {0: 4, 1: 6}
        self.env = Clock()
        self.kv = kv or kind.ledger_type(10, 2)
        self.recorder = TableRecorder(outputs)
        self.engine = kind(
            self.env, policy, FixedCost(1.0), self.kv, outputs, None, (self.recorder,), swap
        )
        self.swap = self.engine.swap
        rows = [RequestSpec(0, 0.0, 4, 4), RequestSpec(1, 0.0, 2, 6)]
        self.requests = [kind.request_type(row) for row in rows]
        self.engine.start()
        for request in self.requests:
            At(self.env, 0.0, ARRIVAL).callbacks.append(
                lambda _, request=request: self.engine.submit(request)
            )
        if cancel_at is not None:
            At(self.env, cancel_at, CANCEL).callbacks.append(lambda _: self.engine.cancel(0))

    def run(self) -> "Replica":
        self.env.run()
        self.engine.check_done()
        assert self.kv.used == self.swap.used == 0
        return self

    @property
    def finish(self) -> list[float | None]:
        return [request.finish for request in self.requests]


KINDS = pytest.mark.parametrize("kind", [Engine, FastEngine])


@KINDS
def test_swapped_request_goes_on_where_it_was(kind):
    policy = Commuting(2, 4)
    replica = Replica(policy, kind).run()
    # Request 0 has 2 tokens at 2 and gets the others at 5 and 6; request 1 never stops.
    assert replica.finish == [6, 6]
    request = replica.requests[0]
    assert (request.preemptions, request.swaps, request.recomputed_tokens) == (1, 1, 0)
    assert request.computed == 4 + 3


@KINDS
def test_policy_sees_who_is_away_and_the_blocks_on_both_sides(kind):
    policy = Commuting(2, 4)
    Replica(policy, kind, SwapSpace(5)).run()
    # At 2, five tokens of request 0 hold 3 of 10 blocks, three of request 1 hold 2.
    by_time = {now: rest for now, *rest in policy.seen}
    assert by_time[2] == [[], 5, 5]
    assert by_time[3] == [[0], 8, 2]
    assert by_time[4] == [[0], 7, 2]
    assert by_time[5] == [[], 4, 5]


@KINDS
def test_copies_take_time_before_the_step(kind):
    replica = Replica(Commuting(2, 4.5), kind, SwapSpace(block_time=0.25)).run()
    # Three blocks: 0.75 s. [2, 3.75) out and a step; [3.75, 4.75) a step; [4.75, 6.5) in and a
    # step of both.
    assert replica.finish == [7.5, 7.5]
    steps = replica.recorder.tables()["steps"]
    assert steps["start_s"].tolist()[:4] == [0, 1, 2, 4.75]
    assert steps["first_step_s"].tolist()[:4] == [1, 1, 1.75, 1.75]
    assert (replica.swap.num_out, replica.swap.num_in) == (3, 3)


@KINDS
def test_copies_take_time_without_a_step_too(kind):
    policy = Commuting(2, 5, rest=True)
    replica = Replica(policy, kind, SwapSpace(block_time=0.5))
    replica.run()
    asked = [now for now, *_ in policy.seen]
    assert asked[:5] == [0, 1, 2, 3.5, 5]


@KINDS
def test_a_step_that_copies_is_longer_but_computes_the_same(kind):
    free, slow = (Replica(Commuting(2, 4), kind, SwapSpace(block_time=t)).run() for t in (0, 2**-8))
    for name in ("useful_tokens", "context_tokens"):
        totals = [r.recorder.tables()["steps"][name].sum() for r in (free, slow)]
        assert totals[0] == totals[1]


@KINDS
def test_the_host_has_to_have_room(kind):
    with pytest.raises(RuleBroken, match="request 0 is swapped out with 3 KV blocks, 2 fit the ho"):
        Replica(Commuting(2, 4), kind, SwapSpace(2)).run()


@KINDS
def test_a_client_may_go_away_while_its_request_is_swapped_out(kind):
    replica = Replica(Commuting(2, 4), kind, cancel_at=2.5).run()
    assert replica.requests[0].state is State.ABORTED
    assert replica.finish == [3, 6]
    assert (replica.swap.num_out, replica.swap.num_in) == (3, 0)


def test_a_request_that_is_never_swapped_in_is_a_stall():
    policy = Commuting(2, 1e9)
    with pytest.raises(PolicyStalled, match=r"0 running, 1 swapped\): the policy plans nothing"):
        Replica(policy).run()


@pytest.mark.parametrize(
    ("decision", "rule"),
    [
        (Decision(swap_in=(0,)), "request 0 is swapped in but is not swapped out"),
        (Decision(swap_in=(7,)), "request 7 is swapped in but is not swapped out"),
        (
            Decision(preempt=((0, Mode.SWAP), (0, Mode.SWAP))),
            "request 0 is named twice in one decision",
        ),
    ],
)
@KINDS
def test_swaps_are_checked(kind, decision, rule):
    class Wrong(Commuting):
        def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
            return decision if view.now == 1 else super().decide(view, trigger)

    with pytest.raises(RuleBroken, match=rule):
        Replica(Wrong(2, 4), kind).run()


def test_blocks_have_to_be_free_for_those_that_come_back():
    class Greedy(Commuting):
        """Reserves all blocks that are free while request 0 is away."""

        def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
            if view.now == 3:
                return Decision(
                    Plan(ALL_RUNNING), swap_in=(0,), admit=(2,), reserve=((2, 2 * view.kv.free),)
                )
            return super().decide(view, trigger)

    replica = Replica(Greedy(2, 9))
    row = RequestSpec(2, 2.5, 1, 1)
    replica.engine._output_tokens[2] = 1
    late = replica.engine.request_type(row)
    At(replica.env, 2.5, ARRIVAL).callbacks.append(lambda _: replica.engine.submit(late))
    with pytest.raises(RuleBroken, match="request 2 needs 8 more KV blocks, 5 are free"):
        replica.run()


def test_a_replica_that_plans_ahead_does_not_swap():
    with pytest.raises(RuleBroken, match="request 0 is swapped out by a replica that plans ahead"):
        Replica(Commuting(2, 4), AheadEngine).run()


def test_prefix_cache_takes_swapped_blocks_in_again():
    replica = Replica(Commuting(2, 4), kv=PrefixLedger(10, 2)).run()
    assert replica.finish == [6, 6]


@pytest.mark.parametrize("block_time", [0.0, 0.3, 2**-9])
@pytest.mark.parametrize("back", [2.5, 3, 3.7, 4, 30])
def test_both_steppers_leave_the_same_tables(block_time, back):
    tables = [
        Replica(Commuting(2, back, rest=back > 5), kind, SwapSpace(block_time=block_time))
        .run()
        .recorder.tables()
        for kind in (Engine, FastEngine)
    ]
    for name, columns in tables[0].items():
        for column, values in columns.items():
            assert values.tobytes() == tables[1][name][column].tobytes(), (name, column)
