"""Replays a worked example by names a person can follow: requests are A, B, C... by arrival."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import pytest

from policies import Decision, PolicySpec, Trigger
from simulator.clock import ARRIVAL, At, Clock
from simulator.cost.analytic import FixedCost
from simulator.engine import Engine
from simulator.fastforward import FastEngine
from simulator.kv_cache import BlockManager
from simulator.observer import Observer, StepRecord
from simulator.recorder import Columns, TableRecorder
from simulator.request import Request
from workloads.request import RequestSpec


def letter(rid: int) -> str:
    return chr(ord("A") + rid)


class Script(Observer):
    """Writes a run down as the design page does: time, preempted ones, tokens of each request."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.steps: list[StepRecord] = []

    def on_decision(self, now, trigger: Trigger, decision: Decision, work) -> None:
        lost = [f"-{letter(rid)}" for rid, _ in decision.preempt]
        done = [f"{letter(rid)}{tokens}" for rid, tokens in work]
        if lost or done:
            self.lines.append(" ".join([f"{now:g}:", *lost, *done]))

    def on_step(self, step: StepRecord) -> None:
        self.steps.append(step)


@dataclass
class Replay:
    """What a replayed example left behind."""

    lines: list[str]
    steps: list[StepRecord]
    requests: dict[str, Request]
    output_tokens: dict[str, int]
    tables: dict[str, Columns]
    kv: BlockManager

    def times(self, field: str) -> dict[str, float]:
        """Return a time of every finished request."""
        finished = {n: r for n, r in self.requests.items() if r.state.value == "finished"}
        return {name: getattr(request, field) for name, request in finished.items()}

    def per_step(self, field: str) -> list[int]:
        """Return a number of every step."""
        return [getattr(step, field) for step in self.steps]

    @property
    def batches(self) -> list[str]:
        """Batches of one step each, as members and span: ``AB 10-16``."""
        members = ["".join(word[0] for word in line.split()[1:]) for line in self.lines]
        spans = [f"{step.start:g}-{step.end:g}" for step in self.steps]
        return [f"{who} {span}" for who, span in zip(members, spans, strict=True)]

    @property
    def gaps(self) -> list[tuple[float, int]]:
        """Times between tokens as (gap, count), in order of delivery."""
        gaps = self.tables["gaps"]
        return list(zip(gaps["gap_s"].tolist(), gaps["count"].tolist(), strict=True))

    def check_invariants(self) -> None:
        """Check what holds in any run, whatever the example says."""
        assert all(a.end <= b.start for a, b in pairwise(self.steps)), "steps overlap"
        for line, step in zip(self.lines, self.steps, strict=True):
            work = [word for word in line.split()[1:] if word[0] != "-"]
            assert len({word[0] for word in work}) == len(work), "planned twice"
            tokens = sum(int(word[1:]) for word in work)
            assert tokens == step.num_decodes + step.chunk_tokens <= step.charged_tokens
            assert step.kv_used <= self.kv.total
        computed = sum(step.num_decodes + step.chunk_tokens for step in self.steps)
        delivered = 0
        for name, r in self.requests.items():
            if r.state.value == "rejected":
                assert r.reject_reason
                continue
            assert r.state.value == "finished"
            assert r.arrival <= r.first_scheduled < r.first_token <= r.last_token <= r.finish
            assert r.generated == self.output_tokens[name]
            assert r.computed == r.prompt_tokens + r.generated - 1
            computed -= r.computed + r.recomputed_tokens
            delivered += r.generated - 1
        assert computed == 0, "tokens do not add up"
        assert self.tables["gaps"]["count"].sum() == delivered
        assert self.kv.used == 0
        assert self.kv.num_allocated == self.kv.num_freed


def run_example(
    kind: type[Engine],
    policy: PolicySpec,
    requests: Sequence[tuple[float, int, int]],
    step: float,
    num_blocks: int | None,
    block_size: int,
) -> Replay:
    rows = [RequestSpec(rid, *request) for rid, request in enumerate(requests)]
    outputs = {row.id: row.output_tokens for row in rows}
    env, kv = Clock(), kind.ledger_type(num_blocks, block_size)
    recorder, script = TableRecorder(outputs), Script()
    watchers = (recorder, script)
    engine = kind(env, policy.build(), FixedCost(step), kv, outputs, observers=watchers)
    engine.start()
    made = [kind.request_type(row) for row in rows]
    for request in made:
        arrival = At(env, request.arrival, ARRIVAL)
        arrival.callbacks.append(lambda _, request=request: engine.submit(request))
    env.run()
    engine.check_done()
    named = {letter(request.id): request for request in made}
    lengths = {letter(rid): tokens for rid, tokens in outputs.items()}
    return Replay(script.lines, script.steps, named, lengths, recorder.tables(), kv)


@pytest.fixture(scope="session")
def replay():
    """Run requests of (arrival, prompt, output); the fast stepper has to give the same tables."""

    def run(
        policy: PolicySpec,
        requests: Sequence[tuple[float, int, int]],
        *,
        step: float = 1.0,
        num_blocks: int | None = None,
        block_size: int = 16,
    ) -> Replay:
        example = (policy, requests, step, num_blocks, block_size)
        reference, fast = run_example(Engine, *example), run_example(FastEngine, *example)
        for name, table in reference.tables.items():
            for column, values in table.items():
                assert values.tobytes() == fast.tables[name][column].tobytes(), (name, column)
        return reference

    return run
