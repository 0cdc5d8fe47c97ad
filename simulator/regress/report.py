"""A check of the regression gate for people (Markdown) and for CI servers (JUnit XML)."""

from collections.abc import Mapping
from xml.etree import ElementTree

from simulator.regress.check import Cell, Check
from simulator.regress.verdict import Judgement, Verdict

HEADINGS = ("verdict", "scenario", "metric", "baseline", "now", "change", "allowed", "seeds")


def markdown(outcome: Check, *, strict: bool) -> str:
    """Return headline and table of a check, the worst first."""
    from tabulate import tabulate

    rows = [_row(cell) for cell in outcome.cells]
    lines = [f"### Regression check of {outcome.suite.path}", "", _headline(outcome, strict), ""]
    lines += [f"Run failed: {failure}\n" for failure in outcome.failures]
    lines += [tabulate(rows, HEADINGS, "github", disable_numparse=True), ""]
    return "\n".join([*lines, _footer(outcome)])


def _headline(outcome: Check, strict: bool) -> str:
    code = outcome.exit_code(strict=strict)
    word = {0: "passed", 1: "failed", 3: "incomplete"}[code]
    counts = [f"{outcome.count(v)} {v.value}" for v in Verdict if outcome.count(v)]
    if outcome.failures:
        counts.insert(0, f"{len(outcome.failures)} runs failed")
    unclear = outcome.count(Verdict.INCONCLUSIVE)
    warning = f" Warning: {unclear} inconclusive, which --strict would fail." if unclear else ""
    return f"**{word}**: {', '.join(counts)}." + ("" if strict else warning)


def _footer(outcome: Check) -> str:
    limits, now = outcome.suite.limits, outcome.code_now
    return (
        f"Change: mean over the seeds with the paired interval; the {outcome.suite.num_cells} "
        f"intervals of the suite hold together with {100 * limits.confidence:g} %.\n"
        f"Code: batchlab {now['batchlab']}, {_origin(outcome.code, now)}."
    )


def _origin(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Say in which parts of the code, if any, a check differs from the baseline."""
    changed = [name for name in now if now[name] != then.get(name)]
    if not changed:
        return "the code of the baseline"
    parts = [f"{n} {then.get(n)} -> {now[n]}" for n in changed if n != "code_sha256"]
    return f"not the code of the baseline{': ' * bool(parts)}{', '.join(parts)}"


def _row(cell: Cell) -> list[str]:
    verdict = cell.verdict.value if cell.verdict is not Verdict.REGRESSED else "**regressed**"
    head, found = [verdict, cell.scenario, cell.metric], cell.judgement
    if found is None:
        return [*head, "", "", cell.note, "", str(cell.num_seeds)]
    values = [f"{found.baseline:.5g}", f"{found.now:.5g}"]
    allowed = _show(found, found.allowed).replace("+", "±")
    return [*head, *values, _change(found), allowed, str(cell.num_seeds)]


def _change(found: Judgement) -> str:
    if found.verdict is Verdict.IDENTICAL:
        return "0"
    change, low, high = (_show(found, value) for value in (found.change, found.low, found.high))
    return f"{change} [{low}, {high}]"


def _show(found: Judgement, value: float) -> str:
    return f"{100 * value:+.2f} %" if found.is_relative else f"{value:+.3g}"


def junit(outcome: Check, *, strict: bool) -> str:
    """Return a check as JUnit XML: a test case for each scenario and metric."""
    cells = outcome.cells
    failed = [cell for cell in cells if _fails(cell, strict)]
    suite = ElementTree.Element(
        "testsuite",
        name=f"batchlab regress {outcome.suite.path}",
        tests=str(len(cells) + len(outcome.failures)),
        failures=str(len(failed)),
        errors=str(len(outcome.failures)),
    )
    for failure in outcome.failures:
        case = ElementTree.SubElement(suite, "testcase", classname="run", name=failure)
        ElementTree.SubElement(case, "error", message=failure)
    for cell in cells:
        case = ElementTree.SubElement(suite, "testcase", classname=cell.scenario, name=cell.metric)
        text = ": ".join(filter(None, (cell.verdict.value, _detail(cell))))
        if _fails(cell, strict):
            ElementTree.SubElement(case, "failure", message=text)
        else:
            ElementTree.SubElement(case, "system-out").text = text
    ElementTree.indent(suite)
    return f'<?xml version="1.0" encoding="utf-8"?>\n{ElementTree.tostring(suite, "unicode")}\n'


def _fails(cell: Cell, strict: bool) -> bool:
    return cell.verdict is Verdict.REGRESSED or (strict and cell.verdict is Verdict.INCONCLUSIVE)


def _detail(cell: Cell) -> str:
    found = cell.judgement
    if found is None:
        return cell.note
    return f"{found.baseline:.5g} -> {found.now:.5g}, {_change(found)}, {cell.num_seeds} seeds"
