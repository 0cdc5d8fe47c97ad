"""Digests of the runs in runs.yaml: of their requests, their tables, their summary.

`python tests/golden/digests.py` prints those that differ from digests.json; with `--accept` it
writes them there, after a change of results that is meant.
"""

import json
import sys
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import yaml

from simulator import RunSpec, simulate
from simulator.result import Result, versions
from simulator.settings import merge

FOLDER = Path(__file__).parent
FILE = FOLDER / "digests.json"
RUNS: dict[str, Any] = yaml.safe_load((FOLDER / "runs.yaml").read_text())

PARTS = {
    "requests": "what is drawn: the laws in workloads/, or how NumPy draws",
    "tables": "times and decisions: policies, engine, cost models",
    "summary": "statistics: simulator/metrics/__init__.py and stats.py, or how NumPy adds up",
}
"""Part of a result, and what may have changed where it is the first that differs."""


def spec(name: str, folder: Path) -> RunSpec:
    """Return the specification of a run; a folder for the trace it may need."""
    data = merge(RUNS["base"], RUNS["runs"][name])
    if data["workload"].get("path") == "TRACE":
        rows = "".join(f"{i // 4},{50 + i * 37 % 400},{3 + i * 11 % 30}\n" for i in range(60))
        path = folder / "trace.csv"
        path.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
        data["workload"]["path"] = str(path)
    return RunSpec.from_dict(data)


def digests(result: Result) -> dict[str, str]:
    """Return the digest of every part, 12 hexadecimal digits; equal ones mean equal bits."""
    tables = {
        f"{table}.{name}": [repr(value) for value in column.tolist()]
        for table, columns in result.tables.items()
        for name, column in columns.items()
    }
    return {
        "requests": result.trace.content_hash()[:12],
        "tables": _short(tables),
        "summary": _short({name: repr(value) for name, value in result.metrics.items()}),
    }


def _short(data: object) -> str:
    return sha256(json.dumps(data).encode()).hexdigest()[:12]


def all_digests() -> dict[str, dict[str, str]]:
    """Do all runs."""
    with TemporaryDirectory() as folder:
        return {name: digests(simulate(spec(name, Path(folder)))) for name in RUNS["runs"]}


def differences(found: dict[str, dict[str, str]], kept: dict[str, dict[str, str]]) -> list[str]:
    """Return a line for each run that differs: its first part that does, and what that means."""
    lines = [f"{name}: is no longer in runs.yaml" for name in kept if name not in found]
    for name, parts in found.items():
        before = kept.get(name, {})
        first = next((part for part in PARTS if parts[part] != before.get(part)), None)
        if first is not None:
            lines.append(f"{name}: {first} ({PARTS[first]})" if before else f"{name}: is new")
    return lines


def libraries() -> str:
    """Say which libraries are not those under which the digests were kept."""
    kept, now = json.loads(FILE.read_text())["versions"], versions()
    moved = [f"{n} {kept.get(n)} -> {now[n]}" for n in now if kept.get(n) != now[n]]
    return ", ".join(moved) or "the same libraries"


def main() -> None:
    found, kept = all_digests(), json.loads(FILE.read_text()) if FILE.exists() else {"runs": {}}
    sys.stdout.write("\n".join(differences(found, kept["runs"])) or "all equal")
    sys.stdout.write("\n")
    if "--accept" in sys.argv[1:]:
        rows = ",\n".join(f"    {json.dumps(n)}: {json.dumps(d)}" for n, d in found.items())
        written = json.dumps(versions())
        FILE.write_text(f'{{\n  "versions": {written},\n  "runs": {{\n{rows}\n  }}\n}}\n')


if __name__ == "__main__":
    main()
