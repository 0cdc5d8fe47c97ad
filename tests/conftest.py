"""Fixtures only: where the reference material lies, and what happens when it is absent."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests that need the reference material where it does not lie beside the checkout."""
    if SHARED.is_dir():
        return
    skip = pytest.mark.skip(reason=f"needs the reference material in {SHARED.name}/ beside it")
    for item in items:
        if "shared" in item.keywords:
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]):
    """Turn a skipped shared test into a failure where the material is required (CI)."""
    report = yield
    required = os.environ.get("BATCHLAB_REQUIRE_SHARED") == "1"
    if required and report.skipped and "shared" in item.keywords:
        report.outcome = "failed"
        report.longrepr = f"{item.nodeid}: skipped although the reference material is required"
    return report


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of the reference material."""
    return SHARED
