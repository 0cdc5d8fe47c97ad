import numpy as np
import pytest
from pydantic import ValidationError

from workloads import Streams, WindowedArrivals, WorkloadError, parse_workload, read_clients
from workloads.clients import at_rate
from workloads.modulated import MmppArrivals
from workloads.statistics import counts

CHAT = {
    "name": "chat",
    "arrivals": 3,
    "prompt_tokens": 500,
    "output_tokens": {"mean": 200, "cv": 1},
}
CODE = {
    "name": "code",
    "arrivals": {"rate_on": 4, "mean_on_s": 5, "mean_off_s": 15},
    "prompt_tokens": 4000,
    "output_tokens": 50,
}
MIX = {"clients": [CHAT, CODE], "num_requests": 4000}


def build(**change):
    return parse_workload(MIX | change).build(Streams(1))


def test_each_client_keeps_its_own_law():
    trace = build()
    chat = trace.columns["tenant"] == "chat"
    assert set(trace.prompt_tokens[chat]) == {500}
    assert set(trace.prompt_tokens[~chat]) == {4000}
    assert chat.mean() == pytest.approx(0.75, abs=0.05)
    assert "chat 7" in trace.provenance["notes"]["clients"]


def test_a_client_does_not_change_with_the_others():
    alone = build(clients=[CHAT], num_requests=1000)
    both = build()
    mine = both.columns["tenant"] == "chat"
    assert np.array_equal(alone.arrival_s, both.arrival_s[mine][:1000])
    assert np.array_equal(alone.output_tokens, both.output_tokens[mine][:1000])


def test_another_rate_keeps_the_mix_and_the_length_of_bursts():
    fast = build(request_rate=40)
    assert fast.rate == pytest.approx(40, rel=0.15)
    assert np.mean(fast.columns["tenant"] == "chat") == pytest.approx(0.75, abs=0.1)
    code = parse_workload(MIX).clients[1].arrivals
    assert at_rate(code, 10).mean_on_s == code.mean_on_s
    mmpp = at_rate(MmppArrivals(rates=(1, 3), sojourns_s=(1, 1)), 4.0)
    assert mmpp.rates == (2.0, 6.0)


def test_drawn_clients_change_the_mix():
    trace = build(draw_clients=5)
    assert trace.provenance["notes"]["clients"].startswith("5; ")


def test_lengths_may_change_from_window_to_window():
    client = CHAT | {"prompt_tokens": [10, 20], "length_window_s": 100}
    trace = build(clients=[client])
    odd = (trace.arrival_s // 100).astype(int) % 2 == 1
    assert set(trace.prompt_tokens[odd]) == {20}
    assert set(trace.prompt_tokens[~odd]) == {10}


def test_windows_have_their_rate_and_their_variability():
    law = WindowedArrivals(width_s=100, rates=(5, 0, 20), cvs=(1, 1, 3), families=("weibull",) * 3)
    numbers = np.concatenate(
        [
            counts(np.concatenate(([0.0], law.until(3000, np.random.default_rng(s)), [3e3])), 100.0)
            for s in range(40)
        ]
    ).reshape(-1, 3)
    error = 4 * numbers.std(0) / np.sqrt(len(numbers))
    assert np.all(np.abs(numbers.mean(0) - [500, 0, 2000]) <= error + 1)
    ratio = numbers.var(0)[[0, 2]] / [500, 2000]
    assert ratio == pytest.approx([1, 9], rel=0.25)
    fast = law.model_copy(update={"request_rate": 50})
    assert fast.times(5000, np.random.default_rng(1))[-1] == pytest.approx(216.7, abs=8)
    assert law.rate == pytest.approx(25 / 3)


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"clients": []}, "clients"),
        ({"clients": [CHAT | {"prompt_tokens": []}]}, "prompt_tokens"),
        ({"draw_clients": 0}, "draw_clients"),
        ({"clients": [CHAT | {"arrivals": {"width_s": 1, "rates": [0], "cvs": [1]}}]}, "rates"),
        (
            {"clients": [CHAT | {"arrivals": {"width_s": 1, "rates": [1, 1, 1], "cvs": [1, 1]}}]},
            "cvs",
        ),
    ],
)
def test_nonsense_is_refused_by_name(data, told):
    with pytest.raises(ValidationError, match=told):
        parse_workload(MIX | data)


WINDOWS = "0,1.0,2.0,Gamma,0.25,4\n600,0,0,,0,0\n1200,3.0,1.0,Weibull,1,0.3\n"
DATASET = '{"0": {"input_tokens": "{5: 0.5, 7: 0.5}", "output_tokens": "{0: 0.25, 9: 0.75}"}}'


@pytest.fixture
def folder(write, tmp_path):
    write(WINDOWS, "chunk-3-trace.csv")
    write(DATASET, "chunk-3-dataset.json")
    write("0,0,0,,0,0\n", "chunk-4-trace.csv")
    write(WINDOWS, "chunk-5-trace.csv")
    return tmp_path


def test_servegen_clients_are_read(folder):
    workload = read_clients(folder, num_requests=500)
    (client,) = workload.clients
    assert (client.name, client.arrivals.families) == ("3", ("gamma", "gamma", "weibull"))
    assert client.arrivals.rate == pytest.approx(4 / 3)
    trace = workload.build(Streams(1))
    assert set(trace.prompt_tokens) == {5, 7}
    assert set(trace.output_tokens) == {1, 9}


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("chunk-3-trace.csv", "0,1,1\n", "line 1: got '0,1,1', expected 6 cells"),
        ("chunk-3-trace.csv", "0,x,1,,0,0\n", "line 1: .*expected a number"),
        ("chunk-3-trace.csv", "0,1,1,,0,0\n600,1,1,,0,0\n700,1,1,,0,0\n", "one width"),
        ("chunk-3-dataset.json", "{", "expected JSON"),
        ("chunk-3-dataset.json", "[]", "expected an object"),
        ("chunk-3-dataset.json", DATASET.replace("0.75", "0.5"), "column output_tokens"),
        ("chunk-3-dataset.json", DATASET.replace("5: 0.5", "__import__('os')"), "input_tokens"),
        ("chunk-3-dataset.json", "{}", "expected an object"),
    ],
)
def test_broken_clients_are_told(folder, name, content, told):
    (folder / name).write_text(content)
    with pytest.raises(WorkloadError, match=told) as error:
        read_clients(folder)
    assert "\n" not in str(error.value)


def test_nothing_is_told(tmp_path, write):
    with pytest.raises(WorkloadError, match="no clients"):
        read_clients(tmp_path)
    with pytest.raises(WorkloadError, match="no such file"):
        read_clients(tmp_path / "none.tar.gz")
    with pytest.raises(WorkloadError, match="tar archive"):
        read_clients(write("x", "a.tar.gz"))


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "clients", "rate"),
    [("reason_deepseek-r1.tar.gz", 73, 16.0147), ("data/reason/deepseek-r1", 6, None)],
)
def test_real_clients_have_their_published_rate(real, name, clients, rate):
    workload = real(f"servegen/{name}")
    assert len(workload.clients) == clients
    if rate:
        assert workload.rate == pytest.approx(rate, rel=1e-4)
    assert len(workload.build(Streams(1))) == 1000


@pytest.mark.shared
def test_subset_leaves_out_the_clients_without_lengths(real):
    assert len(real("servegen/language_m-small.subset.tar.gz").clients) == 21
