import json

import numpy as np
import pytest

from simulator.cost import (
    MODELS,
    StepColumns,
    StepWork,
    TableSpec,
    describe_step,
    parse_chunk,
    step_flops_bytes,
    step_traffic,
    utilisation,
)
from simulator.cost.describe import columns_of
from simulator.errors import UserError

SPECS = (
    TableSpec(),
    TableSpec(gpu="a100", model="llama-3.1-70b", tp=4),
    TableSpec(gpu="l40s", model="qwen3-14b", dtype="fp8", overlap=True),
    TableSpec(gpu="h200", model="mixtral-8x7b", tp=2),
)
STEPS = ((128, 1024, [(512, 0)]), (1, 40, []), (0, 0, [(2048, 100), (7, 9)]), (4000, 900, []))


@pytest.mark.parametrize("spec", SPECS)
@pytest.mark.parametrize("step", STEPS)
def test_the_terms_sum_to_the_step(
    spec: TableSpec, step: tuple[int, int, list[tuple[int, int]]]
) -> None:
    described = describe_step(spec, *step)
    decodes, context, chunks = step
    rows = decodes + len(chunks)
    work = StepWork(decodes, decodes * context, tuple(chunks), rows, rows)
    assert described.ms == spec.cost().step_time(work) * 1e3
    assert sum(term.ms for term in described.terms) == pytest.approx(described.ms, rel=1e-9)
    assert sum(described.shares.values()) == pytest.approx(1)
    assert 0 < described.mfu < 1
    assert 0 < described.bandwidth_utilisation < 1


@pytest.mark.parametrize("spec", SPECS)
def test_no_measured_kernel_beats_the_peaks_by_more_than_noise(spec: TableSpec) -> None:
    for step in STEPS[:3]:
        described = describe_step(spec, *step)
        for term in described.terms:
            if term.name == "elementwise":  # the formula counts what a cache may hold
                continue
            assert term.tflops_per_s < 1.05 * described.peak_tflops, term
            assert term.gb_per_s < 1.05 * described.peak_gb_per_s, term


@pytest.mark.parametrize(
    ("step", "bound"),
    [
        ((0, 0, [(8192, 0)]), "compute"),
        ((16, 1024, []), "memory"),
        ((512, 8192, []), "memory"),
    ],
)
def test_what_bounds_a_step(step: tuple[int, int, list[tuple[int, int]]], bound: str) -> None:
    assert describe_step(TableSpec(engine_profile="ideal"), *step).bound == bound


def test_a_small_model_on_many_gpus_waits_for_the_host() -> None:
    described = describe_step(TableSpec(tp=8), 1, 128)
    assert described.bound == "host"
    assert {"link", "latency", "memory"} <= set(described.shares)


def test_the_text_names_terms_peaks_and_ranges() -> None:
    text = describe_step(TableSpec(model="qwen2.5-7b"), 4, 200_000, [(20_000, 0)]).text()
    for word in ("gate_up", "attention_prefill", "host", "Bound by", "MFU", "GB/s per GPU"):
        assert word in text
    assert "Outside the calibrated range: decodes at that batch and context (to context" in text
    assert "Outside the calibrated range: a chunk and its past (to 16384 tokens)." in text
    assert "Note: attention of 32/4 heads stands for 28/4." in text


@pytest.mark.parametrize(
    ("spec", "step", "reason"),
    [
        (TableSpec(), (33_000, 1, []), "33000 tokens in a step (measured to 32768)"),
        (TableSpec(gpu="rtx4090"), (300, 100, []), "300 sampled rows (to 256)"),
    ],
)
def test_every_reason_for_extrapolation_is_given(
    spec: TableSpec, step: tuple[int, int, list[tuple[int, int]]], reason: str
) -> None:
    assert reason in describe_step(spec, *step).outside


def test_a_step_inside_the_range_says_nothing_of_it() -> None:
    assert describe_step(TableSpec(), 128, 1024, [(512, 0)]).outside == ()


def test_plain_data() -> None:
    data = json.loads(json.dumps(describe_step(TableSpec(), 8, 100, [(64, 5)]).to_dict()))
    assert data["bound"] in ("memory", "host", "latency")
    assert data["chunks"] == [[64, 5]]
    assert data["terms"][0].keys() >= {"name", "ms", "bound", "tflops_per_s", "gb_per_s"}


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ((0, 0, []), "an empty step"),
        ((3, 0, []), "expected counts of at least 1"),
        ((-1, 5, []), "expected counts of at least 1"),
        ((0, 0, [(0, 5)]), "chunk 0:5: expected at least 1 token"),
    ],
)
def test_nonsense_is_refused(step: tuple[int, int, list[tuple[int, int]]], message: str) -> None:
    with pytest.raises(UserError, match=message):
        describe_step(TableSpec(), *step)


