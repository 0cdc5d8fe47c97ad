"""The checklist: what has to be known before batching is turned on, answered by numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from textwrap import fill

from simulator.advise import Study
from simulator.advise.facts import Figure, over_seeds
from simulator.advise.search import NONE, Setting, attainment, mean_of, title
from simulator.metrics import Metrics

SUSTAINED, BURSTY, CLUMPED, VARIED, IDLE = 0.7, 0.3, 1.5, 0.5, 0.5
"""Load, share of requests that are not alone, dispersion, CV of outputs, and busy fraction."""

OBJECTIVES = ("ttft", "tpot", "e2el")


@dataclass(frozen=True)
class Statement:
    """A sentence and the simulated numbers that back it."""

    text: str
    figures: tuple[Figure, ...]


@dataclass(frozen=True)
class Finding:
    """A question of the checklist, its answer, the rule it follows, and the evidence."""

    question: str
    answer: str
    rule: str
    statements: tuple[Statement, ...]


def say(text: str, *figures: Figure) -> Statement:
    """Return a sentence with its numbers."""
    return Statement(text, figures)


def metric(runs: Sequence[Metrics], key: str, name: str, unit: str = "") -> Figure:
    """Return a metric over replications."""
    return over_seeds(name, [run.get(key) for run in runs], unit)


def change(
    first: Sequence[Metrics], second: Sequence[Metrics], key: str, name: str, unit: str = ""
) -> Figure:
    """Return how much larger a metric is in the second, seed by seed."""
    pairs = [(a.get(key), b.get(key)) for a, b in zip(first, second, strict=True)]
    return over_seeds(name, [None if a is None or b is None else b - a for a, b in pairs], unit)


def mean(figure: Figure) -> float:
    """Return the mean, or 0 without one."""
    return figure.mean or 0.0


def checklist(study: Study) -> list[Finding]:
    """Return the findings in the order in which a practitioner asks."""
    return [
        _concurrency(study),
        _lengths(study),
        _idle(study),
        _goal(study),
        _objective(study),
        _moves(study),
    ]


def fact(study: Study, key: str, name: str, unit: str = "") -> Figure:
    """Return a fact about the workload over replications."""
    return over_seeds(name, [facts[key] for facts in study.facts], unit)


def _concurrency(study: Study) -> Finding:
    load = fact(study, "load", "load without batching")
    others = fact(study, "not_alone", "share not alone")
    spread = fact(study, "dispersion", "dispersion of counts in 10 s")
    if mean(load) >= SUSTAINED:
        answer = "sustained"
    else:
        answer = "bursty" if mean(others) >= BURSTY else "sparse"
    much = "more" if mean(load) >= 1 else "less"
    clumped = "in clumps" if mean(spread) > CLUMPED else "about as scattered as by chance"
    return Finding(
        "Is there sustained or bursty concurrency?",
        answer,
        f"sustained: load >= {SUSTAINED:g}; else bursty: >= {BURSTY:.0%} not alone; else sparse",
        (
            say(
                f"Seconds of work that arrive per second, {much} than one request at a time can do",
                load,
            ),
            say("Requests that find another one in service or waiting", others),
            say(f"Arrivals come {clumped} (1: Poisson)", spread, fact(study, "gap_cv", "gap CV")),
        ),
    )


def _lengths(study: Study) -> Finding:
    outputs, prompts = fact(study, "output_cv", "output CV"), fact(study, "prompt_cv", "prompt CV")
    varied = "varied" if mean(outputs) >= VARIED else "similar"
    statements = [say(f"Output lengths are {varied}", outputs), say("Prompt lengths", prompts)]
    for setting, runs in study.nominal.measured.items():
        if dict(setting)["kind"] in ("static", "window-pull"):
            padding = metric(runs, "padding_fraction", "padding")
            text = f"Under {title(setting)}, rows computed for requests that are done"
            statements.append(say(text, padding))
    return Finding(
        "How varied are input and output lengths?",
        varied,
        f"varied: CV of the outputs >= {VARIED:g}",
        tuple(statements),
    )


def _idle(study: Study) -> Finding:
    own, batched = study.nominal.measured[NONE], study.nominal.measured[study.advised]
    busy = metric(own, "busy_fraction", "busy")
    answer = "idle most of the time" if mean(busy) < IDLE else "busy"
    uses = (("mfu", "MFU"), ("bandwidth_utilisation", "memory bandwidth"))

    def figures(runs: Sequence[Metrics]) -> tuple[Figure, ...]:
        known = [metric(runs, key, name) for key, name in uses if mean_of(runs, key) is not None]
        return (metric(runs, "busy_fraction", "busy"), *known)

    return Finding(
        "Is the GPU idle?",
        answer,
        f"idle: busy less than {IDLE:.0%} of the time without batching",
        (
            say("Without batching: fraction of the time it works, and of its peaks that is used",
                *figures(own)),
            say(f"With {title(study.advised)}", *figures(batched)),
        ),
    )  # fmt: skip


def _goal(study: Study) -> Finding:
    own, batched = study.nominal.measured[NONE], study.nominal.measured[study.advised]
    load = fact(study, "load", "load without batching")
    behind = mean(load) >= 1
    text = "falls behind" if behind else "keeps up in the long run, not always in a burst"
    rate, done = "realised_rate", "request_throughput"
    percent = f"{100 * study.enquiry.target:g}"
    return Finding(
        "Throughput or response time?",
        "throughput" if behind else "response time",
        "throughput: load without batching >= 1, its queue grows with the length of the run",
        (
            say(f"Without batching the server {text}", load, metric(own, rate, "arriving", "req/s"),
                metric(own, done, "served", "req/s")),
            say(f"With {title(study.advised)}", metric(batched, done, "served", "req/s"),
                change(own, batched, "output_throughput", "output tokens/s, change")),
            say(f"Response time (p{percent}) of a request alone, without and with batching",
                fact(study, "alone_e2el_ms", "alone", "ms"),
                metric(own, f"p{percent}_e2el_ms", "without", "ms"),
                metric(batched, f"p{percent}_e2el_ms", "with", "ms")),
        ),
    )  # fmt: skip


def limits_of(study: Study) -> dict[str, float]:
    """Return the objectives: latency to its limit in ms."""
    goodput = study.enquiry.spec.measure.goodput
    found = {name: getattr(goodput, f"{name}_ms") for name in OBJECTIVES}
    return {name: limit for name, limit in found.items() if limit is not None}


def _objective(study: Study) -> Finding:
    own, batched = study.nominal.measured[NONE], study.nominal.measured[study.advised]
    percent = f"{100 * study.enquiry.target:g}"
    statements, tightness = [], {}
    for name, limit in limits_of(study).items():
        key = f"p{percent}_{name}_ms"
        alone = fact(study, f"alone_{name}_ms", "alone", "ms")
        without, with_it = metric(own, key, "without", "ms"), metric(batched, key, "with", "ms")
        tightness[name] = mean(without) / limit
        text = f"{name} <= {limit:g} ms (p{percent})"
        if mean(alone) > limit:
            text += ": out of reach even for a request alone"
        statements.append(say(text, alone, without, with_it))
    tightest = max(tightness, key=lambda name: tightness[name])
    return Finding(
        "Which objective decides?",
        tightest,
        f"the one whose p{percent} without batching is the largest multiple of its limit",
        tuple(statements),
    )


MOVED = (
    ("slo_attainment", "attainment", ""),
    ("p50_ttft_ms", "TTFT p50", "ms"),
    ("p50_tpot_ms", "TPOT p50", "ms"),
    ("mean_batch_size", "batch", ""),
    ("kv_usage_max", "KV max", ""),
)


def _moves(study: Study) -> Finding:
    statements = []
    for winner in study.nominal.measured:
        for name, value in winner:
            tried = along(study, winner, name)
            if isinstance(value, int) and len(tried) > 1:
                low, high = tried[0], tried[-1]
                rest = title(tuple(pair for pair in low if pair[0] != name))
                text = f"{rest}: {name} from {dict(low)[name]} to {dict(high)[name]}"
                figures = [
                    Figure(f"{label} at {dict(s)[name]}", mean_of(study.searched[s], key), unit=u)
                    for key, label, u in MOVED
                    for s in (low, high)
                ]
                known = [f for f in figures if f.mean is not None]
                statements.append(Statement(text, tuple(known)))
    spread = [attainment(runs) for runs in study.searched.values()]
    answer = f"attainment {min(spread):.3f} to {max(spread):.3f} in {len(spread)} settings"
    return Finding(
        "How do batch size, wait time and resources move?",
        answer,
        "each limit from its smallest to its largest tried value, the others fixed; means over "
        f"{study.enquiry.search_seeds} seeds of the search",
        tuple(statements),
    )


def along(study: Study, setting: Setting, name: str) -> list[Setting]:
    """Return the searched settings that differ in a single limit, by its value.

    The others are those of a setting, or of the policy's most tried combination where nothing
    was tried beside that setting.
    """
    if not isinstance(dict(setting)[name], int):
        return []
    lines: dict[Setting, list[Setting]] = {}
    for other in study.searched:
        if other[0] == setting[0]:
            lines.setdefault(tuple(p for p in other if p[0] != name), []).append(other)
    own = lines[tuple(pair for pair in setting if pair[0] != name)]
    longest = own if len(own) > 1 else max(lines.values(), key=len)
    return sorted(longest, key=lambda s: float(str(dict(s)[name])))


def texts(findings: Iterable[Finding]) -> list[str]:
    """Return the findings as lines of text."""
    lines = []
    for number, finding in enumerate(findings, 1):
        lines += ["", f"{number}. {finding.question} -> {finding.answer}"]
        lines += [fill(finding.rule, 100, initial_indent="   ", subsequent_indent="   ")]
        lines += [line(statement) for statement in finding.statements]
    return lines


def line(statement: Statement) -> str:
    """Return a sentence with its numbers beside it."""
    text = f"{statement.text}: [{'; '.join(map(str, statement.figures))}]"
    return fill(text, 100, initial_indent="   - ", subsequent_indent="     ")
