import pytest

from simulator.cost import GPUS, MODELS, Gpu, ModelArchitecture, kv_capacity
from simulator.cost.gpus import MIB
from simulator.errors import UserError

RTX_4090 = Gpu("rtx4090", "RTX 4090 24GB", 24564 * MIB, 1008.0, 165.0, 128, 72, "fa2")
LLAMA_2_7B = ModelArchitecture("llama-2-7b", 32, 4096, 32, 32, 128, 11008, 32000, 4096)


def test_the_known_capacity_of_an_rtx_4090() -> None:
    capacity = kv_capacity(RTX_4090, MODELS["llama-3.1-8b"], max_num_batched_tokens=2048)
    assert (capacity.num_blocks, capacity.num_tokens) == (2588, 41408)


@pytest.mark.parametrize(("tp", "gib"), [(1, 53.29), (2, 58.97)])
def test_the_known_capacity_of_an_80_gb_gpu(tp: int, gib: float) -> None:
    capacity = kv_capacity(GPUS["h100"], MODELS["llama-3.1-8b"], tp)
    assert capacity.kv_bytes / 2**30 == pytest.approx(gib, rel=0.002)


def test_a_known_capacity_that_was_not_fitted() -> None:
    capacity = kv_capacity(GPUS["a100"], LLAMA_2_7B, max_num_batched_tokens=4096)
    assert capacity.num_blocks == pytest.approx(7351, rel=0.003)


def test_the_budget_adds_up() -> None:
    gpu = GPUS["h200"]
    capacity = kv_capacity(gpu, MODELS["qwen3-32b"], 2, memory_utilisation=0.8, block_size=32)
    used = capacity.weight_bytes + capacity.activation_bytes + capacity.kv_bytes
    block = 32 * MODELS["qwen3-32b"].kv_bytes_per_token(2)
    assert capacity.kv_bytes == capacity.num_blocks * block
    assert 0 <= 0.8 * gpu.memory_bytes - used < block


def test_a_model_that_does_not_fit_names_the_gap_and_the_tp_that_would_do() -> None:
    with pytest.raises(UserError, match=r"lacks \d+\.\d GB per GPU .*: tp 4 would fit$"):
        kv_capacity(GPUS["h100"], MODELS["llama-3.1-70b"])


def test_a_model_that_no_server_holds_says_so() -> None:
    with pytest.raises(UserError, match="no tp up to 8 would fit"):
        kv_capacity(GPUS["l40s"], MODELS["llama-3.1-70b"], memory_utilisation=0.3)


def test_a_tp_that_does_not_divide_the_heads_is_not_offered() -> None:
    with pytest.raises(UserError, match="no tp up to 8 would fit"):
        kv_capacity(GPUS["l40s"], MODELS["qwen2.5-7b"], memory_utilisation=0.12)
