"""Fixtures shared by the tests of workloads."""

from functools import cache
from pathlib import Path

import pytest

from workloads import read_clients, read_trace

TRACES = Path(__file__).parents[3] / "shared" / "traces"


@pytest.fixture(scope="session")
def traces() -> Path:
    """The original traces, which lie beside the checkout; the test is skipped without them."""
    if not TRACES.is_dir():
        pytest.skip("the original traces (../shared/traces) are not here")
    return TRACES


@pytest.fixture(scope="session")
def real(traces: Path):
    """Read a file or an archive of clients of the originals; each is read once."""

    @cache
    def read(name: str):
        path = traces / name
        return read_clients(path) if name.startswith("servegen/") else read_trace(path)

    return read


@pytest.fixture
def write(tmp_path: Path):
    """Write a file and return its path."""

    def _write(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _write
