"""Batch windows: `window-pull` counts from the pull, `window-enqueue` from the arrival."""

import pytest
from pydantic import ValidationError

from policies import Decision, Release, Shape, WindowEnqueue, WindowPull
from policies.testing import ScriptedRequest, ScriptedView


def decode(rid: int) -> ScriptedRequest:
    return ScriptedRequest(rid, 8, computed=8, generated=1, max_tokens=99)


def sized(*sizes: int) -> list[ScriptedRequest]:
    return [ScriptedRequest(rid, 4, size=size) for rid, size in enumerate(sizes)]


def pull(**parameters):
    return WindowPull(**{"max_batch_size": 3, "max_wait_ms": 10_000} | parameters).build()


class Enqueue:
    """A `window-enqueue` policy that is told of every arrival, as the engine does."""

    def __init__(self, **machine):
        self.machine = machine
        self.waiting: list[ScriptedRequest] = []

    def build(self, **parameters):
        spec = WindowEnqueue(**{"max_batch_size": 3, "max_wait_ms": 10_000} | parameters)
        self.policy = spec.build()
        return self

    def view(self, now: float, running=()) -> ScriptedView:
        return ScriptedView(now, self.waiting, running, **self.machine)

    def arrive(self, now: float, *requests: ScriptedRequest, running=()):
        reasons = []
        for request in requests:
            reason = self.policy.on_submit(request, self.view(now, running))
            reasons.append(reason)
            if reason is None:
                self.waiting.append(request)
        return reasons

    def decide(self, now: float, running=()) -> Decision:
        decision = self.policy.decide(self.view(now, running))
        self.waiting = [r for r in self.waiting if r.id not in decision.admit]
        return decision


def enqueue(**parameters) -> Enqueue:
    return Enqueue().build(**parameters)


def ones(*rids: int) -> list[ScriptedRequest]:
    return [ScriptedRequest(rid, 4) for rid in rids]


def test_pull_sleeps_without_a_timer_while_nobody_waits():
    assert pull().decide(ScriptedView(now=3.0)) == Decision()


def test_pull_starts_its_window_at_the_pull_and_not_at_the_arrival():
    waiting = [ScriptedRequest(0, 4, arrival=2.0)]
    assert pull().decide(ScriptedView(now=5.0, waiting=waiting)).wake_at == 15.0


def test_pull_keeps_its_deadline_when_more_arrive():
    policy = pull()
    policy.decide(ScriptedView(now=5.0, waiting=[4]))
    assert policy.decide(ScriptedView(now=14.0, waiting=[4, 4])) == Decision(wake_at=15.0)


def test_pull_leaves_full_before_the_window_ends():
    policy = pull()
    policy.decide(ScriptedView(now=5.0, waiting=[4]))
    assert policy.decide(ScriptedView(now=6.0, waiting=[4, 4, 4, 4])).admit == (0, 1, 2)


def test_pull_leaves_when_its_deadline_is_exactly_reached():
    policy = pull()
    policy.decide(ScriptedView(now=5.0, waiting=[4]))
    assert policy.decide(ScriptedView(now=15.0, waiting=[4, 4])).admit == (0, 1)


def test_pull_waits_until_the_very_last_moment():
    policy = pull()
    policy.decide(ScriptedView(now=5.0, waiting=[4]))
    almost = 15.0 - 2**-30
    assert policy.decide(ScriptedView(now=almost, waiting=[4])) == Decision(wake_at=15.0)


def test_pull_with_no_window_takes_what_is_there():
    assert pull(max_wait_ms=0).decide(ScriptedView(now=1.0, waiting=[4])).admit == (0,)


def test_pull_with_batches_of_one_never_waits():
    assert pull(max_batch_size=1).decide(ScriptedView(waiting=[4, 4])).admit == (0,)


def test_pull_opens_a_new_window_for_every_batch():
    policy = pull()
    policy.decide(ScriptedView(now=0.0, waiting=[4]))
    policy.decide(ScriptedView(now=10.0, waiting=[4]))
    policy.decide(ScriptedView(now=16.0, waiting=[4], running=[decode(1)]))
    assert policy.decide(ScriptedView(now=22.0, waiting=[4])).wake_at == 32.0


