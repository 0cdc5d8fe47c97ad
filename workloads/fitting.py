"""A generator chosen and fitted to a trace, with a report of how well it does."""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from workloads.base import FloatArray, IntArray
from workloads.errors import WorkloadError
from workloads.spec import WorkloadSpec, parse_workload
from workloads.statistics import counts, coupling, dispersion, queueing, rank_correlation
from workloads.streams import Streams
from workloads.ticks import find_tick
from workloads.trace import Trace

LOAD: Final = 0.7
SEEDS: Final = 10
_FEWEST: Final = 100
_COUPLED: Final = 0.3
_TIED: Final = 0.1
_LENGTH_WINDOW_S: Final = 60.0
_PRICES: Final = {
    "poisson": 0.0,
    "gamma": 0.2,
    "on-off": 0.3,
    "steps of 60 s": 0.6,
    "steps of 10 s": 0.7,
}
_PERCENTS: Final = (0, 1, 2, *range(5, 100, 5), 97, 98, 99, 99.5, 99.9, 99.99, 100)


@dataclass(frozen=True, slots=True)
class WorkloadFit:
    """A fitted workload and what is known about it.

    Parameters
    ----------
    spec : workload
        The description, ready to be built or written to YAML.
    report : dict
        Figures of the trace and of each candidate (means over the draws), the range of the
        waits over the draws of the one chosen, and whether the trace's own wait lies inside.
    """

    spec: WorkloadSpec
    report: dict[str, Any]

    def text(self) -> str:
        """Return the report as lines of text."""
        from workloads.tables import fit_text

        return fit_text(self.report)

    def to_dict(self) -> dict[str, Any]:
        """Return the description as plain data."""
        return self.spec.model_dump(mode="json", exclude_none=True)


def fit_workload(trace: Trace, seeds: int = SEEDS) -> WorkloadFit:
    """Choose and fit a generator.

    Parameters
    ----------
    trace : Trace
        At least 100 requests, not on a coarse clock.
    seeds : int, default 10
        Draws of each candidate, each of as many requests as the trace has.

    Returns
    -------
    WorkloadFit
        The candidate whose CV, dispersion at 1, 10 and 60 s, and mean and p99 wait in one
        server are nearest to those of the trace: the smallest sum of absolute logarithms of
        their ratios, and of a price for each candidate's parameters (0 for Poisson to 0.7 for
        steps of 10 s), as rates by steps repeat the accidents of their trace.

    Raises
    ------
    WorkloadError
        Too few requests, no span, or a coarse clock.

    Notes
    -----
    Candidates for arrivals: Poisson; gamma by moments (a likelihood fit understates waits up
    to 17-fold on real traces); on-off with gamma gaps inside, if a tenth of the time or more
    lies in gaps of over 5 s; rates by steps of 60 s and of 10 s. Lengths: quantile tables with
    tail points, tied by rank where the correlation of prompt and output is beyond 0.1; where
    the mean length goes with the rate (beyond 0.3 per minute), one table for each minute.

    Examples
    --------
    >>> from workloads import get_preset
    >>> trace = get_preset("demo-chat").trace(streams=Streams(0))
    >>> fit_workload(trace, seeds=3).spec.arrivals.kind
    'poisson'
    """
    if seeds < 1:
        raise WorkloadError("expected at least 1 as seeds", value=seeds)
    _check(trace)
    truth = _figures(trace, None)
    unit = _unit(trace)
    lengths = _lengths(trace)
    candidates = [
        _candidate(
            name, parse_workload(_with_lengths(arrivals, lengths, trace)), truth, unit, seeds
        )
        for name, arrivals in _arrivals(trace)
    ]
    chosen = min(candidates, key=lambda c: c.distance + _PRICES[c.name])
    low, high = chosen.spread["p99_wait_s"]
    report = {
        "source": trace.provenance["source"],
        "chosen": chosen.name,
        "why": _why(lengths),
        "seeds": seeds,
        "trace": truth,
        "candidates": [
            {"name": c.name, "figures": c.figures, "distance": c.distance} for c in candidates
        ],
        "spread": chosen.spread,
        "queueing_inside_spread": low <= truth["p99_wait_s"] <= high,
    }
    return WorkloadFit(chosen.spec, report)


@dataclass(frozen=True, slots=True)
class _Candidate:
    name: str
    spec: WorkloadSpec
    figures: dict[str, float]
    spread: dict[str, tuple[float, float]]
    distance: float


def _candidate(
    name: str, spec: WorkloadSpec, truth: dict[str, float], unit: float, seeds: int
) -> _Candidate:
    """Draw from a candidate and compare."""
    draws = [_figures(spec.build(Streams(0, r)), unit) for r in range(seeds)]
    columns = {key: [draw[key] for draw in draws] for key in truth}
    mean = {key: float(np.mean(values)) for key, values in columns.items()}
    spread = {key: (min(values), max(values)) for key, values in columns.items()}
    return _Candidate(name, spec, mean, spread, _distance(mean, truth))


def _check(trace: Trace) -> None:
    source = trace.provenance["source"]
    if len(trace) < _FEWEST or trace.span_s == 0:
        told = f"expected at least {_FEWEST} requests with times in {source}"
        raise WorkloadError(told, value=len(trace))
    tick = find_tick(trace.arrival_s)
    if tick is not None:
        raise WorkloadError(f"expected {source} without a coarse clock: {tick}")


def _unit(trace: Trace) -> float:
    """Return the seconds of work in a prompt token at which the trace makes a load of 0.7."""
    return LOAD * trace.span_s / float(trace.prompt_tokens.sum())


