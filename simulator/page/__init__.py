"""The report of a results folder as one HTML page that needs nothing else."""

import io
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

from simulator.figures import Drawing, drawings
from simulator.page.tables import Cell, differences_table, headline_table
from simulator.page.text import DEFINITIONS, facts, how_to_repeat, question, warnings
from simulator.result import Result
from simulator.saved import Saved, of_result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def page(saved: Saved, *, asked: str = "") -> str:
    """Return the report as HTML; equal results give equal bytes.

    Parameters
    ----------
    saved : Saved
        Results of a run, a comparison or a sweep.
    asked : str
        The question at the top; one derived from what was varied if empty.
    """
    template = Template((files("simulator.page") / "page.html").read_text(encoding="utf-8"))
    return template.substitute(
        title=escape(f"{saved.kind.capitalize()} {saved.name}"),
        question=escape(asked or question(saved)),
        sections="\n".join(_sections(saved)),
    )


def fragment(result: Result) -> str:
    """Return the main metrics of a run as an HTML table, for a notebook.

    Examples
    --------
    >>> from simulator import RunSpec, simulate
    >>> result = simulate(RunSpec(workload={"name": "demo-chat", "num_requests": 9}))
    >>> "TTFT P50" in fragment(result)
    True
    """
    return _table(*headline_table(of_result(result)))


def _sections(saved: Saved) -> Iterator[str]:
    yield _section("inputs", "Inputs", _pairs(facts(saved)))
    found = warnings(saved)
    yield _section("warnings", "What changes the reading", _list(found))
    yield _section("results", "Results", _table(*headline_table(saved)))
    rows = differences_table(saved)
    if rows is not None:
        yield _section("differences", "Differences from the first", _table(*rows))
    if saved.failures is not None:
        errors = [str(error) for error in saved.failures["error"]]
        yield _section("failures", f"{len(errors)} runs failed", _list(sorted(set(errors))))
    figures = "\n".join(_figure(number, d) for number, d in enumerate(drawings(saved)))
    if figures:
        yield _section("figures", "Figures", f'<div class="figures">\n{figures}\n</div>')
    yield _section("definitions", "Definitions", _pairs(DEFINITIONS.items()))
    yield _section("reproduce", "How to reproduce", "\n".join(_blocks(how_to_repeat(saved))))


def _section(name: str, heading: str, body: str) -> str:
    return f'<section id="{name}">\n<h2>{escape(heading)}</h2>\n{body}\n</section>'


def _pairs(pairs: Iterable[tuple[str, str]]) -> str:
    rows = [f"<tr><th>{escape(key)}</th><td>{escape(text)}</td></tr>" for key, text in pairs]
    return '<table class="text">\n' + "\n".join(rows) + "\n</table>"


def _list(items: Sequence[str]) -> str:
    if not items:
        return "<p>Nothing.</p>"
    return '<ul class="warnings">' + "".join(f"<li>{escape(item)}</li>" for item in items) + "</ul>"


def _table(headings: Sequence[str], rows: Sequence[Sequence[Cell]], note: str) -> str:
    head = "".join(f"<th>{escape(word)}</th>" for word in headings)
    body = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return (
        f'<div class="scroll"><table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}\n</tbody>\n'
        f'</table></div>\n<p class="note">{escape(note)}</p>'
    )


def _cell(cell: Cell) -> str:
    text = escape(cell.text)
    return f"<td><b>{text}</b></td>" if cell.bold else f"<td>{text}</td>"


def _blocks(blocks: Mapping[str, str]) -> Iterator[str]:
    for heading, text in blocks.items():
        yield f"<p>{escape(heading)}</p>\n<pre>{escape(text)}</pre>"


def _figure(number: int, drawing: Drawing) -> str:
    label = escape(f"{drawing.key}. {drawing.title}")
    picture = svg(drawing.draw(), f"f{number}-", label)
    caption = f"<figcaption><b>{label}.</b> {escape(drawing.caption)}</figcaption>"
    name = escape(f"{drawing.key.lower()}-{drawing.name}")
    return f'<figure id="{name}">\n{picture}\n{caption}\n</figure>'


def svg(drawing: "Axes | Figure", prefix: str, label: str) -> str:
    """Return a figure as an SVG element for a page.

    Parameters
    ----------
    drawing : Axes or Figure
    prefix : str
        Put before the names inside, so that those of several figures differ.
    label : str
        What a reader who does not see it is told; already escaped.
    """
    from simulator import plots

    file = io.StringIO()
    plots.save(drawing, file, ending="svg")
    text = file.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>\s*", "", text, flags=re.DOTALL)
    text = re.sub(r'\bid="', f'id="{prefix}', text)
    text = re.sub(r'href="#', f'href="#{prefix}', text).replace("url(#", f"url(#{prefix}")
    return text.replace("<svg", f'<svg role="img" aria-label="{label}"', 1).rstrip()
