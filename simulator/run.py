"""The composition root: builds all parts of a run from its specification and runs it."""

from array import array
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from policies import POLICIES
from policies.base import Machine, Policy
from simulator.ahead import AheadEngine
from simulator.clock import Clock
from simulator.cluster import Cluster
from simulator.cost.base import CostModel
from simulator.cost.spec import TableSpec
from simulator.engine import Engine
from simulator.errors import RunError, UserError
from simulator.fastforward import FastEngine
from simulator.observer import Observer
from simulator.own_policy import watch
from simulator.recorder import TableRecorder, merge_tables
from simulator.result import Result
from simulator.spec import RunSpec
from simulator.swap import SwapSpace
from simulator.table_files import TableFiles
from simulator.wall_limit import within
from workloads.errors import WorkloadError
from workloads.streams import Streams
from workloads.trace import Trace

DEFAULT_BUDGET = 8192
"""Tokens in a step for which activation memory is set aside when the policy names no limit."""


def simulate(
    spec: RunSpec,
    *,
    replication: int = 0,
    observers: Sequence[Observer] = (),
    stepper: Literal["fast", "reference"] = "fast",
    spill: Path | None = None,
    timeout_s: float | None = None,
) -> Result:
    """Run a specification and return what happened.

    Parameters
    ----------
    spec : RunSpec
        What to simulate.
    replication : int
        Index of the replication, at least 0. Each has its own random streams; the same index
        under another policy meets the same requests.
    observers : sequence of Observer
        Told what happens while it happens.
    stepper : {"fast", "reference"}
        `reference` touches every request in every step and defines what a run means; `fast` gives
        the same result to the last bit.
    spill : Path, optional
        Existing folder into which the tables are written while the run goes on, so that memory
        does not grow with their rows; for one replica. Requests stand there as they left.
    timeout_s : float, optional
        Wall-clock time after which the run ends with an error, seconds.

    Returns
    -------
    Result

    Raises
    ------
    UserError
        If the specification cannot be run, such as a request that never fits the KV cache.
    RunError
        If the policy breaks a rule, stalls or raises; `TimeUp` if the time is up.

    Examples
    --------
    >>> spec = RunSpec(
    ...     workload={"arrivals": {"kind": "poisson", "request_rate": 2.0}, "num_requests": 50,
    ...               "prompt_tokens": 8, "output_tokens": 4},
    ...     policy="vllm-v1", cost={"kind": "fixed", "step_ms": 10})
    >>> simulate(spec).metrics["completed"]
    50
    """
    env = Clock()
    return within(
        timeout_s,
        lambda: _simulate(spec, env, replication, observers, stepper, spill),
        lambda: f"the run stood at {env.now:.6f} s of simulated time",
    )


def _simulate(
    spec: RunSpec,
    env: Clock,
    replication: int,
    observers: Sequence[Observer],
    stepper: Literal["fast", "reference"],
    spill: Path | None,
) -> Result:
    """Build everything, run it, and collect what happened."""
    num_blocks, max_model_len = machine_limits(spec)
    block_size = None if num_blocks is None else spec.engine.block_size
    machine = Machine(max_model_len, block_size, spec.engine.async_scheduling)
    check_machine(spec, machine)
    try:
        streams = Streams(spec.seed, replication)
        source = spec.workload.source(streams, max_model_len)
    except WorkloadError as error:
        raise UserError(str(error)) from None
    trace = source.table
    check_capacity(trace, num_blocks, spec.engine.block_size)
    files = _table_files(spec, spill)
    router = spec.engine.router
    cluster = Cluster(
        env,
        router.build(spec.engine.num_replicas, streams("router")),
        router.refresh_interval_ms / 1e3,
    )
    replicas = [
        _replica(
            spec,
            env,
            trace,
            (num_blocks, max_model_len),
            streams,
            index,
            (*observers, cluster),
            stepper,
            files,
        )
        for index in range(spec.engine.num_replicas)
    ]
    engines = [replica.engine for replica in replicas]
    cluster.start(engines, source)
    env.run(until=spec.measure.horizon_s)
    if cluster.is_exhausted:  # else the horizon cut the run
        for engine in engines:
            engine.check_done()
    tables = [replica.recorder.tables(replica.engine.unfinished()) for replica in replicas]
    return Result(
        spec=spec,
        replication=replication,
        tables=merge_tables(tables) if files is None else files.close(tables[0]),
        trace=trace,
        num_blocks=num_blocks,
        extrapolated_steps=sum(replica.cost.num_extrapolated for replica in replicas),
    )


def _table_files(spec: RunSpec, folder: Path | None) -> TableFiles | None:
    if folder is None:
        return None
    if spec.engine.num_replicas > 1:
        raise UserError("engine.num_replicas: tables are streamed to files for one replica only")
    return TableFiles(folder)


