"""Time, ties and failures of one replica, seen by scripted policies through whole runs."""

from math import inf, nan

import pytest

from policies.base import (
    ALL_RUNNING,
    Decision,
    Mode,
    Plan,
    Policy,
    PolicySpec,
    Release,
    RequestView,
    Trigger,
    View,
    Work,
)
from simulator import Observer, PolicyStalled, Result, RuleBroken, RunError
from simulator.clock import TICKS_PER_SECOND, to_grid
from simulator.observer import StepRecord
from simulator.request import Request
from tests.simulator.harness import Odd, Scripted, Tokens, column, run, steps_of


class Diary:
    """Serves everybody at once, and notes when it is asked, why, and who waits.

    Parameters
    ----------
    wakes : list of float
        Answers with these wake-up times first, instead of serving.
    """

    def __init__(self, wakes: list[float | None] | None = None) -> None:
        self.pages: list[tuple[float, str, list[int]]] = []
        self._wakes = list(wakes or [])

    def __call__(self, view: View, trigger: Trigger) -> Decision:
        self.pages.append((view.now, str(trigger.name), [r.id for r in view.waiting]))
        if self._wakes:
            return Decision(wake_at=self._wakes.pop(0))
        return serve(view)


def serve(view: View, trigger: Trigger = Trigger.START) -> Decision:
    """Admit all, whole prompts, everybody in every step."""
    joining = tuple(Work(r.id, r.remaining) for r in view.waiting)
    joining = tuple(Work(r.id, r.remaining) for r in view.running if not r.is_decode) + joining
    if not joining and not len(view.running):
        return Decision()
    admit = tuple(r.id for r in view.waiting)
    return Decision(Plan(ALL_RUNNING, joining), admit=admit)


def diary_of(
    rows: list[tuple[float, int, int]], wakes: list[float | None] | None = None, **kwargs: object
) -> list[tuple[float, str, list[int]]]:
    diary = Diary(wakes)
    run(rows, Scripted(decide=diary), **kwargs)
    return diary.pages


def test_an_arrival_at_the_end_of_a_step_is_seen_by_the_next_decision() -> None:
    assert diary_of([(0, 1, 2), (1, 1, 1)]) == [
        (0.0, "START|ARRIVAL", [0]),
        (1.0, "STEP_DONE|ARRIVAL", [1]),
        (2.0, "STEP_DONE", []),
    ]


def test_an_arrival_within_a_step_waits_for_its_end() -> None:
    pages = diary_of([(0, 1, 1), (0.25, 1, 1), (0.75, 1, 1)])
    assert pages[1:] == [(1.0, "STEP_DONE|ARRIVAL", [1, 2]), (2.0, "STEP_DONE", [])]


def test_arrivals_of_one_moment_make_one_decision_in_their_order() -> None:
    assert diary_of([(2, 1, 1)] * 3)[1:] == [
        (2.0, "ARRIVAL", [0, 1, 2]),
        (3.0, "STEP_DONE", []),
    ]


def test_the_policy_is_asked_once_at_the_start_of_an_empty_run() -> None:
    assert diary_of([(5, 1, 1)])[0] == (0.0, "START", [])


def test_an_arrival_at_the_time_of_a_timer_belongs_to_the_same_decision() -> None:
    pages = diary_of([(0, 1, 1), (2, 1, 1)], wakes=[2.0])
    assert pages[1] == (2.0, "ARRIVAL|TIMER", [0, 1])
    assert len(pages) == 3


def test_a_later_decision_replaces_the_timer() -> None:
    pages = diary_of([(0, 1, 1), (1, 1, 1)], wakes=[5.0, 3.0])
    assert [page[:2] for page in pages] == [
        (0.0, "START|ARRIVAL"),
        (1.0, "ARRIVAL"),
        (3.0, "TIMER"),
        (4.0, "STEP_DONE"),
    ]


def test_a_later_decision_without_a_time_cancels_the_timer() -> None:
    pages = diary_of([(0, 1, 1), (1, 1, 1), (9, 1, 1)], wakes=[5.0, None])
    assert [page[0] for page in pages] == [0.0, 1.0, 9.0, 10.0]


def test_a_timer_set_again_for_the_same_time_rings_once() -> None:
    pages = diary_of([(0, 1, 1), (1, 1, 1)], wakes=[3.0, 3.0])
    assert [page[:2] for page in pages[2:]] == [(3.0, "TIMER"), (4.0, "STEP_DONE")]


