from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from pydantic import ValidationError

from simulator.cost import GPUS, MODELS, StepWork, TableCost, load_profile, table_cost
from simulator.cost.assemble import assemble
from simulator.cost.attention import decode_attention, prefill_attention_s
from simulator.cost.compiled import compile_tables
from simulator.cost.engine_profiles import EngineProfile
from simulator.cost.operators import gemm_s
from simulator.cost.pieces import never_falling
from simulator.cost.table_spec import TableSpec

# Milliseconds of GPU time of Llama-3.1-8B, one GPU: decode at context 1024 and batch 1, 32, 128,
# 256; prompts of 512, 2048, 8192 tokens.
COMPOSED_MS = {
    "h100": (6.24, 8.42, 13.22, 20.39, 11.86, 43.96, 202.6),
    "a100": (11.92, 15.68, 25.0, 44.7, 36.0, 126.0, 562.0),
    "h200": (4.92, 6.41, 10.1, 15.6, 11.3, 43.8, 201.0),
    "b200": (3.54, 4.25, 6.47, 9.67, 6.5, 22.2, 98.0),
    "l40s": (22.1, 31.7, 53.9, 83.5, 38.7, 148.0, 714.0),
}
STEPS = (
    StepWork(1, 1024, (), 1, 1),
    StepWork(200, 200 * 700 + 13, (), 200, 200),
    StepWork(0, 0, ((2048, 0),), 1, 1),
    StepWork(0, 0, ((64, 4000),), 0, 1),
    StepWork(48, 48 * 900, ((256, 1024), (128, 0)), 49, 50),
    StepWork(64, 64 * 500, ((40000, 9000),), 64, 65),
    StepWork(5000, 5000 * 400, (), 5000, 5000),
)


def decode(batch: int, context: int) -> StepWork:
    return StepWork(batch, batch * context, (), batch, batch)


def prompt(tokens: int, past: int = 0) -> StepWork:
    return StepWork(0, 0, ((tokens, past),), 1, 1)


def ideal(gpu: str = "h100", model: str = "llama-3.1-8b", tp: int = 1) -> TableCost:
    return table_cost(gpu, model, tp, engine_profile="ideal")


@pytest.mark.parametrize("gpu", COMPOSED_MS)
def test_composed_gpu_times_match_the_published_composition(gpu: str) -> None:
    cost = ideal(gpu)
    works = [decode(batch, 1024) for batch in (1, 32, 128, 256)]
    works += [prompt(tokens) for tokens in (512, 2048, 8192)]
    times = [cost.step_time(work) * 1e3 for work in works]
    assert times == pytest.approx(COMPOSED_MS[gpu], rel=0.03)


@pytest.mark.parametrize(
    ("tokens", "expected_us"),
    [(1, (19.9, 15.0, 80.5, 43.4)), (2048, (129, 87, 612, 295))],
)
def test_single_linear_layers_on_h100(tokens: int, expected_us: tuple[float, ...]) -> None:
    profile = load_profile("h100")
    shapes = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336))
    counts = profile.gemm_tokens[profile.gemm_tokens == tokens]
    times = [float(gemm_s(profile, out, into, counts)[0]) * 1e6 for out, into in shapes]
    assert times == pytest.approx(expected_us, rel=0.03)


@pytest.mark.parametrize(
    ("tokens", "expected_ms"),
    [(1, 5.08), (32, 5.65), (128, 5.81), (256, 6.63), (512, 9.31), (2048, 35.9), (8192, 154.8)],
)
def test_linear_layers_of_all_layers_on_h100(tokens: int, expected_ms: float) -> None:
    linears = ideal().breakdown(prompt(tokens))["linears"]
    assert linears * 1e3 == pytest.approx(expected_ms, rel=0.03)


def test_output_head_on_h100() -> None:
    assert ideal().breakdown(decode(1, 1024))["head"] * 1e6 == pytest.approx(373, rel=0.03)


