"""The figures of a run by blocks: those of the whole, from memory as from files."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from simulator import Result, RunSpec, simulate
from simulator.columns import Columns
from simulator.report import run_text
from simulator.stored_table import StoredTable

SPECS = {
    name: RunSpec.from_dict(
        {
            "workload": {"name": "demo-chat", "num_requests": 400, "request_rate": 30},
            "policy": {"kind": "vllm-v1", "max_num_seqs": 16, "order": "sjf"},
            "measure": {
                "goodput": {"ttft_ms": 500},
                "warmup_s": 1.5,
                "horizon_s": horizon_s,
                "percentiles": [10, 90, 99],
            },
        }
    )
    for name, horizon_s in (("cut", 14), ("whole", None))
}


@pytest.fixture(scope="module", params=SPECS)
def one_block(request: pytest.FixtureRequest) -> Result:
    """A run whose tables are one block each."""
    result = simulate(SPECS[request.param])
    assert bool(result.metrics["unfinished"]) == (request.param == "cut")
    assert result.metrics["mfu"]
    return result


def again(result: Result) -> Result:
    """Return the same run with nothing computed yet."""
    parts = (result.trace, result.num_blocks, result.extrapolated_steps)
    return Result(result.spec, result.replication, result.tables, *parts)


@pytest.fixture
def small_blocks(monkeypatch: Any) -> None:
    monkeypatch.setattr("simulator.blocks.BLOCK", 37)
    monkeypatch.setattr("simulator.columns.BLOCK", 16)


@pytest.mark.usefixtures("small_blocks")
def test_blocks_give_the_figures_of_the_whole(one_block: Result) -> None:
    found = again(one_block)
    assert list(found.metrics) == list(one_block.metrics)
    for name, value in one_block.metrics.items():
        if isinstance(value, int) or name.startswith(("p10_", "p90_", "p99_", "median_")):
            assert found.metrics[name] == value, name
        else:
            assert found.metrics[name] == pytest.approx(value, rel=1e-12), name
    assert found.warnings == one_block.warnings


@pytest.mark.usefixtures("small_blocks")
def test_files_give_the_bits_of_memory(one_block: Result, tmp_path: Path) -> None:
    streamed = simulate(one_block.spec, spill=tmp_path)
    table = streamed.tables["requests"]
    assert isinstance(table, StoredTable)
    left = [number for block in table.blocks(["request_id"], 1) for number in block["request_id"]]
    assert left != sorted(left), "requests should leave in another order than they came"
    assert streamed.metrics == again(one_block).metrics
    assert streamed.warnings == one_block.warnings


@pytest.mark.usefixtures("small_blocks")
def test_no_whole_column_of_a_file_is_asked_for(tmp_path: Path, monkeypatch: Any) -> None:
    """Memory stays bounded: whatever `run --stream` does after the simulation goes by blocks."""
    most = 0
    whole_blocks = StoredTable.blocks

    def watched(self: StoredTable, names: Sequence[str], size: int) -> Iterator[Columns]:
        nonlocal most
        for block in whole_blocks(self, names, size):
            most = max(most, *map(len, block.values()))
            yield block

    def refused(self: StoredTable, name: str) -> None:
        raise AssertionError(f"the whole column {name} was asked for")

    monkeypatch.setattr(StoredTable, "blocks", watched)
    monkeypatch.setattr(StoredTable, "__getitem__", refused)
    (tmp_path / "tables").mkdir()
    result = simulate(SPECS["cut"], spill=tmp_path / "tables")
    result.save(tmp_path / "run")
    assert run_text(result)
    assert most == 37