@pytest.mark.parametrize("deadline", [0.1, 0.1 + 0.2, 1 / 3, 1e-12])
def test_a_timer_never_rings_before_its_time(deadline: float) -> None:
    pages = diary_of([(0, 1, 1)], wakes=[deadline])
    (woken, trigger, _) = pages[1]
    assert trigger == "TIMER"
    assert 0 <= woken - deadline < 1 / TICKS_PER_SECOND


def test_the_end_of_a_step_comes_before_the_arrivals_of_its_moment() -> None:
    seen: list[tuple[int, float, int]] = []

    class Watch(Observer):
        def on_submit(self, request: Request, now: float) -> None:
            seen.append((request.id, now, len(gone)))

        def on_leave(self, request: Request, now: float) -> None:
            gone.append(request.id)

    gone: list[int] = []
    run([(0, 1, 1), (1, 1, 1)], Scripted(decide=serve), observers=(Watch(),))
    assert seen == [(0, 0.0, 0), (1, 1.0, 1)]


def test_admitting_without_a_plan_leads_to_another_decision_at_once() -> None:
    times: list[tuple[float, int]] = []

    def decide(view: View, trigger: Trigger) -> Decision:
        times.append((view.now, len(view.running)))
        head = view.waiting.head
        return Decision(admit=(head.id,)) if head is not None else serve(view)

    result = run([(1, 3, 1), (1, 2, 1)], Scripted(decide=decide))
    assert times == [(0.0, 0), (1.0, 0), (1.0, 1), (1.0, 2), (2.0, 0)]
    assert column(result, "finish_s") == [2.0, 2.0]


def test_rejecting_everybody_lets_the_replica_sleep() -> None:
    def decide(view: View, trigger: Trigger) -> Decision:
        return Decision(reject=tuple((r.id, "full") for r in view.waiting))

    result = run([(1, 1, 1), (2, 1, 1)], Scripted(decide=decide))
    assert column(result, "state") == ["rejected"] * 2
    assert column(result, "reject_reason") == ["full"] * 2
    assert column(result, "finish_s") == [1.0, 2.0]
    assert column(result, "output_tokens") == [0, 0]


def test_a_preempted_request_keeps_its_tokens_and_computes_them_again() -> None:
    def decide(view: View, trigger: Trigger) -> Decision:
        if view.now == 2.0 and len(view.running):
            return Decision(preempt=((0, Mode.RECOMPUTE),))
        return serve(view)

    tokens = Tokens()
    result = run([(0, 5, 4)], Scripted(decide=decide), observers=(tokens,))
    # [0,1) 5, [1,2) 1, dropped: 5 + 2 known; [2,3) 7 of which 6 again, [3,4) 1.
    assert tokens.times == {0: [1.0, 2.0, 3.0, 4.0]}
    assert column(result, "recomputed_tokens") == [6]
    assert column(result, "num_preemptions") == [1]
    assert column(result, "prefill_tokens", "steps")[0] == 5
    assert sum(column(result, "useful_tokens", "steps")) == 5 + 1 + 7 + 1


def test_what_is_lost_twice_is_counted_twice() -> None:
    plans = iter(
        [
            Decision(Plan(chunks=(Work(0, 6),)), admit=(0,)),
            Decision(preempt=((0, Mode.RECOMPUTE),)),
            Decision(Plan(chunks=(Work(0, 2),)), admit=(0,)),
            Decision(preempt=((0, Mode.RECOMPUTE),)),
            Decision(Plan(chunks=(Work(0, 9),)), admit=(0,)),
            Decision(),
        ]
    )
    result = run([(0, 9, 1)], Scripted(decide=lambda view, trigger: next(plans)))
    # Of 6 + 2 + 9 tokens, 2 and then 6 had been there before.
    assert column(result, "recomputed_tokens") == [8]
    assert column(result, "num_preemptions") == [2]
    assert column(result, "finish_s") == [3.0]


def test_a_preempted_request_waits_longer_for_its_next_token() -> None:
    def decide(view: View, trigger: Trigger) -> Decision:
        if view.now == 2.0 and len(view.running):
            return Decision(preempt=((0, Mode.RECOMPUTE),), wake_at=9.0)
        return Decision(wake_at=9.0) if 2.0 <= view.now < 9.0 else serve(view)

    result = run([(0, 5, 3)], Scripted(decide=decide))
    gaps = dict(zip(column(result, "time_s", "gaps"), column(result, "gap_s", "gaps"), strict=True))
    assert gaps == {2.0: 1.0, 10.0: 8.0}


