import numpy as np
import pytest

from workloads import PoissonArrivals, Streams, Trace, WorkloadError, replay
from workloads.chains import Chains
from workloads.moves import time_warp
from workloads.statistics import dispersion

RNG = np.random.default_rng


@pytest.fixture
def trace() -> Trace:
    return Trace(
        [0.0, 1.0, 4.0, 4.0, 9.0],
        [100, 200, 300, 400, 500],
        [10, 20, 30, 40, 51],
        columns={
            "tenant": ["a", "b", "a", "c", "b"],
            "model": ["x", "x", "y", "x", "y"],
            "conversation": [0, 1, 0, -1, 1],
            "turn": [0, 0, 1, 0, 1],
            "think_s": [np.nan, np.nan, 3.0, np.nan, 6.0],
            "deadline": [1.0, 2.0, 5.0, 5.0, 10.0],
        },
        chains=Chains.of([(0, 1), (0, 2), (0, 1, 3), (), (0, 2)], block_size=64),
    )


def adds_up(trace: Trace) -> bool:
    account = trace.provenance
    gone = sum(account["dropped"].values())
    return account["rows_read"] == account["rows_kept"] + gone == len(trace) + gone


def test_requests_are_picked_by_name(trace):
    part = replay.pick(trace, models=["x"], tenants=["b", "c"])
    assert part.prompt_tokens.tolist() == [200, 400]
    assert part.provenance["transforms"][0] == {
        "name": "pick",
        "models": ["x"],
        "tenants": ["b", "c"],
    }
    assert adds_up(part)
    with pytest.raises(WorkloadError, match="got 'z', expected a tenant that occurs: a, b, c"):
        replay.pick(trace, tenants=["z"])
    with pytest.raises(WorkloadError, match="expected a trace with a log_type a request"):
        replay.pick(trace, log_types=["z"])


def test_thinning_keeps_or_drops_whole_conversations(trace):
    for seed in range(30):
        try:
            part = replay.thin(trace, 0.5, RNG(seed))
        except WorkloadError:
            continue
        for conversation in (0, 1):
            assert np.sum(part.columns["conversation"] == conversation) in (0, 2)
        assert adds_up(part)


