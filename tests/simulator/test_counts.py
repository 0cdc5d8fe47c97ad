"""How much is done for a request: counts, which fail where a slow-down comes in, on any machine."""

from typing import Any

import pytest

from policies.continuous import Continuous
from simulator import RunSpec, simulate
from simulator.clock import Clock
from simulator.cost.table import TableCost


class Counts:
    """Counts calls of the policy and the cost model, and SimPy events, during one run."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.decisions = self.events = self.steps = self.step_times = self.arrays = 0
        counts = self

        class Counted(Clock):
            def schedule(self, *args: Any, **kwargs: Any) -> None:
                counts.events += 1
                super().schedule(*args, **kwargs)

        monkeypatch.setattr("simulator.run.Clock", Counted)
        for cls, method, name in (
            (Continuous, "decide", "decisions"),
            (TableCost, "step_time", "step_times"),
            (TableCost, "decode_run", "arrays"),
        ):
            monkeypatch.setattr(cls, method, self._counted(name, getattr(cls, method)))

    def _counted(self, name: str, function: Any) -> Any:
        def counted(*args: Any) -> Any:
            setattr(self, name, getattr(self, name) + 1)
            return function(*args)

        return counted


def run(monkeypatch: pytest.MonkeyPatch, workload: dict[str, Any], **sections: Any) -> Counts:
    counts = Counts(monkeypatch)
    result = simulate(RunSpec.from_dict({"workload": workload} | sections))
    counts.steps = int(result.metrics["num_steps"] or 0)
    return counts


@pytest.mark.parametrize(("number", "rate", "most"), [(500, 5.0, 1.0), (2000, 12.8, 0.85)])
def test_work_for_a_conversation(
    monkeypatch: pytest.MonkeyPatch, number: int, rate: float, most: float
) -> None:
    workload = {"name": "azure-conv-2023", "num_requests": number, "request_rate": rate}
    counts = run(monkeypatch, workload)
    assert counts.decisions <= most * number, "one for an arrival"
    assert counts.events <= counts.decisions + 1.05 * number
    assert counts.step_times + counts.arrays <= 1.1 * number


def test_long_outputs_are_timed_in_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = {"arrivals": 0.05, "prompt_tokens": 200, "output_tokens": 3000, "num_requests": 10}
    counts = run(monkeypatch, workload)
    assert counts.steps > 20_000
    assert counts.decisions <= 12
    assert counts.step_times + counts.arrays <= 45


def test_pieces_of_a_prompt_are_no_decisions(monkeypatch: pytest.MonkeyPatch) -> None:
    workload = {"arrivals": 0.5, "prompt_tokens": 8000, "output_tokens": 100, "num_requests": 20}
    counts = run(monkeypatch, workload, policy={"max_num_batched_tokens": 256})
    assert counts.steps > 20 * 30
    assert counts.decisions <= 3.3 * 20


def test_a_waiting_queue_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """In overload, decisions and events per request stay what they are for any queue."""
    found = []
    for number in (300, 1200):
        with monkeypatch.context() as patch:
            workload = {
                "arrivals": 1000,
                "prompt_tokens": 100,
                "output_tokens": 30,
                "num_requests": number,
            }
            counts = run(patch, workload, policy={"max_num_seqs": 16})
            found.append((counts.decisions / number, counts.events / number))
    assert found[1][0] <= 1.1 * found[0][0]
    assert found[1][1] <= 1.1 * found[0][1]
