"""Results folders read back: a run, a comparison of runs, or a sweep."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from simulator.columns import Columns
from simulator.errors import UserError
from simulator.lifelines import Span, spans_from
from simulator.recorder import GAP_COLUMNS, REQUEST_COLUMNS, STEP_COLUMNS
from simulator.result import MANIFEST, PHASES, Result
from simulator.spec import RunSpec, parse_yaml
from workloads.trace import Trace

if TYPE_CHECKING:
    import pandas as pd

Spans = dict[int, list[Span]]

TABLES: Mapping[str, Mapping[str, type]] = {
    "requests": REQUEST_COLUMNS,
    "steps": STEP_COLUMNS,
    "gaps": GAP_COLUMNS,
}
"""Tables of a run and their columns."""


@dataclass
class Saved:
    """A results folder, or what would be in it.

    Attributes
    ----------
    kind : {"run", "comparison", "sweep", "compare"}
        A comparison has all tables of its runs; `compare` has their metrics for several seeds.
    name : str
        Name of the folder.
    frame : pandas.DataFrame
        A row a run: parameters, `replication`, metrics.
    manifest : dict
        Versions, hashes, definition.
    runs : dict of str to Result
        Single runs with their tables; a sweep has none.
    spans : dict of str to dict
        What every request of a run did, for the runs that were watched.
    failures : pandas.DataFrame
        A row a failed run.
    spec_file : str
        Text of a specification with all axes, which repeats a sweep; empty if there is none.
    """

    kind: str
    name: str
    frame: "pd.DataFrame"
    manifest: dict[str, Any]
    runs: dict[str, Result] = field(default_factory=dict)
    spans: dict[str, Spans] = field(default_factory=dict)
    failures: "pd.DataFrame | None" = None
    spec_file: str = ""

    @property
    def specs(self) -> list[RunSpec]:
        """Specifications of the runs; of a sweep, its base."""
        if self.runs:
            return [result.spec for result in self.runs.values()]
        base = self.manifest.get("definition", {}).get("base", {})
        return [RunSpec.from_dict(base, f"{self.name}/{MANIFEST}")]


def load(folder: Path) -> Saved:
    """Read a results folder.

    Raises
    ------
    UserError
        If it is no results folder, or a file is missing or damaged.
    """
    manifest = _json(folder / MANIFEST)
    kind = manifest.get("kind")
    try:
        if kind == "run":
            return of_result(*_load_run(folder), name=folder.name, manifest=manifest)
        if kind == "comparison" and (folder / "runs").is_dir():
            return _load_comparison(folder, manifest)
        if (folder / "runs.parquet").is_file():
            return _load_sweep(folder, manifest)
    except OSError as error:
        raise UserError(f"{error.filename or folder}: {error.strerror or error}") from None
    except (KeyError, ValueError) as error:
        raise UserError(f"{folder}: damaged results: {error}") from None
    if kind == "sweep":
        raise UserError(f"{folder}: the sweep is not finished; run the same command again")
    raise UserError(f"{folder}: expected the results of a run, a comparison or a sweep")


def of_result(
    result: Result,
    spans: Spans | None = None,
    *,
    name: str = "run",
    manifest: dict[str, Any] | None = None,
) -> Saved:
    """Return a single run as if it had been saved and read back."""
    frame = _frame({name: result})
    watched = {} if spans is None else {name: spans}
    return Saved("run", name, frame, manifest or result.manifest(), {name: result}, watched)


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        if not path.parent.is_dir():
            raise UserError(f"{path.parent}: there is no such folder") from None
        raise UserError(f"{path}: cannot be read: {error.strerror}; not a results folder") from None
    except ValueError as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None
    if not isinstance(data, dict):
        raise UserError(f"{path}: expected an object")
    return data


def _load_run(folder: Path) -> tuple[Result, Spans | None]:
    spec_file = folder / "spec.yaml"
    text = parse_yaml(spec_file.read_text(encoding="utf-8"), str(spec_file))
    spec, manifest, summary = (
        RunSpec.from_dict(text, str(spec_file)),
        _json(folder / MANIFEST),
        _json(folder / "summary.json"),
    )
    tables = {name: _table(folder / f"{name}.parquet", TABLES[name]) for name in TABLES}
    metrics = summary["metrics"]
    result = Result(
        spec,
        manifest["replication"],
        tables,
        _trace(tables["requests"], manifest),
        manifest["kv_blocks"],
        metrics["extrapolated_steps"],
    )
    result.__dict__.update(metrics=metrics, warnings=summary["warnings"])
    phases = folder / PHASES
    return result, (spans_from(_read(phases)) if phases.is_file() else None)


def _read(path: Path) -> Columns:
    import pandas as pd

    if not path.is_file():
        raise UserError(f"{path}: No such file or directory")
    frame = pd.read_parquet(path)
    return {str(name): frame[name].to_numpy() for name in frame}


def _table(path: Path, types: Mapping[str, type]) -> Columns:
    """Return the recorded columns of a table; missing values are NaN again."""
    found = _read(path)
    return {name: found[name].astype(dtype) for name, dtype in types.items()}


def _trace(requests: Columns, manifest: dict[str, Any]) -> Trace:
    """Return the workload as far as it arrived."""
    order = np.argsort(requests["arrival_s"], kind="stable")
    return Trace(
        requests["arrival_s"][order],
        requests["prompt_tokens"][order],
        requests["target_output_tokens"][order],
        requests["max_tokens"][order],
        provenance=manifest["workload"] | {"rows_kept": len(order)},
    )


def _load_comparison(folder: Path, manifest: dict[str, Any]) -> Saved:
    order = list(_json(folder / "summary.json"))
    loaded = {name: _load_run(folder / "runs" / name) for name in order}
    runs = {name: result for name, (result, _) in loaded.items()}
    spans = {name: found for name, (_, found) in loaded.items() if found is not None}
    return Saved("comparison", folder.name, _frame(runs), manifest, runs, spans)


def _load_sweep(folder: Path, manifest: dict[str, Any]) -> Saved:
    import pandas as pd

    frame = pd.read_parquet(folder / "runs.parquet")
    names = list(frame)
    if not names:
        raise UserError(f"{folder}: no run of the sweep succeeded; see failures.parquet")
    for name in names[: names.index("replication")]:  # axis values are kept as they were written
        numbers = pd.to_numeric(frame[name], errors="coerce")
        if numbers.notna().equals(frame[name].notna()):
            frame[name] = numbers
    failed, spec_file = folder / "failures.parquet", folder / "spec.yaml"
    failures = pd.read_parquet(failed) if failed.is_file() else None
    text = spec_file.read_text(encoding="utf-8") if spec_file.is_file() else ""
    kind = str(manifest["kind"])
    if kind == "compare":
        frame = _with_names(frame, manifest["definition"])
    return Saved(kind, folder.name, frame, manifest, failures=failures, spec_file=text)


def _with_names(frame: "pd.DataFrame", definition: Mapping[str, Any]) -> "pd.DataFrame":
    """Name the specifications of the rows, unless their policies tell them apart."""
    names, seeds = list(definition["specs"]), int(definition["seeds"])
    frame = frame.drop(columns="specification", errors="ignore")
    if frame["policy"].nunique() < len(names):
        frame.insert(0, "specification", np.repeat(names, seeds))
    return frame


def _frame(runs: Mapping[str, Result]) -> "pd.DataFrame":
    """Return a row a run: its name, what its specification has of its own, and all metrics."""
    import pandas as pd

    flat = {name: _flat(result.spec.to_dict()) for name, result in runs.items()}
    table = pd.DataFrame(flat.values()).drop(columns="policy.kind").dropna(axis=1, how="all")
    policies = pd.Series([result.spec.policy_kind for result in runs.values()])
    own = [
        name
        for name in table
        if table[name].astype(str).nunique() > 1
        and table[name].astype(str).groupby(policies).nunique().max() > 1
    ]
    rates = "workload.request_rate"
    number = "workload.num_requests"
    if {rates, number} <= set(own) and table.groupby(rates)[number].nunique().max() == 1:
        own.remove(number)
    heads = [
        {"run": run, "policy": result.spec.policy_kind} | {name: table[name][row] for name in own}
        for row, (run, result) in enumerate(runs.items())
    ]
    return pd.DataFrame(
        [
            head | {"replication": result.replication} | result.metrics
            for head, result in zip(heads, runs.values(), strict=True)
        ]
    )


def _flat(data: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested data under dotted names.

    Examples
    --------
    >>> _flat({"policy": {"kind": "none"}, "seed": 1})
    {'policy.kind': 'none', 'seed': 1}
    """
    found: dict[str, Any] = {}
    for name, value in data.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{name}.")
        else:
            found[f"{prefix}{name}"] = value
    return found
