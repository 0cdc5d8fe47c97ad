"""Results as text: the table of one run in the layout of vLLM's benchmark, and of several runs."""

import shlex
from collections.abc import Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, TypeAdapter

from simulator.cost.spec import TableSpec
from simulator.metrics import Metrics
from simulator.spec import RunSpec, kind_of

if TYPE_CHECKING:
    import pandas as pd

    from simulator.result import Result

WIDTH = 74

LATENCY_TITLES = {
    "ttft": "Time to First Token",
    "tpot": "Time per Output Token (excl. 1st token)",
    "itl": "Time between Tokens (all gaps, pooled)",
    "e2el": "End-to-end Latency",
    "queue": "Queueing Delay",
}
"""Latency name to its heading."""


def run_text(result: "Result") -> str:
    """Return the report of one run; the same run gives the same text."""
    metrics = result.metrics
    lines = [_headline(result), *_counts(metrics), *_rates(result.spec, metrics)]
    for name, title in LATENCY_TITLES.items():
        lines += [f" {title} ".center(WIDTH, "-"), *_latency(name, metrics)]
    lines += ["-" * WIDTH, *_machine(metrics), "=" * WIDTH]
    lines += [f"Warning: {warning}." for warning in result.warnings]
    return "\n".join(lines)


def parameters(spec: RunSpec) -> str:
    """Return the policy and its parameters in one line.

    Examples
    --------
    >>> parameters(RunSpec(policy={"kind": "window-pull", "max_batch_size": 4}))
    'window-pull (max_batch_size=4)'
    >>> policy = {"order": "edf", "budget": {"kind": "ascend-table", "slo_ms": 9}}
    >>> parameters(RunSpec(policy=policy))
    'vllm-v1 (order=edf, budget=ascend-table(slo_ms=9.0))'
    """
    fields = spec.policy.model_dump(mode="json", exclude={"kind"}, exclude_defaults=True)
    return f"{spec.policy_kind} ({_listed(spec.policy, fields) or 'defaults'})"


def _listed(part: BaseModel, fields: Mapping[str, Any]) -> str:
    """Return parameters in words; parts that have kinds by their kind and their own parameters."""
    words = []
    for key, value in fields.items():
        inner = getattr(part, key)
        if isinstance(inner, BaseModel):
            kind, own = kind_of(inner) or "", _listed(inner, value)
            value = f"{kind}({own})" if own or not kind else kind
        words.append(f"{key}={value}")
    return ", ".join(words)


def machine(spec: RunSpec) -> str:
    """Return the cost model in one line.

    Examples
    --------
    >>> machine(RunSpec())
    'llama-3.1-8b on h100 (table, engine profile generic)'
    """
    cost = spec.cost
    if isinstance(cost, TableSpec):
        gpus = f"{cost.tp} x {cost.gpu}" if cost.tp > 1 else cost.gpu
        scale = "" if cost.scale == 1 else f", times x {cost.scale:g}"
        return f"{cost.model} on {gpus} (table, engine profile {cost.engine_profile}{scale})"
    left_out = {"kind", "scale"} if cost.scale == 1 else {"kind"}
    fields = cost.model_dump(mode="json", exclude=left_out)
    return f"{cost.kind} cost ({', '.join(f'{key}={value}' for key, value in fields.items())})"


def reproduce(spec: RunSpec) -> str:
    """Return the command that gives the same output.

    Examples
    --------
    >>> reproduce(RunSpec(seed=3, policy="static"))
    'batchlab run --policy.kind static --seed 3'
    """
    words, default = ["batchlab", "run"], RunSpec()
    for name, value in spec:
        words += _options(f"--{name}", value, getattr(default, name))
    return shlex.join(words)