class _Replica(NamedTuple):
    engine: Engine
    recorder: TableRecorder
    cost: CostModel


def _replica(
    spec: RunSpec,
    env: Clock,
    trace: Trace,
    limits: tuple[int | None, int | None],
    streams: Streams,
    index: int,
    observers: Sequence[Observer],
    stepper: Literal["fast", "reference"],
    files: TableFiles | None,
) -> _Replica:
    """Build one replica with everything that belongs to it alone."""
    num_blocks, max_model_len = limits
    output_tokens = array("q", trace.output_tokens.astype(np.int64).tobytes())
    recorder = TableRecorder(output_tokens, index, files.sinks if files else None)
    cost = spec.cost.build_scaled(streams("cost", index))
    engine_type = engine_type_of(spec, stepper)
    caching = spec.engine.enable_prefix_caching
    ledger_type = engine_type.cached_ledger_type if caching else engine_type.ledger_type
    engine = engine_type(
        env,
        build_policy(spec),
        cost,
        ledger_type(num_blocks, spec.engine.block_size),
        output_tokens,
        max_model_len,
        (recorder, *observers),
        swap_space(spec),
    )
    return _Replica(engine, recorder, cost)


def check_machine(spec: RunSpec, machine: Machine) -> None:
    """Check that the parameters of the policy agree with the machine.

    Raises
    ------
    UserError
        If they contradict it.
    RunError
        If the policy cannot say.
    """
    try:
        refusal = spec.policy.refusal(machine)
    except Exception as error:
        raise RunError(f"{spec.policy_kind}: refusal() raised {error!r}") from error
    if refusal is not None:
        raise UserError(f"policy: {refusal}")


def build_policy(spec: RunSpec) -> Policy:
    """Return a new decision maker; one that is not ours is watched.

    Raises
    ------
    RunError
        If it cannot be built.
    """
    if type(spec.policy) in POLICIES:
        return spec.policy.build()
    try:
        policy = spec.policy.build()
    except Exception as error:
        raise RunError(f"{spec.policy_kind}: build() raised {error!r}") from error
    return watch(policy, spec.policy_kind)


def swap_space(spec: RunSpec) -> SwapSpace:
    """Return the host memory of a replica; without a GPU it is unlimited and costs no time."""
    engine, cost = spec.engine, spec.cost
    if not isinstance(cost, TableSpec):
        return SwapSpace()
    block_bytes = engine.block_size * cost.find_model().kv_bytes_per_token(cost.tp)
    num_blocks = int(engine.swap_space_gib * 2**30 // block_bytes)
    return SwapSpace(num_blocks, block_bytes / (engine.swap_bandwidth_gb_per_s * 1e9))


def engine_type_of(spec: RunSpec, stepper: Literal["fast", "reference"]) -> type[Engine]:
    """Return the stepper; planning ahead has just the plain one."""
    if spec.engine.async_scheduling:
        return AheadEngine
    return Engine if stepper == "reference" else FastEngine


def machine_limits(spec: RunSpec) -> tuple[int | None, int | None]:
    """Return KV blocks and context limit of a replica; None stands for no limit.

    Raises
    ------
    UserError
        If the model does not fit the GPU, or the context limit exceeds the model's.
    """
    engine, cost = spec.engine, spec.cost
    if not isinstance(cost, TableSpec):
        if engine.enable_prefix_caching and engine.num_blocks is None:
            raise UserError("engine.num_blocks: prefix caching needs a limited number of blocks")
        return engine.num_blocks, engine.max_model_len
    limit = cost.find_model().max_context
    if engine.max_model_len is not None and engine.max_model_len > limit:
        raise UserError(
            f"engine.max_model_len: {engine.max_model_len} exceeds the {limit} tokens of "
            f"{cost.model}'s context"
        )
    num_blocks = engine.num_blocks
    if num_blocks is None:
        budget = build_policy(spec).limits.max_num_batched_tokens or DEFAULT_BUDGET
        capacity = cost.kv_capacity(block_size=engine.block_size, max_num_batched_tokens=budget)
        num_blocks = capacity.num_blocks
    return num_blocks, engine.max_model_len or limit


def check_capacity(trace: Trace, num_blocks: int | None, block_size: int) -> None:
    """Check that every request fits the KV cache when it is alone.

    Raises
    ------
    UserError
        Naming the first request that does not.
    """
    if num_blocks is None:
        return
    stored = trace.prompt_tokens + trace.output_tokens - 1
    too_long = np.flatnonzero(stored > num_blocks * block_size)
    if len(too_long):
        rid = int(too_long[0])
        raise UserError(
            f"workload: request {rid} (prompt {trace.prompt_tokens[rid]}, output "
            f"{trace.output_tokens[rid]} tokens) can never fit the KV cache of {num_blocks} blocks "
            f"of {block_size} tokens ({len(too_long)} of {len(trace)} requests cannot)"
        )
