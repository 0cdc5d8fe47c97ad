"""Decoder-only models: the shapes that decide memory and step time."""

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Literal

from simulator.cost.names import look_up
from simulator.errors import UserError

TP_SIZES = (1, 2, 4, 8)
"""Tensor-parallel degrees for which the all-reduce is measured (one server)."""

OTHER_BYTES = 2
"""Bytes of one weight of embedding, output head, norms and router, and of one activation."""

Dtype = Literal["bfloat16", "fp8"]
"""Number format of linear layers and KV cache; everything else is bfloat16."""


@dataclass(frozen=True)
class ModelArchitecture:
    """Shape of a model, from its published configuration file.

    Attributes
    ----------
    key : str
        Name used in specifications.
    num_layers, hidden_size, num_heads, num_kv_heads, head_size : int
        Shape of the transformer.
    ffn_size : int
        Width of the gated feed-forward layer, or of one expert.
    vocabulary_size : int
        Tokens in the vocabulary.
    max_context : int
        Longest context in tokens.
    qk_norm : bool
        True when queries and keys are normalised per head (Qwen3).
    qkv_bias : bool
        True when the QKV projection has a bias (Qwen2.5).
    tied_embeddings : bool
        True when the output head is the embedding.
    num_experts, num_active_experts : int
        Experts in a layer, and how many of them see a token; 0 for a dense model.
    linear_bytes, kv_bytes : int
        Bytes of one weight of a linear layer, and of one stored key or value.

    Examples
    --------
    >>> round(MODELS["llama-3.1-8b"].num_parameters / 1e9, 2)
    8.03
    >>> MODELS["llama-3.1-8b"].kv_bytes_per_token()
    131072
    """

    key: str
    num_layers: int
    hidden_size: int
    num_heads: int
    num_kv_heads: int
    head_size: int
    ffn_size: int
    vocabulary_size: int
    max_context: int
    qk_norm: bool = False
    qkv_bias: bool = False
    tied_embeddings: bool = False
    num_experts: int = 0
    num_active_experts: int = 0
    linear_bytes: int = 2
    kv_bytes: int = 2

    def in_dtype(self, dtype: Dtype) -> "ModelArchitecture":
        """Return the model with linear layers and KV cache in another number format."""
        size = 1 if dtype == "fp8" else 2
        return replace(self, linear_bytes=size, kv_bytes=size)

    @property
    def num_parameters(self) -> int:
        """All weights, embedding and output head included."""
        return sum(self._num_weights(1))

    def heads(self, tp: int = 1) -> tuple[int, int]:
        """Return (query heads, KV heads) on each GPU; KV heads are copied when TP exceeds them.

        Raises
        ------
        UserError
            If `tp` is not one of `TP_SIZES`, or does not divide heads or feed-forward width.
        """
        check_tp(self, tp)
        return self.num_heads // tp, max(1, self.num_kv_heads // tp)

    def weight_bytes(self, tp: int = 1) -> int:
        """Return the bytes of weights on each of `tp` GPUs."""
        linear, other = self._num_weights(tp)
        return self.linear_bytes * linear + OTHER_BYTES * other

    def kv_bytes_per_token(self, tp: int = 1) -> int:
        """Return the bytes of keys and values that one token stores on each of `tp` GPUs."""
        _, kv_heads = self.heads(tp)
        return 2 * self.num_layers * kv_heads * self.head_size * self.kv_bytes

    def _num_weights(self, tp: int) -> tuple[int, int]:
        """Return the weights of linear layers, and all others, on each of `tp` GPUs."""
        heads, kv_heads = self.heads(tp)
        hidden = self.hidden_size
        qkv = (heads + 2 * kv_heads) * self.head_size
        experts = max(self.num_experts, 1)
        linears = hidden * qkv + heads * self.head_size * hidden
        linears += experts * 3 * hidden * self.ffn_size // tp
        norms = 2 * hidden + 2 * self.head_size * self.qk_norm + qkv * self.qkv_bias
        router = hidden * self.num_experts
        embeddings = (2 - self.tied_embeddings) * hidden * -(-self.vocabulary_size // tp)
        others = self.num_layers * (norms + router) + embeddings + hidden
        return self.num_layers * linears, others


_ALL = (
    ModelArchitecture("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096),
    ModelArchitecture("llama-3.1-8b", 32, 4096, 32, 8, 128, 14336, 128256, 131072),
    ModelArchitecture("llama-3.1-70b", 80, 8192, 64, 8, 128, 28672, 128256, 131072),
    ModelArchitecture("mistral-7b-v0.3", 32, 4096, 32, 8, 128, 14336, 32768, 32768),
    ModelArchitecture("qwen2.5-7b", 28, 3584, 28, 4, 128, 18944, 152064, 32768, qkv_bias=True),
    ModelArchitecture("qwen2.5-32b", 64, 5120, 40, 8, 128, 27648, 152064, 32768, qkv_bias=True),
    ModelArchitecture("qwen3-8b", 36, 4096, 32, 8, 128, 12288, 151936, 40960, qk_norm=True),
    ModelArchitecture("qwen3-14b", 40, 5120, 40, 8, 128, 17408, 151936, 40960, qk_norm=True),
    ModelArchitecture("qwen3-32b", 64, 5120, 64, 8, 128, 25600, 151936, 40960, qk_norm=True),
    replace(
        ModelArchitecture("mixtral-8x7b", 32, 4096, 32, 8, 128, 14336, 32000, 32768),
        num_experts=8,
        num_active_experts=2,
    ),
    replace(
        ModelArchitecture("qwen3-30b-a3b", 48, 2048, 32, 4, 128, 768, 151936, 40960, qk_norm=True),
        num_experts=128,
        num_active_experts=8,
    ),
)

MODELS = MappingProxyType({model.key: model for model in _ALL})
"""Known models by key."""


def find_model(key: str) -> ModelArchitecture:
    """Return the record of a model.

    Parameters
    ----------
    key : str
        Name, such as `llama-3.1-8b`.

    Returns
    -------
    ModelArchitecture
        Its record.

    Raises
    ------
    UserError
        If the name is unknown; the message offers the nearest names.

    Examples
    --------
    >>> find_model("qwen3-14b").num_layers
    40
    """
    return look_up("model", key, MODELS)


def check_tp(model: ModelArchitecture, tp: int) -> None:
    """Refuse a tensor-parallel degree that the model cannot be split by.

    Parameters
    ----------
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.

    Raises
    ------
    UserError
        If `tp` is not one of `TP_SIZES`, or does not divide the heads or the feed-forward width,
        or neither divides the KV heads nor is a multiple of them.

    Examples
    --------
    >>> check_tp(MODELS["qwen2.5-7b"], 8)
    Traceback (most recent call last):
    simulator.errors.UserError: tp 8 does not divide the 28 heads of qwen2.5-7b
    """
    if tp not in TP_SIZES:
        raise UserError(f"tp {tp}: expected one of {', '.join(map(str, TP_SIZES))}")
    if model.num_heads % tp:
        raise UserError(f"tp {tp} does not divide the {model.num_heads} heads of {model.key}")
    if model.num_kv_heads % tp and tp % model.num_kv_heads:
        raise UserError(f"tp {tp} does not divide the {model.num_kv_heads} KV heads of {model.key}")
    if model.ffn_size % tp:
        raise UserError(f"tp {tp} does not divide the ffn width {model.ffn_size} of {model.key}")
