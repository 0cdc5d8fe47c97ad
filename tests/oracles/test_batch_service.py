"""Servers of batches: unlimited, capped, random, and started by a timer alone."""

import pytest

from simulator import Result, RunSpec
from tests.oracles.replication import Measured, Sample, check, one_token_run
from tests.oracles.theory import Batches, exponential_batches, linear_batches, window_only

slow = pytest.mark.slow
UNLIMITED = 10**6


def run_of(
    rate: float, alpha: float, tau0: float, largest: int, number: int, warmup: float
) -> RunSpec:
    policy = {"kind": "static", "max_batch_size": largest}
    cost = {"kind": "linear-batch", "fixed_ms": 1e3 * tau0, "per_request_ms": 1e3 * alpha}
    return one_token_run(rate, policy, cost, num_requests=number, warmup_s=warmup)


def check_batches(
    name: str, spec: RunSpec, theory: Batches, service: tuple[float, float] | None = None
) -> None:
    """Compare batch size, sojourn and utilisation; `service` are two moments of random steps."""

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        controls = seen.arrival_controls()
        if service is not None:
            controls += seen.service_controls(*service)
        values = Batches(seen.batch_size(), seen.sojourn(), seen.utilisation())
        return Sample(values._asdict(), controls, len(result.trace))

    check(name, spec, sample, **theory._asdict())


@pytest.mark.parametrize(
    ("rate", "alpha", "tau0", "number", "warmup"),
    [
        (0.5, 1, 1, 2400, 60),
        pytest.param(0.9, 1, 1, 40_000, 1000, marks=slow),
        (2.0, 0.25, 1, 1600, 30),
        pytest.param(0.1, 1, 1, 4000, 50, marks=slow),
        pytest.param(0.3, 1, 1, 4000, 50, marks=slow),
        pytest.param(1.0, 0.25, 1, 4000, 30, marks=slow),
    ],
)
def test_an_unlimited_linear_batch_is_inoues(
    rate: float, alpha: float, tau0: float, number: int, warmup: float
) -> None:
    spec = run_of(rate, alpha, tau0, UNLIMITED, number, warmup)
    theory = linear_batches(rate, alpha, tau0)
    check_batches(f"linear batch {rate, alpha, tau0}", spec, theory)


@pytest.mark.parametrize(
    ("rate", "alpha", "tau0", "largest", "number", "warmup"),
    [
        (0.5, 1, 1, 4, 2600, 60),
        (1.5, 0.25, 1, 8, 1600, 40),
        (2, 0, 1, 4, 1600, 30),
        pytest.param(0.5, 1, 1, 8, 4000, 60, marks=slow),
        pytest.param(0.5, 0.25, 1, 4, 4000, 30, marks=slow),
        pytest.param(1, 0.25, 1, 4, 4000, 30, marks=slow),
        pytest.param(1.8, 0.25, 1, 8, 4000, 60, marks=slow),
    ],
)
def test_a_capped_linear_batch_follows_its_chain(
    rate: float, alpha: float, tau0: float, largest: int, number: int, warmup: float
) -> None:
    spec = run_of(rate, alpha, tau0, largest, number, warmup)
    theory = linear_batches(rate, alpha, tau0, largest)
    check_batches(f"capped batch {rate, alpha, tau0, largest}", spec, theory)


@slow
@pytest.mark.parametrize(
    ("rate", "service_rate", "largest", "number", "warmup"),
    [
        (0.5, 1, 4, 4000, 50),
        (1.5, 1, 2, 12_000, 300),
        (3, 1, 4, 20_000, 300),
        (6.4, 1, 8, 100_000, 500),
    ],
)
def test_an_exponential_batch_is_bulk_service(
    rate: float, service_rate: float, largest: int, number: int, warmup: float
) -> None:
    policy = {"kind": "static", "max_batch_size": largest}
    cost = {"kind": "exponential", "mean_ms": 1e3 / service_rate}
    spec = one_token_run(rate, policy, cost, num_requests=number, warmup_s=warmup)
    theory = exponential_batches(rate, service_rate, largest)
    moments = 1 / service_rate, 2 / service_rate**2
    check_batches(f"exponential batch {rate, service_rate, largest}", spec, theory, moments)


def test_a_step_of_continuous_batching_is_the_same_batch_server() -> None:
    """With one token each, `vllm-v1` with b seats is the capped batch; 1.5, 0.25, 1, 8."""
    policy = {"kind": "vllm-v1", "max_num_seqs": 8}
    cost = {"kind": "linear-batch", "fixed_ms": 1000, "per_request_ms": 250}
    spec = one_token_run(1.5, policy, cost, num_requests=1600, warmup_s=40)
    check_batches("vllm-v1 as a batch server", spec, linear_batches(1.5, 0.25, 1, 8))


@pytest.mark.parametrize(("rate", "window"), [(2.0, 1.0), (0.5, 4.0)])
def test_a_timer_alone_gathers_what_arrives_in_its_window(rate: float, window: float) -> None:
    """No size limit and next to no service time: E[b] = 1 + rate * window."""
    policy = {
        "kind": "window-enqueue",
        "max_batch_size": UNLIMITED,
        "max_wait_ms": 1e3 * window,
    }
    cost = {"kind": "fixed", "step_ms": 1e-4}  # 1e-7 s: nobody arrives meanwhile

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        values = {"size": seen.batch_size(), "wait": seen.wait()}
        # Nobody is ever in service here, so only two of the controls vary.
        return Sample(values, seen.arrival_controls()[:2], len(result.trace))

    spec = one_token_run(rate, policy, cost, num_requests=1500, warmup_s=10 * window)
    size, wait = window_only(rate, window)
    check(f"timer {rate, window}", spec, sample, size=size, wait=wait)
