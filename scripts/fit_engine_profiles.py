"""Fit the engine profiles of `simulator/cost/engine_profiles.py` to published serving runs.

    python scripts/fit_engine_profiles.py MEASUREMENTS.csv REQUESTS.csv.gz [PROFILE ...]

MEASUREMENTS has the columns that `batchlab validate` reads, REQUESTS the times of single requests.
Every profile is fitted on the rows named in `FITS` and on nothing else, by least squares on the
logarithm of predicted over measured mean TPOT (for static batches: throughput). Each evaluation
simulates all those rows, with at most `MOST_REQUESTS` of their requests.
"""

import math
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import least_squares

from simulator.cost.assemble import assemble
from simulator.cost.engine_profiles import EngineProfile
from simulator.cost.profile import load_profile
from simulator.cost.table import TableCost
from simulator.cost.table_spec import TableSpec
from simulator.run import simulate
from simulator.validation.predict import observe
from simulator.validation.request_log import RequestLog, read_request_logs
from simulator.validation.rows import Measurement, read_measurements
from simulator.validation.scenario import Scenario, make_scenario

TP_DOUBLING_MS = 0.35
"""Taken over from `generic`, as no sweep of several degrees is fitted on."""
MOST_REQUESTS = 2500
MOST_SLOW_REQUESTS = 1200
"""Requests of a row that is stepped one by one (prefix caching)."""


class TrialCost(TableSpec):
    """The cost model with a profile that has no name yet."""

    trial: Any = None

    def cost(self) -> TableCost:
        """Return the cost model."""
        profile = self.find_profile()
        wide = profile if self.dtype == "bfloat16" else load_profile(self.gpu)
        return assemble(
            profile,
            wide,
            self.find_model(),
            self.tp,
            engine=self.trial,
            graph_tokens=self.graph_tokens,
        )


@dataclass(frozen=True)
class Fit:
    """What is fitted on what."""

    free: dict[str, float]
    """Field to its value at the start, which also scales it."""
    fitted_on: tuple[str, ...]
    """Sweeps or records."""
    log_requests: int = 0
    """Where greater than 0: the leading requests of the row's log, and nothing else."""


FITS = {
    "vllm-0.11": Fit(
        {
            "host_ms": 0.845,
            "host_ms_per_sequence": 0.0025,
            "prefill_factor": 0.17,
            "eager_ms": 1.34,
        },
        ("ipk-0", "ipk-2"),
    ),
    "vllm-0.19": Fit({"host_ms": 1.6}, ("lss-rtxpro6000-llama-3.1-8b",), log_requests=100),
    "vllm-v0": Fit({"host_ms": 1.06, "host_ms_per_sequence": 0.062}, ("ipk-3",)),
    "trtllm-1.0": Fit(
        {"host_ms": 0.5, "prefill_factor": 0.05},
        (
            "aic-llama-3.1-8b-instruct-h100-trtllm-tp1-1024x128",
            "aic-llama-3.1-8b-instruct-h100-trtllm-tp1-1024x512",
        ),
    ),
}


def main(measurements: str, requests: str, *names: str) -> None:
    """Print the fitted profiles."""
    rows = read_measurements(Path(measurements))
    logs = read_request_logs(Path(requests))
    for name in names or FITS:
        fit = FITS[name]
        scenarios = chosen(rows, logs, fit)
        found = least_squares(
            lambda values, s=scenarios, f=fit: residuals(s, profile_of(f, values), f),
            np.ones(len(fit.free)),
            bounds=(0.0, np.inf),
            diff_step=0.05,
            max_nfev=8,
        )
        profile = profile_of(fit, found.x)
        values = {key: round(getattr(profile, key), 4) for key in fit.free}
        values["request_ms"] = front_ms(scenarios, profile, fit)
        size = np.sqrt(np.mean(found.fun**2))
        print(f"{name}: {values}, {len(scenarios)} rows, rms {size:.3f}, residuals")
        print("  ", np.round(found.fun, 3).tolist(), flush=True)


def chosen(rows: list[Measurement], logs: list[RequestLog], fit: Fit) -> list[Scenario]:
    """Return the rows of a fit as runs."""
    found = []
    for row in rows:
        if not {row.record_id, row.sweep_id} & set(fit.fitted_on):
            continue
        log = next((log for log in logs if log.belongs_to(row)), None) if fit.log_requests else None
        most = MOST_SLOW_REQUESTS if row.prefix_caching == "on" else MOST_REQUESTS
        if row.num_requests and row.num_requests > most and log is None:
            row = replace(row, num_requests=float(most))
        found.append(make_scenario(row, log, profile="generic"))
    return found


def profile_of(fit: Fit, values: Any) -> EngineProfile:
    """Return the profile at a point of the fit."""
    scaled = [start * float(value) for start, value in zip(fit.free.values(), values, strict=True)]
    fields = dict(zip(fit.free, scaled, strict=True))
    return EngineProfile("trial", tp_doubling_ms=TP_DOUBLING_MS, **fields)


def run(scenario: Scenario, profile: EngineProfile) -> Any:
    """Return the prediction of a row under a profile."""
    cost = TrialCost(**scenario.spec.cost.model_dump(exclude={"kind"}), trial=profile)
    spec = scenario.spec.model_copy(update={"cost": cost})
    return observe(replace(scenario, profile=profile, spec=spec), simulate(spec))


def residuals(scenarios: list[Scenario], profile: EngineProfile, fit: Fit) -> Any:
    """Return the logarithms of predicted over measured mean TPOT."""
    found = []
    for scenario in scenarios:
        predicted = run(scenario, profile)
        if scenario.log is None:
            ratio = predicted.values["tpot_mean_ms"] / (scenario.row.tpot_mean_ms or math.nan)
        else:
            first = slice(fit.log_requests)
            ratio = predicted.tpot_s[first].mean() / scenario.log.tpot_s[first].mean()
        found.append(math.log(ratio))
    print("  ", profile, np.round(found, 3).tolist(), file=sys.stderr, flush=True)
    return np.array(found)


def front_ms(scenarios: list[Scenario], profile: EngineProfile, fit: Fit) -> float:
    """Return the time in front of the engine, ms.

    For a log: the mean time from sending to the engine's queue. Else the median of measured minus
    predicted mean TTFT over the stable rows.
    """
    gaps = []
    for scenario in scenarios:
        if scenario.log is not None:
            waits = scenario.log.queued_s - scenario.log.arrival_s
            gaps.append(float(np.mean(waits[: fit.log_requests])) * 1e3)
        elif scenario.row.regime == "open_loop_stable":
            measured = scenario.row.ttft_mean_ms or math.nan
            gaps.append(measured - run(scenario, profile).values["ttft_mean_ms"])
    return round(float(np.median(gaps)), 1) if gaps else 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
