"""GPUs and number formats beyond the tables of AIConfigurator in bfloat16."""

from itertools import pairwise

import numpy as np
import pytest

from simulator.cost import GPUS, MODELS, StepWork, TableCost, load_profile, table_cost
from simulator.cost.compiled import compile_tables
from simulator.cost.layers import layer_elementwise_s, linears_s
from simulator.cost.operators import all_reduce_s, moe_s
from simulator.cost.scaling import scale_bandwidth
from simulator.errors import UserError


def decode(batch: int, context: int) -> StepWork:
    return StepWork(batch, batch * context, (), batch, batch)


def ideal(gpu: str, model: str = "llama-3.1-8b", tp: int = 1, **options: str) -> TableCost:
    return table_cost(gpu, model, tp, engine_profile="ideal", **options)  # type: ignore[arg-type]


# Layer times inside vLLM 0.19.0 as published (microseconds): qkv, o, gate_up, down.
@pytest.mark.parametrize(
    ("gpu", "tokens", "expected_us"),
    [
        ("rtxpro6000", 1, (35.8, 25.7, 159.5, 85.5)),
        ("rtxpro6000", 512, (92.8, 67.3, 330.5, 180.4)),
        ("rtxpro6000", 2048, (303.0, 193.2, 1152.8, 608.7)),
        ("rtx4090", 1, (54.9, 38.1, 247.3, 126.8)),
        ("rtx4090", 2048, (631.1, 419.5, 2896.8, 1459.6)),
    ],
)
def test_linear_layers_on_consumer_gpus(
    gpu: str, tokens: int, expected_us: tuple[float, ...]
) -> None:
    profile = load_profile(gpu)
    counts = profile.gemm_tokens[profile.gemm_tokens == tokens]
    times = linears_s(profile, MODELS["llama-3.1-8b"], 1, counts)
    got = [float(seconds[0]) * 1e6 for seconds in times.values()]
    assert got == pytest.approx(expected_us, rel=0.02)


def test_elementwise_work_inside_the_engine_is_faster_than_the_formula() -> None:
    model, tokens = MODELS["llama-3.1-8b"], np.array([2048.0])
    measured = 2 * 15.7 + 12.0 + 94.4
    layer = layer_elementwise_s(load_profile("rtxpro6000"), model, 1, tokens)
    assert float(layer[0]) * 1e6 == pytest.approx(measured, rel=0.15)


@pytest.mark.parametrize(
    ("gpu", "batch", "context", "expected_us"),
    [("rtxpro6000", 64, 1024, 221), ("rtxpro6000", 8, 4096, 108), ("rtx4090", 64, 1024, 333)],
)
def test_decode_attention_on_consumer_gpus(
    gpu: str, batch: int, context: int, expected_us: float
) -> None:
    layer = ideal(gpu).breakdown(decode(batch, context))["attention_decode"] / 32
    assert layer * 1e6 == pytest.approx(expected_us, rel=0.02)


# Prompt chunks behind a stored context as published: chunk, past, microseconds per layer.
@pytest.mark.parametrize(
    ("chunk", "past", "expected_us"),
    [(2048, 0, 173), (2048, 8192, 1152), (1024, 8192, 558), (16, 16384, 369), (512, 8748, 409)],
)
def test_chunks_behind_a_context_on_an_rtx_pro_6000(
    chunk: int, past: int, expected_us: float
) -> None:
    work = StepWork(0, 0, ((chunk, past),), 1, 1)
    layer = ideal("rtxpro6000").breakdown(work)["attention_prefill"] / 32
    assert layer * 1e6 == pytest.approx(expected_us, rel=0.16)


def test_tiles_of_a_chunk_take_turns_on_the_multiprocessors() -> None:
    cost = ideal("h100")
    parts = [
        cost.breakdown(StepWork(0, 0, ((chunk, 30_000),), 1, 1))["attention_prefill"]
        for chunk in (16, 512, 600)
    ]
    assert parts[0] == pytest.approx(parts[1], rel=0.02)  # 4 tiles x 32 heads: one round
    assert parts[2] > 1.9 * parts[1]  # 5 x 32 on 132 multiprocessors: two


def test_a_scaled_gpu_is_flagged_and_slower_in_proportion_where_memory_binds() -> None:
    small, large = ideal("a100-40gb"), ideal("a100")
    assert small.notes == ("a100-40gb was never measured: a100 scaled by memory bandwidth",)
    assert large.notes == ()
    ratio = 2039 / 1555
    work = decode(1, 1024)
    assert small.step_time(work) / large.step_time(work) == pytest.approx(ratio, rel=0.03)
    work = StepWork(0, 0, ((8192, 0),), 1, 1)
    assert small.step_time(work) / large.step_time(work) == pytest.approx(1, rel=0.04)
    parts = [cost.breakdown(decode(256, 4096))["attention_decode"] for cost in (small, large)]
    assert parts[0] / parts[1] == pytest.approx(ratio, rel=0.01)


def test_scaling_to_the_same_bandwidth_changes_nothing() -> None:
    profile = load_profile("a100")
    same = scale_bandwidth(profile, GPUS["a100"])
    assert np.allclose(same.decode_us, profile.decode_us, rtol=1e-12, equal_nan=True)


def test_measured_experts_are_not_scaled() -> None:
    with pytest.raises(UserError, match="expert layers of h100 cannot be scaled"):
        scale_bandwidth(load_profile("h100"), GPUS["a100"])


