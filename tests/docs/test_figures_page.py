"""docs/figures.md: its pictures exist, its Python runs, its keys are those of the report."""

import re
from pathlib import Path

import pandas as pd
import pytest

from simulator.plots import sweep as plots_sweep

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "figures.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_every_example_is_shown_once_and_small() -> None:
    shown = re.findall(r"!\[[^\]]+\]\((figures/examples/[^)]+)\)", PAGE)
    there = [f"figures/examples/{path.name}" for path in (DOCS / "figures/examples").iterdir()]
    assert sorted(shown) == sorted(there)
    assert max((DOCS / path).stat().st_size for path in shown) < 40_000


def test_every_figure_of_the_report_has_a_section() -> None:
    assert re.findall(r"^## (F\d+) ", PAGE, re.MULTILINE) == [f"F{n}" for n in range(1, 12)]
    assert re.findall(r"^\| (F\d+) ", PAGE, re.MULTILINE) == [f"F{n}" for n in range(1, 12)]


def test_its_python_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    from simulator import RunSpec, simulate

    workload = {"name": "azure-conv-2023", "num_requests": 10, "request_rate": 2}
    heads = [{"policy": "vllm-v1", "request_rate": rate, "replication": 0} for rate in (1.0, 2.0)]
    runs = pd.DataFrame(h | simulate(RunSpec(workload=workload)).metrics for h in heads)
    monkeypatch.setattr(pd, "read_parquet", lambda path: runs.assign(p99_ttft_ms=90.0))
    assert callable(plots_sweep.overview)
    names: dict[str, object] = {}
    for block in BLOCKS:
        exec(block, names)
