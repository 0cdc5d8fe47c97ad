"""What a run leaves: tables, metrics, warnings, and files that say where they come from."""

import json
import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property
from importlib.metadata import version
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any

from simulator.columns import Columns
from simulator.errors import UserError
from simulator.metrics import Metrics, measured_window
from simulator.metrics.requests import with_latencies
from simulator.metrics.summary import summarise
from simulator.metrics.utilisation import mean_use
from simulator.metrics.warnings import warnings_of
from simulator.parquet import write_parquet
from simulator.spec import RunSpec
from simulator.stored_table import StoredTable
from workloads.spec import SyntheticWorkload
from workloads.trace import Trace

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

MANIFEST = "manifest.json"
"""The file that marks a folder as ours."""

PHASES = "phases.parquet"
"""What every request did, where it was watched."""


class Result:
    """Tables and metrics of one run.

    Parameters
    ----------
    spec : RunSpec
        What was simulated.
    replication : int
        Index of the replication.
    tables : dict
        The requests, steps and gaps columns.
    trace : Trace
        The workload that was served.
    num_blocks : int or None
        Usable KV blocks; None: no limit.
    extrapolated_steps : int
        Steps outside the calibrated range of the cost model.

    Attributes
    ----------
    metrics : dict
        Metric name to value, None where there are too few samples.
    warnings : list of str
        What changes the reading of the metrics.
    """

    def __init__(
        self,
        spec: RunSpec,
        replication: int,
        tables: dict[str, Columns],
        trace: Trace,
        num_blocks: int | None,
        extrapolated_steps: int,
    ) -> None:
        self.spec = spec
        self.replication = replication
        self.tables = tables
        self.trace = trace
        self.num_blocks = num_blocks
        self.extrapolated_steps = extrapolated_steps

    @cached_property
    def metrics(self) -> Metrics:
        """Metric name to value (see `simulator.metrics.summary.summarise`)."""
        spec, window = self.spec, measured_window(self.tables, self.spec.measure)
        replicas = spec.engine.num_replicas
        metrics = summarise(self.tables, window, spec.measure, self.num_blocks, replicas)
        asked = {"request_rate": offered_rate(spec, self.trace)}
        used = mean_use(spec, self.tables["steps"], window)
        return asked | metrics | used | {"extrapolated_steps": self.extrapolated_steps}

    @cached_property
    def warnings(self) -> list[str]:
        """What changes the reading of the metrics, one sentence each."""
        return warnings_of(self.tables, self.trace, self.metrics, self.extrapolated_steps)

    @property
    def requests(self) -> "pd.DataFrame":
        """One row a request, with latencies in seconds."""
        return _frame(with_latencies(self.tables["requests"]))

    @property
    def steps(self) -> "pd.DataFrame":
        """One row a step, or run of equal steps."""
        return _frame(self.tables["steps"])

    @property
    def gaps(self) -> "pd.DataFrame":
        """Times between the tokens of a request, with how often each occurred."""
        return _frame(self.tables["gaps"])

    def summary(self) -> "pd.Series[Any]":
        """Return the metrics as a series."""
        import pandas as pd

        return pd.Series(self.metrics, dtype=object, name=self.spec.policy_kind)

    def __repr__(self) -> str:
        m = self.metrics
        return (
            f"<Result {self.spec.policy_kind}, replication {self.replication}\n"
            f"  requests: {m['completed']} completed, {m['rejected']} rejected, "
            f"{m['unfinished']} unfinished, {_show(m['realised_rate'], '.3f')} per s\n"
            f"  ttft p50 / p99: {_show(m.get('p50_ttft_ms'))} / {_show(m.get('p99_ttft_ms'))} ms"
            f" of {m['num_samples_ttft']}\n"
            f"  tbt p50 / p99: {_show(m.get('p50_itl_ms'))} / {_show(m.get('p99_itl_ms'))} ms"
            f" of {m['num_samples_itl']}\n"
            f"  busy {_show(m['busy_fraction'], '.2f')}, "
            f"mean batch {_show(m['mean_batch_size'])}>"
        )

    def _repr_html_(self) -> str:
        from simulator.page import fragment

        return fragment(self)

    def plot_ttft(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the distribution of the time to the first token; return the axes."""
        from simulator import plots

        return plots.latency_cdf([self], "ttft", ax)

    def plot_tbt(self, ax: "Axes | None" = None) -> "Axes":
        """Draw the distribution of the time between tokens; return the axes."""
        from simulator import plots

        return plots.latency_cdf([self], "tbt", ax)

    def plot_timeline(self, what: str = "batch_size", ax: "Axes | None" = None) -> "Axes":
        """Draw batch size, queue length, KV usage or utilisation over time; return the axes.

        Parameters
        ----------
        what : {"batch_size", "num_waiting", "kv_usage", "utilisation", "mfu", "bandwidth"}
        """
        from simulator import plots

        return plots.timeline([self], what, ax)

    def save(self, folder: str | Path, *, force: bool = False) -> Path:
        """Write the run to a folder, all of it or nothing.

        Parameters
        ----------
        folder : path
            Must not exist, unless `force`.
        force : bool
            Replace an existing results folder.

        Raises
        ------
        UserError
            If the folder exists or cannot be written.
        """
        with new_folder(folder, force=force) as temporary:
            self.write(temporary)
        return Path(folder)

    def write(self, folder: Path) -> None:
        """Write all files into an existing folder."""
        (folder / "spec.yaml").write_text(self.spec.to_yaml(), encoding="utf-8")
        dump_json(folder / "summary.json", self.to_dict())
        dump_json(folder / MANIFEST, self.manifest())
        for name, columns in self.tables.items():
            path = folder / f"{name}.parquet"
            if isinstance(columns, StoredTable):
                columns.move(path)
            else:
                table = with_latencies(columns) if name == "requests" else columns
                write_parquet(path, table)

    def to_dict(self) -> dict[str, Any]:
        """Return metrics, warnings and specification as plain data."""
        return {
            "metrics": self.metrics,
            "warnings": self.warnings,
            "spec_sha256": self.spec.content_hash(),
            "spec": self.spec.to_dict(),
        }

    def manifest(self) -> dict[str, Any]:
        """Return where the numbers come from; nothing in it depends on the wall clock."""
        return {
            "kind": "run",
            "spec_sha256": self.spec.content_hash(),
            "seed": self.spec.seed,
            "replication": self.replication,
            "workload_sha256": self.trace.content_hash(),
            "workload": self.trace.provenance,
            "kv_blocks": self.num_blocks,
            "versions": versions(),
        }


def _frame(columns: Columns) -> "pd.DataFrame":
    import pandas as pd

    return pd.DataFrame(columns)


def offered_rate(spec: RunSpec, trace: Trace) -> float | None:
    """Return the request rate that the workload asks for, per second; None if it asks for none."""
    workload = spec.workload
    if isinstance(workload, SyntheticWorkload):
        return workload.arrivals.rate
    rate = workload.request_rate or trace.rate
    return rate if isfinite(rate) else None


def versions() -> dict[str, str]:
    """Return the versions of everything that can change a number."""
    names = ("batchlab", "simpy", "numpy", "pandas", "pydantic", "scipy")
    return {"python": platform.python_version()} | {name: version(name) for name in names}


def dump_json(path: Path, data: object) -> None:
    """Write JSON with stable bytes."""
    path.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")


@contextmanager
def new_folder(folder: str | Path, *, force: bool = False) -> Iterator[Path]:
    """Give a temporary folder that takes the name `folder` at the end, or vanishes on failure.

    Raises
    ------
    UserError
        If the folder exists (and is not one of ours, or `force` is not set), or is not writable.
    """
    target = Path(folder)
    check_target(target, force)
    with _as_user_error(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{target.name}.", dir=target.parent))
    try:
        with _as_user_error(target):
            yield temporary
            os.chmod(temporary, 0o755)
            if target.exists():
                shutil.rmtree(target)
            temporary.rename(target)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def check_target(target: Path, force: bool) -> None:
    """Check before a long run that its results may be written."""
    if not target.exists():
        return
    if not force:
        raise UserError(f"{target}: exists already; choose another folder or add --force")
    if not target.is_dir() or (any(target.iterdir()) and not _is_ours(target)):
        raise UserError(f"{target}: is not a results folder, so --force does not replace it")


def _is_ours(folder: Path) -> bool:
    """Whether a folder holds the manifest of a run, a comparison or a sweep."""
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    versions = manifest.get("versions") if isinstance(manifest, dict) else None
    return isinstance(versions, dict) and "batchlab" in versions


@contextmanager
def _as_user_error(target: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UserError(f"{target}: cannot be written: {error.strerror or error}") from None


def _show(value: object, form: str = ".1f") -> str:
    return format(value, form) if isinstance(value, int | float) else "n/a"
