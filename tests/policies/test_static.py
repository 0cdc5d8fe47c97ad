import pytest
from pydantic import ValidationError

from policies import ALL_RUNNING, Decision, Plan, Release, Shape, Static
from policies.testing import ScriptedRequest, ScriptedView


def decode(rid: int, context: int = 8, size: int = 1) -> ScriptedRequest:
    """Return a request that misses just its newest token."""
    return ScriptedRequest(rid, context, size=size, computed=context, generated=1, max_tokens=99)


def sized(*sizes: int) -> list[ScriptedRequest]:
    return [ScriptedRequest(rid, 4, size=size) for rid, size in enumerate(sizes)]


def test_nothing_waits_so_nothing_happens():
    assert Static().build().decide(ScriptedView()) == Decision()


def test_batch_starts_at_once_with_whoever_waits():
    decision = Static(max_batch_size=8).build().decide(ScriptedView(waiting=[4, 2]))
    assert decision.admit == (0, 1)
    assert decision.wake_at is None


def test_batch_is_cut_at_its_largest_size_in_order_of_arrival():
    decision = Static(max_batch_size=2).build().decide(ScriptedView(waiting=[1, 2, 3]))
    assert decision.admit == (0, 1)


def test_prompts_are_computed_whole_and_padded_to_the_longest():
    plan = Static().build().decide(ScriptedView(waiting=[4, 2, 3])).plan
    assert [work.tokens for work in plan.chunks] == [4, 2, 3]
    assert plan.shape == Shape(rows=3, cols=4)
    assert plan.decodes == ()


def test_nobody_joins_a_running_batch():
    policy = Static(max_batch_size=4).build()
    policy.decide(ScriptedView(waiting=[4, 2]))
    decision = policy.decide(ScriptedView(waiting=[9], running=[decode(1), decode(2)]))
    assert decision.admit == ()
    assert decision.plan.decodes is ALL_RUNNING


def test_finished_rows_are_charged_to_the_end_of_the_batch():
    policy = Static().build()
    policy.decide(ScriptedView(waiting=[4, 2, 3]))
    plan = policy.decide(ScriptedView(running=[decode(1)])).plan
    assert plan == Plan(
        decodes=ALL_RUNNING, shape=Shape(3, 1), release=Release.PER_BATCH, steady=True
    )


def test_drop_finished_charges_unfinished_rows_only():
    policy = Static(drop_finished=True).build()
    policy.decide(ScriptedView(waiting=sized(2, 1, 1)))
    view = ScriptedView(running=[decode(0, size=2), decode(2)])
    assert policy.decide(view).plan.shape == Shape(3, 1)


def test_rows_of_the_last_batch_are_forgotten():
    policy = Static(max_batch_size=3).build()
    policy.decide(ScriptedView(waiting=[4, 2, 3]))
    policy.decide(ScriptedView(waiting=[5]))
    assert policy.decide(ScriptedView(running=[decode(0)])).plan.shape == Shape(1, 1)


@pytest.mark.parametrize("release", Release)
def test_every_step_of_a_batch_says_how_it_is_delivered(release):
    policy = Static(release=release).build()
    assert policy.decide(ScriptedView(waiting=[4])).plan.release is release
    assert policy.decide(ScriptedView(running=[decode(0)])).plan.release is release


@pytest.mark.parametrize(
    ("sizes", "admitted"),
    [((2, 2), (0,)), ((2, 1), (0, 1)), ((1, 3, 1), (0,)), ((3,), (0,)), ((2, 2, 1), (0,))],
)
def test_sizes_fill_the_batch_and_nobody_overtakes_one_that_does_not_fit(sizes, admitted):
    decision = Static(max_batch_size=3).build().decide(ScriptedView(waiting=sized(*sizes)))
    assert decision.admit == admitted
    assert decision.plan.shape.rows == sum(sizes[: len(admitted)])


def test_request_larger_than_any_batch_is_rejected_when_it_arrives():
    policy = Static(max_batch_size=3).build()
    assert policy.on_submit(ScriptedRequest(0, size=3), ScriptedView()) is None
    reason = policy.on_submit(ScriptedRequest(0, size=4), ScriptedView())
    assert reason == "size 4 exceeds max_batch_size 3"


def test_request_that_may_outgrow_max_seq_len_is_rejected_when_it_arrives():
    policy = Static(max_seq_len=10).build()
    fits = ScriptedRequest(0, prompt_tokens=6, max_tokens=4)
    longer = ScriptedRequest(0, prompt_tokens=6, max_tokens=5)
    assert policy.on_submit(fits, ScriptedView()) is None
    reason = policy.on_submit(longer, ScriptedView())
    assert reason == "prompt + max_tokens 11 exceed max_seq_len 10"


def test_space_is_reserved_for_prompt_and_max_tokens():
    view = ScriptedView(waiting=[ScriptedRequest(0, 6, max_tokens=4)])
    assert Static().build().decide(view).reserve == ((0, 10),)


def test_max_seq_len_is_reserved_for_every_request_whatever_its_length():
    view = ScriptedView(waiting=[ScriptedRequest(0, 6, max_tokens=4), ScriptedRequest(1, 1)])
    assert Static(max_seq_len=64).build().decide(view).reserve == ((0, 64), (1, 64))


def test_kv_cache_too_small_for_a_full_batch_cuts_it():
    waiting = [ScriptedRequest(rid, 4, max_tokens=4) for rid in range(3)]
    view = ScriptedView(waiting=waiting, num_blocks=5, block_size=4)
    assert Static(max_batch_size=3).build().decide(view).admit == (0, 1)


def test_request_behind_one_that_does_not_fit_the_cache_waits_too():
    waiting = [ScriptedRequest(0, 4), ScriptedRequest(1, 40), ScriptedRequest(2, 4)]
    view = ScriptedView(waiting=waiting, num_blocks=7, block_size=8)
    assert Static().build().decide(view).admit == (0, 1)
    view = ScriptedView(waiting=waiting, num_blocks=6, block_size=8)
    assert Static().build().decide(view).admit == (0,)


def test_reservation_larger_than_the_cache_is_rejected_when_it_arrives():
    view = ScriptedView(num_blocks=2, block_size=4)
    policy = Static().build()
    assert policy.on_submit(ScriptedRequest(0, 4, max_tokens=4), view) is None
    reason = policy.on_submit(ScriptedRequest(0, 5, max_tokens=4), view)
    assert reason == "a reservation of 9 tokens exceeds the KV cache"
    assert Static(max_seq_len=9).build().on_submit(ScriptedRequest(0, 4), view) is not None


def test_parameters_are_parsed_from_plain_data():
    spec = Static.model_validate({"release": "per-request", "max_batch_size": 3})
    assert spec == Static(release=Release.PER_REQUEST, max_batch_size=3)


@pytest.mark.parametrize(
    "parameters",
    [
        {"max_batch_size": 0},
        {"max_batch_size": -1},
        {"max_batch_size": 1.5},
        {"max_batch_size": float("nan")},
        {"max_batch_size": float("inf")},
        {"max_batch_size": None},
        {"max_seq_len": 1},
        {"max_seq_len": -5},
        {"drop_finished": "perhaps"},
        {"release": "never"},
        {"max_batch": 4},
        {"kind": "dynamic"},
    ],
    ids=repr,
)
def test_nonsense_parameters_are_refused(parameters):
    with pytest.raises(ValidationError):
        Static(**parameters)
