import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from simulator.cost import MODELS, StepWork, TableSpec, read_model_file
from simulator.errors import UserError

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "num_hidden_layers": 32,
    "hidden_size": 4096,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "intermediate_size": 14336,
    "vocab_size": 128256,
    "max_position_embeddings": 131072,
    "hidden_act": "silu",
    "attention_bias": False,
    "tie_word_embeddings": False,
}
QWEN3: dict[str, Any] = {
    "model_type": "qwen3",
    "num_hidden_layers": 64,
    "hidden_size": 5120,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 25600,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
    "sliding_window": None,
    "use_sliding_window": False,
}
QWEN25: dict[str, Any] = {
    "model_type": "qwen2",
    "num_hidden_layers": 28,
    "hidden_size": 3584,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "intermediate_size": 18944,
    "vocab_size": 152064,
    "max_position_embeddings": 32768,
    "sliding_window": 131072,
    "use_sliding_window": False,
}


def write(folder: Path, config: object) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / "config.json"
    path.write_text(json.dumps(config), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("key", "config"), [("llama-3.1-8b", LLAMA), ("qwen3-32b", QWEN3), ("qwen2.5-7b", QWEN25)]
)
def test_a_known_model_is_read_as_it_is_known(
    tmp_path: Path, key: str, config: dict[str, Any]
) -> None:
    assert read_model_file(write(tmp_path / key, config)) == MODELS[key]


def test_the_language_part_of_several_is_taken(tmp_path: Path) -> None:
    path = write(tmp_path / "llama-3.1-8b", {"model_type": "x", "text_config": LLAMA})
    assert read_model_file(path) == MODELS["llama-3.1-8b"]


def test_a_file_of_another_name_names_the_model(tmp_path: Path) -> None:
    path = tmp_path / "tiny.json"
    path.write_text(json.dumps(LLAMA), encoding="utf-8")
    assert read_model_file(path).key == "tiny"


def test_tied_embeddings_are_stored_once(tmp_path: Path) -> None:
    tied = read_model_file(write(tmp_path / "m", {**LLAMA, "tie_word_embeddings": True}))
    apart = read_model_file(write(tmp_path / "m", LLAMA))
    assert tied == replace(apart, tied_embeddings=True)
    assert apart.num_parameters - tied.num_parameters == 4096 * 128256


@pytest.mark.parametrize("field", [key for key in LLAMA if key.startswith(("num", "hidden_s"))])
def test_a_missing_field_is_named(tmp_path: Path, field: str) -> None:
    config = {key: value for key, value in LLAMA.items() if key != field}
    with pytest.raises(UserError, match=rf"config\.json: field {field} is missing$"):
        read_model_file(write(tmp_path, config))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"vocab_size": "many"}, "vocab_size is 'many': expected a positive whole number"),
        ({"hidden_size": 0}, "hidden_size is 0: expected a positive"),
        ({"num_hidden_layers": True}, "num_hidden_layers is True"),
        ({"num_attention_heads": 30}, "head_dim is missing"),
        ({"num_key_value_heads": 5}, "num_key_value_heads does not divide"),
        ({"num_local_experts": 8}, "mixture of experts: .*mixtral-8x7b, qwen3-30b-a3b"),
        ({"is_encoder_decoder": True}, "expected a dense decoder"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"quantization_config": {"quant_method": "fp8"}}, "quantised weights"),
        ({"sliding_window": 4096}, "sliding window of 4096 tokens"),
    ],
)
def test_what_cannot_be_timed_is_refused(
    tmp_path: Path, changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        read_model_file(write(tmp_path, {**LLAMA, **changed}))


@pytest.mark.parametrize(("text", "message"), [("{", "not JSON"), ("[1]", "expected a JSON obj")])
def test_what_is_no_object_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "config.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=message):
        read_model_file(path)


def test_a_specification_takes_the_file_in_place_of_a_name(tmp_path: Path) -> None:
    path = write(tmp_path / "my-llama", LLAMA)
    spec = TableSpec(architecture=str(path))
    assert spec.model == "my-llama"
    assert TableSpec.model_validate(spec.model_dump()) == spec
    work = StepWork(8, 8 * 512, ((64, 0),), 9, 9)
    cost = spec.build(np.random.default_rng(0))
    assert cost.step_time(work) == TableSpec().cost().step_time(work)
    assert spec.kv_capacity() == TableSpec().kv_capacity()
    half = TableSpec(architecture=str(path), dtype="fp8")
    assert half.kv_capacity().num_tokens > 2 * spec.kv_capacity().num_tokens


def test_a_name_that_contradicts_the_file_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "my-llama", LLAMA)
    with pytest.raises(ValidationError, match="contradicts the file, which is for my-llama"):
        TableSpec(architecture=str(path), model="qwen3-8b")
    with pytest.raises(ValidationError, match="cannot read model"):
        TableSpec(architecture=str(tmp_path / "none.json"))