@pytest.mark.parametrize(
    ("batch", "expected_us"), [(1, 13.6), (32, 60), (64, 119), (128, 196), (256, 380)]
)
def test_decode_attention_reads_cold_memory_on_h100(batch: int, expected_us: float) -> None:
    layer = ideal().breakdown(decode(batch, 1024))["attention_decode"] / 32
    assert layer * 1e6 == pytest.approx(expected_us, rel=0.03)


@pytest.mark.parametrize(("tokens", "expected_us"), [(512, 22), (2048, 89), (8192, 912)])
def test_prefill_attention_on_h100(tokens: int, expected_us: float) -> None:
    layer = ideal().breakdown(prompt(tokens))["attention_prefill"] / 32
    assert layer * 1e6 == pytest.approx(expected_us, rel=0.03)


@pytest.mark.parametrize(
    ("gpus", "expected_us"), [(2, (8.34, 44.96)), (4, (12.76, 53.53)), (8, (14.97, 50.70))]
)
def test_all_reduce_is_paid_twice_per_layer(gpus: int, expected_us: tuple[float, float]) -> None:
    cost = ideal(tp=gpus)  # one token of Llama-3.1-8B is 8 KiB
    times = [cost.breakdown(prompt(tokens))["all_reduce"] / 64 * 1e6 for tokens in (128, 1024)]
    assert times == pytest.approx(expected_us, rel=0.01)


@pytest.mark.parametrize("work", STEPS)
@pytest.mark.parametrize("engine_profile", ["generic", "ideal"])
@pytest.mark.parametrize(("gpu", "tp"), [("h100", 1), ("a100", 4)])
def test_the_parts_sum_to_the_step(gpu: str, tp: int, engine_profile: str, work: StepWork) -> None:
    cost = table_cost(gpu, "llama-3.1-8b", tp, engine_profile=engine_profile)
    parts = cost.breakdown(work)
    assert cost.num_extrapolated == 0
    assert sum(parts.values()) == pytest.approx(cost.step_time(work), rel=1e-12)
    assert min(parts.values()) >= 0


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize(("model", "tp"), [("llama-3.1-8b", 1), ("llama-3.1-70b", 8)])
def test_more_context_is_never_cheaper(gpu: str, model: str, tp: int) -> None:
    cost = ideal(gpu, model, tp)
    for batch in (1, 5, 32, 200, 300):
        contexts = [round(1.07**power) for power in range(1, 170)]
        times = [cost.step_time(decode(batch, context)) for context in contexts]
        assert all(later >= sooner * (1 - 1e-12) for sooner, later in pairwise(times))


@pytest.mark.parametrize("gpu", GPUS)
def test_a_chunk_behind_more_context_is_cheaper_by_measurement_noise_at_most(gpu: str) -> None:
    cost = ideal(gpu)
    for tokens in (16, 128, 512, 2048):
        greatest = 0.0
        for past in range(0, 20000, 97):
            attention = cost.breakdown(prompt(tokens, past))["attention_prefill"]
            assert attention >= 0.96 * greatest
            greatest = max(greatest, attention)


@pytest.mark.parametrize("gpu", GPUS)
def test_attention_is_never_faster_than_its_floor(gpu: str) -> None:
    cost = ideal(gpu)
    floor = cost.breakdown(decode(1, 1))["attention_decode"]
    for batch in (1, 2, 7, 64, 1000):
        assert cost.breakdown(decode(batch, 300))["attention_decode"] >= floor * (1 - 1e-9)


def test_a_short_chunk_behind_a_long_context_pays_the_serial_walk() -> None:
    layer = ideal().breakdown(prompt(32, 12000))["attention_prefill"] / 32
    assert layer * 1e6 == pytest.approx(11.376 + 0.0135 * 12032, rel=1e-6)


