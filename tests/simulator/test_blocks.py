"""The same rows from memory and from files, whatever groups of rows the files have."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from simulator.blocks import blocks, num_rows
from simulator.columns import Columns
from simulator.parquet import as_table
from simulator.stored_table import StoredTable

NUMBER = 50
TABLE: Columns = {
    "time_s": np.where(np.arange(NUMBER) % 7, np.linspace(0, 1, NUMBER), np.nan),
    "count": np.arange(NUMBER) ** 2,
    "state": np.array(["finished", "rejected", ""])[np.arange(NUMBER) % 3],
}


def stored(table: Columns, path: Path, group: int = 8) -> StoredTable:
    parquet.write_table(as_table(table), path, row_group_size=group)
    return StoredTable(path)


@pytest.mark.parametrize("group", [1, 8, 50])
@pytest.mark.parametrize("size", [1, 7, 10, 50, 99])
def test_blocks_of_a_file_are_those_of_memory(
    tmp_path: Path, monkeypatch: Any, group: int, size: int
) -> None:
    monkeypatch.setattr("simulator.blocks.BLOCK", size)
    table = stored(TABLE, tmp_path / "x.parquet", group)
    assert num_rows(table) == num_rows(TABLE) == NUMBER
    names = ["state", "time_s", "count"]
    pairs = zip(blocks(table, names), blocks(TABLE, names), strict=True)
    for found, expected in pairs:
        assert list(found) == list(expected) == names
        for name in names:
            np.testing.assert_array_equal(found[name], expected[name])


def test_a_table_without_rows_is_one_block(tmp_path: Path) -> None:
    empty = {name: column[:0] for name, column in TABLE.items()}
    for table in (empty, stored(empty, tmp_path / "x.parquet")):
        assert num_rows(table) == 0
        assert [len(block["count"]) for block in blocks(table, ["count"])] == [0]


def test_requests_stand_by_number_in_a_block_and_in_a_column(tmp_path: Path) -> None:
    numbers = np.random.default_rng(0).permutation(NUMBER)
    table = stored(TABLE | {"request_id": numbers}, tmp_path / "x.parquet")
    assert table["request_id"].tolist() == list(range(NUMBER))
    np.testing.assert_array_equal(table["state"], TABLE["state"][np.argsort(numbers)])
    for block, first in zip(table.blocks(["count"], 20), range(0, NUMBER, 20), strict=True):
        order = np.argsort(numbers[first : first + 20])
        assert block["count"].tolist() == TABLE["count"][first : first + 20][order].tolist()


def test_an_unknown_column_is_a_key_error(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="nothing"):
        stored(TABLE, tmp_path / "x.parquet")["nothing"]
