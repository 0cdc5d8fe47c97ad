"""Figures of a workload, and what a run says of conversations that do not wait."""

from pathlib import Path

import numpy as np
import pytest

from simulator import RunSpec, simulate
from simulator.plots import save
from simulator.plots.workload import (
    client_shares,
    dispersion_by_scale,
    fitted_cdf,
    length_cdf,
    overview,
    prefix_reuse,
    rate_over_time,
)
from workloads import Streams, Trace, characterise, get_preset
from workloads.chains import Chains


@pytest.fixture(scope="module")
def character() -> dict[str, object]:
    rng = np.random.default_rng(1)
    arrivals = np.cumsum(rng.exponential(1.0, 1500))
    tenants = np.array(["a", "b", "c"])[rng.integers(0, 3, 1500) // 1]
    lengths = rng.integers(20, 200, (2, 1500))
    chains = Chains.of([(1, number % 50 + 2) for number in range(1500)], block_size=8)
    trace = Trace(arrivals, *lengths, columns={"tenant": tenants}, chains=chains)
    return characterise(trace)


def test_every_figure_names_its_axes(character: dict[str, object]) -> None:
    for draw in (rate_over_time, dispersion_by_scale, prefix_reuse, client_shares):
        ax = draw(character)
        assert ax.get_xlabel()
    for what in ("prompt", "output"):
        ax = length_cdf(character, what)
        assert "tokens" in ax.get_xlabel()
        assert len(ax.get_lines()) == 3


def test_rate_over_time_is_that_of_the_requests(character: dict[str, object]) -> None:
    values = rate_over_time(character).patches[0].get_data().values
    assert values.mean() == pytest.approx(character["arrivals"]["rate"], rel=0.05)


def test_the_page_grows_with_what_there_is_to_show(character: dict[str, object]) -> None:
    assert len(overview(character, "all").axes) == 6
    plain = characterise(get_preset("demo-chat").trace(streams=Streams(0)))
    assert len(overview(plain, "plain").axes) == 4


def test_lengths_without_a_clock_are_drawn_too(tmp_path: Path) -> None:
    still = characterise(Trace([0.0] * 30, range(1, 31), range(2, 32)))
    save(overview(still, "no clock"), tmp_path / "f.png")
    assert (tmp_path / "f.png").stat().st_size > 1000


@pytest.mark.parametrize("what", ["prompt_tokens", "output_tokens"])
def test_fits_are_distribution_functions(character: dict[str, object], what: str) -> None:
    for fit in character[what]["fits"]:
        values = fitted_cdf(fit, np.geomspace(1e-3, 1e9, 50))
        assert (np.diff(values) >= -1e-12).all()
        assert values[0] < 0.01
        assert values[-1] > 0.99


def test_turns_that_do_not_wait_for_their_answer_are_counted() -> None:
    class Talk:
        request_rate = None

        def __init__(self, second: float) -> None:
            self.second = second

        def source(self, streams: Streams, max_model_len: int | None = None) -> object:
            from workloads.sources import TraceSource

            columns = {"conversation": [0, 0], "turn": [0, 1]}
            return TraceSource(Trace([0.0, self.second], [5, 5], [3, 3], columns=columns))

    spec = RunSpec(policy="vllm-v1", cost={"kind": "fixed", "step_ms": 1000})
    for second, early in ((1.0, True), (3.0, False)):
        result = simulate(spec.model_copy(update={"workload": Talk(second)}))
        assert any("before the answer" in warning for warning in result.warnings) == early
