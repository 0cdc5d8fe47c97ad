"""What a serving engine adds to the time of the kernels: host work and eager prefill."""

from dataclasses import dataclass
from types import MappingProxyType

from simulator.cost.names import look_up


@dataclass(frozen=True)
class EngineProfile:
    """Time that an engine adds to the kernels of one step.

    With `share` the fraction of the step's tokens that belong to prompts::

        gpu  = (kernels + eager_ms) * (1 + prefill_factor * share)
        step = gpu + host, or max(gpu, host) with overlap

    Attributes
    ----------
    name : str
        Name under which results quote the profile.
    host_ms : float
        Host time of every step on one GPU, ms, at least 0.
    host_ms_per_sequence : float
        Host time per batch row, ms, at least 0.
    prefill_factor : float
        Fraction added to the kernels of an all-prompt step (launch gaps outside the recorded
        graphs), at least 0.
    overlap : bool
        True when the host prepares the next step while the GPU computes.
    tp_doubling_ms : float
        Host time added by each doubling of the number of GPUs, ms, at least 0.
    host_us_per_prompt_token : float
        Host time per prompt token, µs, at least 0.
    eager_ms : float
        Time added to a step with more tokens than the recorded graphs cover, ms, at least 0.
    graph_tokens : int
        Tokens up to which a step runs from a recorded graph.
    request_ms : float
        Client, network, HTTP server and tokeniser in front of the engine, once a request, ms, at
        least 0. It is no part of a simulated TTFT; `batchlab validate` adds it.
    engine : str
        Engine the profile belongs to, such as `vllm-v1`; empty where it belongs to none.
    version : str
        Version of the engine, such as `0.11`.
    fitted_on : tuple of str
        Sweeps or records of published measurements that the values were fitted on.
    fitted_requests : int
        Where greater than 0: only so many leading requests of the record were.
    source : str
        What the values rest on.

    Examples
    --------
    >>> ENGINE_PROFILES["generic"].host_seconds(tp=4)
    0.0017
    """

    name: str
    host_ms: float = 0.0
    host_ms_per_sequence: float = 0.0
    prefill_factor: float = 0.0
    overlap: bool = False
    tp_doubling_ms: float = 0.0
    host_us_per_prompt_token: float = 0.0
    eager_ms: float = 0.0
    graph_tokens: int = 512
    request_ms: float = 0.0
    engine: str = ""
    version: str = ""
    fitted_on: tuple[str, ...] = ()
    fitted_requests: int = 0
    source: str = ""

    def host_seconds(self, tp: int = 1) -> float:
        """Return the host time in seconds of a step without rows, on `tp` GPUs (a power of 2)."""
        return (self.host_ms + self.tp_doubling_ms * (tp.bit_length() - 1)) / 1e3


_ALL = (
    EngineProfile(
        "generic",
        host_ms=1.0,
        prefill_factor=0.13,
        tp_doubling_ms=0.35,
        source="residuals of vLLM 0.12-0.19 and TensorRT-LLM 1.0rc3 runs against kernel sums",
    ),
    EngineProfile("ideal", source="kernel time only, no engine"),
    EngineProfile(
        "vllm-0.11",
        host_ms=0.864,
        host_ms_per_sequence=0.0025,
        prefill_factor=0.162,
        eager_ms=1.378,
        tp_doubling_ms=0.35,
        request_ms=20.0,
        engine="vllm-v1",
        version="0.11",
        fitted_on=("ipk-0", "ipk-2"),
        source="vLLM 0.11.0, Llama-3.1-8B, one H100, kubernetes-sigs/inference-perf (Apache-2.0)",
    ),
    EngineProfile(
        "vllm-0.19",
        host_ms=1.634,
        tp_doubling_ms=0.35,
        request_ms=24.5,
        engine="vllm-v1",
        version="0.19",
        fitted_on=("lss-rtxpro6000-llama-3.1-8b",),
        fitted_requests=100,
        source="vLLM 0.19.0, Llama-3.1-8B, one RTX PRO 6000, casys-kaist/LLMServingSim (MIT)",
    ),
    EngineProfile(
        "vllm-v0",
        host_ms=1.147,
        host_ms_per_sequence=0.0605,
        tp_doubling_ms=0.35,
        request_ms=26.8,
        engine="vllm-v0",
        version="0.9",
        fitted_on=("ipk-3",),
        source="vLLM 0.9.0 (V0), Llama-3.1-8B, one H100, kubernetes-sigs/inference-perf",
    ),
    EngineProfile(
        "trtllm-1.0",
        host_ms=0.483,
        tp_doubling_ms=0.35,
        engine="trtllm",
        version="1.0",
        fitted_on=(
            "aic-llama-3.1-8b-instruct-h100-trtllm-tp1-1024x128",
            "aic-llama-3.1-8b-instruct-h100-trtllm-tp1-1024x512",
        ),
        source="TensorRT-LLM 1.0.0rc3, Llama-3.1-8B, one H100, NVIDIA AIConfigurator (Apache-2.0)",
    ),
)
# Rebuilt by scripts/fit_engine_profiles.py; tp_doubling_ms is that of `generic`.

ENGINE_PROFILES = MappingProxyType({profile.name: profile for profile in _ALL})
"""Known engine profiles by name."""


def find_engine_profile(name: str) -> EngineProfile:
    """Return the engine profile of that name.

    Parameters
    ----------
    name : str
        Name, such as `generic`.

    Returns
    -------
    EngineProfile
        Its record.

    Raises
    ------
    UserError
        If the name is unknown; the message offers the nearest names.

    Examples
    --------
    >>> find_engine_profile("ideal").host_ms
    0.0
    """
    return look_up("engine profile", name, ENGINE_PROFILES)
