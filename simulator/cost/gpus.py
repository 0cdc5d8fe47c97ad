"""The GPUs that a cost table can be compiled for: memory, peaks, attention kernel."""

from dataclasses import dataclass
from types import MappingProxyType

from simulator.cost.names import look_up

MIB = 1024**2


@dataclass(frozen=True)
class Gpu:
    """One GPU type.

    Attributes
    ----------
    key : str
        Short name used in specifications.
    name : str
        Product name.
    memory_bytes : int
        Device memory, bytes, as the driver reports it.
    hbm_gb_per_s : float
        Peak memory bandwidth, 1e9 bytes per second.
    bf16_tflops : float
        Peak dense bfloat16 arithmetic, 1e12 operations per second.
    num_sms : int
        Streaming multiprocessors.
    l2_mb : int
        Level-2 cache, MB.
    attention_kernel : str
        Attention kernel of vLLM on this GPU.
    mixing : tuple of float
        What decodes cost beside prompt chunks, relative to alone, at 4 and at 8 query heads per
        KV head (see `default_kappa`).
    scaled_from : str
        Key of the GPU whose timings stand in, scaled with the memory bandwidth; else empty.

    Examples
    --------
    >>> GPUS["h100"].hbm_gb_per_s
    3350.0
    """

    key: str
    name: str
    memory_bytes: int
    hbm_gb_per_s: float
    bf16_tflops: float
    num_sms: int
    l2_mb: int
    attention_kernel: str
    mixing: tuple[float, float] = (1.0, 1.0)
    scaled_from: str = ""


FA2_MIXING = (1.6, 2.8)
"""Mixing in one FlashAttention-2 call, measured on an RTX PRO 6000 (vLLM 0.19.0)."""

_ALL = (
    Gpu("h100", "H100 SXM 80GB", 81559 * MIB, 3350.0, 989.0, 132, 50, "fa3"),
    Gpu("a100", "A100 SXM 80GB", 81920 * MIB, 2039.0, 312.0, 108, 40, "fa2", FA2_MIXING),
    Gpu(
        "a100-40gb", "A100 SXM 40GB", 40960 * MIB, 1555.0, 312.0, 108, 40, "fa2", FA2_MIXING, "a100"
    ),
    Gpu("h200", "H200 SXM 141GB", 143771 * MIB, 4800.0, 989.0, 132, 50, "fa3"),
    Gpu("b200", "B200 SXM 180GB", 183359 * MIB, 8000.0, 2250.0, 148, 126, "flashinfer"),
    Gpu("l40s", "L40S 48GB", 46068 * MIB, 864.0, 362.0, 142, 96, "fa2", FA2_MIXING),
    Gpu("rtxpro6000", "RTX PRO 6000 96GB", 97887 * MIB, 1792.0, 503.8, 188, 128, "fa2", FA2_MIXING),
    Gpu("rtx4090", "RTX 4090 24GB", 24564 * MIB, 1008.0, 165.2, 128, 72, "fa2", (2.5, 4.4)),
)

GPUS = MappingProxyType({gpu.key: gpu for gpu in _ALL})
"""Known GPUs by short key."""


def find_gpu(key: str) -> Gpu:
    """Return the record of a GPU.

    Parameters
    ----------
    key : str
        Short key, such as `h100`.

    Returns
    -------
    Gpu
        Its record.

    Raises
    ------
    UserError
        If the key is unknown; the message offers the nearest keys.

    Examples
    --------
    >>> find_gpu("l40s").name
    'L40S 48GB'
    """
    return look_up("gpu", key, GPUS)


def default_kappa(gpu: Gpu, group_size: float) -> float:
    """Return how much dearer decodes get when a prompt chunk shares their step.

    In one variable-length FlashAttention-2 call the decodes lose split-KV and the packing of
    grouped queries. Measured by LLMServingSim (vLLM 0.19.0), chunks of at least 256 tokens, up to
    128 decodes: 1.6 at 4 query heads per KV head and 2.8 at 8 on an RTX PRO 6000, 2.5 at 4 on an
    RTX 4090 (there 8 is scaled in proportion). In between the value is interpolated, outside it
    is held. Kernels that keep both tricks get 1.0, which is expected but not measured.

    Parameters
    ----------
    gpu : Gpu
        The GPU.
    group_size : float
        Query heads per KV head, at least 1.

    Returns
    -------
    float
        Factor on the decode attention beyond its launch floor, at least 1.

    Examples
    --------
    >>> default_kappa(GPUS["h100"], 8), default_kappa(GPUS["a100"], 4)
    (1.0, 1.6)
    """
    at_four, at_eight = gpu.mixing
    position = (min(max(group_size, 4.0), 8.0) - 4.0) / 4.0
    return at_four + (at_eight - at_four) * position
