"""How near a prediction has to come, and which rows that holds for."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from simulator.validation.predict import Prediction
from simulator.validation.rows import Measurement
from simulator.validation.scenario import Scenario

TPOT_OR_RATE = {"A": 0.10, "B": 0.20}
"""Largest error of mean TPOT, saturated throughput and knee rate, by quality."""
TTFT = 0.20
"""Largest error of the median TTFT below the knee."""
TTFT_MS = 10.0
"""An error of the median TTFT that is small enough at any rate, ms."""
REPLAY = 0.03
"""Largest error of means, and largest MAPE of single TPOTs, where each request is replayed."""
SATURATED = ("open_loop_overload", "burst_drain")
BELOW_KNEE = ("open_loop_stable", "closed_loop")
MIN_SWEEP = 3
"""Rows of a sweep with a knee: below it and beyond it."""
NOTHING = "nothing that was measured has a level"
METRICS = ("tpot_mean_ms", "ttft_mean_ms", "req_throughput_rps", "output_throughput_tok_s")
"""Columns whose errors are averaged."""


@dataclass(frozen=True)
class Check:
    """One level of one row or sweep.

    Attributes
    ----------
    record : str
        Record or sweep.
    what : str
        Quantity.
    measured, predicted : float
        Its values; for a mean over requests the error stands as `predicted` and 0 as `measured`.
    error : float
        Relative error.
    bound : float
        Largest error that passes.
    passed : bool
        Whether it passes.
    """

    record: str
    what: str
    measured: float
    predicted: float
    error: float
    bound: float
    passed: bool


@dataclass(frozen=True)
class Outcome:
    """What became of a row.

    Attributes
    ----------
    row : Measurement
        The row.
    scenario : Scenario or None
        How it was run; None where it could not be.
    prediction : Prediction or None
        What came out.
    no_level : tuple of str
        Why no level holds; empty where levels hold.
    checks : tuple of Check
        The levels that hold.
    """

    row: Measurement
    scenario: Scenario | None
    prediction: Prediction | None
    no_level: tuple[str, ...]
    checks: tuple[Check, ...] = ()

    @property
    def verdict(self) -> str:
        """`PASS`, `FAIL`, or `-` where no level holds."""
        if not self.checks:
            return "-"
        return "PASS" if all(check.passed for check in self.checks) else "FAIL"

    def error(self, name: str) -> float | None:
        """Return predicted over measured less 1 of a column, or None if one is missing."""
        measured = getattr(self.row, name)
        if self.prediction is None or measured is None or name not in self.prediction.values:
            return None
        return float(self.prediction.values[name] / measured - 1)


def judge(
    row: Measurement, scenario: Scenario | str, prediction: Prediction | str | None
) -> Outcome:
    """Compare a row with its prediction.

    Parameters
    ----------
    row : Measurement
        The row.
    scenario : Scenario or str
        How it was run, or why it could not be.
    prediction : Prediction or str or None
        What came out, or why nothing did.

    Returns
    -------
    Outcome
        With checks, or with the reasons why none holds.
    """
    if isinstance(scenario, str):
        return Outcome(row, None, None, (scenario,))
    if not isinstance(prediction, Prediction):
        return Outcome(row, scenario, None, (str(prediction),))
    reasons = list(scenario.no_level)
    if not scenario.spec.policy_kind.startswith("vllm-v1") and not reasons:
        reasons.append("levels are for vLLM V1")
    if row.quality not in TPOT_OR_RATE:
        reasons.append(f"quality {row.quality or 'not stated'}")
    if prediction.is_kv_bound and not scenario.is_kv_known:
        reasons.append("KV capacity unknown and binding")
    outcome = Outcome(row, scenario, prediction, tuple(reasons))
    if reasons:
        return outcome
    checks = tuple(_checks(outcome))
    no_level = () if checks else (NOTHING,)
    return Outcome(row, scenario, prediction, no_level, checks)


def _checks(outcome: Outcome) -> list[Check]:
    row, bound = outcome.row, TPOT_OR_RATE[outcome.row.quality]
    checks = [_check(outcome, "tpot_mean_ms", bound)]
    if row.regime in SATURATED:
        rate = "req_throughput_rps" if row.req_throughput_rps else "output_throughput_tok_s"
        checks.append(_check(outcome, rate, bound))
    if row.regime in BELOW_KNEE:
        checks.append(_check(outcome, "ttft_p50_ms", TTFT, TTFT_MS))
    return [check for check in checks if check is not None]


def _check(outcome: Outcome, name: str, bound: float, absolute: float = 0.0) -> Check | None:
    error = outcome.error(name)
    if error is None or outcome.prediction is None:
        return None
    measured, predicted = getattr(outcome.row, name), outcome.prediction.values[name]
    passed = abs(error) <= bound or abs(predicted - measured) <= absolute
    return Check(outcome.row.record_id, name, measured, predicted, error, bound, passed)


def judge_replays(outcomes: Sequence[Outcome]) -> list[Check]:
    """Return the levels of the runs that were replayed request by request.

    They hold on one GPU and where blocks never run out; elsewhere the link between the GPUs, or
    who gives way to whom, decides. The mean TTFT and TPOT are over requests.
    """
    checks = []
    for outcome in outcomes:
        each = errors_of_requests(outcome)
        if each is None or outcome.scenario is None or outcome.prediction is None:
            continue
        if outcome.scenario.spec.cost.tp > 1 or outcome.prediction.is_kv_bound:  # type: ignore[union-attr]
            continue
        for what, error in each.items():
            record = outcome.row.record_id
            checks.append(Check(record, what, 0.0, error, error, REPLAY, abs(error) <= REPLAY))
    return checks


def errors_of_requests(outcome: Outcome) -> dict[str, float] | None:
    """Return errors of the mean TTFT and TPOT, and the MAPE of single TPOTs; None without a log.

    Requests that the profile was fitted on are left out.
    """
    if outcome.scenario is None or outcome.scenario.log is None or outcome.prediction is None:
        return None
    log, found, scenario = outcome.scenario.log, outcome.prediction, outcome.scenario
    assert found.ttft_s is not None
    assert found.tpot_s is not None
    judged = slice(scenario.profile.fitted_requests if scenario.fitted else 0, None)
    ttft, ttft_of_log = found.ttft_s[judged], log.ttft_s[judged]
    tpot, tpot_of_log = found.tpot_s[judged], log.tpot_s[judged]
    if not len(tpot):
        return None
    ratio = tpot / tpot_of_log
    return {
        "replay_ttft_mean": float(ttft.mean() / ttft_of_log.mean() - 1),
        "replay_tpot_mean": float(np.nanmean(tpot) / np.nanmean(tpot_of_log) - 1),
        "replay_tpot_mape": float(np.nanmean(np.abs(ratio - 1))),
    }


def judge_sweeps(outcomes: Sequence[Outcome]) -> list[tuple[Check, bool]]:
    """Return the knee rate of each sweep that has one, and whether its level holds.

    The knee is where the line of throughput over rate through the stable rows meets the mean
    throughput of the overloaded ones; measured and predicted throughputs are taken at the same
    rates. The level holds where it holds for all rows of the sweep.
    """
    sweeps: dict[str, list[Outcome]] = {}
    for outcome in outcomes:
        if outcome.row.sweep_id and outcome.row.regime.startswith("open_loop"):
            sweeps.setdefault(outcome.row.sweep_id, []).append(outcome)
    found = []
    for sweep, rows in sweeps.items():
        measured, predicted = _knee(rows, predicted=False), _knee(rows, predicted=True)
        if measured is None or predicted is None:
            continue
        error = predicted / measured - 1
        holds = all(set(outcome.no_level) <= {NOTHING} for outcome in rows)
        bound = max(TPOT_OR_RATE.get(outcome.row.quality, 0.2) for outcome in rows)
        passed = abs(error) <= bound
        check = Check(sweep, "knee_rate_rps", measured, predicted, error, bound, passed)
        found.append((check, holds))
    return found


def _knee(rows: Sequence[Outcome], *, predicted: bool) -> float | None:
    slopes, plateau = [], []
    for outcome in rows:
        value = outcome.row.req_throughput_rps
        if predicted:
            found = outcome.prediction
            value = None if found is None else found.values.get("req_throughput_rps")
        rate = outcome.row.request_rate_rps
        if value is None or rate is None:
            return None
        if outcome.row.regime == "open_loop_overload":
            plateau.append(value)
        else:
            slopes.append(value / rate)
    if not plateau or not slopes or len(rows) < MIN_SWEEP:
        return None
    return float(np.mean(plateau) / np.mean(slopes))
