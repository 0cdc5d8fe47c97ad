"""The limit on wall-clock time: what it ends, what it leaves alone, and that no alarm is left."""

import math
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from policies import Decision, Policy, PolicySpec, Trigger, View, VllmV1
from simulator import RunSpec, simulate
from simulator.errors import TimeUp, UserError
from simulator.experiments.executors import Local
from simulator.experiments.grid import Point
from simulator.experiments.sweep import run_sweep
from simulator.experiments.task import Task, perform
from simulator.wall_limit import within


def loop(view: View | None = None) -> Decision:
    while True:
        pass


def patient(view: View) -> Decision:
    """Catch every error, and go on."""
    while True:
        with suppress(Exception):
            loop()


def stubborn(view: View) -> Decision:
    """Hear the first alarm, whatever it is, and go on."""
    with suppress(BaseException):
        loop()
    return loop()


def wrapping(view: View) -> Decision:
    """Make another error of the alarm."""
    try:
        return loop()
    except BaseException as error:
        raise ValueError("what was that?") from error


DECIDE = {function.__name__: function for function in (loop, patient, stubborn, wrapping)}


class _Endless(Policy):
    def __init__(self, name: str) -> None:
        self._name = name

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        return DECIDE[self._name](view)


class _Late(Policy):
    """Swallows the alarm and serves, so that the run ends as if nothing had been."""

    def __init__(self) -> None:
        self._serve = VllmV1().build().decide
        self._is_late = False

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if not self._is_late:
            self._is_late = True
            with suppress(BaseException):
                loop()
        return self._serve(view, trigger)


class Endless(PolicySpec):
    """A policy that does not come back."""

    name: str

    def build(self) -> Policy:
        if self.name == "build":
            loop()
        return _Late() if self.name == "late" else _Endless(self.name)


def spec(policy: PolicySpec | str = "vllm-v1") -> RunSpec:
    return RunSpec(
        policy=policy,
        workload={"arrivals": 9, "prompt_tokens": 8, "output_tokens": 4, "num_requests": 5},
        cost={"kind": "fixed", "step_ms": 10},
    )


@pytest.fixture(autouse=True)
def _nothing_is_left(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No timer and no handler outlive a test; a forgotten one would ring soon."""
    monkeypatch.setattr("simulator.wall_limit._AGAIN", 0.05)
    before = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert signal.getsignal(signal.SIGALRM) == before


@pytest.mark.parametrize("name", [*DECIDE, "late", "build"])
def test_an_endless_policy_ends_with_the_time_that_it_may_take(name: str) -> None:
    message = r"no end after 0\.1 s of wall-clock time \(timeout\); the run stood at \d\.\d{6} s of"
    with pytest.raises(TimeUp, match=message):
        simulate(spec(Endless(name=name)), timeout_s=0.1)


def test_a_time_limit_changes_nothing_in_a_run_that_keeps_it() -> None:
    run = spec()
    assert simulate(run, timeout_s=60).metrics == simulate(run).metrics


def test_another_error_stays_what_it_is() -> None:
    for error in (KeyError("x"), UserError("y"), KeyboardInterrupt()):

        def fail(error: BaseException = error) -> None:
            raise error

        with pytest.raises(type(error)):
            within(60, fail, str)


def test_an_interrupt_is_heard_by_code_that_swallowed_the_alarm() -> None:
    def call() -> None:
        with suppress(BaseException):
            loop()
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        within(0.05, call, str)


def test_no_alarm_rings_after_a_call_however_close_the_end() -> None:
    """Calls that take about as long as they may: all end, one way or the other, and that is it."""
    rng = np.random.default_rng(0)
    ends = {True: 0, False: 0}
    for seconds in rng.uniform(1e-6, 4e-4, 2000).tolist():
        until = time.perf_counter() + 2e-4
        try:
            within(seconds, lambda until=until: _spin(until), str)
            ends[True] += 1
        except TimeUp:
            ends[False] += 1
        assert signal.getitimer(signal.ITIMER_REAL) == (0, 0)
    assert min(ends.values()) > 100
    _spin(time.perf_counter() + 0.2)


def _spin(until: float) -> None:
    while time.perf_counter() < until:
        pass


def test_the_next_run_of_a_process_is_left_alone() -> None:
    failed = perform(0, spec(Endless(name="stubborn")), 0, timeout_s=0.1)
    assert failed.row["transient"]
    assert failed.row["error"].startswith("TimeUp: no end after 0.1 s")
    assert perform(1, spec(), 0).row == {"metrics": simulate(spec()).metrics}
    _spin(time.perf_counter() + 0.2)


@pytest.mark.parametrize("seconds", [0, -1, math.nan, math.inf])
def test_a_time_limit_is_a_number_of_seconds(seconds: float) -> None:
    with pytest.raises(UserError, match="greater than 0"):
        within(seconds, str, str)


def test_where_no_alarm_can_ring_nothing_is_run() -> None:
    caught: list[Any] = []

    def run() -> None:
        task = Task(Point((), spec()), 0)
        for call in (
            lambda: within(1.0, lambda: caught.append("ran"), str),
            lambda: run_sweep([task], executor=Local(timeout_s=1.0)),
            lambda: simulate(spec(), timeout_s=1.0),
        ):
            try:
                call()
            except UserError as error:
                caught.append(str(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert caught == ["timeout: needs the main thread of a system with alarms (POSIX)"] * 3
