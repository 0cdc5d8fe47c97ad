"""Runs a suite against its baseline: more seeds where the first ones do not tell."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from simulator.regress.baseline import Baseline, Recorded, code_version
from simulator.regress.run import Job, Sample, run_jobs
from simulator.regress.suite import Rule, Scenario, Suite
from simulator.regress.verdict import Judgement, Verdict, judge

WORKLOAD, BEHAVIOUR = "workload", "behaviour"
"""Names of the cells that compare hashes: of the requests, of decisions and times."""

Runner = Callable[[Sequence[Job]], list[Sample]]


@dataclass(frozen=True)
class Cell:
    """A scenario, a metric, and what became of it.

    Attributes
    ----------
    num_seeds : int
        Replications the verdict rests on.
    judgement : Judgement, optional
        None for hashes and for a metric without value.
    note : str
        What else a reader has to know.
    """

    scenario: str
    metric: str
    verdict: Verdict
    num_seeds: int
    rule: Rule | None = None
    judgement: Judgement | None = None
    note: str = ""

    @property
    def harm(self) -> float:
        """Change to the worse, for sorting."""
        if self.judgement is None or self.rule is None:
            return np.inf
        change = self.judgement.change
        return {"lower": change, "higher": -change}.get(str(self.rule.direction), abs(change))


@dataclass(frozen=True)
class Check:
    """Outcome of a check.

    Attributes
    ----------
    suite : Suite
    cells : tuple of Cell
        The worst first.
    failures : tuple of str
        Runs that failed.
    code : dict
        Versions and hash of the code when the baseline was recorded.
    """

    suite: Suite
    cells: tuple[Cell, ...]
    failures: tuple[str, ...]
    code: dict[str, str]

    @property
    def code_now(self) -> dict[str, str]:
        """Versions and hash of what was checked."""
        return code_version()

    def count(self, verdict: Verdict) -> int:
        """Return how many cells have that verdict."""
        return sum(cell.verdict is verdict for cell in self.cells)

    def exit_code(self, *, strict: bool) -> int:
        """Return 3 if a run failed, 1 if a metric regressed (strict: or is unclear), else 0."""
        if self.failures:
            return 3
        bad = self.count(Verdict.REGRESSED) + strict * self.count(Verdict.INCONCLUSIVE)
        return 1 if bad else 0


class _Trial:
    """A scenario under check."""

    def __init__(self, suite: Suite, scenario: Scenario, recorded: Recorded) -> None:
        self.scenario = scenario
        self.samples: list[Sample] = []
        self.cells: dict[str, Cell] = {}
        self._confidence = suite.confidence
        self._recorded = recorded

    @property
    def errors(self) -> list[str]:
        return [sample.error for sample in self.samples if sample.error]

    @property
    def is_open(self) -> bool:
        """Whether more seeds may tell what these do not."""
        verdicts = [cell.verdict for cell in self.cells.values()]
        return not self.errors and Verdict.INCONCLUSIVE in verdicts

    def judge(self) -> None:
        """Judge what is not decided yet, from the samples so far."""
        if self.errors:
            return
        self._compare_hashes()
        for metric, rule in self.scenario.rules.items():
            cell = self.cells.get(metric)
            if cell is None or cell.verdict is Verdict.INCONCLUSIVE:
                self.cells[metric] = self._cell(metric, rule)

    def _compare_hashes(self) -> None:
        number = len(self.samples)
        now = tuple(sample.workload for sample in self.samples)
        then, note = self._recorded.workload[:number], "other requests than in the baseline"
        self._put_hash(WORKLOAD, now == then, note)
        if self.scenario.exact:
            equal = self.samples[0].behaviour == self._recorded.behaviour
            self._put_hash(BEHAVIOUR, equal, "decisions or times differ from the baseline")

    def _put_hash(self, name: str, equal: bool, note: str) -> None:
        verdict = Verdict.IDENTICAL if equal else Verdict.REGRESSED
        note = "" if equal else note
        self.cells[name] = Cell(self.scenario.name, name, verdict, len(self.samples), note=note)

    def _cell(self, metric: str, rule: Rule) -> Cell:
        name, number = self.scenario.name, len(self.samples)
        values = [sample.values[metric] for sample in self.samples]
        if None in values:
            note = f"n/a in seed {values.index(None)}, where the baseline has a value"
            return Cell(name, metric, Verdict.REGRESSED, number, rule, note=note)
        then = np.array(self._recorded.values[metric][:number])
        found = judge(then, np.array(values, float), rule, self._confidence)
        return Cell(name, metric, found.verdict, number, rule, found)


def check(
    suite: Suite, baseline: Baseline, chosen: Sequence[Scenario], run: Runner = run_jobs
) -> Check:
    """Run scenarios on the seeds of the baseline and judge every metric.

    The seeds of a scenario with an inconclusive metric are doubled, up to the suite's `max_seeds`.

    Parameters
    ----------
    suite : Suite
    baseline : Baseline
        One that fits (`check_fit`).
    chosen : sequence of Scenario
        Those of the suite that are run.
    run : callable
        Runs jobs and returns their samples in order.
    """
    trials = [_Trial(suite, one, baseline.scenarios[one.name]) for one in chosen]
    waiting, number, most = trials, suite.limits.seeds, suite.limits.max_seeds
    while waiting:
        jobs = [
            (trial.scenario, seed)
            for trial in waiting
            for seed in range(len(trial.samples), trial.scenario.num_seeds(number))
        ]
        samples = iter(run(jobs))
        for trial in waiting:
            missing = trial.scenario.num_seeds(number) - len(trial.samples)
            trial.samples += [next(samples) for _ in range(missing)]
            trial.judge()
        waiting = [trial for trial in waiting if trial.is_open and number < most]
        number = min(2 * number, most)
    cells = [cell for trial in trials for cell in trial.cells.values()]
    order = list(Verdict)
    cells.sort(key=lambda cell: (order.index(cell.verdict), -cell.harm))
    errors = [error for trial in trials for error in trial.errors]
    return Check(suite, tuple(cells), tuple(errors), baseline.code)


def sample_all(suite: Suite, run: Runner = run_jobs) -> dict[str, list[Sample]]:
    """Run every scenario with all seeds that a baseline holds."""
    numbers = {one.name: one.num_seeds(suite.limits.max_seeds) for one in suite.scenarios}
    jobs = [(one, seed) for one in suite.scenarios for seed in range(numbers[one.name])]
    samples = iter(run(jobs))
    return {name: [next(samples) for _ in range(number)] for name, number in numbers.items()}


def to_dict(outcome: Check, *, strict: bool) -> dict[str, Any]:
    """Return an outcome as plain data."""
    return {
        "suite": str(outcome.suite.path),
        "exit_code": outcome.exit_code(strict=strict),
        "verdicts": {verdict.value: outcome.count(verdict) for verdict in Verdict},
        "confidence": outcome.suite.limits.confidence,
        "confidence_per_cell": outcome.suite.confidence,
        "baseline_code": outcome.code,
        "code": outcome.code_now,
        "failures": list(outcome.failures),
        "cells": [_cell_dict(cell) for cell in outcome.cells],
    }


def _cell_dict(cell: Cell) -> dict[str, Any]:
    row: dict[str, Any] = {
        "scenario": cell.scenario,
        "metric": cell.metric,
        "verdict": cell.verdict.value,
        "num_seeds": cell.num_seeds,
        "direction": None if cell.rule is None else cell.rule.direction,
    }
    found = cell.judgement
    if found is not None:
        row |= {
            "baseline": found.baseline,
            "now": found.now,
            "change": found.change,
            "ci_low": found.low,
            "ci_high": found.high,
            "allowed": found.allowed,
            "is_relative": found.is_relative,
        }
    return row | ({"note": cell.note} if cell.note else {})
