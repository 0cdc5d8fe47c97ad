"""Figures of traces and fits as lines of text."""

from collections.abc import Mapping, Sequence
from typing import Any

_WIDTH = 28
_SECTIONS = {
    "ties": "ties",
    "queueing": "queueing, one server",
    "prefixes": "prefixes",
    "conversations": "conversations",
    "clients": "clients",
}


def characterisation_text(found: Mapping[str, Any]) -> str:
    """Return a characterisation as lines of text."""
    account = found["account"]
    lines = [f"{account['source']}: {account['rows_read']:,} rows read"]
    lines += [f"  dropped {number:,}: {why}" for why, number in account["dropped"].items()]
    lines += [f"  warning: {told}" for told in account["warnings"]]
    lines += _arrivals(found["arrivals"])
    for name in ("prompt_tokens", "output_tokens"):
        column = found[name]
        percents = " ".join(f"{k} {column[k]:,.0f}" for k in ("p5", "p50", "p95", "p99"))
        lines += ["", _row(name, f"mean {column['mean']:,.1f}  {percents}  max {column['max']:,}")]
        lines += [_row("  fit", fit) for fit in _fits(column["fits"][:2])]
    lines.append("")
    for name, title in _SECTIONS.items():
        if found.get(name) is not None:
            lines += _section(title, found[name])
    return "\n".join(lines)


def _arrivals(found: Mapping[str, Any]) -> list[str]:
    lines = ["", _row("requests", f"{found['requests']:,} over {found['span_s']:,.1f} s")]
    if found["rate"] is None:
        return [*lines, _row("rate", "none: all at one moment")]
    lines.append(_row("rate", f"{found['rate']:.4g} /s, gap CV {found['cv']:.3g}"))
    local = found.get("cv_per_5_min")
    if local is not None:
        told = f"{local['median']:.3g} ({local['p10']:.3g} to {local['p90']:.3g})"
        lines.append(_row("  CV per 5 min", told))
    scales = (f"{width}: {_number(value)}" for width, value in found["dispersion"].items())
    lines.append(_row("dispersion", ", ".join(scales)))
    if found.get("peak_over_mean_60_s") is not None:
        lines.append(_row("busiest minute", f"{found['peak_over_mean_60_s']:.3g} times the mean"))
    lines.append(_row("longest gap", f"{found['longest_gap_s']:.4g} s"))
    if found.get("clock"):
        lines.append(_row("clock", found["clock"]))
    return lines + [_row("  gap fit", fit) for fit in _fits(found["fits"][:2])]


def fit_text(report: Mapping[str, Any]) -> str:
    """Return the report of a fit as lines of text."""
    truth = report["trace"]
    lines = [f"fit of {report['source']}: {report['chosen']}", f"  {report['why']}", ""]
    head = ("", "rate", "CV", "IDC 1 s", "10 s", "60 s", "mean wait s", "p99 wait s")
    rows = [head, ("trace", *(_number(truth[name]) for name in _FIGURES))]
    for candidate in report["candidates"]:
        figures = (_number(candidate["figures"][name]) for name in _FIGURES)
        mark = " *" if candidate["name"] == report["chosen"] else ""
        rows.append((candidate["name"] + mark, *figures))
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        lines.append("  ".join(cells).rstrip())
    low, high = report["spread"]["p99_wait_s"]
    inside = "inside" if report["queueing_inside_spread"] else "outside"
    lines += [
        "",
        f"p99 wait of the trace {truth['p99_wait_s']:.4g} s: {inside} the range of"
        f" {report['seeds']} draws, {low:.4g} to {high:.4g} s (one server, load 0.7)",
    ]
    return "\n".join(lines)


_FIGURES = ("rate", "cv", "idc_1_s", "idc_10_s", "idc_60_s", "mean_wait_s", "p99_wait_s")


def _fits(fits: Sequence[Mapping[str, Any]]) -> list[str]:
    told = []
    for fit in fits:
        rest = {k: v for k, v in fit.items() if k not in ("family", "ks")}
        parameters = ", ".join(f"{name} {_number(value)}" for name, value in rest.items())
        told.append(f"{fit['family']} ({parameters}), KS {fit['ks']:.3f}")
    return told


def _section(title: str, found: Mapping[str, Any]) -> list[str]:
    return [title, *(_row(f"  {name}", _number(value)) for name, value in found.items())]


def _row(name: str, text: str) -> str:
    return f"{name:<{_WIDTH}} {text}"


def _number(value: Any) -> str:
    if value is None:
        return "n/a"
    if isinstance(value, list):
        return "[" + ", ".join(_number(part) for part in value) + "]"
    if isinstance(value, int):
        return f"{value:,}"
    return f"{value:.4g}"