def _figures(trace: Trace, unit: float | None) -> dict[str, float]:
    per_unit = _unit(trace) if unit is None else unit
    mean, high = queueing(trace.arrival_s, trace.prompt_tokens, per_unit_s=per_unit)
    found = {"rate": trace.rate, "cv": trace.cv}
    found |= {f"idc_{w:g}_s": dispersion(trace.arrival_s, w) for w in (1.0, 10.0, 60.0)}
    return found | {"mean_wait_s": mean, "p99_wait_s": high}


def _distance(found: dict[str, float], truth: dict[str, float]) -> float:
    total = 0.0
    for key, value in truth.items():
        if key != "rate" and value > 0 and found[key] > 0:
            total += abs(float(np.log(found[key] / value)))
    return total


def _arrivals(trace: Trace) -> list[tuple[str, dict[str, Any]]]:
    """Return the candidates, the simplest first."""
    rate, times = float(trace.rate), trace.arrival_s - trace.arrival_s[0]
    found = [
        ("poisson", {"kind": "poisson", "request_rate": rate}),
        ("gamma", {"kind": "gamma", "request_rate": rate, "cv": max(float(trace.cv), 0.01)}),
    ]
    bursts = _on_off(times)
    if bursts is not None:
        found.append(("on-off", bursts))
    widths = [width for width in (60.0, 10.0) if trace.span_s >= 10 * width]
    return found + [(f"steps of {width:g} s", _steps(times, width)) for width in widths]


def _on_off(times: FloatArray, silence_s: float = 5.0) -> dict[str, Any] | None:
    """Fit bursts and silences by moments; None where there are few silences."""
    gaps = np.diff(times)
    off = gaps[gaps > silence_s]
    if off.size < 10 or off.sum() < 0.1 * times[-1]:
        return None
    bursts = np.split(times, np.flatnonzero(gaps > silence_s) + 1)
    on = np.array([burst[-1] - burst[0] for burst in bursts])
    inside = gaps[gaps <= silence_s]
    return {
        "kind": "on-off",
        "request_rate": (times.size - 1) / float(times[-1]),
        "mean_on_s": float(on.mean()),
        "mean_off_s": float(off.mean()),
        "cv_on": float(np.clip(on.std() / on.mean(), 0.05, 10)),
        "cv_off": float(np.clip(off.std() / off.mean(), 0.05, 10)),
        "cv": float(np.clip(inside.std() / inside.mean(), 0.1, 20)),
    }


def _steps(times: FloatArray, width_s: float) -> dict[str, Any]:
    """Fit a rate by steps, with the variability that is left inside them."""
    number = counts(times, width_s)
    rates = number / width_s
    local = np.interp(times[:-1], (np.arange(rates.size) + 0.5) * width_s, rates)
    gaps = np.diff(times) * np.maximum(local, 1e-12)
    busy = gaps[(local > 0) & (gaps < width_s * local)]
    cv = float(np.clip(busy.std() / busy.mean(), 0.3, 5)) if busy.size > 10 else 1.0
    profile = {"kind": "steps", "rates": rates.round(6).tolist(), "width_s": width_s}
    return {"kind": "varying", "profile": profile, "cv": round(cv, 3)}


def _lengths(trace: Trace) -> str:
    """Say how lengths have to be made: independent, tied by rank, or minute by minute."""
    tied = coupling(trace.arrival_s, trace.prompt_tokens)
    other = coupling(trace.arrival_s, trace.output_tokens)
    if max(np.nan_to_num(np.abs([tied, other]))) > _COUPLED and trace.span_s >= 600:
        return "by the minute"
    rank = rank_correlation(trace.prompt_tokens, trace.output_tokens)
    return "tied" if abs(np.nan_to_num(rank)) > _TIED else "independent"


def _why(lengths: str) -> str:
    return {
        "by the minute": "lengths go with the rate: one table of quantiles a minute",
        "tied": "prompts and outputs are tied by rank; tables of quantiles",
        "independent": "prompts and outputs are independent; tables of quantiles",
    }[lengths]


def _with_lengths(arrivals: dict[str, Any], how: str, trace: Trace) -> dict[str, Any]:
    prompts, outputs = trace.prompt_tokens, trace.output_tokens
    if how == "by the minute":
        window = ((trace.arrival_s - trace.arrival_s[0]) // _LENGTH_WINDOW_S).astype(np.int64)
        client = {
            "name": "all",
            "arrivals": arrivals,
            "prompt_tokens": _by_window(prompts, window),
            "output_tokens": _by_window(outputs, window),
            "length_window_s": _LENGTH_WINDOW_S,
        }
        return {"kind": "clients", "clients": [client], "num_requests": len(trace)}
    laws = {"prompt_tokens": _quantiles(prompts), "output_tokens": _quantiles(outputs)}
    spec = {"kind": "synthetic", "arrivals": arrivals, "num_requests": len(trace)}
    if how == "independent":
        return spec | laws
    rank = float(np.clip(rank_correlation(prompts, outputs), -0.99, 0.99))
    return spec | {"lengths": {"kind": "copula", "rank_correlation": round(rank, 4), **laws}}


def _by_window(lengths: IntArray, window: IntArray) -> list[dict[str, Any]]:
    """Return a law for each window; one without requests has the law of the window before."""
    laws: list[dict[str, Any]] = []
    for at in range(int(window[-1]) + 1):
        mine = lengths[window == at]
        laws.append(_quantiles(mine) if mine.size else laws[-1])
    return laws


def _quantiles(lengths: IntArray) -> dict[str, Any]:
    percents = [p for p in _PERCENTS if p in (0, 100) or lengths.size * min(p, 100 - p) >= 100]
    values = np.percentile(lengths, percents).round(1).tolist()
    return {"kind": "quantiles", "points": [list(p) for p in zip(percents, values, strict=True)]}
