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
    base: EngineProfile
    """The fields that are not fitted."""
    log_requests: int = 0
    """Where greater than 0: the leading requests of the row's log, and nothing else."""


FITS = {
    "vllm-0.11": Fit(
        {
            "host_ms": 0.8,
            "host_ms_per_sequence": 0.0065,
            "prefill_factor": 0.16,
            "eager_ms": 1.0,
        },
        ("ipk-0", "ipk-2"),
        EngineProfile("vllm-0.11", tp_doubling_ms=0.35),
    ),
    "vllm-v0": Fit(
        {"host_ms": 1.5, "host_ms_per_sequence": 0.1},
        ("ipk-3",),
        EngineProfile("vllm-v0", tp_doubling_ms=0.35),
    ),
    "trtllm-1.0": Fit(
        {"host_ms": 0.4, "prefill_factor": 0.1},
        (
            "aic-llama-3.1-8b-instruct-h100-trtllm-tp1-1024x128",
            "aic-llama-3.1-8b-instruct-h100-trtllm-tp1-1024x512",
        ),
        EngineProfile("trtllm-1.0", tp_doubling_ms=0.35),
    ),
    "vllm-0.19": Fit(
        {"host_ms": 1.5},
        ("lss-rtxpro6000-llama-3.1-8b",),
        EngineProfile("vllm-0.19", tp_doubling_ms=0.35),
        log_requests=100,
    ),
}


def main(measurements: str, requests: str, *names: str) -> None:
    """Print the fitted profiles."""
    rows = read_measurements(Path(measurements))
    logs = read_request_logs(Path(requests))
    for name in names or FITS:
        fit = FITS[name]
        scenarios = [s for s in chosen(rows, logs, fit)]
        print(f"{name}: {len(scenarios)} rows", flush=True)
        start = np.ones(len(fit.free))
        found = least_squares(
            lambda values, s=scenarios, f=fit: residuals(s, profile_of(f, values)),
            start,
            bounds=(0.0, np.inf),
            diff_step=0.05,
            max_nfev=6,
        )
        profile = profile_of(fit, found.x)
        front = front_ms(scenarios, profile)
        print({key: round(getattr(profile, key), 4) for key in fit.free} | {"request_ms": front})
        worst = np.abs(np.expm1(found.fun)).max()
        print(f"  rms {np.sqrt(np.mean(found.fun**2)):.3f}, largest {worst:.3f}", flush=True)


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
    return replace(fit.base, **dict(zip(fit.free, scaled, strict=True)))


def run(scenario: Scenario, profile: EngineProfile) -> Any:
    """Return the prediction of a row under a profile."""
    cost = TrialCost(**scenario.spec.cost.model_dump(exclude={"kind"}), trial=profile)
    spec = scenario.spec.model_copy(update={"cost": cost})
    return observe(replace(scenario, profile=profile, spec=spec), simulate(spec))


def residuals(scenarios: list[Scenario], profile: EngineProfile) -> Any:
    """Return the logarithms of predicted over measured."""
    found = []
    for scenario in scenarios:
        predicted, row = run(scenario, profile), scenario.row
        if scenario.log is not None:
            number = 100
            found.append(
                math.log(predicted.tpot_s[:number].mean() / scenario.log.tpot_s[:number].mean())
            )
        elif row.tpot_mean_ms:
            found.append(math.log(predicted.values["tpot_mean_ms"] / row.tpot_mean_ms))
    print("   ", profile, np.round(found, 3), flush=True)
    return np.array(found)


def front_ms(scenarios: list[Scenario], profile: EngineProfile) -> float:
    """Return the median of measured minus predicted TTFT where nobody queues, ms."""
    gaps = [
        s.row.ttft_mean_ms - run(s, profile).values["ttft_mean_ms"]
        for s in scenarios
        if s.row.regime == "open_loop_stable" and s.row.ttft_mean_ms and s.log is None
    ]
    print("   front", np.round(gaps, 1))
    return round(float(np.median(gaps)), 1) if gaps else 0.0


if __name__ == "__main__":
    main(*sys.argv[1:])