def test_thinning_keeps_each_conversation_with_the_share_asked_for():
    n = 20_000
    trace = Trace(np.arange(n), np.ones(n), np.ones(n), columns={"conversation": np.arange(n) // 2})
    kept = len(replay.thin(trace, 0.3, RNG(1))) / n
    assert abs(kept - 0.3) < 4 * np.sqrt(0.3 * 0.7 / (n / 2))
    single = replay.thin(trace, 0.3, RNG(1), whole_conversations=False)
    sizes = np.bincount(single.columns["conversation"])
    assert 1 in sizes


def test_thinning_everything_away_is_an_error(trace):
    with pytest.raises(WorkloadError, match="no rows"):
        replay.thin(trace, 1e-9, RNG(1))


def test_clients_are_kept_with_all_their_requests(trace):
    part = replay.thin_clients(trace, 0.7, RNG(3))
    kept = set(part.columns["tenant"])
    assert part.prompt_tokens.tolist() == [
        p for p, t in zip(trace.prompt_tokens, trace.columns["tenant"], strict=True) if t in kept
    ]
    with pytest.raises(WorkloadError, match="with a tenant"):
        replay.thin_clients(Trace([0.0], [1], [1]), 0.5, RNG(1))


def test_copies_have_other_conversations_and_prefixes(trace):
    double = replay.superpose(trace, 2, common_blocks=1)
    assert len(double) == 10
    assert double.provenance["added"] == {"superpose": 5}
    assert adds_up(double)
    assert sorted(double.columns["conversation"]) == [-1, -1, 0, 0, 1, 1, 2, 2, 3, 3]
    for row in range(10):
        conversation = double.columns["conversation"][row]
        chain = double.chains[row]
        if conversation >= 0:
            assert chain[0] == 0
            assert all((block >= 4) == (conversation >= 2) for block in chain[1:])
    assert np.all(double.columns["deadline"] == double.arrival_s + 1.0)


def test_copies_without_conversations_wrap_around():
    trace = Trace([0.0, 1.0, 2.0, 3.0], [1, 2, 3, 4], [1] * 4)
    double = replay.superpose(trace, 2)
    assert double.arrival_s.tolist() == [0.0, 0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 3.0]
    assert double.prompt_tokens.tolist() == [1, 3, 2, 4, 3, 1, 4, 2]
    assert replay.superpose(trace, 1).arrival_s.tolist() == trace.arrival_s.tolist()


def test_lengths_are_scaled_with_their_caps(trace):
    scaled = replay.scale_lengths(trace, 0.001, 1.5)
    assert scaled.prompt_tokens.tolist() == [1, 1, 1, 1, 1]
    assert scaled.output_tokens.tolist() == [15, 30, 45, 60, 77]
    assert scaled.max_tokens.tolist() == scaled.output_tokens.tolist()


def test_silences_are_shortened_and_all_else_stays(trace):
    short = replay.cap_gaps(trace, 2.0)
    assert short.arrival_s.tolist() == [0.0, 1.0, 3.0, 3.0, 5.0]
    step = short.provenance["transforms"][0]
    assert (step["gaps_capped"], step["removed_s"]) == (2, 4.0)


def test_a_loop_goes_on_one_mean_gap_later(trace):
    longer = replay.loop(trace, 12)
    period = 9.0 * 5 / 4
    assert longer.arrival_s[5:7].tolist() == [period, period + 1]
    assert longer.columns["conversation"][5:10].tolist() == [2, 3, 2, -1, 3]
    assert adds_up(longer)
    assert len(replay.loop(trace, 3)) == 3


def test_windows_are_drawn_with_replacement():
    trace = Trace(np.arange(1000.0), np.arange(1, 1001), np.ones(1000))
    drawn = replay.bootstrap(trace, 10.0, RNG(1))
    blocks = drawn.prompt_tokens // 10
    assert np.unique(blocks).size < 90
    assert np.all(np.diff(drawn.arrival_s) >= 0)
    assert drawn.span_s <= 1000
    assert adds_up(drawn)


def test_requests_without_a_clock_get_one():
    trace = Trace([0.0, 0.0, 0.0], [1, 2, 3], [1, 1, 1])
    placed = replay.place(trace, PoissonArrivals(request_rate=2), RNG(1))
    assert np.all(np.diff(placed.arrival_s) > 0)
    assert placed.prompt_tokens.tolist() == [1, 2, 3]


def test_conversations_get_starts_and_keep_their_own_times():
    trace = Trace(
        [0.0, 0.0, 0.0, 2.0, 5.0],
        [1, 2, 3, 4, 5],
        [1] * 5,
        columns={"conversation": [1, 0, -1, 1, 0]},
    )
    placed = replay.place(trace, PoissonArrivals(request_rate=0.01), RNG(1))
    start = PoissonArrivals(request_rate=0.01).times(3, RNG(1))
    assert placed.prompt_tokens.tolist() == [1, 4, 2, 5, 3]
    expected = [start[0], start[0] + 2, start[1], start[1] + 5, start[2]]
    assert placed.arrival_s.tolist() == pytest.approx(expected)


def test_think_times_shrink_with_the_clock(trace):
    fast = time_warp(trace, 2.0)
    assert fast.arrival_s.tolist() == [0.0, 0.5, 2.0, 2.0, 4.5]
    assert fast.columns["think_s"][4] == 3.0
    assert trace.rescale(trace.rate * 2).columns["think_s"][4] == pytest.approx(3.0)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda t: replay.thin(t, 0.0, RNG(1)), "thin"),
        (lambda t: replay.thin(t, 1.1, RNG(1)), "thin"),
        (lambda t: replay.thin_clients(t, -1, RNG(1)), "client_share"),
        (lambda t: replay.superpose(t, 0), "superpose"),
        (lambda t: replay.scale_lengths(t, prompt=0), "prompt_scale"),
        (lambda t: replay.scale_lengths(t, output=float("nan")), "output_scale"),
        (lambda t: replay.cap_gaps(t, 0.0), "max_gap_s"),
        (lambda t: replay.loop(t, 0), "num_requests"),
        (lambda t: replay.bootstrap(t, 0.0, RNG(1)), "block_s"),
        (lambda t: replay.bootstrap(t, 99.0, RNG(1)), "block_s"),
        (lambda t: time_warp(t, 0.0), "time_warp"),
    ],
)
def test_nonsense_is_refused_by_name(trace, call, field):
    with pytest.raises(WorkloadError, match=field):
        call(trace)


@pytest.fixture(scope="module")
def azure(real):
    return {
        kind: real(f"azure_llm_2023/AzureLLMInferenceTrace_{kind}.csv.gz")
        for kind in ("conv", "code")
    }


def figures(trace):
    return [trace.cv, *(dispersion(trace.arrival_s, width) for width in (1.0, 10.0, 60.0))]


@pytest.mark.shared
@pytest.mark.parametrize(
    ("kind", "change", "expected"),
    [
        ("conv", lambda t: time_warp(t, 2.0), [1.09, 1.7, 6.6, 30]),
        ("conv", lambda t: time_warp(t, 0.5), [1.09, 1.2, 2.5, 8.9]),
        ("conv", lambda t: replay.thin(t, 0.5, Streams(1)("thin")), [1.05, 1.2, 2.3, 8.2]),
        ("conv", lambda t: replay.superpose(t, 2), [1.03, 1.2, 2.1, 5.0]),
        ("code", lambda t: time_warp(t, 2.0), [13.2, 24, 102, 206]),
        ("code", lambda t: time_warp(t, 0.5), [13.2, 7.7, 47, 124]),
        ("code", lambda t: replay.thin(t, 0.5, Streams(1)("thin")), [9.4, 7.1, 36, 84]),
        ("code", lambda t: replay.superpose(t, 2), [12.3, 14, 85, 193]),
    ],
)
def test_published_figures_of_changed_rates_are_met(azure, kind, change, expected):
    assert figures(change(azure[kind])) == pytest.approx(expected, rel=0.08)
