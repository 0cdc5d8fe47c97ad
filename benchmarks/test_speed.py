"""How fast it is: `make bench`. Figures are reported, never asserted; ratios come from one run."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from policies import POLICIES
from simulator.cost import StepWork, TableSpec
from simulator.cost.compiled import compile_tables
from simulator.cost.spec import FixedSpec
from simulator.run import simulate
from simulator.spec import RunSpec
from workloads import Streams, SyntheticWorkload, read_trace

Bench = Callable[..., Any]
TRACES = Path(__file__).resolve().parents[2] / "shared" / "traces"
AZURE = TRACES / "azure_llm_2023" / "AzureLLMInferenceTrace_conv.csv.gz"
PEER_WORKLOAD = {"prompt_tokens": 512, "output_tokens": 128}
"""512 tokens in, 128 out, as other simulators were measured."""


def spec(**sections: Any) -> RunSpec:
    return RunSpec.from_dict(sections)


def conversations(number: int, rate: float, **policy: Any) -> RunSpec:
    """Return a run of the conversation preset, its blocks repeated with fresh draws."""
    workload = {"name": "azure-conv-2023", "num_requests": number, "request_rate": rate}
    return spec(workload=workload, policy={"kind": "vllm-v1"} | policy)


@pytest.mark.parametrize("chunks", [(), ((512, 0),), ((512, 4096),)], ids=str)
def test_step_time(benchmark: Bench, chunks: tuple[tuple[int, int], ...]) -> None:
    cost = TableSpec().cost()
    work = StepWork(128, 128 * 1024, chunks, 128 + len(chunks), 128 + len(chunks))
    benchmark(cost.step_time, work)


def test_decode_run_of_1000_steps(benchmark: Bench) -> None:
    cost = TableSpec().cost()
    benchmark(cost.decode_run, 128, 128 * 1024, 1000)


def test_build_a_cost_model(benchmark: Bench) -> None:
    benchmark(lambda: TableSpec().build(np.random.default_rng(0)))


def test_load_a_profile(benchmark: Bench) -> None:
    benchmark.pedantic(TableSpec().cost, setup=compile_tables.cache_clear, rounds=5)


@pytest.mark.parametrize("number", [10_000, 100_000])
def test_peer_workload(benchmark: Bench, number: int) -> None:
    arrivals = {"kind": "poisson", "request_rate": 30}
    workload = {"arrivals": arrivals, "num_requests": number} | PEER_WORKLOAD
    run = spec(workload=workload, policy="vllm-v1")
    result = benchmark.pedantic(simulate, (run,), rounds=1)
    benchmark.extra_info["num_steps"] = result.metrics["num_steps"]
    benchmark.extra_info["busy_fraction"] = result.metrics["busy_fraction"]


@pytest.mark.parametrize("load", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("number", [10_000, 100_000])
def test_conversations(benchmark: Bench, number: int, load: float) -> None:
    run = conversations(number, load * 16.0)
    result = benchmark.pedantic(simulate, (run,), rounds=1)
    benchmark.extra_info["us_per_request"] = benchmark.stats.stats.mean / number * 1e6
    benchmark.extra_info["num_steps"] = result.metrics["num_steps"]


@pytest.mark.parametrize("stepper", ["fast", "reference"])
def test_both_steppers(benchmark: Bench, stepper: str) -> None:
    run = conversations(2_000, 12.8)
    benchmark.pedantic(simulate, (run,), {"stepper": stepper}, rounds=3)


@pytest.mark.parametrize("stepper", ["fast", "reference"])
def test_long_outputs_at_low_load(benchmark: Bench, stepper: str) -> None:
    workload = {
        "arrivals": 0.05,
        "prompt_tokens": 200,
        "output_tokens": {"kind": "lognormal", "mean": 3000, "cv": 0.5},
        "num_requests": 60,
    }
    benchmark.pedantic(simulate, (spec(workload=workload),), {"stepper": stepper}, rounds=1)


@pytest.mark.parametrize("batch", [8, 512])
def test_cost_of_a_step_by_batch_size(benchmark: Bench, batch: int) -> None:
    workload = {
        "arrivals": {"kind": "deterministic", "request_rate": 1e6},
        "prompt_tokens": 1,
        "output_tokens": 2000,
        "num_requests": batch,
    }
    run = spec(
        workload=workload,
        policy={"kind": "vllm-v1", "max_num_seqs": 512},
        cost=FixedSpec(step_ms=10).model_dump(),
    )
    benchmark.pedantic(simulate, (run,), rounds=3)


def test_overload(benchmark: Bench) -> None:
    benchmark.pedantic(simulate, (conversations(30_000, 500.0),), rounds=1)


@pytest.mark.parametrize("rate", [8.0, 100.0])
@pytest.mark.parametrize("kind", [cls.model_fields["kind"].default for cls in POLICIES])
def test_policies_on_the_same_load(benchmark: Bench, kind: str, rate: float) -> None:
    run = conversations(3_000, rate, kind=kind)
    result = benchmark.pedantic(simulate, (run,), rounds=1)
    benchmark.extra_info["num_steps"] = result.metrics["num_steps"]


@pytest.mark.parametrize("code", ["import simulator", "import simulator.run"])
def test_import(benchmark: Bench, code: str) -> None:
    benchmark.pedantic(subprocess.run, ([sys.executable, "-c", code],), {"check": True}, rounds=5)


def test_help(benchmark: Bench) -> None:
    command = [sys.executable, "-m", "simulator", "--help"]
    benchmark.pedantic(
        subprocess.run, (command,), {"check": True, "capture_output": True}, rounds=5
    )


def test_generate_a_million_requests(benchmark: Bench) -> None:
    workload = SyntheticWorkload.model_validate(
        {
            "arrivals": {"kind": "gamma", "request_rate": 10, "cv": 2},
            "prompt_tokens": {"kind": "lognormal", "mean": 512, "cv": 1.0},
            "output_tokens": {"kind": "lognormal", "mean": 128, "cv": 1.0},
            "num_requests": 1_000_000,
        }
    )
    benchmark.pedantic(workload.build, (Streams(0),), rounds=3)


@pytest.mark.skipif(not AZURE.exists(), reason="needs the published trace beside the checkout")
def test_read_the_conversation_trace(benchmark: Bench) -> None:
    trace = benchmark.pedantic(read_trace, (AZURE,), rounds=5)
    assert len(trace) == 19_366
