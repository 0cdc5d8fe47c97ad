"""Fixtures shared by the tests of workloads."""

from pathlib import Path

import pytest

TRACES = Path(__file__).parents[3] / "shared" / "traces"


@pytest.fixture(scope="session")
def traces() -> Path:
    """The original traces, which lie beside the checkout; the test is skipped without them."""
    if not TRACES.is_dir():
        pytest.skip("the original traces (../shared/traces) are not here")
    return TRACES


@pytest.fixture
def write(tmp_path: Path):
    """Write a file and return its path."""

    def _write(content: str | bytes, name: str = "trace.csv") -> Path:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return _write