def test_pull_does_not_look_at_the_queue_while_a_batch_runs():
    policy = pull()
    policy.decide(ScriptedView(now=0.0, waiting=[4, 4, 4]))
    decision = policy.decide(ScriptedView(now=99.0, waiting=[4, 4, 4], running=[decode(3)]))
    assert (decision.admit, decision.wake_at) == ((), None)
    assert decision.plan.shape == Shape(3, 1)


@pytest.mark.parametrize(("sizes", "admitted"), [((2, 2), (0,)), ((2, 1), (0, 1)), ((3,), (0,))])
def test_pull_counts_sizes_and_leaves_when_the_next_one_does_not_fit(sizes, admitted):
    assert pull().decide(ScriptedView(waiting=sized(*sizes))).admit == admitted


def test_pull_leaves_when_the_next_one_does_not_fit_the_kv_cache():
    waiting = [ScriptedRequest(rid, 4, max_tokens=4) for rid in range(2)]
    view = ScriptedView(waiting=waiting, num_blocks=3, block_size=4)
    assert pull().decide(view).admit == (0,)


def test_pull_rejects_what_can_never_run():
    view = ScriptedView(num_blocks=2, block_size=4)
    assert pull().on_submit(ScriptedRequest(0, 4), view) is None
    assert "max_batch_size" in pull().on_submit(ScriptedRequest(0, 4, size=4), view)
    assert "KV cache" in pull().on_submit(ScriptedRequest(0, 8), view)
    longer = ScriptedRequest(0, 4, max_tokens=3)
    assert "max_seq_len" in pull(max_seq_len=6).on_submit(longer, view)


def test_enqueue_sleeps_without_a_timer_while_nobody_waits():
    assert enqueue().decide(3.0) == Decision()


def test_enqueue_starts_its_window_at_the_arrival():
    case = enqueue()
    case.arrive(2.0, *ones(0))
    assert case.decide(5.0) == Decision(wake_at=12.0)


def test_enqueue_counts_its_window_even_while_the_worker_is_busy():
    case = enqueue()
    case.arrive(2.0, *ones(0), running=[decode(9)])
    assert case.decide(2.0, running=[decode(9)]).admit == ()
    assert case.decide(12.0).admit == (0,)


def test_enqueue_leaves_when_its_deadline_is_exactly_reached():
    case = enqueue()
    case.arrive(2.0, *ones(0))
    assert case.decide(12.0 - 2**-30).wake_at == 12.0
    assert case.decide(12.0).admit == (0,)


def test_enqueue_lets_an_arrival_at_the_deadline_join():
    case = enqueue()
    case.arrive(2.0, *ones(0))
    case.arrive(12.0, *ones(1))
    assert case.decide(12.0).admit == (0, 1)


def test_enqueue_leaves_full_before_the_window_ends():
    case = enqueue()
    case.arrive(2.0, *ones(0, 1, 2))
    assert case.decide(2.0).admit == (0, 1, 2)


def test_enqueue_without_a_window_never_waits():
    case = enqueue(max_wait_ms=0)
    case.arrive(2.0, *ones(0))
    assert case.decide(2.0).admit == (0,)


def test_enqueue_closes_a_batch_that_the_next_one_does_not_fit():
    case = enqueue()
    case.arrive(0.0, *sized(2, 2))
    assert case.decide(0.0).admit == (0,)
    assert case.decide(1.0) == Decision(wake_at=10.0)
    assert case.decide(10.0).admit == (1,)


def test_enqueue_lets_an_open_batch_grow_while_the_worker_is_busy():
    case = enqueue()
    case.arrive(0.0, *ones(0))
    case.arrive(50.0, *ones(1), running=[decode(9)])
    assert case.decide(60.0).admit == (0, 1)


def test_enqueue_gives_every_batch_its_own_window():
    case = enqueue()
    case.arrive(0.0, *ones(0, 1, 2))
    case.arrive(4.0, *ones(3))
    assert case.decide(4.0).admit == (0, 1, 2)
    assert case.decide(5.0) == Decision(wake_at=14.0)


