"""Turn what `make bench` measured into the lines of the table in docs/speed.md.

python scripts/bench_table.py results/bench.json

Times are means, with the smallest and the largest where a benchmark ran more than once.
"""

import json
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "simpy", "pandas", "pydantic")
UNITS = (("s", 1.0), ("ms", 1e3), ("µs", 1e6), ("ns", 1e9))


def main(path: str) -> None:
    """Print machine, versions and table."""
    report = json.loads(Path(path).read_text(encoding="utf-8"))
    print("\n".join([*about(report), "", *table(report["benchmarks"])]))


def about(report: Mapping[str, Any]) -> Iterator[str]:
    """Yield what the figures depend on."""
    machine, commit = report["machine_info"], report["commit_info"]
    cpu, changes = machine["cpu"], " and changes" if commit["dirty"] else ""
    packages = [f"{name} {version(name)}" for name in PACKAGES]
    yield f"{report['datetime'][:10]}, commit {commit['id'][:7]}{changes};"
    yield f"{cpu['brand_raw']}, {cpu['count']} cores;"
    yield f"{', '.join(['Python ' + machine['python_version'], *packages])}."


def table(benchmarks: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the lines of the table."""
    yield "| benchmark | time | rounds | also |"
    yield "|---|---|---|---|"
    for benchmark in benchmarks:
        stats = benchmark["stats"]
        spread = ""
        if stats["rounds"] > 1:
            spread = f" ({seconds(stats['min'])} to {seconds(stats['max'])})"
        also = ", ".join(f"{key} {value:.6g}" for key, value in benchmark["extra_info"].items())
        name = benchmark["name"].removeprefix("test_").replace("_", " ").replace("|", "/")
        yield f"| {name} | {seconds(stats['mean'])}{spread} | {stats['rounds']} | {also} |"


def seconds(value: float) -> str:
    """Return a time in the unit that suits it.

    Examples
    --------
    >>> seconds(0.0123), seconds(81.2)
    ('12.3 ms', '81.2 s')
    """
    unit, factor = next((u for u in UNITS if value * u[1] >= 1), UNITS[-1])
    return f"{value * factor:.3g} {unit}"


if __name__ == "__main__":
    main(*sys.argv[1:])
