from fractions import Fraction
from math import isclose

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simpy.core import Environment

from simulator.clock import (
    ARRIVAL,
    DECIDE,
    STEP_DONE,
    TICKS_PER_SECOND,
    TIMER,
    At,
    Signal,
    to_grid,
    up_to_grid,
)

SECONDS = st.floats(0, 2**22, allow_nan=False)


@settings(deadline=None, derandomize=True)
@given(SECONDS, SECONDS)
def test_sums_and_differences_of_grid_times_are_exact(first: float, second: float) -> None:
    a, b = to_grid(first), up_to_grid(second)
    assert Fraction(a + b) == Fraction(a) + Fraction(b)
    assert Fraction(a - b) == Fraction(a) - Fraction(b)


@settings(deadline=None, derandomize=True)
@given(SECONDS)
def test_rounding_up_never_comes_too_early_and_stays_within_a_tick(seconds: float) -> None:
    tick = Fraction(1, TICKS_PER_SECOND)
    assert 0 <= Fraction(up_to_grid(seconds)) - Fraction(seconds) < tick
    assert abs(Fraction(to_grid(seconds)) - Fraction(seconds)) <= tick / 2


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 2**52))
def test_a_grid_time_stays_what_it_is(ticks: int) -> None:
    time = ticks / TICKS_PER_SECOND
    assert to_grid(time) == up_to_grid(time) == time


def test_any_positive_time_lasts_at_least_a_tick() -> None:
    assert up_to_grid(1e-300) == 1 / TICKS_PER_SECOND
    assert isclose(1 / TICKS_PER_SECOND, 0.93e-9, rel_tol=0.01)


@pytest.mark.parametrize("backwards", [False, True])
def test_events_of_one_time_take_their_turn_however_they_were_scheduled(backwards: bool) -> None:
    env, seen = Environment(), []
    order = [STEP_DONE, ARRIVAL, TIMER, DECIDE]
    for priority in reversed(order) if backwards else order:
        for number in range(2):
            event = At(env, 1.5, priority)
            event.callbacks.append(lambda _, key=(priority, number): seen.append((env.now, key)))
    env.run()
    assert seen == [(1.5, (priority, number)) for priority in order for number in range(2)]


def test_a_fired_signal_waits_for_the_earlier_turns_of_the_moment() -> None:
    env, seen = Environment(), []
    signal = Signal(env)
    signal.callbacks.append(lambda _: seen.append(("signal", env.now)))
    first = At(env, 2.0, ARRIVAL)
    first.callbacks.append(lambda _: signal.fire(DECIDE))
    first.callbacks.append(lambda _: seen.append(("arrival", env.now)))
    At(env, 2.0, TIMER).callbacks.append(lambda _: seen.append(("timer", env.now)))
    At(env, 2.5, STEP_DONE).callbacks.append(lambda _: seen.append(("step", env.now)))
    env.run()
    assert seen == [("arrival", 2.0), ("timer", 2.0), ("signal", 2.0), ("step", 2.5)]
