"""What stands in a report: question, inputs, warnings, tables, definitions, how to repeat it."""

import json
import shlex
from collections.abc import Iterator, Set
from typing import TYPE_CHECKING

import yaml
from pydantic import BaseModel

from simulator.experiments.paired import parameters, plain
from simulator.page.tables import HEADLINE
from simulator.report import machine, reproduce
from simulator.report import parameters as policy_words
from simulator.saved import Saved
from simulator.spec import RunSpec, kind_of
from workloads.spec import SyntheticWorkload

if TYPE_CHECKING:
    import pandas as pd

DEFINITIONS = {
    "Latencies": "In ms, over requests that arrived in the measured window. P50, P90, P99: linear "
    "interpolation; n/a with fewer samples than a two-sided 95 % bound needs (36 for P90, 368 for "
    "P99).",
    "TTFT": "Time to first token: delivery of the first token - arrival. Policies that deliver a "
    "batch at its end have TTFT = E2E and gaps of 0.",
    "TPOT": "Time per output token: (last token - first token) / (tokens - 1), a value a request.",
    "TBT": "Time between tokens (itl): all gaps between tokens, pooled over requests.",
    "E2E": "End-to-end latency: delivery of the last token - arrival, finished requests.",
    "Rate": "Realised: (N - 1) / (last arrival - first arrival). Offered: what was asked for.",
    "Throughput": "Requests finished, or tokens delivered, in the window / its length.",
    "Attainment, goodput": "Fraction of requests, or requests per second, that finished and met "
    "all objectives. Rejected and unfinished requests are misses.",
    "Busy, batch": "Time in which a step runs / window; decodes and prompt chunks in a step, "
    "weighted by its duration.",
    "KV max": "Largest share of the usable KV blocks that was held.",
    "Intervals": "95 % t intervals over seeds; there is none over the requests of a single run, "
    "whose latencies depend on each other. Differences are paired: the same seed is the same "
    "arrivals and lengths.",
}
"""Word to meaning."""


def question(saved: Saved) -> str:
    """Return what the results answer, as a question.

    Examples
    --------
    >>> from simulator import RunSpec, simulate
    >>> from simulator.saved import of_result
    >>> result = simulate(RunSpec(workload={"name": "demo-chat", "num_requests": 5}))
    >>> question(of_result(result))[:49]
    'What latency and throughput does vllm-v1 (default'
    """
    spec = saved.specs[0]
    where = f"for {workload(spec)} on {machine(spec)}"
    if saved.kind == "run":
        return f"What latency and throughput does {policy_words(spec)} give {where}?"
    frame, keys = saved.frame, parameters(saved.frame)
    policies = [str(kind) for kind in frame["policy"].unique()]
    varied = [key for key in keys if frame[key].nunique(dropna=False) > 1]
    over = [f"{key} ({_values(frame[key])})" for key in varied if key != "policy"]
    how = f" over {' and '.join(over)}" if over else ""
    if len(policies) > 1:
        return f"How do {', '.join(policies)} compare{how}, {where}?"
    how = how.replace(" over ", " with ", 1)
    return f"How do latency and throughput of {policies[0]} move{how}, {where}?"


def _values(column: "pd.Series") -> str:
    known = [plain(value) for value in column.dropna().unique()]
    return ", ".join(known if len(known) < 9 else [*known[:4], "...", known[-1]])


def workload(spec: RunSpec) -> str:
    """Return the name of the workload.

    Examples
    --------
    >>> from simulator import RunSpec
    >>> workload(RunSpec())
    'azure-conv-2023'
    """
    if isinstance(spec.workload, SyntheticWorkload):
        return f"{spec.workload.arrivals.kind} arrivals"
    data = spec.workload.model_dump(mode="json")
    return str(data.get("name") or str(data.get("path", "a trace")).rsplit("/", 1)[-1])


def facts(saved: Saved) -> list[tuple[str, str]]:
    """Return what was simulated, name and text."""
    spec, frame = saved.specs[0], saved.frame
    varied = {key.rsplit(".", 1)[-1] for key in parameters(frame)}
    goodput = spec.measure.goodput
    limits = goodput.model_dump(exclude_none=True) if goodput else {}
    found = [
        ("Policy", _policies(saved)),
        ("Workload", _short(spec.workload, varied)),
        ("Machine", machine(spec)),
        ("Engine", _short(spec.engine, varied)),
        ("Objectives", ", ".join(f"{k} {v:g}" for k, v in limits.items()) or "none"),
        ("Runs", _runs(saved)),
        ("Requests measured", f"{_range(frame['num_requests'])} a run"),
        (
            "Measured window",
            f"from {_range(frame['warmup_s'])} s for {_range(frame['duration_s'])} s",
        ),
        (
            "Samples",
            ", ".join(
                f"{name} {_range(frame[f'num_samples_{key}'])}"
                for name, key in (("TTFT", "ttft"), ("TPOT", "tpot"), ("TBT", "itl"))
            ),
        ),
    ]
    return found