@pytest.mark.parametrize("gpu", GPUS)
@pytest.mark.parametrize("batch", [1, 3, 33, 128, 700, 3000])
def test_linear_pieces_stay_close_to_the_interpolated_table(gpu: str, batch: int) -> None:
    tables = compile_tables(load_profile(gpu), MODELS["llama-3.1-8b"], 1)
    contexts = np.geomspace(1, 200_000, 3001)
    table = never_falling(32 * tables.decode.seconds(batch, contexts))
    starts, base, slope, _ = tables.decode_row(batch)
    piece = np.searchsorted(starts, contexts, side="right") - 1
    lines = np.array(base)[piece] + np.array(slope)[piece] * contexts
    assert np.abs(lines / table - 1).max() < 0.003


def test_mixing_costs_kappa_times_the_decodes_beyond_the_floor() -> None:
    works = StepWork(64, 64 * 1024, ((512, 0),), 64, 65), decode(64, 1024)
    parts = {}
    for kappa in (1.0, 2.0):
        cost = table_cost("h100", "llama-3.1-8b", engine_profile="ideal", kappa_mixed=kappa)
        parts[kappa] = cost.breakdown(works[0])["attention_decode"]
    alone = ideal().breakdown(works[1])["attention_decode"]
    assert parts[2.0] == pytest.approx(2 * parts[1.0])
    assert alone - parts[1.0] == pytest.approx(32 * 11.376e-6, rel=1e-5)


@pytest.mark.parametrize(
    ("gpu", "model", "kappa"),
    [
        ("h100", "llama-3.1-70b", 1.0),
        ("h200", "llama-3.1-8b", 1.0),
        ("b200", "llama-3.1-8b", 1.0),
        ("a100", "llama-3.1-8b", 1.6),
        ("a100", "llama-3.1-70b", 2.8),
        ("l40s", "qwen3-14b", 1.9),
    ],
)
def test_kappa_by_gpu_and_group_size(gpu: str, model: str, kappa: float) -> None:
    assert table_cost(gpu, model).kappa_mixed == pytest.approx(kappa)


def test_generic_engine_adds_host_time_and_slows_prompts() -> None:
    generic, bare = table_cost("h100", "llama-3.1-8b"), ideal()
    work = decode(8, 1024)
    assert generic.step_time(work) == pytest.approx(bare.step_time(work) + 1e-3)
    work = prompt(2048)
    assert generic.step_time(work) == pytest.approx(1.13 * bare.step_time(work) + 1e-3)
    four = table_cost("h100", "llama-3.1-8b", 4).breakdown(work)
    assert four["host"] == pytest.approx(1.7e-3)


@pytest.mark.parametrize("host_ms", [0.1, 100.0])
def test_an_overlapping_engine_pays_the_longer_of_host_and_gpu(host_ms: float) -> None:
    tables = compile_tables(load_profile("h100"), MODELS["llama-3.1-8b"], 1)
    engine = EngineProfile("x", host_ms, host_ms_per_sequence=0.25, overlap=True)
    cost = TableCost(tables, engine, tp=1, kappa_mixed=1.0)
    work = decode(8, 1024)
    expected = max(ideal().step_time(work), (host_ms + 8 * 0.25) / 1e3)
    assert cost.step_time(work) == pytest.approx(expected)
    assert sum(cost.breakdown(work).values()) == pytest.approx(expected)


def test_qwen3_pays_for_its_query_and_key_norms() -> None:
    with_norms = ideal(model="qwen3-32b").breakdown(decode(1, 1024))["elementwise"]
    assert with_norms > 64 * 6 * 2.5e-6
    assert with_norms == pytest.approx(64 * 6 * 2.5e-6, rel=0.01)


@pytest.mark.parametrize(
    "work",
    [
        decode(1, 100_000),
        decode(3000, 10),
        prompt(16000, 1000),
        prompt(40000),
        StepWork(32700, 32700, ((100, 0),), 1, 1),
        StepWork(1, 100_000, ((64, 0),), 1, 1),
        StepWork(0, 0, ((64, 0),), 4097, 1),
    ],
)
def test_steps_beyond_the_measurements_are_timed_and_counted(work: StepWork) -> None:
    cost = ideal()
    inside = cost.step_time(decode(2, 1000))
    assert cost.num_extrapolated == 0
    assert cost.step_time(work) > inside / 2
    assert cost.num_extrapolated == 1


