"""What a run is asked to leave behind: tables, figures, a Chrome trace."""

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Self

from simulator.observer import Observer
from simulator.parquet import write_parquet
from simulator.result import PHASES, Result, new_folder
from simulator.spec import RunSpec

if TYPE_CHECKING:
    from simulator.figures import Format
    from simulator.lifelines import Lifelines

WATCHED = 1000
"""Requests of a run up to which a results folder also says what every request did and when."""


class Outputs:
    """Checks places before a run and fills them after it; a failure leaves nothing in them.

    Parameters
    ----------
    out : Path, optional
        Folder for the tables.
    figures : Path, optional
        Folder for the figures.
    ending : {"svg", "pdf", "png"}
        Format of the figures.
    chrome_trace : Path, optional
        File for the Chrome trace.
    force : bool
        Replace what exists there.

    Raises
    ------
    UserError
        On entry, if a place exists or cannot be written.
    """

    def __init__(
        self,
        out: Path | None,
        figures: Path | None,
        ending: "Format",
        chrome_trace: Path | None,
        *,
        force: bool,
    ) -> None:
        self._places = {"out": out, "figures": figures}
        self._ending: Format = ending
        self._trace = chrome_trace
        self._force = force
        self._watch: Lifelines | None = None
        self._folders: dict[str, Path] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        if self._trace is not None:
            from simulator.chrometrace import check_path

            check_path(self._trace, force=self._force)
        with ExitStack() as stack:
            for name, place in self._places.items():
                if place is not None:
                    folder = new_folder(place, force=self._force)
                    self._folders[name] = stack.enter_context(folder)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.__exit__(*error)  # type: ignore[arg-type]

    @property
    def folder(self) -> Path | None:
        """The folder that will take the name `out`, while the run goes on."""
        return self._folders.get("out")

    def observers(self, spec: RunSpec) -> tuple[Observer, ...]:
        """Return what has to watch the run."""
        number = getattr(spec.workload, "num_requests", None)
        small = "out" in self._folders and number is not None and number <= WATCHED
        if small or self._trace is not None or "figures" in self._folders:
            from simulator.lifelines import Lifelines

            self._watch = Lifelines()
            return (self._watch,)
        return ()

    def write(self, result: Result) -> None:
        """Write everything that was asked for."""
        if "out" in self._folders:
            result.write(self._folders["out"])
        if self._watch is not None:
            self._write_watched(result, self._watch)

    def _write_watched(self, result: Result, watch: "Lifelines") -> None:
        """Write what takes more than the tables: who did what when."""
        from simulator.lifelines import phase_table, spans_of

        spans = spans_of(result.tables, watch)
        if "out" in self._folders:
            table = phase_table(spans, result.tables["requests"])
            write_parquet(self._folders["out"] / PHASES, table)
        if "figures" in self._folders:
            from simulator.figures import write_figures
            from simulator.saved import of_result

            write_figures(of_result(result, spans), self._folders["figures"], self._ending)
        if self._trace is not None:
            from simulator.chrometrace import write_trace

            write_trace(self._trace, result, spans)
