"""Synthetic data sets of other tools, as workloads of this package."""

import re
from collections.abc import Mapping
from typing import Any

from workloads.errors import WorkloadError
from workloads.spec import WorkloadSpec, parse_workload

_PAIR = re.compile(r"\s*([a-z_]+)\s*=\s*([0-9.]+)\s*")


def from_guidellm(config: str | Mapping[str, Any], request_rate: float) -> WorkloadSpec:
    """Make a workload of GuideLLM's synthetic data.

    Parameters
    ----------
    config : str or mapping
        As given to ``--data``: ``prompt_tokens=256,prompt_tokens_stdev=20,output_tokens=128``,
        or the same keys as a mapping. Known are ``_stdev``, ``_min`` and ``_max`` of both
        lengths, ``samples``, ``turns``, ``prefix_tokens`` and ``prefix_count``.
    request_rate : float
        Starts per second, Poisson: of requests, or of conversations if there are turns.

    Returns
    -------
    workload
        Synthetic, or conversations where there are turns or shared prefixes.

    Raises
    ------
    WorkloadError
        A key that is not known, or none for the prompts.

    Examples
    --------
    >>> from_guidellm("prompt_tokens=256,output_tokens=128", 2.0).prompt_tokens.tokens
    256
    """
    values = _parsed(config) if isinstance(config, str) else dict(config)
    return _workload("guidellm", values, request_rate)


def from_aiperf(config: Mapping[str, Any], request_rate: float) -> WorkloadSpec:
    """Make a workload of AIPerf's synthetic options.

    Parameters
    ----------
    config : mapping
        The options without dashes, such as ``synthetic_input_tokens_mean`` and ``_stddev``,
        ``output_tokens_mean`` and ``_stddev``, ``request_count``.
    request_rate : float
        Requests per second, Poisson.

    Returns
    -------
    workload
        Synthetic.

    Raises
    ------
    WorkloadError
        A key that is not known, or none for the prompts.

    Examples
    --------
    >>> options = {"synthetic_input_tokens_mean": 550, "output_tokens_mean": 150}
    >>> from_aiperf(options, 2.0).output_tokens.tokens
    150
    """
    renamed = {
        key.replace("-", "_")
        .replace("synthetic_input_tokens", "prompt_tokens")
        .replace("_mean", "")
        .replace("_stddev", "_stdev")
        .replace("request_count", "samples"): value
        for key, value in config.items()
    }
    return _workload("aiperf", renamed, request_rate)


def _parsed(text: str) -> dict[str, float]:
    values = {}
    for part in text.split(","):
        match = _PAIR.fullmatch(part)
        if match is None:
            raise WorkloadError("expected key=number pairs, separated by commas", value=part)
        values[match[1]] = float(match[2])
    return values


def _workload(tool: str, values: dict[str, Any], request_rate: float) -> WorkloadSpec:
    first = _law(values, "prompt_tokens")
    output = _law(values, "output_tokens")
    turns, prefix = int(values.pop("turns", 1)), int(values.pop("prefix_tokens", 0))
    prefixes, samples = int(values.pop("prefix_count", 1)), int(values.pop("samples", 1000))
    if values:
        raise WorkloadError(f"not an option of {tool} that is known here", value=min(values))
    if turns == 1 and not prefix:
        spec: dict[str, Any] = {"prompt_tokens": first, "output_tokens": output}
        return parse_workload(spec | {"arrivals": request_rate, "num_requests": samples})
    spec = {
        "arrivals": request_rate,
        "turns": turns,
        "first_prompt": first,
        "new_tokens": first,
        "output_tokens": output,
        "think_s": 0,
        "num_conversations": samples,
    }
    if prefix:
        spec["system"] = {"count": prefixes, "tokens": prefix}
    return parse_workload(spec)


def _law(values: dict[str, Any], name: str) -> dict[str, Any]:
    mean, stdev, low, high = (
        values.pop(name + end, None) for end in ("", "_stdev", "_min", "_max")
    )
    if mean is None:
        raise WorkloadError(f"expected {name}")
    if not stdev:
        return {"kind": "fixed", "tokens": int(mean)}
    law: dict[str, Any] = {"kind": "normal", "mean": mean, "stdev": stdev, "min": int(low or 1)}
    return law | ({} if high is None else {"max": int(high), "truncation": "clip"})
