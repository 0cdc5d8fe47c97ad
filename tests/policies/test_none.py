import pytest
from pydantic import ValidationError

from policies import Decision, Limits, OneAtATime, Work
from policies.testing import ScriptedRequest, ScriptedView


def test_nobody_waits_so_nothing_happens():
    assert OneAtATime().build().decide(ScriptedView()) == Decision()


def test_the_first_in_the_queue_is_served_alone():
    decision = OneAtATime().build().decide(ScriptedView(waiting=[4, 2]))
    assert decision.admit == (0,)
    assert decision.plan.chunks == (Work(0, 4),)


def test_a_prompt_of_any_length_is_one_step():
    decision = OneAtATime().build().decide(ScriptedView(waiting=[1_000_000]))
    assert decision.plan.chunks == (Work(0, 1_000_000),)


def test_nobody_joins_while_one_runs():
    running = [ScriptedRequest(1, 4, computed=4, generated=1)]
    decision = OneAtATime().build().decide(ScriptedView(waiting=[2], running=running))
    assert (decision.admit, decision.plan.chunks) == ((), ())
    assert decision.plan.steady


def test_it_promises_one_running_request_and_no_token_limit():
    assert OneAtATime().build().limits == Limits(None, 1)


@pytest.mark.parametrize("parameters", [{"max_num_seqs": 2}, {"kind": "one"}], ids=repr)
def test_it_has_no_parameters(parameters):
    with pytest.raises(ValidationError):
        OneAtATime(**parameters)
