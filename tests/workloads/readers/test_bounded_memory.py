"""Files are read, cut and summarised in memory that does not grow with their rows."""

import tracemalloc
from datetime import datetime, timedelta

import numpy as np
import pytest

from workloads import read_trace, summarise

START = datetime(2024, 5, 12)


@pytest.fixture
def write_azure(tmp_path):
    """Write so many rows of the format of Azure 2024, 50 a second."""

    def write(rows: int):
        lengths = np.random.default_rng(0).integers(1, 4000, (2, rows)).tolist()
        path = tmp_path / f"{rows}.csv"
        with path.open("w") as file:
            file.write("TIMESTAMP,ContextTokens,GeneratedTokens\n")
            for number, (prompt, output) in enumerate(zip(*lengths, strict=True)):
                time = START + timedelta(milliseconds=20 * number)
                file.write(f"{time}+00:00,{prompt},{output}\n")
        return path

    return write


def peak_bytes(call) -> int:
    tracemalloc.start()
    try:
        call()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def grows_by(call, small, large) -> int:
    call(small)  # what is imported and cached at the first call is not counted
    return peak_bytes(lambda: call(large)) - peak_bytes(lambda: call(small))


CUTS = {
    "summary": lambda path: summarise(path, "azure"),
    "window": lambda path: read_trace(path, "azure", start_s=1.0, end_s=3.0),
    "lenient": lambda path: read_trace(path, "azure", strict=False, start_s=1.0, end_s=3.0),
    "first rows": lambda path: read_trace(path, "azure", max_rows=100),
}


@pytest.mark.parametrize("how", CUTS)
def test_memory_does_not_grow_with_the_rows(write_azure, monkeypatch, how):
    monkeypatch.setattr("workloads.readers.rows._FLUSH", 500)
    monkeypatch.setattr("workloads.readers.text._BLOCK", 2**14)
    assert grows_by(CUTS[how], write_azure(6000), write_azure(12_000)) < 6000  # a byte a row


def test_the_rows_read_are_told_on_the_way(write_azure, monkeypatch):
    monkeypatch.setattr("workloads.readers.rows._FLUSH", 500)
    told: list[int] = []
    summarise(write_azure(1700), on_rows=told.append)
    assert sum(told) == 1700
    assert len(told) >= 4


@pytest.mark.slow
@pytest.mark.parametrize("how", CUTS)
def test_many_rows_take_the_memory_of_a_block(write_azure, how):
    assert grows_by(CUTS[how], write_azure(100_000), write_azure(400_000)) < 1_000_000


def test_a_whole_trace_takes_forty_bytes_a_row(write_azure, monkeypatch):
    monkeypatch.setattr("workloads.readers.rows._FLUSH", 500)
    trace = read_trace(write_azure(8000))
    assert sum(column.nbytes for column in trace.table().values()) <= 40 * len(trace)