def test_a_batch_gives_tokens_and_blocks_back_all_at_once() -> None:
    free: list[int] = []

    def decide(view: View, trigger: Trigger) -> Decision:
        free.append(view.kv.free)
        decision = serve(view)
        if decision.plan is None:
            return decision
        return decision._replace(plan=decision.plan._replace(release=Release.PER_BATCH))

    rows = [(0, 4, 1), (0, 2, 4)]
    engine = {"block_size": 1, "num_blocks": 20}
    result = run(rows, Scripted(decide=decide), engine=engine)
    assert free == [20, 20 - 6, 20 - 7, 20 - 8, 20]
    assert column(result, "first_token_s") == column(result, "finish_s") == [4.0, 4.0]
    assert column(result, "gap_s", "gaps") == [0.0]
    assert column(result, "count", "gaps") == [3]


@pytest.mark.parametrize(
    "releases",
    [[Release.PER_REQUEST, Release.PER_BATCH], [Release.PER_BATCH, Release.PER_REQUEST]],
    ids=["stream first", "batch first"],
)
def test_changing_how_tokens_are_delivered_is_refused_or_accounted_for(
    releases: list[Release],
) -> None:
    def decide(view: View, trigger: Trigger) -> Decision:
        decision = serve(view)
        if decision.plan is None:
            return decision
        release = releases[0] if decision.admit else releases[1]
        return decision._replace(plan=decision.plan._replace(release=release))

    try:
        result = run([(0, 2, 4)], Scripted(decide=decide))
    except RuleBroken:
        return
    assert sum(column(result, "count", "gaps")) == 3
    if releases[0] is Release.PER_REQUEST:
        assert column(result, "first_token_s") == [1.0]


class Hooked(PolicySpec):
    """Serves everybody; raises in the method of that name, or rejects at submission."""

    raises: str = ""
    refuses: bool = False

    def build(self) -> Policy:
        return _Hooked(self.raises, self.refuses)


class _Hooked(Policy):
    def __init__(self, raises: str, refuses: bool) -> None:
        self._raises = raises
        self._refuses = refuses

    def _maybe(self, method: str) -> None:
        if method == self._raises:
            raise ZeroDivisionError(f"oh no, {method}")

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if view.now:
            self._maybe("decide")
        return serve(view)

    def on_submit(self, request: RequestView, view: View) -> str | None:
        self._maybe("on_submit")
        return f"no room for {request.id}" if self._refuses else None

    def on_finish(self, request: RequestView, view: View) -> None:
        self._maybe("on_finish")


@pytest.mark.parametrize(
    ("method", "where"),
    [
        ("decide", "Hooked at 0.250000 s (ARRIVAL, 2 waiting, 0 running)"),
        ("on_submit", "Hooked at 0.250000 s (START, 0 waiting, 0 running)"),
        ("on_finish", "Hooked at 1.250000 s (ARRIVAL, 0 waiting, 1 running)"),
    ],
)
def test_a_policy_that_raises_ends_the_run_and_says_when(method: str, where: str) -> None:
    with pytest.raises(RunError) as caught:
        run([(0.25, 1, 1), (0.25, 1, 2)], Hooked(raises=method))
    assert str(caught.value) == (f"{where}: the policy raised ZeroDivisionError('oh no, {method}')")
    assert not isinstance(caught.value, RuleBroken)
    links = [caught.value]
    while links[-1].__cause__ is not None:
        links.append(links[-1].__cause__)  # type: ignore[arg-type]
    assert isinstance(links[-1], ZeroDivisionError)


def test_a_request_refused_at_submission_never_waits() -> None:
    result = run([(0.25, 1, 1)], Hooked(refuses=True))
    assert column(result, "reject_reason") == ["no room for 0"]
    assert column(result, "finish_s") == [0.25]
    assert len(column(result, "start_s", "steps")) == 0


def sleep(view: View, trigger: Trigger) -> Decision:
    return Decision()


def test_a_policy_that_lets_work_wait_for_ever_is_told_so() -> None:
    with pytest.raises(PolicyStalled) as caught:
        run([(0, 1, 1), (2.5, 1, 1)], Scripted(decide=sleep))
    assert str(caught.value) == (
        "Scripted at 2.500000 s (ARRIVAL, 2 waiting, 0 running): "
        "the policy plans nothing and no event is due"
    )


def test_a_policy_that_leaves_a_running_request_alone_has_stalled() -> None:
    def decide(view: View, trigger: Trigger) -> Decision:
        return serve(view) if view.now < 1 else Decision()

    with pytest.raises(PolicyStalled, match=r"at 1\.0+ s \(STEP_DONE, 0 waiting, 1 running\)"):
        run([(0, 1, 2)], Scripted(decide=decide))


