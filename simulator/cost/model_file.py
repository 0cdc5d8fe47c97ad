"""The shape of a model from the `config.json` that comes with its weights."""

import json
from pathlib import Path
from typing import Any

from simulator.cost.models import MODELS, ModelArchitecture
from simulator.errors import UserError

_FIELDS = {
    "num_layers": "num_hidden_layers",
    "hidden_size": "hidden_size",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "ffn_size": "intermediate_size",
    "vocabulary_size": "vocab_size",
    "max_context": "max_position_embeddings",
}
_EXPERT_FIELDS = ("num_local_experts", "num_experts", "n_routed_experts")


def read_model_file(path: Path) -> ModelArchitecture:
    """Return the shape of a dense decoder from a Hugging Face-style `config.json`.

    Parameters
    ----------
    path : pathlib.Path
        The file. The model is named after it, or after its folder when it is `config.json`.

    Returns
    -------
    ModelArchitecture
        Its shape, in bfloat16.

    Raises
    ------
    UserError
        If the file cannot be read, a field is missing or no positive whole number, or the model
        is not a dense decoder with full attention and unquantised weights.

    See Also
    --------
    simulator.cost.models.find_model : The models known by name.

    Examples
    --------
    >>> read_model_file(Path("none/config.json"))
    Traceback (most recent call last):
    simulator.errors.UserError: none/config.json: cannot read model: No such file or directory
    """
    config = _read(path)
    _check_kind(config, path)
    sizes = {name: _positive(config, key, path) for name, key in _FIELDS.items()}
    head_size = sizes["hidden_size"] // sizes["num_heads"]
    if config.get("head_dim") is not None:
        head_size = _positive(config, "head_dim", path)
    elif sizes["hidden_size"] % sizes["num_heads"]:
        raise UserError(f"{path}: field head_dim is missing, and no quotient of hidden_size")
    if sizes["num_heads"] % sizes["num_kv_heads"]:
        raise UserError(f"{path}: num_key_value_heads does not divide num_attention_heads")
    family = str(config.get("model_type", ""))
    return ModelArchitecture(
        key=path.parent.name if path.stem == "config" and path.parent.name else path.stem,
        head_size=head_size,
        qk_norm=family.startswith("qwen3"),
        qkv_bias=bool(config.get("attention_bias", family == "qwen2")),
        tied_embeddings=bool(config.get("tie_word_embeddings", False)),
        **sizes,
    )


def _read(path: Path) -> dict[str, Any]:
    """Read the JSON object; that of the language part, if there are several."""
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot read model: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"{path}: not JSON: {error}") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: expected a JSON object with the fields of a model")
    text = config.get("text_config")
    return text if isinstance(text, dict) else config


def _check_kind(config: dict[str, Any], path: Path) -> None:
    """Refuse what the operators do not cover, rather than time something else."""
    if any((config.get(name) or 0) > 1 for name in _EXPERT_FIELDS):
        known = ", ".join(model.key for model in MODELS.values() if model.num_experts)
        raise UserError(f"{path}: a mixture of experts: expected a dense decoder (or {known})")
    if config.get("is_encoder_decoder"):
        raise UserError(f"{path}: an encoder-decoder: expected a dense decoder")
    if config.get("kv_lora_rank"):
        raise UserError(f"{path}: latent attention: expected multi-head or grouped-query attention")
    if config.get("quantization_config"):
        raise UserError(f"{path}: quantised weights: give the original model, and dtype fp8")
    window = config.get("sliding_window")
    longest = config.get("max_position_embeddings")
    narrow = isinstance(window, int) and isinstance(longest, int) and window < longest
    if narrow and config.get("use_sliding_window", True):
        raise UserError(f"{path}: sliding window of {window} tokens: expected full attention")


def _positive(config: dict[str, Any], key: str, path: Path) -> int:
    """Return a field that has to be a positive whole number."""
    if key not in config:
        raise UserError(f"{path}: field {key} is missing")
    value = config[key]
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise UserError(f"{path}: field {key} is {value!r}: expected a positive whole number")
    return value
