"""What a trace is like: how its arrivals clump, how long its texts are, and how it queues."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from workloads.base import FloatArray, IntArray
from workloads.chains import reusable_tokens
from workloads.fits import fit_gaps, fit_lengths
from workloads.statistics import (
    correlation,
    counts,
    coupling,
    dispersion,
    queueing,
    rank_correlation,
)
from workloads.streams import Streams
from workloads.ticks import find_tick
from workloads.trace import Trace

WIDTHS_S = (1.0, 10.0, 60.0, 300.0)
PERCENTS = (1, 5, 10, 25, 50, 75, 90, 95, 99)
LOAD = 0.7
_WINDOW_S = 300.0
_ENOUGH = 30
"""Fewer lengths are not fitted."""
_BINS_S = (60.0, 300.0, 600.0, 1800.0, 3600.0, 21_600.0, 86_400.0)
_MOST_BINS = 200


class Characterisation(dict[str, Any]):
    """The figures of a trace by section, ready for JSON; `text` makes a table of them."""

    def text(self) -> str:
        """Return the figures as lines of text."""
        from workloads.tables import characterisation_text

        return characterisation_text(self)


def characterise(trace: Trace) -> Characterisation:
    """Describe a trace.

    Parameters
    ----------
    trace : Trace
        The requests.

    Returns
    -------
    Characterisation
        Sections ``account``, ``arrivals``, ``prompt_tokens``, ``output_tokens``, ``ties``,
        ``queueing``, and ``prefixes``, ``conversations``, ``clients`` where the trace tells of
        them; ``series`` holds what figures are drawn from. Figures that cannot be computed,
        such as a rate without a span, are None.

    Examples
    --------
    >>> from workloads import get_preset
    >>> trace = get_preset("azure-conv-2023").trace(streams=Streams(0))
    >>> round(characterise(trace)["arrivals"]["rate"], 2)
    5.53
    """
    account = trace.provenance
    account.pop("figures", None)  # the sections tell them
    found = Characterisation(
        account=account,
        arrivals=_arrivals(trace.arrival_s),
        prompt_tokens=_lengths(trace.prompt_tokens),
        output_tokens=_lengths(trace.output_tokens),
        ties=_ties(trace),
        queueing=_queueing(trace),
        series=_series(trace),
    )
    if trace.chains is not None:
        found["prefixes"] = _prefixes(trace)
    if "conversation" in trace.columns:
        found["conversations"] = _conversations(trace)
    if "tenant" in trace.columns:
        found["clients"] = _clients(trace)
        found["series"]["clients"] = _shares(trace.columns["tenant"])
    if account["notes"].get("clock") == "per conversation":
        found["arrivals"]["clock"] = "each conversation starts at 0 s: no common clock"
        found["queueing"] = None
    return Characterisation(_plain(dict(found)))


def _arrivals(arrival_s: FloatArray) -> dict[str, Any]:
    gaps = np.diff(arrival_s)
    span = float(arrival_s[-1] - arrival_s[0])
    tick = find_tick(arrival_s)
    found: dict[str, Any] = {"requests": int(arrival_s.size), "span_s": span}
    if span == 0:
        return found | {"rate": None, "cv": None, "dispersion": {}, "fits": []}
    minutes = counts(arrival_s, 60.0)
    return found | {
        "rate": gaps.size / span,
        "cv": float(gaps.std() / gaps.mean()),
        "cv_per_5_min": _local_cv(arrival_s),
        "dispersion": {f"{w:g} s": dispersion(arrival_s, w) for w in WIDTHS_S},
        "peak_over_mean_60_s": float(minutes.max() / minutes.mean()) if minutes.any() else None,
        "longest_gap_s": float(gaps.max()),
        "zero_gap_fraction": float(np.mean(gaps == 0)),
        "clock": None if tick is None else str(tick),
        "fits": [{"family": f.family, **f.parameters, "ks": f.ks} for f in fit_gaps(gaps)],
    }


def _local_cv(arrival_s: FloatArray) -> dict[str, float] | None:
    """Return the distribution of the CV over windows of five minutes."""
    window = ((arrival_s - arrival_s[0]) // _WINDOW_S).astype(np.int64)
    found = []
    for times in np.split(arrival_s, np.flatnonzero(np.diff(window)) + 1):
        gaps = np.diff(times)
        if gaps.size >= 30 and gaps.mean() > 0:
            found.append(gaps.std() / gaps.mean())
    if not found:
        return None
    low, middle, high = np.percentile(found, [10, 50, 90])
    return {"median": middle, "p10": low, "p90": high, "windows": len(found)}


def _lengths(lengths: IntArray) -> dict[str, Any]:
    values = np.percentile(lengths, PERCENTS)
    names = (f"p{percent}" for percent in PERCENTS)
    found: dict[str, Any] = {"mean": float(lengths.mean())}
    found |= dict(zip(names, values.tolist(), strict=True)) | {"max": int(lengths.max())}
    several = lengths.size >= _ENOUGH and lengths.min() < lengths.max()
    fits = fit_lengths(lengths) if several else []
    return found | {"fits": [{"family": f.family, **f.parameters, "ks": f.ks} for f in fits]}


def _ties(trace: Trace) -> dict[str, float]:
    prompts, outputs = trace.prompt_tokens, trace.output_tokens
    return {
        "prompt_output_pearson": correlation(prompts, outputs),
        "prompt_output_spearman": rank_correlation(prompts, outputs),
        "rate_prompt_per_min": coupling(trace.arrival_s, prompts),
        "rate_output_per_min": coupling(trace.arrival_s, outputs),
    }


def _queueing(trace: Trace) -> dict[str, Any] | None:
    """Wait in one server with work in proportion to the prompt, as is and shuffled."""
    if trace.span_s == 0:
        return None
    mean, high = queueing(trace.arrival_s, trace.prompt_tokens, LOAD)
    shuffled = Streams(0)("characterise").permutation(trace.prompt_tokens)
    mean_shuffled, high_shuffled = queueing(trace.arrival_s, shuffled, LOAD)
    return {
        "load": LOAD,
        "mean_wait_s": mean,
        "p99_wait_s": high,
        "mean_wait_shuffled_s": mean_shuffled,
        "p99_wait_shuffled_s": high_shuffled,
    }


def _prefixes(trace: Trace) -> dict[str, Any]:
    assert trace.chains is not None
    chains = trace.chains
    hits = reusable_tokens(chains, trace.prompt_tokens)
    unique, uses = np.unique(chains.ids, return_counts=True)
    return {
        "block_size": chains.block_size,
        "blocks": int(chains.ids.size),
        "unique_blocks": int(unique.size),
        "used_once_fraction": float(np.mean(uses == 1)) if uses.size else None,
        "token_hit_fraction": float(hits.sum() / trace.prompt_tokens.sum()),
        "requests_with_hit_fraction": float(np.mean(hits > 0)),
    }


def _conversations(trace: Trace) -> dict[str, Any]:
    numbers = trace.columns["conversation"]
    _, turns = np.unique(numbers[numbers >= 0], return_counts=True)
    if not turns.size:
        return {"conversations": 0, "requests_of_none": len(trace)}
    middle, high = np.percentile(turns, [50, 90])
    found: dict[str, Any] = {
        "conversations": int(turns.size),
        "requests_of_none": int(np.count_nonzero(numbers < 0)),
        "mean_turns": float(turns.mean()),
        "p50_turns": middle,
        "p90_turns": high,
        "max_turns": int(turns.max()),
    }
    think = trace.columns.get("think_s")
    if think is not None and np.isfinite(think).any():
        found["p50_think_s"], found["p90_think_s"] = np.nanpercentile(think, [50, 90])
    return found


def _clients(trace: Trace) -> dict[str, Any]:
    _, number = np.unique(trace.columns["tenant"], return_counts=True)
    share = np.cumsum(np.sort(number)[::-1]) / len(trace)
    needed = {f"for_{p}_percent": int(np.searchsorted(share, p / 100)) + 1 for p in (50, 80, 90)}
    return {"clients": int(number.size), "largest_fraction": float(share[0]), **needed}


def _shares(tenants: NDArray[Any]) -> dict[str, list[float]]:
    """Return which fraction of the requests the largest clients send, by their number."""
    _, number = np.unique(tenants, return_counts=True)
    share = np.cumsum(np.sort(number)[::-1]) / tenants.size
    ranks = np.unique(np.geomspace(1, share.size, 50).round().astype(np.int64))
    return {"largest": ranks.tolist(), "fraction": share[ranks - 1].tolist()}


def _series(trace: Trace) -> dict[str, Any]:
    """Return what the figures are drawn from: rate over time and quantiles of lengths."""
    width = bin_width(trace.span_s)
    lengths = {"prompt": trace.prompt_tokens, "output": trace.output_tokens}
    quantiles = {
        f"{name}_quantiles": np.percentile(column, np.arange(101), method="inverted_cdf").tolist()
        for name, column in lengths.items()
    }
    number = counts(trace.arrival_s, width).tolist() if trace.span_s else []
    return {"bin_s": width, "requests_per_bin": number, **quantiles}


def bin_width(span_s: float) -> float:
    """Return a width of bins, in seconds, that shows a rate over time.

    Examples
    --------
    >>> bin_width(100.0), bin_width(3600.0), bin_width(7 * 86_400.0)
    (5.0, 60.0, 3600.0)
    """
    if span_s < 600:
        return max(span_s / 20, 1e-9)
    return next((width for width in _BINS_S if span_s / width <= _MOST_BINS), _BINS_S[-1])


def _plain(value: Any) -> Any:
    """Turn NumPy's numbers into Python's, and what is not a number into None."""
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_plain(part) for part in value]
    if isinstance(value, float | np.floating):
        return float(value) if np.isfinite(value) else None
    return int(value) if isinstance(value, np.integer) else value
