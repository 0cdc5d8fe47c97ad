"""Tables of a validation: rows, errors by source, levels, pairs; as text, JSON and CSV."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from simulator.errors import UserError
from simulator.validation.levels import (
    METRICS,
    Check,
    Outcome,
    errors_of_requests,
    judge_replays,
    judge_sweeps,
)
from simulator.validation.orderings import OrderOutcome

HEADINGS = {
    "tpot_mean_ms": "TPOT",
    "ttft_mean_ms": "TTFT",
    "ttft_p50_ms": "TTFT p50",
    "req_throughput_rps": "requests/s",
    "output_throughput_tok_s": "tokens/s",
    "knee_rate_rps": "knee rate",
    "replay_ttft_mean": "mean TTFT, replayed",
    "replay_tpot_mean": "mean TPOT, replayed",
    "replay_tpot_mape": "TPOT of single requests",
}
"""Column to what it is called in text."""


@dataclass(frozen=True)
class Validation:
    """Everything that a validation found.

    Attributes
    ----------
    outcomes : tuple of Outcome
        One a row.
    sweeps : tuple of (Check, bool)
        Knee rates, and whether their level holds.
    replays : tuple of Check
        Levels of request logs.
    orderings : tuple of OrderOutcome
        One a pair.
    """

    outcomes: tuple[Outcome, ...]
    sweeps: tuple[tuple[Check, bool], ...] = ()
    replays: tuple[Check, ...] = ()
    orderings: tuple[OrderOutcome, ...] = ()

    @classmethod
    def of(cls, outcomes: Sequence[Outcome], orderings: Sequence[OrderOutcome]) -> "Validation":
        """Judge sweeps and logs, and put all together."""
        sweeps, replays = judge_sweeps(outcomes), judge_replays(outcomes)
        return cls(tuple(outcomes), tuple(sweeps), tuple(replays), tuple(orderings))

    @property
    def checks(self) -> list[Check]:
        """All levels that hold, of rows, sweeps and logs."""
        rows = [check for outcome in self.outcomes for check in outcome.checks]
        return [*rows, *(check for check, holds in self.sweeps if holds), *self.replays]

    @property
    def passed(self) -> bool:
        """Whether all levels that hold are met."""
        pairs = all(pair.verdict != "FAIL" for pair in self.orderings)
        return pairs and all(check.passed for check in self.checks)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "passed": self.passed,
            "rows": [row_of(outcome) for outcome in self.outcomes],
            "errors": errors_by_source(self.outcomes),
            "levels": [asdict(check) for check in self.checks],
            "knees_without_level": [asdict(check) for check, holds in self.sweeps if not holds],
            "orderings": [pair_of(pair) for pair in self.orderings],
        }

    def text(self, *, all_rows: bool = True) -> str:
        """Return the report."""
        parts = [rows_text(self.outcomes)] if all_rows else []
        parts += [errors_text(self.outcomes), self._levels_text(), reasons_text(self.outcomes)]
        if self.orderings:
            parts.append(orderings_text(self.orderings))
        return "\n\n".join(parts)

    def _levels_text(self) -> str:
        lines = ["Levels (met of those that hold)"]
        groups: dict[tuple[str, str], list[Check]] = {}
        source = {outcome.row.record_id: outcome.row.source_id for outcome in self.outcomes}
        source |= {outcome.row.sweep_id: outcome.row.source_id for outcome in self.outcomes}
        for check in self.checks:
            groups.setdefault((source.get(check.record, ""), check.what), []).append(check)
        for (name, what), checks in groups.items():
            met, worst = sum(c.passed for c in checks), max(checks, key=lambda c: abs(c.error))
            lines.append(
                f"  {name:5} {HEADINGS[what]:24} {met:3} of {len(checks):3}   "
                f"largest error {worst.error:+.1%} ({worst.record})"
            )
        missed = [check for check in self.checks if not check.passed]
        lines += [f"  missed: {check_text(check)}" for check in missed]
        return "\n".join(lines)


def check_text(check: Check) -> str:
    """Return a level as one line."""
    if check.what.startswith("replay"):
        return f"{check.record} {HEADINGS[check.what]} {check.error:+.1%} (bound {check.bound:.0%})"
    return (
        f"{check.record} {HEADINGS[check.what]} {check.predicted:.4g} for {check.measured:.4g} "
        f"({check.error:+.1%}, bound {check.bound:.0%})"
    )


def row_of(outcome: Outcome) -> dict[str, Any]:
    """Return a row of the table as plain data."""
    row, found = outcome.row, outcome.prediction
    data: dict[str, Any] = {
        "record_id": row.record_id,
        "source_id": row.source_id,
        "quality": row.quality,
        "verdict": outcome.verdict,
        "engine_profile": outcome.scenario.profile.name if outcome.scenario else None,
    }
    for name in (*METRICS, "ttft_p50_ms", "e2e_mean_ms"):
        data[f"{name}_measured"] = getattr(row, name)
        data[f"{name}_predicted"] = None if found is None else found.values.get(name)
        data[f"{name}_error"] = outcome.error(name)
    data["kv_usage_max"] = None if found is None else found.kv_usage
    data["num_preemptions"] = None if found is None else found.num_preemptions
    data["extrapolated_fraction"] = None if found is None else found.extrapolated
    data |= errors_of_requests(outcome) or {}
    data["no_level"] = "; ".join(outcome.no_level)
    data["notes"] = "; ".join(outcome.scenario.notes) if outcome.scenario else ""
    return data


def pair_of(pair: OrderOutcome) -> dict[str, Any]:
    """Return a pair as plain data."""
    return {
        **asdict(pair.ordering),
        "measured_ratio": pair.measured,
        "predicted_ratio": pair.predicted,
        "verdict": pair.verdict,
        "no_level": pair.no_level,
    }


def errors_by_source(outcomes: Sequence[Outcome]) -> list[dict[str, Any]]:
    """Return MAPE and bias of each metric by source, quality, engine and profile."""
    groups: dict[tuple[str, ...], list[Outcome]] = {}
    for outcome in outcomes:
        row, scenario = outcome.row, outcome.scenario
        profile = scenario.profile.name if scenario else "not run"
        key = (row.source_id, row.quality, engine_name(row.engine), profile)
        fitted = " (fitted)" if scenario and scenario.fitted else ""
        groups.setdefault((*key[:3], key[3] + fitted), []).append(outcome)
    found = []
    for (source, quality, engine, profile), rows in groups.items():
        line: dict[str, Any] = {"source": source, "quality": quality, "engine": engine}
        line |= {"profile": profile, "rows": len(rows)}
        line["run"] = sum(outcome.prediction is not None for outcome in rows)
        for name in METRICS:
            errors = [e for outcome in rows if (e := outcome.error(name)) is not None]
            line[f"{name}_mape"] = float(np.mean(np.abs(errors))) if errors else None
            line[f"{name}_bias"] = float(np.mean(errors)) if errors else None
        found.append(line)
    return found


def engine_name(text: str) -> str:
    """Return the name of an engine without what stands in brackets.

    Examples
    --------
    >>> engine_name("TensorRT-LLM (PyTorch backend)")
    'TensorRT-LLM'
    """
    return text.split(" (")[0]


def errors_text(outcomes: Sequence[Outcome]) -> str:
    """Return MAPE and bias by source as a table."""
    from tabulate import tabulate

    rows = []
    for line in errors_by_source(outcomes):
        cells = [line[key] for key in ("source", "quality", "engine", "profile")]
        cells.append(f"{line['run']}/{line['rows']}")
        for name in METRICS:
            mape, bias = line[f"{name}_mape"], line[f"{name}_bias"]
            cells.append("" if mape is None else f"{mape:.1%} {bias:+.1%}")
        rows.append(cells)
    heads = ["source", "quality", "engine", "profile", "run", *(HEADINGS[name] for name in METRICS)]
    title = "Errors: MAPE and bias of means, over all rows that could be run\n"
    return title + str(tabulate(rows, heads, disable_numparse=True))


def rows_text(outcomes: Sequence[Outcome]) -> str:
    """Return all rows as a table: predicted for measured."""
    from tabulate import tabulate

    names = ("tpot_mean_ms", "ttft_mean_ms", "req_throughput_rps")
    rows = []
    for outcome in outcomes:
        cells = [outcome.row.record_id, outcome.row.quality]
        for name in names:
            error, found = outcome.error(name), outcome.prediction
            if error is None or found is None:
                cells.append("")
                continue
            measured = getattr(outcome.row, name)
            cells.append(f"{found.values[name]:.4g} / {measured:.4g} {error:+.0%}")
        rows.append([*cells, outcome.verdict, "; ".join(outcome.no_level)])
    heads = ["record", "", *(HEADINGS[name] for name in names), "level", "why none"]
    title = "Rows: predicted / measured, error (times in ms)\n"
    return title + str(tabulate(rows, heads, disable_numparse=True))


def reasons_text(outcomes: Sequence[Outcome]) -> str:
    """Return how many rows have no level, by reason."""
    counts: dict[str, int] = {}
    for outcome in outcomes:
        for reason in outcome.no_level[:1]:
            never = "can never fit the KV cache" in reason
            short = "a request can never fit the KV cache" if never else reason
            counts[short] = counts.get(short, 0) + 1
    verdicts = [outcome.verdict for outcome in outcomes]
    lines = [
        f"Rows: {len(verdicts)}; levels met {verdicts.count('PASS')}, missed "
        f"{verdicts.count('FAIL')}, none holds {verdicts.count('-')}"
    ]
    by_count = sorted(counts.items(), key=lambda item: -item[1])
    lines += [f"  {count:4}  {reason}" for reason, count in by_count]
    return "\n".join(lines)


def orderings_text(pairs: Sequence[OrderOutcome]) -> str:
    """Return all pairs as a table."""
    from tabulate import tabulate

    def show(ratio: float | None) -> str:
        return "" if ratio is None else f"{ratio:.3f}"

    rows = [
        [
            pair.ordering.ordering_id,
            pair.ordering.kind,
            pair.ordering.metric,
            show(pair.measured),
            show(pair.predicted),
            pair.verdict,
            pair.no_level or pair.ordering.axis,
        ]
        for pair in pairs
    ]
    heads = ["pair", "kind", "metric", "measured", "predicted", "level", "what"]
    return "Pairs: ratio of the first row to the second\n" + str(
        tabulate(rows, heads, disable_numparse=True)
    )


def write_tables(folder: Path, validation: Validation) -> None:
    """Write rows, errors, levels and pairs as CSV files into an existing folder.

    Raises
    ------
    UserError
        If a file cannot be written.
    """
    import pandas as pd

    data = validation.to_dict()
    tables: Mapping[str, list[dict[str, Any]]] = {
        name: data[name] for name in ("rows", "errors", "levels", "orderings")
    }
    try:
        for name, lines in tables.items():
            frame: pd.DataFrame = pd.DataFrame(lines)
            frame.to_csv(folder / f"{name}.csv", index=False)
    except OSError as error:
        raise UserError(f"{folder}: cannot be written: {error.strerror}") from None