def test_beyond_the_measurements_the_efficiency_is_held() -> None:
    cost = ideal()
    times = [cost.breakdown(decode(1, context))["attention_decode"] for context in (2**18, 2**19)]
    assert times[1] / times[0] == pytest.approx(2, rel=0.05)
    times = [cost.breakdown(prompt(tokens))["attention_prefill"] for tokens in (2**15, 2**16)]
    assert times[1] / times[0] == pytest.approx(4, rel=0.05)
    times = [cost.breakdown(prompt(tokens))["linears"] for tokens in (2**15, 2**16, 2**17)]
    assert times[1] / times[0] == pytest.approx(2, rel=0.05)
    assert times[2] / times[1] == pytest.approx(2, rel=0.05)


def test_an_unmeasured_head_layout_is_noted() -> None:
    cost = ideal(model="qwen2.5-7b")
    assert cost.notes == ("attention of 32/4 heads stands for 28/4",)
    profile, model = load_profile("h100"), MODELS["qwen2.5-7b"]
    assert decode_attention(profile, model, 1).layout == (32, 4)
    lengths = profile.prefill_tokens[-1:]
    ratio = prefill_attention_s(profile, model, 1, lengths)[0]
    ratio /= profile.prefill_us[list(map(tuple, profile.prefill_layouts)).index((32, 4))][-1] * 1e-6
    assert ratio == pytest.approx(28 / 32, rel=0.01)


def test_equal_steps_cost_the_same_whatever_came_before() -> None:
    works = [decode(batch, 900) for batch in range(1, 60)]
    forwards, backwards = ideal(), ideal()
    times = [forwards.step_time(work) for work in works]
    assert [backwards.step_time(work) for work in reversed(works)] == times[::-1]


def test_a_step_without_tokens_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one token"):
        ideal().step_time(StepWork())


def test_steps_beyond_the_recorded_graphs_pay_for_their_launches() -> None:
    engine = EngineProfile("x", eager_ms=2.0, graph_tokens=512)
    profile, model = load_profile("h100"), MODELS["llama-3.1-8b"]
    plain = assemble(profile, profile, model, 1, engine=replace(engine, eager_ms=0.0))
    eager = assemble(profile, profile, model, 1, engine=engine)
    narrow = assemble(profile, profile, model, 1, engine=engine, graph_tokens=256)
    for tokens, slower, narrower in ((256, 0.0, 0.0), (400, 0.0, 2.0), (513, 2.0, 2.0)):
        work = StepWork(chunks=((tokens, 0),), num_sampled=1, num_rows=1)
        base = plain.step_time(work) * 1e3
        assert eager.step_time(work) * 1e3 - base == pytest.approx(slower)
        assert narrow.step_time(work) * 1e3 - base == pytest.approx(narrower)
        assert narrow.breakdown(work)["launch"] * 1e3 == pytest.approx(narrower)


def test_a_bfloat16_cache_under_fp8_weights_reads_twice_the_bytes() -> None:
    both, mixed = TableSpec(dtype="fp8"), TableSpec(dtype="fp8", kv_dtype="bfloat16")
    assert mixed.kv_capacity().num_tokens * 2 == pytest.approx(
        both.kv_capacity().num_tokens, rel=1e-3
    )
    work = StepWork(64, 64 * 4096, (), 64, 64)
    ratio = (
        mixed.cost().breakdown(work)["attention_decode"]
        / both.cost().breakdown(work)["attention_decode"]
    )
    assert 1.5 < ratio < 2.2
    with pytest.raises(ValidationError, match="needs dtype fp8"):
        TableSpec(kv_dtype="fp8")
