"""Recorded runs of a real engine: steps, requests and token times, and the same run simulated.

A run `NAME` consists of `NAME.head.json` (which clock), `NAME.steps.csv` (see `step_rows`),
`NAME.requests.jsonl` (a line for every request with its token times) and `NAME.sched.jsonl` (its
configuration and decisions, see `vllm_recording`); all but the first may be compressed (`.gz`).
"""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from policies.base import Decision, Trigger
from policies.routers import RoundRobin
from simulator.ahead import AheadEngine
from simulator.clock import Clock
from simulator.cluster import Cluster
from simulator.cost.base import CostModel
from simulator.engine import Engine
from simulator.errors import UserError
from simulator.fastforward import FastEngine
from simulator.observer import Observer, StepRecord
from simulator.request import Request
from simulator.step_rows import StepLog, read_steps
from simulator.vllm_recording import Line, policy_of, read_lines, read_recording
from workloads.sources import TraceSource
from workloads.trace import Trace

PARTS = ("head.json", "steps.csv", "requests.jsonl", "sched.jsonl")
"""Endings of the files of a run."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class EngineRun:
    """A recorded run; times in ms on the run's clock.

    Attributes
    ----------
    name : str
        Name of the run.
    config : dict
        Configuration of the scheduler.
    steps : StepLog
        Its steps, timed by the clock that drove the run.
    arrival_ms : array
        When each request was due, in order.
    added_before : array of int
        Step before which it was handed to the engine.
    added_ms : array
        How long that took.
    prompt_tokens, output_tokens : array of int
        Lengths.
    token_ms : tuple of array
        When each token of each request came.
    """

    name: str
    config: Line
    steps: StepLog
    arrival_ms: Floats
    added_before: NDArray[np.int64]
    added_ms: Floats
    prompt_tokens: NDArray[np.int64]
    output_tokens: NDArray[np.int64]
    token_ms: tuple[Floats, ...]


def find_runs(paths: Iterable[Path]) -> list[Path]:
    """Return the runs that files or folders stand for, as paths without ending, each once.

    Raises
    ------
    UserError
        If a path is no file of a run, or a folder holds none.
    """
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            heads = sorted(path.glob("*.head.json"))
            stems = [head.with_name(head.name.removesuffix(".head.json")) for head in heads]
            stems = [stem for stem in stems if _part(stem, "requests.jsonl").exists()]
            if not stems:
                raise UserError(f"{path}: holds no runs: expected NAME.head.json and its files")
            found.update(dict.fromkeys(stems))
            continue
        name = path.name.removesuffix(".gz")
        ending = next((part for part in PARTS if name.endswith(f".{part}")), None)
        if ending is None:
            raise UserError(f"{path}: no file of a run: expected NAME.{', NAME.'.join(PARTS)}")
        found[path.with_name(name.removesuffix(f".{ending}"))] = None
    return list(found)


def read_run(stem: Path) -> EngineRun:
    """Read a recorded run.

    Parameters
    ----------
    stem : pathlib.Path
        Path of its files without their endings.

    Raises
    ------
    UserError
        One line that names file and line.
    """
    clock = _clock(_part(stem, "head.json"))
    steps = read_steps(_part(stem, "steps.csv"), f"{clock}_ms")
    header, _ = read_recording(_part(stem, "sched.jsonl"))
    path = _part(stem, "requests.jsonl")
    rows = [line for line in read_lines(path) if "head" not in line]
    if len(rows) != len(header["requests"]):
        raise UserError(f"{path}: {len(rows)} requests: expected {len(header['requests'])}")
    if header["config"]["enable_prefix_caching"]:
        raise UserError(f"{stem.name}: prefix caching: the prompts of a timed run are not known")
    try:
        run = EngineRun(
            name=stem.name,
            config=header["config"],
            steps=steps,
            arrival_ms=np.array([row["arrival_ms"] for row in rows], dtype=np.float64),
            added_before=np.array([row[0] for row in header["requests"]], dtype=np.int64),
            added_ms=np.array([row["add_cost_ms"] for row in rows], dtype=np.float64),
            prompt_tokens=np.array([row["prompt"] for row in rows], dtype=np.int64),
            output_tokens=np.array([row["out"] for row in rows], dtype=np.int64),
            token_ms=tuple(np.array(row["tok"], dtype=np.float64) for row in rows),
        )
    except KeyError as error:
        raise UserError(f"{path}: field {error} of a request is missing") from None
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: a field of a request is no number: {error}") from None
    _check(run, path)
    return run


def _check(run: EngineRun, path: Path) -> None:
    """Refuse a run whose parts do not fit together."""
    if "t_start_ms" not in run.steps.table:
        raise UserError(f"{run.steps.name}: column t_start_ms is missing in the steps of a run")
    if run.added_before.max(initial=0) >= len(run.steps.table):
        raise UserError(f"{run.steps.name}: {len(run.steps.table)} steps: the file is cut off")
    if not (np.diff(run.arrival_ms, prepend=0.0) >= 0).all():
        raise UserError(f"{path}: arrival_ms: expected times of at least 0 in order")
    starts = run.steps.table["t_start_ms"].to_numpy()[run.added_before]
    early = np.flatnonzero(run.arrival_ms > starts)
    if len(early):
        step = run.added_before[early[0]]
        raise UserError(
            f"{path}: request {early[0]}: arrives after step {step}, before which it was added"
        )
    for number, (tokens, expected) in enumerate(zip(run.token_ms, run.output_tokens, strict=True)):
        if len(tokens) != expected or not (np.diff(tokens, prepend=0.0) > 0).all():
            raise UserError(f"{path}: request {number}: expected {expected} rising times in tok")


def simulate_run(
    run: EngineRun, cost: CostModel, arrival_s: Floats, *, fast: bool = True
) -> list[list[float]]:
    """Serve the requests of a run with our engine and policy; return their token times.

    Parameters
    ----------
    run : EngineRun
        Its requests and configuration.
    cost : CostModel
        Gives the time of a step.
    arrival_s : array
        When each request arrives, seconds, ascending.
    fast : bool
        Whether steps without events may be taken together; then only the first and the last
        token of each request are returned.

    Returns
    -------
    list of list of float
        Token times of each request, seconds.
    """
    config = run.config
    env = Clock()
    trace = Trace(arrival_s, run.prompt_tokens, run.output_tokens)
    watch = _Ends() if fast else _Tokens()
    cluster = Cluster(env, RoundRobin().build(1, np.random.default_rng(0)))
    plain = AheadEngine if config["async_scheduling"] else Engine
    engine_type = FastEngine if fast and plain is Engine else plain
    engine = engine_type(
        env,
        policy_of(config).build(),
        cost,
        engine_type.ledger_type(config["num_gpu_blocks"] - 1, config["block_size"]),
        dict(enumerate(run.output_tokens.tolist())),
        config["max_model_len"],
        (watch, cluster),
    )
    cluster.start([engine], TraceSource(trace))
    env.run()
    engine.check_done()
    return [watch.times.get(number, []) for number in range(len(trace))]


class _Ends(Observer):
    """Keeps the first and the last token of every request."""

    def __init__(self) -> None:
        self.times: dict[int, list[float]] = {}

    def on_leave(self, request: Request, now: float) -> None:
        assert request.first_token is not None
        assert request.last_token is not None
        self.times[request.id] = [request.first_token, request.last_token]


class _Tokens(Observer):
    """Keeps the time of every token."""

    def __init__(self) -> None:
        self.times: dict[int, list[float]] = {}
        self._requests: dict[int, Request] = {}
        self._sampled: Sequence[int] = ()

    def on_submit(self, request: Request, now: float) -> None:
        self._requests[request.id] = request
        self.times[request.id] = []

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        known = self._requests
        self._sampled = [
            rid for rid, tokens in work if known[rid].computed + tokens == known[rid].known
        ]

    def on_step(self, step: StepRecord) -> None:
        for rid in self._sampled:
            self.times[rid].append(step.end)


def _part(stem: Path, ending: str) -> Path:
    """Return the path of one file of a run; compressed, unless only the plain one is there."""
    plain = stem.with_name(f"{stem.name}.{ending}")
    packed = plain.with_name(f"{plain.name}.gz")
    return plain if plain.exists() or ending == "head.json" else packed


def _clock(path: Path) -> str:
    try:
        clock = json.loads(path.read_text(encoding="utf-8")).get("clock")
    except OSError as error:
        raise UserError(f"{path}: cannot read run: {error.strerror}") from None
    except (ValueError, AttributeError):
        raise UserError(f"{path}: expected a JSON object") from None
    if clock not in ("wall", "cpu"):
        raise UserError(f"{path}: clock {clock!r}: expected wall or cpu")
    return str(clock)
