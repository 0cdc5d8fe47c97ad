"""One request at a time: M/M/1, M/D/1, M/G/1, and the prefill model of DistServe."""

import pytest

from simulator import Result
from tests.oracles.replication import Measured, Sample, check, one_token_run
from tests.oracles.theory import mg1_wait, mm1_sojourn

# Relaxation times are about 2.2 * rate * E[S²] / (1 - load)², exact for M/M/1 within 5 %.


@pytest.mark.parametrize(
    ("rate", "number", "warmup"),
    [(0.6, 1600, 60), pytest.param(0.8, 8000, 220, marks=pytest.mark.slow)],
)
def test_fixed_service_is_md1(rate: float, number: int, warmup: float) -> None:
    cost = {"kind": "fixed", "step_ms": 1000}

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        values = {"wait": seen.wait(), "sojourn": seen.sojourn(), "busy": seen.utilisation()}
        return Sample(values, seen.arrival_controls(), len(result.trace))

    spec = one_token_run(rate, "none", cost, num_requests=number, warmup_s=warmup)
    wait = mg1_wait(rate, 1, 1)
    check(f"M/D/1 {rate}", spec, sample, wait=wait, sojourn=wait + 1, busy=rate)


def test_random_service_is_mg1() -> None:
    rate, second = 0.5, 0.9 * 0.5**2 + 0.1 * 5.5**2
    cost = {"kind": "empirical", "values_ms": [500, 5500], "probs": [0.9, 0.1]}

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        controls = seen.arrival_controls() + seen.service_controls(1.0, second)
        values = {"wait": seen.wait(), "busy": seen.utilisation()}
        return Sample(values, controls, len(result.trace))

    spec = one_token_run(rate, "none", cost, num_requests=2400, warmup_s=80)
    check("M/G/1", spec, sample, wait=mg1_wait(rate, 1, second), busy=0.5)


def test_a_prefill_machine_is_that_of_distserve() -> None:
    """TTFT = S + R S² / (2 (1 - R S)) for a rate R and a prefill of S seconds: 0.15 s."""
    rate = 5.0
    cost = {"kind": "linear", "fixed_ms": 10, "per_decode_us": 0, "per_prefill_token_us": 450}

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        return Sample({"ttft": seen.ttft()}, seen.arrival_controls(), len(result.trace))

    policy = {"kind": "vllm-v1", "max_num_seqs": 1}
    spec = one_token_run(rate, policy, cost, num_requests=800, warmup_s=5, prompt_tokens=200)
    ttft = 0.1 + mg1_wait(rate, 0.1, 0.1**2)
    check("DistServe prefill", spec, sample, ttft=ttft)


@pytest.mark.slow
def test_exponential_service_is_mm1() -> None:
    rate = 0.8
    cost = {"kind": "exponential", "mean_ms": 1000}

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        controls = seen.arrival_controls() + seen.service_controls(1.0, 2.0)
        values = {"sojourn": seen.sojourn(), "busy": seen.utilisation()}
        return Sample(values, controls, len(result.trace))

    spec = one_token_run(rate, "none", cost, num_requests=12_000, warmup_s=450)
    check("M/M/1", spec, sample, sojourn=mm1_sojourn(rate, 1.0), busy=0.8)