def test_enqueue_rejects_the_request_that_needs_one_batch_too_many():
    case = enqueue(max_enqueued_batches=2)
    assert case.arrive(0.0, *ones(0, 1, 2, 3, 4, 5)) == [None] * 6
    assert case.arrive(0.0, *ones(6)) == ["queue full: 2 batches wait"]


def test_enqueue_still_takes_a_request_that_fits_the_last_batch_of_a_full_queue():
    case = enqueue(max_enqueued_batches=1)
    first, large, small = sized(2, 2, 1)
    assert case.arrive(0.0, first, large, small) == [None, "queue full: 1 batches wait", None]
    assert case.decide(0.0).admit == (0, 2)


def test_enqueue_takes_requests_again_once_a_batch_has_left():
    case = enqueue(max_enqueued_batches=1)
    case.arrive(0.0, *ones(0, 1, 2))
    assert case.arrive(0.0, *ones(3)) == ["queue full: 1 batches wait"]
    case.decide(0.0)
    assert case.arrive(1.0, *ones(4)) == [None]


def test_enqueue_rejects_what_can_never_run_without_opening_a_batch():
    case = Enqueue(num_blocks=2, block_size=4).build(max_seq_len=8)
    large, longer = ScriptedRequest(0, 4, size=4), ScriptedRequest(1, 8)
    assert ["max_batch_size" in case.arrive(0.0, large)[0]] == [True]
    assert "max_seq_len" in case.arrive(0.0, longer)[0]
    assert case.decide(99.0) == Decision()


def test_enqueue_starts_with_the_members_that_fit_the_cache_and_the_rest_go_next():
    case = Enqueue(num_blocks=4, block_size=4).build(max_batch_size=3)
    case.arrive(0.0, *(ScriptedRequest(rid, 4, max_tokens=4) for rid in range(3)))
    case.arrive(1.0, *ones(3))
    assert case.decide(1.0).admit == (0, 1)
    assert case.decide(2.0).admit == (2,)
    assert case.decide(3.0) == Decision(wake_at=11.0)


def test_enqueue_keeps_the_deadline_of_a_batch_that_was_split():
    case = Enqueue(num_blocks=4, block_size=4).build(max_batch_size=3)
    case.arrive(0.0, *(ScriptedRequest(rid, 4, max_tokens=4) for rid in range(3)))
    assert case.decide(0.0).admit == (0, 1)
    assert case.decide(2.0) == Decision(wake_at=10.0)
    case.arrive(3.0, *ones(3))
    assert case.decide(10.0).admit == (2, 3)


def test_enqueue_charges_the_rows_of_its_batch_until_it_ends():
    case = enqueue(release=Release.PER_REQUEST)
    case.arrive(0.0, *ones(0, 1, 2))
    assert case.decide(0.0).plan.shape == Shape(3, 4)
    plan = case.decide(1.0, running=[decode(1)]).plan
    assert (plan.shape, plan.release) == (Shape(3, 1), Release.PER_REQUEST)


@pytest.mark.parametrize("cls", [WindowPull, WindowEnqueue])
@pytest.mark.parametrize(
    "parameters",
    [
        {"max_wait_ms": -1},
        {"max_wait_ms": float("nan")},
        {"max_wait_ms": float("inf")},
        {"max_wait_ms": "long"},
        {"max_batch_size": 0},
        {"max_batch_size": -3},
        {"max_wait": 5},
        {"kind": "window"},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(cls, parameters):
    with pytest.raises(ValidationError):
        cls(**parameters)


@pytest.mark.parametrize("limit", [0, -1, 1.5])
def test_queue_holds_at_least_one_batch(limit):
    with pytest.raises(ValidationError):
        WindowEnqueue(max_enqueued_batches=limit)


def test_pull_knows_no_limit_of_enqueued_batches():
    with pytest.raises(ValidationError, match="max_enqueued_batches"):
        WindowPull(max_enqueued_batches=2)