def test_a_stall_is_noticed_in_a_run_with_a_horizon_too() -> None:
    with pytest.raises(PolicyStalled):
        run([(0, 1, 1)], Scripted(decide=sleep), measure={"horizon_s": 100.0})


def test_work_that_waits_for_an_event_to_come_is_no_stall() -> None:
    def decide(view: View, trigger: Trigger) -> Decision:
        return serve(view) if len(view.waiting) > 1 or len(view.running) else Decision()

    result = run([(0, 1, 1), (7, 1, 1)], Scripted(decide=decide))
    assert column(result, "finish_s") == [8.0, 8.0]


@pytest.mark.parametrize("seconds", [0.0, -1.0, nan, inf, -0.0])
def test_a_step_has_to_take_a_finite_time(seconds: float) -> None:
    times = iter([0.5, seconds])
    with pytest.raises(RunError) as caught:
        run([(0, 1, 3)], Scripted(decide=serve), Odd(seconds=lambda work: next(times)))
    assert str(caught.value) == (
        "Scripted at 0.500000 s (STEP_DONE, 0 waiting, 1 running): "
        f"the cost model gives a step of {seconds} s"
    )


def test_the_shortest_step_takes_a_tick() -> None:
    result = run([(0, 1, 3)], Scripted(decide=serve), Odd(seconds=lambda work: 1e-15))
    assert column(result, "finish_s") == [3 / TICKS_PER_SECOND]


def cut(horizon: float) -> Result:
    rows = [(0, 1, 1), (0.5, 1, 2), (0.5, 2, 5), (4, 1, 1)]
    return run(rows, {"kind": "none"}, measure={"horizon_s": horizon})


def test_a_run_is_cut_at_the_horizon() -> None:
    result = cut(3.5)
    assert column(result, "request_id") == [0, 1, 2]  # request 3 never arrived
    assert column(result, "state") == ["finished", "finished", "unfinished"]
    assert column(result, "output_tokens") == [1, 2, 0]
    assert column(result, "finish_s")[:2] == [1.0, 3.0]
    assert max(end for _, end in steps_of(result)) == 4.0
    assert result.metrics["duration_s"] == 3.5
    assert result.metrics["busy_fraction"] == 1.0


def test_a_horizon_beyond_the_end_changes_nothing() -> None:
    cut_late, whole = cut(1000.0), cut(14.0)
    assert cut_late.metrics == whole.metrics
    assert whole.metrics["duration_s"] == 9.0


def test_only_a_policy_that_asks_for_it_sees_output_lengths() -> None:
    seen: list[object] = []

    def decide(view: View, trigger: Trigger) -> Decision:
        oracle = view.oracle  # type: ignore[attr-defined]
        seen.append(oracle and [oracle.output_tokens(r) for r in view.waiting])
        return serve(view)

    rows = [(0, 1, 3), (0, 1, 1)]
    run(rows, Scripted(decide=decide, needs_oracle=True))
    run(rows, Scripted(decide=decide))
    assert seen == [[3, 1], [], [], [], None, None, None, None]


def test_a_view_gives_no_way_to_the_output_length() -> None:
    def decide(view: View, trigger: Trigger) -> Decision:
        for request in view.waiting:
            values = {
                getattr(request, name)
                for name in dir(request)
                if name[0] != "_" and not callable(getattr(request, name))
            }
            assert 777 not in values
        return serve(view)

    run([(0, 1, 777)], Scripted(decide=decide), columns={"max_tokens": [1000]})


def test_arrivals_stand_on_the_grid_and_keep_their_order() -> None:
    times = [0.1, 0.1 + 1e-12, 0.30000000000000004]
    result = run([(time, 1, 1) for time in times], Scripted(decide=serve))
    assert column(result, "arrival_s") == [to_grid(time) for time in times]
    assert column(result, "first_scheduled_s")[:2] == [to_grid(0.1)] * 2


def test_observers_see_every_step_once_and_in_order() -> None:
    steps: list[StepRecord] = []

    class Watch(Observer):
        def on_step(self, step: StepRecord) -> None:
            steps.append(step)

    run([(0, 3, 3), (0.5, 2, 2)], {"kind": "vllm-v1"}, observers=(Watch(),))
    counts = [(s.start, s.end, s.num_decodes, s.num_chunks, s.chunk_tokens) for s in steps]
    assert counts == [(0, 1, 0, 1, 3), (1, 2, 1, 1, 2), (2, 3, 2, 0, 0)]
    assert [(s.context_tokens, s.num_waiting, s.num_running) for s in steps] == [
        (0, 0, 1),
        (4, 0, 2),
        (5 + 3, 0, 2),
    ]
