import pytest

from simulator.cost import MODELS, ModelArchitecture, load_profile
from simulator.cost.compiled import compile_tables
from simulator.cost.models import check_tp
from simulator.errors import UserError


@pytest.mark.parametrize(
    ("key", "billions"),
    [
        ("llama-3.1-8b", 8.03),
        ("llama-3.1-70b", 70.55),
        ("mistral-7b-v0.3", 7.25),
        ("qwen2.5-7b", 7.62),
        ("qwen2.5-32b", 32.76),
        ("qwen3-8b", 8.19),
        ("qwen3-14b", 14.77),
        ("qwen3-32b", 32.76),
    ],
)
def test_published_number_of_parameters(key: str, billions: float) -> None:
    assert MODELS[key].num_parameters / 1e9 == pytest.approx(billions, abs=0.006)


def test_bytes_of_one_token() -> None:
    model = MODELS["llama-3.1-70b"]
    assert model.kv_bytes_per_token() == 327680
    assert model.kv_bytes_per_token(8) == 40960


def test_kv_heads_are_copied_when_tp_exceeds_them() -> None:
    model = MODELS["qwen2.5-32b"]
    assert model.heads(8) == (5, 1)
    assert MODELS["qwen2.5-7b"].heads(4) == (7, 1)


def test_splitting_halves_the_weights_but_not_the_norms() -> None:
    model = MODELS["llama-3.1-8b"]
    norms = 2 * (2 * 32 + 1) * 4096
    assert 2 * model.weight_bytes(2) == model.weight_bytes() + norms


@pytest.mark.parametrize(
    ("key", "tp", "message"),
    [
        ("llama-3.1-8b", 3, "tp 3: expected one of 1, 2, 4, 8"),
        ("llama-3.1-8b", 0, "tp 0: expected one of 1, 2, 4, 8"),
        ("qwen2.5-7b", 8, "tp 8 does not divide the 28 heads of qwen2.5-7b"),
    ],
)
def test_a_tp_that_does_not_divide_the_model_is_refused(key: str, tp: int, message: str) -> None:
    with pytest.raises(UserError, match=message):
        check_tp(MODELS[key], tp)


def test_kv_heads_and_feed_forward_width_have_to_divide_too() -> None:
    with pytest.raises(UserError, match="does not divide the 3 KV heads"):
        check_tp(ModelArchitecture("odd", 2, 256, 4, 3, 64, 512, 1000, 1000), 2)
    with pytest.raises(UserError, match="does not divide the ffn width 513"):
        check_tp(ModelArchitecture("odd", 2, 256, 4, 2, 64, 513, 1000, 1000), 2)


def test_another_head_size_is_scaled_and_noted() -> None:
    profile = load_profile("h100")
    narrow = ModelArchitecture("narrow", 32, 2048, 32, 8, 64, 14336, 128256, 131072)
    tables = compile_tables(profile, narrow, 1)
    assert tables.notes == ("attention of head size 128 stands for 64",)
    full = compile_tables(profile, MODELS["llama-3.1-8b"], 1)
    assert tables.prompts.alone[-1] == pytest.approx(full.prompts.alone[-1] / 2, rel=0.01)
