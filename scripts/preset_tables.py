"""Tables behind the presets that are no reduced traces: clients, day profiles, conversations."""

import json
from pathlib import Path
from typing import Any

import numpy as np

from workloads import read_clients
from workloads.described import description_table

PERCENTS = (0, 1, 2.5, *range(5, 100, 5), 97.5, 99, 99.5, 99.9, 99.95, 99.99, 100)
BINS = 20
KEPT = 0.1
"""Part of a shrunk context that is left: unknown, chosen so that prompts come out about right."""


def summary(traces: Path) -> dict[str, Any]:
    """Return the figures published with the traces."""
    return json.loads((traces / "summary.json").read_text())["traces"]


def quantiles(column: dict[str, Any]) -> dict[str, Any]:
    """Return the length law of a column: 101 percentiles and the tail points above the 99th."""
    points = [*enumerate(column["quantile_table_101"][:100]), *column["tail_quantiles"]]
    if column["tail_quantiles"][-1][0] != 100:
        points.append((100, column["max"]))
    return {"kind": "quantiles", "points": [[p, max(float(v), 1.0)] for p, v in points]}


def few_quantiles(figures: dict[str, float], least: float) -> dict[str, Any]:
    """Return the length law of a few published percentiles, interpolated in logarithms."""
    names = [name for name in figures if name[0] == "p" and name[1:].isdecimal()]
    points = [(0.0, least)] + [(float(name[1:]), max(figures[name], least)) for name in names]
    points.append((100.0, figures["max"]))
    return {"kind": "quantiles", "points": points, "interpolation": "log"}


def reasoning_clients(traces: Path, about: dict[str, str]) -> dict[str, Any]:
    """Reduce ServeGen's deepseek-r1 to one stationary law a client."""
    pool = read_clients(traces / "servegen/reason_deepseek-r1.tar.gz")
    clients = [_stationary(client) for client in pool.clients]
    column = summary(traces)["servegen_deepseek_r1"]
    return description_table(
        {"kind": "clients", "clients": clients},
        about,
        num_rows=10_000,
        mean_prompt_tokens=column["input_tokens"]["mean"],
        mean_output_tokens=column["output_tokens"]["mean"],
    )


def _stationary(client: Any) -> dict[str, Any]:
    """Return a client with its mean rate, rate-weighted CV, and lengths pooled over the day."""
    rates, cvs = np.array(client.arrivals.rates), np.array(client.arrivals.cvs)
    per_law = np.array_split(rates, len(client.prompt_tokens))
    weights = np.array([part.sum() for part in per_law])
    return {
        "name": client.name,
        "arrivals": {
            "kind": "gamma",
            "request_rate": float(f"{rates.mean():.6g}"),
            "cv": round(float(np.clip(np.average(cvs, weights=rates), 0.2, 20)), 3),
        },
        "prompt_tokens": _pooled(client.prompt_tokens, weights),
        "output_tokens": _pooled(client.output_tokens, weights),
        "reasoning": _shares(client.reasoning, weights),
    }


def _pooled(laws: Any, weights: np.ndarray) -> dict[str, Any]:
    values = np.concatenate([law.values for law in laws])
    probs = np.concatenate([np.array(law.probs) * w for law, w in zip(laws, weights, strict=True)])
    order = np.argsort(values, kind="stable")
    values, total = values[order], np.cumsum(probs[order]) / probs.sum()
    at = np.searchsorted(total, np.array(PERCENTS) / 100 - 1e-12).clip(0, values.size - 1)
    points = zip(PERCENTS, values[at].tolist(), strict=True)
    return {"kind": "quantiles", "points": [list(point) for point in points]}


def _shares(shares: Any, weights: np.ndarray) -> dict[str, Any]:
    number = np.zeros(BINS)
    for share, weight in zip(shares, weights, strict=True):
        place = np.minimum(np.array(share.values) * BINS, BINS - 1).astype(int)
        number += weight * np.bincount(place, share.probs, minlength=BINS)
    probs = np.round(number / number.sum(), 6)
    probs[np.argmax(probs)] += 1 - probs.sum()
    return {"values": [(b + 0.5) / BINS for b in range(BINS)], "probs": probs.round(6).tolist()}


def chat(traces: Path, about: dict[str, str], key: str, cv: float, hour: int) -> dict[str, Any]:
    """Make a day profile with length tables of ServeGen's aggregated figures."""
    figures = summary(traces)[key]
    client = {
        "name": "all",
        "arrivals": {
            "kind": "varying",
            "profile": {
                "kind": "day",
                "rates": figures["hourly_rate_profile_relative_24"],
                "start_hour": hour,
            },
            "request_rate": figures["mean_rate_per_s"],
            "cv": cv,
        },
        "prompt_tokens": quantiles(figures["input_tokens"]),
        "output_tokens": quantiles(figures["output_tokens"]),
    }
    return description_table(
        {"kind": "clients", "clients": [client]},
        about,
        num_rows=10_000,
        mean_prompt_tokens=figures["input_tokens"]["mean"],
        mean_output_tokens=figures["output_tokens"]["mean"],
    )


def coding_assistant(traces: Path, about: dict[str, str]) -> dict[str, Any]:
    """Make conversations of the published tables of kv-cache-tester."""
    figures = summary(traces)["coding_assistant"]
    think = figures["think_time_fit_ms_lognormal_mix2"]
    parts = [
        {"kind": "lognormal", "mu": mu - np.log(1000), "sigma": sigma}
        for mu, sigma in zip(think["mu"], think["sigma"], strict=True)
    ]
    turns = figures["requests_per_conversation"]
    growth = figures["input_growth_fit_positive"]["lognormal_mix2"]
    spec = {
        "kind": "conversations",
        "arrivals": {"kind": "poisson", "request_rate": 0.01},
        "turns": few_quantiles(turns, turns["min"]),
        "first_prompt": few_quantiles(
            figures["first_input_tokens"], figures["first_input_tokens"]["min"]
        ),
        "new_tokens": {
            "kind": "mixture",
            "weights": growth["w"],
            "parts": [
                {"kind": "lognormal", "mu": mu, "sigma": sigma}
                for mu, sigma in zip(growth["mu"], growth["sigma"], strict=True)
            ],
        },
        "output_tokens": quantiles(figures["output_tokens"]),
        "keeps_output": False,
        "think_s": {"kind": "mixture", "weights": think["w"], "parts": parts},
        "shrink": {"probability": figures["context_shrink_share"], "keep": KEPT},
        "block_size": figures["prefix"]["block_tokens"],
    }
    return description_table(
        spec,
        about,
        num_rows=1000,
        mean_turns=turns["mean"],
        mean_prompt_tokens=figures["input_tokens"]["mean"],
        mean_output_tokens=figures["output_tokens"]["mean"],
    )
