"""Two replicas of an exponential server behind a router."""

import pytest

from simulator import Result
from tests.oracles.replication import Measured, Sample, check, one_token_run
from tests.oracles.theory import erlang2_m1_sojourn, mm1_sojourn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("router", "theory"),
    [("random", mm1_sojourn(0.8, 1.0)), ("round-robin", erlang2_m1_sojourn(0.8, 1.0))],
)
def test_two_exponential_servers(router: str, theory: float) -> None:
    """Random splitting gives two M/M/1, taking turns two E2/M/1."""
    rate = 1.6

    def sample(result: Result) -> Sample:
        seen = Measured(result)
        controls = seen.arrival_controls() + seen.service_controls(1.0, 2.0)
        return Sample({"sojourn": seen.sojourn()}, controls, len(result.trace))

    cost = {"kind": "exponential", "mean_ms": 1000}
    engine = {"num_replicas": 2, "router": {"kind": router}}
    sizes = {"num_requests": 30_000, "warmup_s": 450}
    spec = one_token_run(rate, "none", cost, engine=engine, **sizes)
    check(f"two servers, {router}", spec, sample, sojourn=theory)
