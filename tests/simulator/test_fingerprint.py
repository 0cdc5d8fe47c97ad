"""The key of a run depends on all of the code, wherever its files lie."""

from pathlib import Path

import pytest

from simulator import RunSpec
from simulator.experiments import fingerprint

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("simulator", "policies", "workloads")


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the hash of the code computed anew; what was found before stays for others."""
    monkeypatch.setattr(fingerprint, "code_hash", fingerprint.code_hash.__wrapped__)


@pytest.mark.usefixtures("fresh")
def test_every_module_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    read: set[Path] = set()
    monkeypatch.setattr(fingerprint, "_content", lambda path: read.add(path.resolve()) or "")
    fingerprint.code_hash()
    assert read >= {path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}


@pytest.mark.usefixtures("fresh")
@pytest.mark.parametrize(
    "changed", ["simulator/engine.py", "policies/base.py", "workloads/trace.py"]
)
def test_a_change_of_the_code_gives_other_keys(
    monkeypatch: pytest.MonkeyPatch, changed: str
) -> None:
    before = fingerprint.run_key(RunSpec(), 0)
    content = fingerprint._content

    def edited(path: Path) -> str:
        return content(path) + "+" * (path.resolve() == ROOT / changed)

    monkeypatch.setattr(fingerprint, "_content", edited)
    assert fingerprint.run_key(RunSpec(), 0) != before
