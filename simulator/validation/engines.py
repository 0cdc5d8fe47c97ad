"""Which policy, limits and engine profile stand for the engine of a row."""

import re
from dataclasses import dataclass, field
from typing import Any

from simulator.cost.engine_profiles import ENGINE_PROFILES, EngineProfile
from simulator.cost.gpus import Gpu
from simulator.cost.models import ModelArchitecture
from simulator.validation.names import limit_of, version_of
from simulator.validation.rows import Measurement

FIRST_V1 = (0, 8)
"""First version of vLLM that runs the V1 engine by default."""
FIRST_ASYNC = (0, 14)
"""First version of vLLM that plans a step ahead by default."""
LARGE_GPU_BYTES = 70 * 2**30
"""From this memory on, except on an A100, vLLM has larger default limits."""
V0_CONTEXT = 8192
"""Context limit taken where a row of vLLM V0 names none; it sets the token budget."""
MAX_GRAPH_TOKENS = 512
"""Largest recorded graph of vLLM."""


@dataclass(frozen=True)
class EngineSetting:
    """How an engine is simulated.

    Attributes
    ----------
    policy : dict
        Policy of the specification.
    profile : EngineProfile
        What the engine adds to the kernels.
    plans_ahead : bool
        Whether scheduling is asynchronous.
    graph_tokens : int
        Tokens up to which steps run from recorded graphs.
    is_guaranteed : bool
        Whether no more requests run than fit with all their tokens.
    no_level : tuple of str
        Why the row cannot be held to a level.
    notes : tuple of str
        What stands in for something that is not stated.
    """

    policy: dict[str, Any]
    profile: EngineProfile
    plans_ahead: bool = False
    graph_tokens: int = MAX_GRAPH_TOKENS
    is_guaranteed: bool = False
    no_level: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass
class _Remarks:
    no_level: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def find_engine(
    row: Measurement, gpu: Gpu, model: ModelArchitecture, profile: str | None = None
) -> EngineSetting | None:
    """Return how the engine of a row is simulated, or None if it is not known at all.

    Parameters
    ----------
    row : Measurement
        The row.
    gpu : Gpu
        Its GPU, on which default limits depend.
    model : ModelArchitecture
        Its model, whose context limits the default budget of vLLM V0.
    profile : str, optional
        Engine profile to use instead of the nearest one.

    Returns
    -------
    EngineSetting or None
        Policy, limits and profile.

    Notes
    -----
    Only vLLM is simulated by its own policies. For TensorRT-LLM and SGLang the policy of vLLM V1
    stands in, with their limits, and no level holds. TensorRT-LLM admits a request only if all it
    may become fits (`GUARANTEED_NO_EVICT`), which `is_guaranteed` asks for.
    """
    name, version = row.engine.lower(), version_of(row.engine_version)
    remarks = _Remarks()
    steps = re.search(r"num-scheduler-steps=(\d+)", row.engine_flags)
    if steps and int(steps[1]) > 1:
        remarks.no_level.append("multi-step scheduling is not modelled")
    if "vllm" in name:
        if "v0" in name or ("v1" not in name and version is not None and version < FIRST_V1):
            return _vllm_v0(row, model.max_context, profile, remarks)
        return _vllm_v1(row, gpu, version, profile, remarks)
    for other, key, seats in (("tensorrt", "trtllm", 2048), ("sglang", "sglang", 2048)):
        if other in name:
            remarks.no_level.append(f"the policy of {row.engine.split(' (')[0]} is not modelled")
            policy = _v1_policy(row, seats, 8192)
            found = nearest_profile(key, version, profile, remarks.notes)
            return _setting(policy, found, remarks, is_guaranteed=key == "trtllm")
    return None


def _vllm_v1(
    row: Measurement,
    gpu: Gpu,
    version: tuple[int, int] | None,
    profile: str | None,
    remarks: _Remarks,
) -> EngineSetting:
    large = gpu.memory_bytes >= LARGE_GPU_BYTES and not gpu.key.startswith("a100")
    policy = _v1_policy(row, 1024 if large else 256, 8192 if large else 2048)
    found = nearest_profile("vllm-v1", version, profile, remarks.notes)
    return _setting(
        policy,
        found,
        remarks,
        plans_ahead=version is not None and version >= FIRST_ASYNC,
        graph_tokens=min(2 * policy["max_num_seqs"], MAX_GRAPH_TOKENS),
    )


def _v1_policy(row: Measurement, seats: int, budget: int) -> dict[str, Any]:
    return {
        "kind": "vllm-v1",
        "max_num_seqs": limit_of(row.max_num_seqs) or seats,
        "max_num_batched_tokens": limit_of(row.max_num_batched_tokens) or budget,
        "enable_chunked_prefill": not row.chunked_prefill.startswith("off"),
    }


def _vllm_v0(
    row: Measurement, max_context: int, profile: str | None, remarks: _Remarks
) -> EngineSetting:
    if row.chunked_prefill.startswith("on"):
        remarks.no_level.append("chunked prefill of vLLM V0 is not modelled")
    seats = limit_of(row.max_num_seqs) or 256
    if row.arrival_kind == "static_batch" and row.max_concurrency:
        seats = max(seats, int(row.max_concurrency))
    budget = limit_of(row.max_num_batched_tokens)
    if budget is None:
        budget = max(2048, limit_of(row.max_model_len) or min(V0_CONTEXT, max_context))
    policy = {"kind": "vllm-v0", "max_num_seqs": seats, "max_num_batched_tokens": budget}
    version = version_of(row.engine_version)
    return _setting(policy, nearest_profile("vllm-v0", version, profile, remarks.notes), remarks)


def _setting(
    policy: dict[str, Any], profile: EngineProfile, remarks: _Remarks, **more: Any
) -> EngineSetting:
    no_level, notes = tuple(remarks.no_level), tuple(remarks.notes)
    return EngineSetting(policy, profile, no_level=no_level, notes=notes, **more)


def nearest_profile(
    engine: str, version: tuple[int, int] | None, given: str | None, notes: list[str]
) -> EngineProfile:
    """Return the profile of an engine whose version is nearest, and note if it is another one.

    Examples
    --------
    >>> notes = []
    >>> nearest_profile("vllm-v1", (0, 12), None, notes).name, notes
    ('vllm-0.11', ['profile vllm-0.11 stands for version 0.12'])
    """
    if given is not None:
        return ENGINE_PROFILES[given]
    known = [one for one in ENGINE_PROFILES.values() if one.engine == engine]
    if not known:
        notes.append(f"profile generic stands for {engine}")
        return ENGINE_PROFILES["generic"]
    if version is None:
        notes.append(f"version not stated: profile {known[0].name}")
        return known[0]

    def distance(profile: EngineProfile) -> float:
        found = version_of(profile.version) or (0, 0)
        return abs((found[0] - version[0]) * 100 + found[1] - version[1])

    found = min(known, key=distance)
    if distance(found):
        notes.append(f"profile {found.name} stands for version {version[0]}.{version[1]}")
    return found
