"""`batchlab report`: the results of a run, a comparison or a sweep as one HTML page."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from simulator.errors import UserError
from simulator.figures import Format, write_figures
from simulator.page import page
from simulator.page.tables import as_csv, as_latex, headline_table
from simulator.result import new_folder
from simulator.saved import load
from simulator.whole_file import write_whole


def report(
    folder: Path,
    /,
    *,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    question: str = "",
    figures: Path | None = None,
    format: Format = "svg",
    force: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Write the report of a results folder: one HTML page that needs no network.

    The page holds question, inputs, warnings, a table of the main metrics with
    intervals over the seeds, paired differences, figures, definitions, and how to
    reproduce it. The same results give the same bytes.

    For example:

      batchlab run -o results/a && batchlab report results/a
      batchlab report results/sweep -o sweep.html --question "How long should a batch wait?"
      batchlab report results/demo --figures paper/figures --format pdf

    Parameters
    ----------
    folder
        Results of `run -o`, `sweep` or `demo`.
    out
        File of the page; report.html in the folder if left out.
    question
        What the page answers, in one sentence; derived from the axes if left out.
    figures
        Folder for the figures as files of their own, and the table as CSV and LaTeX.
    format
        Format of those files.
    force
        Replace a page or a folder of figures that exists.
    """
    target = out or folder / "report.html"
    if target.exists() and not force and out is not None:
        raise UserError(f"{target}: exists already; choose another file or add --force")
    saved = load(folder)
    text = page(saved, asked=question)
    if figures is not None:
        with new_folder(figures, force=force) as temporary:
            write_figures(saved, temporary, format)
            table = headline_table(saved)
            (temporary / "table.csv").write_text(as_csv(table), encoding="utf-8")
            (temporary / "table.tex").write_text(as_latex(table), encoding="utf-8")
    write_whole(target, text)
    print(f"Report in {target}")
    return 0
