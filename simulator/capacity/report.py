"""Capacities as tables, text and JSON."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from simulator.capacity import AXES, Answer, Question
from simulator.experiments.sweep_tables import point_columns
from simulator.experiments.task import Row
from simulator.metrics import Metrics
from simulator.report import interval_table
from simulator.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd

CURVE = ("request_goodput", "slo_attainment", "request_throughput", "realised_rate")
"""Metrics in the table of all probes, besides those of the objectives."""


def curve_table(answers: Sequence[Answer], question: Question) -> "pd.DataFrame":
    """Return all probes: variant, value, seeds, verdict, and metrics with 95 % intervals."""
    import pandas as pd

    wanted = list(dict.fromkeys([*(o.metric for o in question.objectives), *CURVE]))
    columns = point_columns(answer.variant for answer in answers)
    rows: list[Row] = []
    for answer in answers:
        for probe in sorted(answer.probes, key=lambda probe: probe.value):
            row = columns[answer.variant] | {AXES[question.find]: probe.value}
            row |= {"num_seeds": len(probe.runs), "verdict": probe.verdict}
            for metric in wanted:
                mean, low, high = probe.interval(metric)
                row |= {metric: mean, f"{metric}_ci_low": low, f"{metric}_ci_high": high}
            rows.append(row)
    return pd.DataFrame(rows)


def capacity_table(answers: Sequence[Answer], question: Question) -> "pd.DataFrame":
    """Return one row a variant: status, capacity, the values that clearly meet and miss."""
    import pandas as pd

    wanted = list(dict.fromkeys([*(o.metric for o in question.objectives), *CURVE[:3]]))
    columns = point_columns(answer.variant for answer in answers)
    rows: list[Row] = []
    for answer in answers:
        row = columns[answer.variant] | {
            "status": answer.status,
            "capacity": answer.bracket.good,
            "meets": answer.resolved("meets"),
            "misses": answer.resolved("misses"),
            "num_probes": len(answer.probes),
            "num_seeds": len(answer.best.runs) if answer.best else None,
        }
        for metric in wanted:
            found = answer.best.interval(metric) if answer.best else (None, None, None)
            names = (metric, f"{metric}_ci_low", f"{metric}_ci_high")
            row |= dict(zip(names, found, strict=True))
        rows.append(row)
    return pd.DataFrame(rows)


def capacity_text(table: "pd.DataFrame", answers: list[Answer], question: Question) -> str:
    """Return the table, and what its numbers mean."""
    rate = question.find == "rate"
    metrics = [str(name).removesuffix("_ci_low") for name in table if str(name).endswith("_low")]
    keys = [str(name) for name in table if not str(name).startswith(tuple(metrics))]
    lines = [
        ("Highest request rate (per s)" if rate else "Fewest replicas")
        + " with which "
        + " and ".join(map(str, question.objectives))
        + _limits(answers[0].variant.spec),
        interval_table(table, keys, [name for name in metrics if table[name].notna().any()]),
        f"capacity: the means over the seeds meet all objectives. meets, misses: nearest value "
        f"whose intervals lie\nwholly on one side of the limits, with {question.confidence:.0%} "
        f"confidence for all verdicts of a row together\n({question.verdict_confidence:.3%} "
        "each). ±: half of the 95 % interval. Latencies are taken to grow with the load.",
    ]
    return "\n".join([*lines, *(note for a in answers for note in _notes(a, question))])


def _limits(spec: RunSpec) -> str:
    """Return what a request has to meet to count for the attainment."""
    if spec.measure.goodput is None:
        return ""
    limits = spec.measure.goodput.model_dump(exclude_none=True)
    bounds = ", ".join(f"{key.removesuffix('_ms')} <= {v:g} ms" for key, v in limits.items())
    return f" [{bounds}]"


def _notes(answer: Answer, question: Question) -> list[str]:
    """Return what changes the reading of an answer."""
    name = answer.variant.title if answer.variant.values else "this specification"
    low, high = f"{question.low:g}", f"{question.high:g}"
    if answer.status == "never met":
        tried = [probe.value for probe in answer.probes]
        return [f"Note: {name} meets the SLOs nowhere between {min(tried):g} and {max(tried):g}."]
    notes: list[str] = []
    if answer.status == "always met":
        end = f"up to {high}" if question.find == "rate" else f"with {low}"
        notes.append(f"Note: {name} meets the SLOs even {end}, the end of the range.")
    assert answer.best is not None
    served = [_served(run) for run in answer.best.runs]
    share = sum(served) / len(served)
    if share >= 0.9:
        return notes
    return [
        *notes,
        f"Note: {name} finishes only {share:.0%} of the requests per second that arrive; "
        "in longer runs (--num-requests) the capacity will be lower.",
    ]


def _served(run: Metrics) -> float:
    arrived = run["realised_rate"] or 0.0
    return min(1.0, (run["request_throughput"] or 0.0) / arrived) if arrived else 1.0


def as_dict(question: Question, table: "pd.DataFrame", curve: "pd.DataFrame") -> dict[str, Any]:
    """Return what was asked and found as plain data."""

    def rows(frame: "pd.DataFrame") -> Any:
        return json.loads(frame.to_json(orient="records", double_precision=15))

    return {
        "find": question.find,
        "objectives": [str(objective) for objective in question.objectives],
        "confidence": question.confidence,
        "verdict_confidence": question.verdict_confidence,
        "capacity": rows(table),
        "probes": rows(curve),
    }
