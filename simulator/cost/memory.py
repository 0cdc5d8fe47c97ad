"""How many tokens of keys and values fit beside the weights."""

from dataclasses import dataclass

from simulator.cost.gpus import Gpu
from simulator.cost.models import OTHER_BYTES, TP_SIZES, ModelArchitecture
from simulator.errors import UserError

CONTEXT_BYTES = 1.0215e9
"""GPU context, captured graphs and allocator slack of one GPU, bytes."""
PEER_BYTES = 2.85e9
"""Communication buffers of one GPU of several, bytes."""
ACTIVATION_COPIES = 4.0
"""Activations of the widest layer that are alive at the peak of the profiling step."""


@dataclass(frozen=True)
class KvCapacity:
    """Memory budget of one GPU and the KV cache that is left.

    Attributes
    ----------
    num_blocks, block_size : int
        Whole blocks, and tokens in each.
    weight_bytes, activation_bytes : float
        Memory that is not available to the KV cache, bytes per GPU.
    kv_bytes : float
        Memory that the blocks take, bytes per GPU.
    """

    num_blocks: int
    block_size: int
    weight_bytes: float
    activation_bytes: float
    kv_bytes: float

    @property
    def num_tokens(self) -> int:
        """Tokens that fit."""
        return self.num_blocks * self.block_size


def activation_bytes(
    model: ModelArchitecture, tp: int = 1, max_num_batched_tokens: int = 8192
) -> float:
    """Return the memory besides weights and KV cache, bytes per GPU.

    Parameters
    ----------
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.
    max_num_batched_tokens : int
        Token budget of a step, at least 1.

    Returns
    -------
    float
        Bytes on each GPU.

    Notes
    -----
    `context + peers + 4 * tokens * 2 * (2 * ffn / tp + 3 * hidden)`, in bfloat16, with the width
    of all active experts as `ffn` (that is assumed, no known case tells). The context
    term is fitted to Llama-3.1-8B on an RTX 4090 (LLMServingSim, vLLM 0.19.0: 41,408 tokens at
    0.9 and budget 2048), the 4 and the peers to Llama-3-8B on an 80 GB GPU at TP 1 and 2 (vLLM
    pull request 10511: 53.3 GiB and 59.0 GiB of KV cache at budget 8192). Llama-2-7B on an A100
    (vLLM pull request 2031: 7,351 blocks at budget 4096) was not fitted and comes out within
    0.3 %. Other releases of the engine differ by a GB or so.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> round(activation_bytes(MODELS["llama-3.1-8b"], max_num_batched_tokens=2048) / 1e9, 2)
    1.69
    """
    width = model.ffn_size * max(model.num_active_experts, 1)
    per_token = OTHER_BYTES * (2 * width / tp + 3 * model.hidden_size)
    fixed = CONTEXT_BYTES + (PEER_BYTES if tp > 1 else 0.0)
    return fixed + ACTIVATION_COPIES * max_num_batched_tokens * per_token


def kv_capacity(
    gpu: Gpu,
    model: ModelArchitecture,
    tp: int = 1,
    *,
    memory_utilisation: float = 0.9,
    block_size: int = 16,
    max_num_batched_tokens: int = 8192,
) -> KvCapacity:
    """Return the KV cache that an engine can allocate.

    Parameters
    ----------
    gpu : Gpu
        GPU type.
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer: 1, 2, 4 or 8.
    memory_utilisation : float
        Fraction of the device memory that the engine may use, in (0, 1].
    block_size : int
        Tokens per block, at least 1.
    max_num_batched_tokens : int
        Token budget of a step, at least 1.

    Returns
    -------
    KvCapacity
        Blocks and the budget they come from.

    Raises
    ------
    UserError
        If not even one block fits (the message says by how much, and which TP would fit),
        or `tp` does not divide the model.

    Examples
    --------
    >>> from simulator.cost.gpus import GPUS
    >>> from simulator.cost.models import MODELS
    >>> kv_capacity(GPUS["h100"], MODELS["llama-3.1-8b"]).num_tokens
    436416
    """
    budget = gpu.memory_bytes * memory_utilisation
    weights = float(model.weight_bytes(tp))
    activations = activation_bytes(model, tp, max_num_batched_tokens)
    block_bytes = block_size * model.kv_bytes_per_token(tp)
    blocks = int((budget - weights - activations) // block_bytes)
    if blocks < 1:
        missing = weights + activations + block_bytes - budget
        raise UserError(_too_large(gpu, model, tp, missing, budget, max_num_batched_tokens))
    return KvCapacity(blocks, block_size, weights, activations, float(blocks * block_bytes))


def _too_large(
    gpu: Gpu, model: ModelArchitecture, tp: int, missing: float, budget: float, tokens: int
) -> str:
    """Word the error for a model that does not fit."""
    fitting = [
        size for size in TP_SIZES if size > tp and _fits(model, size, budget=budget, tokens=tokens)
    ]
    hint = f"tp {fitting[0]} would fit" if fitting else "no tp up to 8 would fit"
    return (
        f"{model.key} on {tp} x {gpu.key} lacks {missing / 1e9:.1f} GB per GPU "
        f"({budget / 1e9:.1f} GB usable): {hint}"
    )


def _fits(model: ModelArchitecture, tp: int, *, budget: float, tokens: int) -> bool:
    """Tell whether weights and activations leave room at that degree."""
    try:
        weights = model.weight_bytes(tp)
    except UserError:
        return False
    return weights + activation_bytes(model, tp, tokens) < budget