def test_chunks_are_read_from_text() -> None:
    assert parse_chunk("7:3") == (7, 3)
    with pytest.raises(UserError, match="expected TOKENS or TOKENS:PAST"):
        parse_chunk("many")


def test_operations_of_a_prompt_are_two_per_weight_and_token() -> None:
    model = MODELS["llama-3.1-8b"]
    work = StepWork(0, 0, ((2048, 0),), 1, 1)
    flops = step_flops_bytes(model, 1, columns_of(work)).flops
    body = model.num_parameters - 2 * 4096 * 128256
    attention = 4 * 32 * 32 * 128 * 2048 * 2049 / 2
    assert flops[0] == pytest.approx(2 * 2048 * body + attention + 2 * 4096 * 128256, rel=1e-3)


def test_bytes_of_a_decode_are_the_weights_and_the_cache() -> None:
    model = MODELS["llama-3.1-8b"]
    moved = step_flops_bytes(model, 1, StepColumns(1, 100_000)).num_bytes
    read_once = model.weight_bytes() - 2 * 4096 * 128256  # one row of the embedding, not all
    assert moved[0] == pytest.approx(read_once + 100_000 * 131072, rel=1e-3)


def test_the_traffic_of_each_gpu_halves_with_tp() -> None:
    model, steps = MODELS["llama-3.1-70b"], StepColumns([64], [64 * 5000])
    one, two = (step_flops_bytes(model, tp, steps) for tp in (1, 2))
    assert two.flops[0] == pytest.approx(one.flops[0] / 2, rel=1e-3)
    assert two.num_bytes[0] == pytest.approx(one.num_bytes[0] / 2, rel=0.01)


def test_few_tokens_wake_few_experts() -> None:
    model = MODELS["qwen3-30b-a3b"]
    experts = [
        step_traffic(model, 1, StepColumns(rows, rows * 10))["experts"].num_bytes[0]
        for rows in (1, 2, 16, 64)
    ]
    assert experts[1] == pytest.approx(2 * experts[0])
    assert experts[3] == pytest.approx(experts[2], rel=0.03)
    assert experts[2] == pytest.approx(16 * experts[0], rel=0.01)


@pytest.mark.parametrize("model", ["llama-3.1-8b", "mixtral-8x7b"])
def test_a_run_of_steps_moves_what_its_steps_move(model: str) -> None:
    architecture = MODELS[model]
    rows, first, length = 3, 3000, 50
    contexts = first + rows * np.arange(length)
    singly = step_flops_bytes(architecture, 2, StepColumns(rows, contexts))
    together = step_flops_bytes(
        architecture, 2, StepColumns(rows, contexts.sum(), num_steps=length)
    )
    assert together.flops[0] == pytest.approx(singly.flops.sum())
    assert together.num_bytes[0] == pytest.approx(singly.num_bytes.sum())


def test_without_detail_chunks_are_equal_and_start_at_the_beginning() -> None:
    model = MODELS["llama-3.1-8b"]
    work = StepWork(0, 0, ((100, 0), (100, 0)), 2, 2)
    rough = step_flops_bytes(model, 1, StepColumns(0, 0, 200, 2))
    assert rough.flops == step_flops_bytes(model, 1, columns_of(work)).flops
    deep = columns_of(StepWork(0, 0, ((100, 900), (100, 0)), 2, 2))
    assert step_flops_bytes(model, 1, deep).flops > rough.flops


def test_a_step_that_samples_nothing_reads_no_output_head() -> None:
    steps = StepColumns(decode_rows=[0], context_tokens=[0], prefill_tokens=[64])
    assert step_traffic(MODELS["qwen3-8b"], 1, steps)["head"].num_bytes[0] == 0


def test_utilisation_of_a_run() -> None:
    spec = TableSpec()
    steps = StepColumns([1, 64, 0], [1000, 64 * 1000, 0], [0, 0, 4096], [0, 0, 1])
    works = (
        StepWork(1, 1000, (), 1, 1),
        StepWork(64, 64_000, (), 64, 64),
        StepWork(0, 0, ((4096, 0),), 1, 1),
    )
    cost = spec.cost()
    seconds = np.array([cost.step_time(work) for work in works])
    mfu, bandwidth = utilisation(spec, steps, seconds)
    assert (mfu < 1).all()
    assert mfu.argmax() == 2
    assert (bandwidth < 1).all()
    assert bandwidth.argmax() != 2
    single = describe_step(spec, 64, 1000)
    assert mfu[1] == pytest.approx(single.mfu)
    assert bandwidth[1] == pytest.approx(single.bandwidth_utilisation)


def test_a_model_that_does_not_fit_is_noted() -> None:
    note = describe_step(TableSpec(model="llama-3.1-70b"), chunks=[(8, 0)]).notes[-1]
    assert note == (
        "llama-3.1-70b on 1 x h100 lacks 70.5 GB per GPU (77.0 GB usable): tp 4 would fit"
    )
