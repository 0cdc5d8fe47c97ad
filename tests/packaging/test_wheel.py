"""The wheel: built, looked into, and installed into an environment that has nothing of ours."""

import email
import os
import subprocess
import sys
import venv
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("policies", "simulator", "workloads")


def call(*words: object, cwd: Path) -> str:
    """Run a command that has to succeed; return its standard output."""
    env = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(
        [str(word) for word in words],
        capture_output=True,
        text=True,
        cwd=cwd,
        env=env | {"PIP_DISABLE_PIP_VERSION_CHECK": "1"},
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel with the backend that is installed; nothing is downloaded."""
    folder = tmp_path_factory.mktemp("wheel")
    call(
        *(sys.executable, "-m", "build", "--wheel", "--no-isolation"),
        *("--outdir", folder, ROOT),
        cwd=folder,
    )
    (found,) = folder.iterdir()
    return found


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """Files in the wheel."""
    with ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def metadata(wheel: Path) -> Message:
    """Core metadata of the wheel."""
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return email.message_from_bytes(archive.read(name))


def test_it_holds_just_the_three_packages(names: set[str]) -> None:
    tops = {name.partition("/")[0] for name in names}
    (info,) = tops - set(PACKAGES)
    assert info.startswith("batchlab-")
    assert info.endswith(".dist-info")


def test_every_file_of_the_packages_is_in_it(names: set[str]) -> None:
    files = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }
    assert files <= names
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    assert "simulator/cost/data/h100.npz" in names
    assert "simulator/cost/data/a100.npz" in names
    assert "workloads/data/azure-conv-2023.json.bz2" in names


def test_the_licences_travel_with_it(names: set[str], wheel: Path) -> None:
    licences = {name for name in names if "/licenses/" in name}
    assert {Path(name).name for name in licences} == {"LICENSE", "NOTICE"}
    with ZipFile(wheel) as archive:
        notice = next(archive.read(name).decode() for name in licences if name.endswith("NOTICE"))
    for words in ("Azure/AzurePublicDataset, CC-BY-4.0", "AIConfigurator", "Apache-2.0"):
        assert words in notice


def test_its_metadata_say_what_it_is(metadata: Message) -> None:
    assert metadata["Name"] == "batchlab"
    assert sorted(metadata.get_all("Import-Name", [])) == sorted(PACKAGES)
    assert metadata["License-Expression"] == "Apache-2.0"
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Summary"]
    assert str(metadata.get_payload()).startswith("# batchlab")
    needs = {str(line).split(">")[0] for line in metadata.get_all("Requires-Dist", [])}
    assert {"simpy", "numpy", "pandas", "scipy", "matplotlib", "pydantic"} <= needs


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel into a fresh environment that borrows the libraries of this one.

    A line in a .pth file puts the libraries on the path. The .pth files that lie there are not
    read, so that the editable install of this environment does not reach the fresh one.
    """
    folder = tmp_path_factory.mktemp("clean")
    venv.create(folder, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin" / "python", "install")
    call(*pip, "--quiet", "--no-deps", "--no-index", "--no-compile", wheel, cwd=folder)
    libraries = Path(np.__file__).parents[1]
    (packages / "libraries.pth").write_text(f"{libraries}\n")
    return folder


def test_all_modules_come_from_the_installed_wheel(installed: Path) -> None:
    code = f"""
import importlib, pkgutil, sys
for name in {PACKAGES}:
    package = importlib.import_module(name)
    assert package.__file__.startswith({str(installed)!r}), package.__file__
    for module in pkgutil.walk_packages(package.__path__, name + "."):
        if not module.name.startswith("simulator.profile_gpu"):
            importlib.import_module(module.name)
from simulator import RunSpec, simulate
result = simulate(RunSpec(workload={{"name": "azure-conv-2023", "num_requests": 5}}))
print(result.metrics["completed"])
"""
    assert call(installed / "bin" / "python", "-c", code, cwd=installed) == "5\n"


def test_the_installed_program_runs(installed: Path) -> None:
    version = call(installed / "bin" / "batchlab", "--version", cwd=installed)
    assert version.strip() == "0.1.0"
