"""A row as a run: specification, requests, and what speaks against a level."""

import re
from dataclasses import dataclass
from typing import Any

from simulator.cost.engine_profiles import EngineProfile
from simulator.cost.gpus import GPUS
from simulator.cost.models import MODELS
from simulator.errors import UserError
from simulator.run import machine_limits
from simulator.spec import RunSpec
from simulator.validation.engines import EngineSetting, find_engine
from simulator.validation.loads import BLOCK, GivenWorkload, Load, Unrunnable, make_load
from simulator.validation.names import dtype_of, gpu_key, limit_of, model_key
from simulator.validation.request_log import RequestLog
from simulator.validation.rows import Measurement

UTILISATION = r"(?:gpu_memory_utilization|kv_cache_free_gpu_mem_fraction)[= ]+([\d.]+)"


@dataclass(frozen=True)
class Scenario:
    """A row that can be run.

    Attributes
    ----------
    row : Measurement
        The row.
    spec : RunSpec
        What is simulated; its workload holds the requests.
    profile : EngineProfile
        What the engine adds.
    is_kv_known : bool
        Whether the KV capacity is stated.
    inexpressible : tuple of str
        Settings of the engine that the run leaves out.
    fitted : tuple of str
        Says so if the profile was fitted on the row.
    notes : tuple of str
        What stands in for something that is not stated.
    log : RequestLog or None
        Times of every request, where they are published.
    """

    row: Measurement
    spec: RunSpec
    profile: EngineProfile
    is_kv_known: bool
    inexpressible: tuple[str, ...] = ()
    fitted: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    log: RequestLog | None = None

    @property
    def caches_prefixes(self) -> bool:
        """Whether the engine caches prefixes although no prompts repeat."""
        cached = self.row.prefix_caching.startswith("on")
        return cached and not self.spec.engine.enable_prefix_caching

    def with_cache(self) -> RunSpec:
        """Return the specification with prefix caching."""
        engine = self.spec.engine.model_copy(update={"enable_prefix_caching": True})
        return self.spec.model_copy(update={"engine": engine})

    @property
    def no_level(self) -> tuple[str, ...]:
        """Reasons known before the run why no level holds."""
        return self.inexpressible + self.fitted


def make_scenario(
    row: Measurement, log: RequestLog | None = None, profile: str | None = None, seed: int = 0
) -> Scenario:
    """Turn a row into a run.

    Parameters
    ----------
    row : Measurement
        The row.
    log : RequestLog, optional
        The published times of its requests, which are then replayed one by one.
    profile : str, optional
        Engine profile, instead of the nearest one.
    seed : int
        Root of the random draws.

    Returns
    -------
    Scenario
        The run.

    Raises
    ------
    Unrunnable
        If something that the run needs is not known; the message says what.
    """
    gpu, model = gpu_key(row.gpu), model_key(row.model)
    dtype, kv_dtype = dtype_of(row.weight_dtype), dtype_of(row.kv_dtype)
    if gpu is None:
        raise Unrunnable(f"GPU {row.gpu} has no tables")
    if model is None:
        raise Unrunnable(f"model {row.model} is not known")
    if dtype is None or kv_dtype is None:
        raise Unrunnable(f"number format {row.weight_dtype}/{row.kv_dtype} was not measured")
    if row.num_gpus is not None and row.num_gpus != (row.tp or 1):
        raise Unrunnable("data, expert or pipeline parallelism is not modelled")
    engine = find_engine(row, GPUS[gpu], MODELS[model], profile)
    if engine is None:
        raise Unrunnable(f"engine {row.engine} is not known")
    load = make_load(row, seed) if log is None else Load(log.trace())
    cost = {
        "gpu": gpu,
        "model": model,
        "dtype": dtype,
        "kv_dtype": kv_dtype,
        "tp": int(row.tp or 1),
        "engine_profile": engine.profile.name,
        "graph_tokens": engine.graph_tokens,
    }
    utilisation = re.search(UTILISATION, row.engine_flags)
    if utilisation:
        cost["memory_utilisation"] = float(utilisation[1])
    spec = _spec(row, engine, load, cost)
    return Scenario(
        row,
        spec,
        engine.profile,
        row.kv_capacity_tokens is not None,
        (*engine.no_level, *load.no_level),
        _fitted(row, engine.profile),
        (*engine.notes, *load.notes, *_format_notes(row, dtype)),
        log,
    )


def _spec(row: Measurement, engine: EngineSetting, load: Load, cost: dict[str, Any]) -> RunSpec:
    """Return the specification, with the requests in it."""
    machine: dict[str, Any] = {"block_size": BLOCK, "async_scheduling": engine.plans_ahead}
    machine["enable_prefix_caching"] = load.is_shared
    machine["max_model_len"] = limit_of(row.max_model_len)
    policy = engine.policy
    whole = policy["kind"] == "vllm-v0" or not policy["enable_chunked_prefill"]
    if whole and machine["max_model_len"] is None:
        machine["max_model_len"] = policy["max_num_batched_tokens"]
    if row.kv_capacity_tokens is not None:
        machine["num_blocks"] = int(row.kv_capacity_tokens // BLOCK)
    try:
        spec = RunSpec.from_dict({"policy": policy, "engine": machine, "cost": cost}, row.record_id)
    except UserError as error:
        raise Unrunnable(str(error).removeprefix(f"{row.record_id}: ")) from None
    if engine.is_guaranteed:
        spec = _without_eviction(spec, load)
    workload = GivenWorkload(table=load.trace, max_concurrency=load.max_concurrency)
    return spec.model_copy(update={"workload": workload})


def _without_eviction(spec: RunSpec, load: Load) -> RunSpec:
    """Let no more requests run than fit with all their tokens, of mean length."""
    try:
        num_blocks, _ = machine_limits(spec)
    except UserError as error:
        raise Unrunnable(str(error)) from None
    tokens = float((load.trace.prompt_tokens + load.trace.output_tokens).mean())
    policy = spec.policy.model_dump()
    fitting = int((num_blocks or 0) * BLOCK // tokens)
    seats = max(1, min(policy["max_num_seqs"], fitting))
    return spec.model_copy(update={"policy": type(spec.policy)(**policy | {"max_num_seqs": seats})})


def _fitted(row: Measurement, profile: EngineProfile) -> tuple[str, ...]:
    """Say whether the profile was fitted on the row."""
    if {row.sweep_id, row.record_id} & set(profile.fitted_on) - {""}:
        return (f"profile {profile.name} was fitted on it",)
    return ()


def _format_notes(row: Measurement, dtype: str) -> tuple[str, ...]:
    """Say what is assumed of the cache under fp8 weights."""
    if dtype == "fp8" and not row.kv_dtype:
        return ("KV cache taken as bfloat16 (not stated)",)
    return ()