@pytest.mark.parametrize("gpu", ["h100", "h200", "b200", "l40s"])
def test_fp8_halves_weights_and_cache_and_is_flagged(gpu: str) -> None:
    model = MODELS["llama-3.1-70b"]
    small = model.in_dtype("fp8")
    assert small.weight_bytes() == pytest.approx(model.weight_bytes() / 2, rel=0.04)
    assert small.kv_bytes_per_token() == model.kv_bytes_per_token() // 2
    assert small.num_parameters == model.num_parameters
    cost = ideal(gpu, "llama-3.1-70b", 8, dtype="fp8")
    assert any("fp8 is of low confidence" in note for note in cost.notes)
    assert cost.step_time(decode(64, 4096)) < ideal(gpu, "llama-3.1-70b", 8).step_time(
        decode(64, 4096)
    )


def test_the_output_head_stays_in_bfloat16() -> None:
    heads = [
        ideal("h100", dtype=dtype).breakdown(decode(8, 64))["head"] for dtype in ("fp8", "bfloat16")
    ]
    assert heads[0] == heads[1]


def test_a_gpu_without_fp8_says_which_have_it() -> None:
    with pytest.raises(UserError, match=r"no fp8 timings for a100-40gb \(there are for h100"):
        load_profile("a100-40gb", "fp8")


# The table as published, microseconds per layer: Mixtral-8x7B and Qwen3-30B-A3B on an H100.
@pytest.mark.parametrize(
    ("model", "tp", "expected_us"),
    [
        ("mixtral-8x7b", 1, (259, 956, 1065, 5625)),
        ("mixtral-8x7b", 4, (92, 261, 296, 1252)),
        ("qwen3-30b-a3b", 1, (49, 228, 461, 836)),
    ],
)
def test_expert_layers_on_h100(model: str, tp: int, expected_us: tuple[float, ...]) -> None:
    tokens = np.array([1.0, 8.0, 256.0, 4096.0])
    times = moe_s(load_profile("h100"), MODELS[model], tp, tokens) * 1e6
    assert times == pytest.approx(expected_us, rel=0.03)


def test_experts_are_read_from_memory_not_from_the_cache() -> None:
    model, profile = MODELS["mixtral-8x7b"], load_profile("l40s")
    weights = 2 * 3 * 4096 * 14336 / 8 * 2
    time = float(moe_s(profile, model, 8, np.array([1.0]))[0])
    assert time == pytest.approx(weights / (0.75 * 864e9), rel=1e-6)  # the table says 32 us


@pytest.mark.parametrize(
    ("gpu", "tp", "dtype", "known"),
    [
        ("a100", 1, "bfloat16", "none"),
        ("b200", 8, "bfloat16", "1, 2"),
        ("rtxpro6000", 2, "bfloat16", "1"),
        ("h100", 1, "fp8", "none"),
    ],
)
def test_experts_that_were_not_measured_are_refused(
    gpu: str, tp: int, dtype: str, known: str
) -> None:
    with pytest.raises(UserError, match=rf"no expert-layer timings .* for tp: {known}\)"):
        ideal(gpu, "qwen3-30b-a3b", tp, dtype=dtype)


def test_experts_are_flagged() -> None:
    notes = ideal("h200", "mixtral-8x7b", 2).notes
    assert any(note.startswith("experts are timed with balanced routing") for note in notes)


def test_a_borrowed_all_reduce_is_flagged_where_it_is_used() -> None:
    note = "all-reduce of l40s over PCIe stands for rtx4090"
    assert note in ideal("rtx4090", tp=2).notes
    assert note not in ideal("rtx4090").notes


def test_an_all_reduce_that_was_not_measured_is_refused() -> None:
    with pytest.raises(UserError, match=r"no all-reduce timings of 16 h100 .*2, 4, 8"):
        all_reduce_s(load_profile("h100"), 16, np.array([1e6]))


@pytest.mark.parametrize("gpu", ["rtxpro6000", "rtx4090"])
def test_the_narrow_grid_of_the_layer_timings_is_known(gpu: str) -> None:
    cost = ideal(gpu)
    assert cost.calibration["num_tokens"] == (1.0, 2048.0)
    assert cost.calibration["num_sampled"] == (1.0, 256.0)
    cost.step_time(decode(256, 1024))
    assert cost.num_extrapolated == 0
    cost.step_time(decode(257, 1024))
    cost.step_time(StepWork(0, 0, ((4096, 0),), 1, 1))
    assert cost.num_extrapolated == 2
    assert cost.step_time(StepWork(0, 0, ((4096, 0),), 1, 1)) == pytest.approx(
        2 * cost.step_time(StepWork(0, 0, ((2048, 0),), 1, 1)), rel=0.15
    )


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("model", MODELS)
def test_every_pair_that_can_be_timed_behaves(gpu: str, model: str) -> None:
    try:
        cost = ideal(gpu, model)
    except UserError as error:
        assert "expert-layer" in str(error)  # noqa: PT017 - only this reason is allowed
        return
    times = [cost.step_time(decode(batch, 512)) for batch in (1, 8, 64, 256)]
    assert all(later > 0.98 * sooner for sooner, later in pairwise(times))
    assert 1e-3 < times[0] < 0.2
    prompts = [cost.step_time(StepWork(0, 0, ((n, 0),), 1, 1)) for n in (128, 512, 2048)]
    assert prompts == sorted(prompts)


def test_the_tables_of_a_profile_are_compiled_once() -> None:
    profile, model = load_profile("h100", "fp8"), MODELS["qwen3-8b"].in_dtype("fp8")
    head = load_profile("h100")
    assert compile_tables(profile, model, 1, head) is compile_tables(profile, model, 1, head)