def _policies(saved: Saved) -> str:
    if saved.runs:
        return "; ".join(dict.fromkeys(policy_words(spec) for spec in saved.specs))
    return ", ".join(str(kind) for kind in saved.frame["policy"].unique())


def _short(part: BaseModel, varied: Set[str]) -> str:
    """Return what differs from the defaults, and not from run to run, in one line."""
    data = part.model_dump(mode="json", exclude_defaults=True, exclude_none=True)
    data = {key: value for key, value in data.items() if key not in varied}
    kind = {"kind": kind_of(part)} if kind_of(part) else {}
    text = yaml.safe_dump(kind | data, default_flow_style=True, sort_keys=False, width=10**6)
    return text.strip() if kind or data else "defaults"


def _runs(saved: Saved) -> str:
    frame = saved.frame
    points = len(frame.groupby(parameters(frame), dropna=False)) if len(frame) > 1 else 1
    seeds = frame["replication"].nunique()
    root = ", ".join(dict.fromkeys(str(spec.seed) for spec in saved.specs))
    what = "1 point" if points == 1 else f"{points} points"
    if seeds > 1:
        return f"{what} x {seeds} seeds (replications 0 to {seeds - 1} of root seed {root})"
    return f"{what}, one seed (root {root}): no intervals"


def _range(column: "pd.Series") -> str:
    low, high = float(column.min()), float(column.max())
    text = [f"{value:,.0f}" if value >= 100 else f"{value:.3g}" for value in (low, high)]
    return text[0] if text[0] == text[1] else f"{text[0]} to {text[1]}"


def warnings(saved: Saved) -> list[str]:
    """Return what changes the reading of the results."""
    found = [
        f"{name}: {warning}" if len(saved.runs) > 1 else warning
        for name, result in saved.runs.items()
        for warning in result.warnings
    ]
    return found + list(_doubts(saved, with_counts=not saved.runs))


def _doubts(saved: Saved, *, with_counts: bool) -> Iterator[str]:
    frame = saved.frame
    if with_counts:
        for key, words in {
            "unfinished": "unfinished requests; their latencies are of those that got there",
            "rejected": "rejected requests; they count as misses",
            "extrapolated_steps": "steps outside the calibrated range of the cost model",
        }.items():
            if (frame[key] > 0).any():
                yield f"{_share(frame[key] > 0)} had {words}"
        slow = frame["request_throughput"] < 0.9 * frame["realised_rate"]
        if slow.any():
            yield (
                f"{_share(slow)} finished fewer than 90 % as many requests per second as arrived: "
                "overload, or a long tail after the last arrival; where the queue grew, latencies "
                "grow with the length of the run"
            )
    off = (frame["realised_rate"] / frame["request_rate"].astype(float) - 1).abs() > 0.02
    if off.any():
        yield f"{_share(off)} had a realised rate more than 2 % off the offered one"
    few = [
        key
        for key in HEADLINE
        if key.startswith("p99") and key in frame and frame[key].isna().any()
    ]
    if few:
        missing = frame[few].isna().any(axis=1)
        yield f"{_share(missing)} had too few samples for {', '.join(HEADLINE[k] for k in few)}"


def _share(which: "pd.Series") -> str:
    return "the run" if len(which) == 1 else f"{int(which.sum())} of {len(which)} runs"


def how_to_repeat(saved: Saved) -> dict[str, str]:
    """Return heading to text: command, files it needs, versions and hashes."""
    manifest = saved.manifest
    found: dict[str, str] = {}
    if saved.runs:
        commands = [
            f"{reproduce(result.spec)}" + _at_replication(result.replication)
            for result in saved.runs.values()
        ]
        found["Command" if len(commands) == 1 else "Commands"] = "\n".join(commands)
        hashes = {name: run.spec.content_hash() for name, run in saved.runs.items()}
    else:
        found |= _commands(saved)
        hashes = {"base": saved.specs[0].content_hash()}
    found["Versions"] = ", ".join(f"{k} {v}" for k, v in manifest.get("versions", {}).items())
    found["SHA-256 of the specification"] = "\n".join(f"{n}: {h}" for n, h in hashes.items())
    if "workload_sha256" in manifest:
        found["SHA-256 of the workload"] = str(manifest["workload_sha256"])
    return found


def _at_replication(number: int) -> str:
    return f"  # replication {number}" if number else ""


def _commands(saved: Saved) -> dict[str, str]:
    """Return the command that repeats a sweep or comparison, and the files that it needs."""
    definition, seeds = saved.manifest.get("definition", {}), saved.frame["replication"].max() + 1
    if saved.kind == "compare":
        names = shlex.join(definition["specs"])
        command = f"batchlab compare {names} --seeds {seeds} -o results/again"
        return {"Command": command, "The first specification": saved.specs[0].to_yaml()}
    if saved.spec_file:
        return {
            "Command": "batchlab sweep spec.yaml -o results/again",
            "spec.yaml": saved.spec_file,
        }
    return {
        "Command": f"batchlab sweep base.yaml --points points.json --seeds {seeds} "
        "-o results/again",
        "base.yaml": saved.specs[0].to_yaml(),
        "points.json": json.dumps(definition.get("points", [])),
    }
