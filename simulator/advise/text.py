"""The advice in words: verdict, recommendation, gains, costs and sensitivity, with numbers."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from simulator.advise import MIN_GAIN, Comparison, Study
from simulator.advise.facts import Figure, over_seeds
from simulator.advise.findings import (
    Finding,
    Statement,
    along,
    change,
    checklist,
    metric,
    say,
    texts,
)
from simulator.advise.search import NONE, TIE, mean_of, point_of, title
from simulator.compare import compare
from simulator.report import machine, reproduce

if TYPE_CHECKING:
    import pandas as pd

WAITS = ("max_wait_ms",)
BATCHES = ("max_batch_size", "max_num_seqs")
CHUNKS = ("max_num_batched_tokens", "chunk_size")

GAINS = {
    "slo_attainment": ("attainment", ""),
    "request_goodput": ("goodput", "req/s"),
    "output_throughput": ("output throughput", "tok/s"),
    "p50_ttft_ms": ("TTFT p50", "ms"),
    "p50_tpot_ms": ("TPOT p50", "ms"),
    "p50_e2el_ms": ("response time p50", "ms"),
    "kv_usage_max": ("KV cache used, max", ""),
    "mean_batch_size": ("batch, mean", ""),
}
"""What is compared between no batching and batching: metric to its name and unit."""


def verdict_of(study: Study) -> Finding:
    """Return whether batching is worth it."""
    nominal, target = study.nominal, study.enquiry.target
    statements = [
        say(_without(nominal), nominal.attained(NONE)),
        say(f"With {title(study.advised)}, the best batching setting found, "
            f"{'at least' if nominal.is_met else 'fewer than'} {target:.0%} do",
            nominal.attained(study.advised)),
        say("Seed by seed, batching lets so much more of the requests meet them", nominal.gain),
    ]  # fmt: skip
    return Finding(
        "Is batching worth it here?",
        nominal.verdict,
        f"no: {target:.0%} clearly meet the objectives without it, or it clearly gains less than "
        f"{MIN_GAIN:g}; yes: it clearly gains {MIN_GAIN:g} or more; else not resolved",
        tuple(statements),
    )


def _without(comparison: Comparison) -> str:
    share = f"{comparison.target:.0%} of the requests meet the objectives"
    if comparison.met_without:
        return f"Without batching clearly at least {share}"
    low = comparison.attained(NONE)
    if low.high is not None and low.high < comparison.target:
        return f"Without batching clearly fewer than {share}"
    return f"Without batching it is not resolved whether {share}"


def recommendation(study: Study) -> Finding:
    """Return policy, wait time, batch limit and chunk limit."""
    nominal = study.nominal
    advised = study.advised if study.chosen != NONE else NONE
    names = {NONE: "Serve one request at a time"}
    statements = [
        say(names.get(advised, f"Policy: {dict(advised)['kind']}"), nominal.attained(advised))
    ]
    statements += [_limit(study, name, value) for name, value in advised if isinstance(value, int)]
    statements += _wait(study)
    others = [s for s in nominal.measured if s not in (advised, NONE)]
    statements += [say(f"Instead {title(s)}", nominal.attained(s)) for s in others]
    return Finding(
        "What is recommended?",
        title(study.chosen),
        f"attainment within {TIE:g} of the best, then response time; on equality the usual limit",
        tuple(statements),
    )


def _limit(study: Study, name: str, value: int) -> Statement:
    """Return a limit, how near the run comes to it, and what half and double of it attain."""
    label = next(
        text for names, text in ((WAITS, "Wait time"), (BATCHES, "Batch limit"),
                                 (CHUNKS, "Chunk limit (tokens of a step)")) if name in names
    )  # fmt: skip
    runs = study.nominal.measured[study.advised]
    figures = [
        over_seeds(f"attainment at {dict(s)[name]}",
                   [run["slo_attainment"] for run in study.searched[s]])
        for s in along(study, study.advised, name)
    ]  # fmt: skip
    shown = [Figure(f.name, f.mean) for f in figures]  # two seeds bear no interval worth reading
    if name in BATCHES:
        shown.insert(0, metric(runs, "p99_batch_size", "batch p99"))
    return Statement(f"{label}: {name} {value}", tuple(shown))


def _wait(study: Study) -> list[Statement]:
    """Return what waiting for company would do, where the advice is not to wait."""
    if any(name in WAITS for name, _ in study.chosen):
        return []
    own = study.nominal.measured[study.chosen]
    return [
        say(f"Wait time: none; {title(setting)} instead would change",
            change(own, runs, "p50_ttft_ms", "TTFT p50, change", "ms"),
            metric(runs, "mean_batch_size", "batch, mean"))
        for setting, runs in study.nominal.measured.items()
        if dict(setting)["kind"] == "window-pull"
    ]  # fmt: skip


def gains(study: Study) -> Finding:
    """Return what the best batching setting gains and costs against no batching."""
    own, batched = study.nominal.measured[NONE], study.nominal.measured[study.advised]
    known = [m for m in GAINS if mean_of(own, m) is not None and mean_of(batched, m) is not None]
    words = {"better": "gain", "worse": "cost"}
    statements, counts = [], {"gain": 0, "cost": 0}
    for found in compare(own, batched, known):
        name, unit = GAINS[found.metric]
        word = words.get(found.verdict, "change" if found.verdict != "not resolved" else "unclear")
        counts[word] = counts.get(word, 0) + 1
        figures = (
            Figure("without", found.first, unit=unit),
            Figure("with", found.second, unit=unit),
            Figure("difference", found.mean, found.low, found.high, unit),
        )
        statements.append(Statement(f"{word}: {name}", figures))
    return Finding(
        f"What does {title(study.advised)} gain and cost against no batching?",
        f"better in {counts['gain']}, worse in {counts['cost']} of {len(known)} metrics",
        "paired by seed; the intervals hold together with 95 % confidence; with a load without "
        "batching of 1 or more, latencies without it grow with the length of the run",
        tuple(statements),
    )


def sensitivity(study: Study) -> Finding:
    """Return whether the advice holds at other loads and step times."""
    statements, other = [], []
    for found in study.changed:
        same = found.verdict == study.nominal.verdict
        if not same:
            other.append(found.condition)
        target = "met" if found.is_met else "missed"
        kept = "nothing found is better" if found.still_best else f"{title(found.best)} is better"
        statements.append(
            say(f"{found.condition}: {found.verdict}; with {title(study.advised)} the target is "
                f"{target}, {kept}",
                replace(found.attained(NONE), name="without"),
                replace(found.attained(study.advised), name="with"), found.gain, found.regret)
        )  # fmt: skip
    answer = "the verdict holds" if not other else f"the verdict changes at {', '.join(other)}"
    return Finding(
        "How sensitive is the advice to load and step times?",
        answer,
        f"the same rules under each condition; better: by more than {TIE:g} in attainment",
        tuple(statements),
    )


def conclusion(study: Study) -> list[Finding]:
    """Return verdict, recommendation, gains and sensitivity."""
    return [verdict_of(study), recommendation(study), gains(study), sensitivity(study)]


def objectives_text(study: Study) -> str:
    """Return the objectives in one line."""
    goodput = study.enquiry.spec.measure.goodput
    assert goodput is not None
    limits = goodput.model_dump(exclude_none=True)
    shown = " and ".join(f"{key.removesuffix('_ms')} <= {v:g} ms" for key, v in limits.items())
    return f"{shown} for {study.enquiry.target:.0%} of the requests"


def headline(study: Study) -> str:
    """Return verdict and recommendation in one line, with what they attain."""
    nominal = study.nominal
    missed = "" if nominal.is_met or nominal.met_without else "; the target is missed all the same"
    return (
        f"VERDICT: batching is {nominal.verdict}; recommended: {title(study.chosen)} "
        f"[{replace(nominal.attained(NONE), name='attainment without batching')}; "
        f"{replace(nominal.attained(study.advised), name='with the best setting')}]{missed}"
    )


def advice_text(study: Study, about: str) -> str:
    """Return the whole advice.

    Parameters
    ----------
    study : Study
    about : str
        What the workload is.
    """
    enquiry, base = study.enquiry, study.enquiry.base
    lines = [
        f"Advice for {about} on {machine(enquiry.spec)}",
        f"Objectives: {objectives_text(study)}",
        headline(study),
        *texts([*checklist(study), *conclusion(study)]),
        "",
        f"{study.num_runs} runs: {len(study.searched)} settings searched on "
        f"{enquiry.search_seeds} seeds, then the best of each policy on {enquiry.seeds} others, "
        f"{1 + len(study.changed)} conditions.",
        "±: half of the 95 % interval over seeds. Without batching: policy none, one request at a "
        "time.",
        *(f"Left out: {text}" for text in study.failed[:5]),
        f"Reproduce: {reproduce(study.spec)}",
    ]
    if study.chosen == NONE:
        lines.append(f"Best batching setting: {reproduce(point_of(base, study.advised).spec)}")
    return "\n".join(lines)


def advice_dict(study: Study, about: str) -> dict[str, Any]:
    """Return the whole advice as plain data."""
    return {
        "workload": about,
        "machine": machine(study.enquiry.spec),
        "objectives": objectives_text(study),
        "verdict": study.nominal.verdict,
        "advised": dict(study.advised),
        "recommended": dict(study.chosen),
        "findings": [_plain(f) for f in [*checklist(study), *conclusion(study)]],
        "num_runs": study.num_runs,
        "failed": list(study.failed),
        "spec": study.spec.to_dict(),
        "reproduce": reproduce(study.spec),
    }


def settings_table(study: Study) -> "pd.DataFrame":
    """Return one row a stage and setting: means over the seeds with 95 % intervals."""
    import pandas as pd

    stages = [("search", study.searched)]
    stages += [(c.condition, c.measured) for c in (study.nominal, *study.changed)]
    names = (*GAINS, "p99_ttft_ms", "p99_itl_ms", "busy_fraction", "padding_fraction")
    rows = []
    for stage, measured in stages:
        for setting, runs in measured.items():
            row: dict[str, Any] = {"stage": stage, "policy": title(setting), "seeds": len(runs)}
            for name in names:
                figure = metric(runs, name, name)
                row |= {name: figure.mean, f"{name}_ci_low": figure.low}
                row |= {f"{name}_ci_high": figure.high}
            rows.append(row)
    return pd.DataFrame(rows)


def _plain(finding: Finding) -> dict[str, Any]:
    statements = [
        {"text": s.text, "figures": [vars(figure) for figure in s.figures]}
        for s in finding.statements
    ]
    return vars(finding) | {"statements": statements}