def _options(option: str, value: object, default: object) -> list[str]:
    """Spell out what differs from the default, or from the defaults of another kind."""
    if value == default:
        return []
    if not isinstance(value, BaseModel):
        return [option, value if isinstance(value, str) else _plain(value)]
    words: list[str] = []
    same = type(value) is type(default)
    kind = kind_of(value)
    if kind and not same:
        words += [f"{option}.kind", kind]
    for name, field in type(value).model_fields.items():
        below = getattr(default, name) if same else field.get_default(call_default_factory=True)
        if name != "kind":
            words += _options(f"{option}.{name.replace('_', '-')}", getattr(value, name), below)
    return words


def _plain(value: object) -> str:
    text = TypeAdapter(type(value)).dump_json(value).decode()
    return text.strip('"')


def _headline(result: "Result") -> str:
    spec = result.spec
    title = f" Simulation result: {parameters(spec)} ".center(WIDTH, "=")
    return f"{title}\n{result.trace.provenance['source']}; {machine(spec)}; seed {spec.seed}"


def _line(label: str, text: str) -> str:
    return f"{label + ':':<46}{text}"


def _counts(metrics: Metrics) -> list[str]:
    counts = [str(metrics[key]) for key in ("completed", "rejected", "unfinished")]
    return [
        _line("Requests completed / rejected / unfinished", " / ".join(counts)),
        _line(
            "Measured from / for (s)",
            f"{number(metrics['warmup_s'])} / {number(metrics['duration_s'])}",
        ),
        _line(
            "Input / output tokens",
            f"{metrics['total_input_tokens']} / {metrics['total_output_tokens']}",
        ),
    ]


def _rates(spec: RunSpec, metrics: Metrics) -> list[str]:
    goodput = spec.measure.goodput
    lines = [
        _line(
            "Request rate configured / realised (req/s)",
            f"{number(metrics['request_rate'], 3)} / {number(metrics['realised_rate'], 3)}",
        ),
        _line("Request throughput (req/s)", number(metrics["request_throughput"], 3)),
        _line("Output token throughput (tok/s)", number(metrics["output_throughput"])),
        _line("Total token throughput (tok/s)", number(metrics["total_token_throughput"])),
    ]
    if goodput is not None:
        limits = goodput.model_dump(exclude_none=True)
        bounds = ", ".join(f"{key.removesuffix('_ms')} <= {v:g} ms" for key, v in limits.items())
        text = f"{number(metrics['request_goodput'], 3)}, {number(metrics['slo_attainment'], 3)}"
        lines.append(_line("Request goodput (req/s), attainment", f"{text} [{bounds}]"))
    return lines


def _latency(name: str, metrics: Metrics) -> list[str]:
    suffix = f"_{name}_ms"
    hidden = {f"std{suffix}"} | ({f"median{suffix}"} if f"p50{suffix}" in metrics else set())
    keys = [key for key in metrics if key.endswith(suffix) and key not in hidden]
    statistics = [key.removesuffix(suffix) for key in keys]
    label = " / ".join("Mean" if s == "mean" else s.capitalize() for s in statistics)
    values = " / ".join(number(metrics[key]) for key in keys)
    return [
        _line(f"{label} (ms)", values),
        _line("Samples", str(metrics[f"num_samples_{name}"])),
    ]


def _machine(metrics: Metrics) -> list[str]:
    def show(key: str, digits: int = 2) -> str:
        return number(metrics[key], digits)

    return [
        f"GPU busy {show('busy_fraction')}   mean batch {show('mean_batch_size', 1)}   "
        f"mean step {show('mean_step_ms')} ms   steps {metrics['num_steps']}",
        f"KV used mean/max {show('kv_usage_mean')}/{show('kv_usage_max')}   "
        f"preemptions {metrics['num_preemptions']}   padding {show('padding_fraction')}   "
        f"waiting {show('mean_num_waiting')}   running {show('mean_num_running')}",
        f"MFU {show('mfu')}   memory bandwidth {show('bandwidth_utilisation')} of the peak",
    ][: 2 if metrics["mfu"] is None else 3]


def number(value: float | int | None, digits: int = 1) -> str:
    """Return a number with fixed digits, or n/a.

    Examples
    --------
    >>> number(2.345, 2), number(None)
    ('2.35', 'n/a')
    """
    return "n/a" if value is None else f"{value:.{digits}f}"


