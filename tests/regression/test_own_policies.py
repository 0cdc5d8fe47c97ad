"""The gate on our own policies, and that it catches what it is there for."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import simulator.run
from policies.window import _WindowPull
from simulator.cohort_ledgers import CohortLedger
from simulator.cost.analytic import LinearTokenCost
from simulator.kv_cache import BlockManager
from simulator.regress.baseline import default_path, read_baseline
from simulator.regress.check import check
from simulator.regress.suite import Suite
from simulator.regress.verdict import Verdict
from simulator.scratch import CountingScratch
from tests.regression.command import SUITE, Gate
from workloads.streams import Streams

Plant = Callable[[pytest.MonkeyPatch], None]


def test_our_policies_are_what_they_were(gate: Gate) -> None:
    """After a change that is meant: batchlab regress accept tests/regression/suite.yaml."""
    outcome = gate("check", SUITE)
    assert outcome.code == 0, outcome.out


def wrapped(patch: pytest.MonkeyPatch, cls: Any, name: str, change: Callable[..., Any]) -> None:
    """Replace a method; `change` gets the old one before its arguments."""
    old = getattr(cls, name)
    patch.setattr(cls, name, lambda *args: change(old, *args))


def slower(patch: pytest.MonkeyPatch) -> None:
    wrapped(patch, LinearTokenCost, "__init__", lambda old, *args: old(args[0], *scaled(args[1:])))


def scaled(values: tuple[float, ...]) -> list[float]:
    return [1.05 * value for value in values]


def one_block_less(patch: pytest.MonkeyPatch) -> None:
    """Let admission see one free block too few."""

    def start(old: Any, self: Any, kv: Any) -> None:
        old(self, kv)
        self.free -= 1

    wrapped(patch, CountingScratch, "__init__", start)


def one_row_less(patch: pytest.MonkeyPatch) -> None:
    wrapped(
        patch, _WindowPull, "__init__", lambda old, self, rows, *rest: old(self, rows - 1, *rest)
    )


def leak(patch: pytest.MonkeyPatch) -> None:
    """Lose a block in one of twenty releases."""
    for ledger in (BlockManager, CohortLedger):
        count = iter(range(10**9))

        def release(old: Any, self: Any, rid: int, count: Any = count) -> None:
            old(self, rid)
            self.free -= next(count) % 20 == 19

        wrapped(patch, ledger, "release", release)


def next_seed(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(simulator.run, "Streams", lambda seed, number: Streams(seed, number + 1))


def shared_stream(patch: pytest.MonkeyPatch) -> None:
    """All replicas draw their step times from one stream."""
    wrapped(patch, Streams, "__call__", lambda old, self, name, *keys: old(self, name))


FAULTS: dict[str, tuple[Plant, set[tuple[str, str]]]] = {
    "cost +5 %": (
        slower,
        {("sarathi", "p99_itl_ms"), ("sarathi", "mean_e2el_ms")},
    ),
    "admission is off by a block": (
        one_block_less,
        {("exact vllm-v1 short of memory", "behaviour")},
    ),
    "admission is off by a row": (one_row_less, {("exact window-pull", "behaviour")}),
    "a block leaks": (leak, {("exact vllm-v1 short of memory", "behaviour")}),
    "the next seed": (
        next_seed,
        {("exact window-pull", "workload"), ("exact window-pull", "behaviour")},
    ),
    "replicas share a stream": (shared_stream, {("exact replicas with chance", "behaviour")}),
}
"""Name to what is planted, and what has to be found among other things."""


@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_caught(gate: Gate, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    plant, expected = FAULTS[fault]
    plant(monkeypatch)
    names = sorted({scenario for scenario, _ in expected})
    outcome = gate("check", SUITE, "--json", "--scenario", *names)
    assert outcome.code == 1, outcome.out
    cells = json.loads(outcome.out)["cells"]
    found = {(c["scenario"], c["metric"]) for c in cells if c["verdict"] == "regressed"}
    assert expected <= found, found


def test_twenty_repeats_without_a_change_raise_no_alarm() -> None:
    suite, baseline = Suite(SUITE), read_baseline(default_path(SUITE))
    chosen = suite.only(["exact window-pull"])
    cells = [cell for _ in range(20) for cell in check(suite, baseline, chosen).cells]
    assert [cell.verdict for cell in cells] == [Verdict.IDENTICAL] * 40