COMPARISON = {
    "policy": "policy",
    "request_rate": "offered/s",
    "request_throughput": "done/s",
    "output_throughput": "tok/s",
    "p50_ttft_ms": "TTFT p50",
    "p99_ttft_ms": "TTFT p99",
    "p50_itl_ms": "TBT p50",
    "p99_itl_ms": "TBT p99",
    "p50_queue_ms": "queue p50",
    "p99_queue_ms": "queue p99",
    "busy_fraction": "busy",
    "mean_batch_size": "batch",
    "padding_fraction": "padding",
    "slo_attainment": "SLO met",
    "unfinished": "unfinished",
}
"""Column of a comparison to its heading."""

_DIGITS = {
    "busy_fraction": 2,
    "padding_fraction": 2,
    "slo_attainment": 2,
    "request_rate": 2,
    "request_throughput": 2,
    "output_throughput": 0,
    "unfinished": 0,
    "p50_itl_ms": 1,
    "p99_itl_ms": 1,
    "mean_batch_size": 1,
}


def comparison_text(frame: "pd.DataFrame", headings: Mapping[str, str] = COMPARISON) -> str:
    """Return several runs as one table, latencies in milliseconds.

    Parameters
    ----------
    frame : pandas.DataFrame
        One row a run, with the columns of `headings`.
    """
    rows = [
        [_cell(key, value) for key, value in zip(headings, row, strict=True)]
        for row in frame[list(headings)].itertuples(index=False)
    ]
    rows.insert(0, list(headings.values()))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    rows.insert(1, ["-" * width for width in widths])
    return "\n".join(_row(row, widths) for row in rows)


def _row(cells: Sequence[str], widths: Sequence[int]) -> str:
    """Return a line of a table: the first cell to the left, numbers to the right."""
    padded = [cell.rjust(width) for cell, width in zip(cells, widths, strict=True)]
    return "  ".join([cells[0].ljust(widths[0]), *padded[1:]])


SWEEP = (
    "realised_rate",
    "request_throughput",
    "output_throughput",
    "p50_ttft_ms",
    "p99_ttft_ms",
    "p99_itl_ms",
    "p99_e2el_ms",
    "slo_attainment",
    "busy_fraction",
    "mean_batch_size",
)
"""Metrics in the printed table of a sweep."""


def sweep_text(summary: "pd.DataFrame", axes: list[str]) -> str:
    """Return one line a point: means over the seeds, with half-widths of 95 % intervals."""
    if not len(summary):
        return "no run succeeded"
    return interval_table(summary, list(dict.fromkeys(["policy", *axes])), SWEEP)


def interval_table(frame: "pd.DataFrame", keys: Sequence[str], metrics: Sequence[str]) -> str:
    """Return a table: some columns as they are, and metrics with half-widths of intervals.

    Parameters
    ----------
    frame : pandas.DataFrame
        Columns of all `keys`, and `X` and `X_ci_high` for each metric X.
    """
    from tabulate import tabulate

    rows = [
        [*(_plain_cell(row[key]) for key in keys), *(_with_half(row, name) for name in metrics)]
        for row in frame.to_dict("records")
    ]
    return str(tabulate(rows, [*keys, *metrics], disable_numparse=True))


def _plain_cell(value: object) -> str:
    if value is None or value != value:
        return "-"
    return f"{value:g}" if isinstance(value, float) else str(value)


def _with_half(row: Mapping[Hashable, Any], name: str) -> str:
    value, high = row[name], row[f"{name}_ci_high"]
    if value is None or value != value:
        return "n/a"
    digits = 2 if abs(value) < 100 else 0
    half = "" if high is None or high != high else f" ± {high - value:.{digits}f}"
    return f"{value:.{digits}f}{half}"


def _cell(key: str, value: object) -> str:
    if isinstance(value, str):
        return value
    missing = value is None or value != value
    return number(None if missing else float(value), _DIGITS.get(key, 0))  # type: ignore[arg-type]
