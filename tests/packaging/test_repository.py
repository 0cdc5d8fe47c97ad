"""The repository: pins, import contracts, and nothing that ties it to one machine."""

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = PROJECT["optional-dependencies"]
NEEDS = [*PROJECT["dependencies"], *EXTRAS["dev"], *EXTRAS["notebooks"]]

PIN = re.compile(r"([a-z0-9]+(?:-[a-z0-9]+)*)==([0-9][0-9a-z.]*)(?: ; (.+))?")

BINARY = (".npz", ".bz2", ".png", ".gz", ".parquet", ".pdf")

FOREIGN = {
    "path of one machine": re.compile(r"(?<![\w./>-])/(?:work|root|home|Users)/"),
    "address of a package index": re.compile(
        r"https?://\S*(?:pypi|pythonhosted|/simple\b)|--(?:extra-)?index-url|index-url\s*="
    ),
}
"""What no file may hold. The patterns do not match themselves."""


def pins() -> dict[str, list[tuple[Version, str]]]:
    """Return the pinned versions of each package, with their markers."""
    found: dict[str, list[tuple[Version, str]]] = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        match = PIN.fullmatch(line)
        assert match, f"{line!r}: expected name==version, or name==version ; marker"
        name, pinned, marker = match.groups()
        found.setdefault(name, []).append((Version(pinned), marker or ""))
    return found


def test_every_line_of_the_pins_is_a_name_a_version_and_a_marker() -> None:
    for name, versions in pins().items():
        assert name == canonicalize_name(name)
        for _, marker in versions:
            if marker:
                Marker(marker)
        markers = [marker for _, marker in versions]
        assert len(set(markers)) == len(markers)


@pytest.mark.parametrize("need", NEEDS)
def test_every_dependency_is_pinned_within_its_bounds(need: str) -> None:
    requirement = Requirement(need)
    versions = pins().get(canonicalize_name(requirement.name), [])
    assert versions
    assert all(requirement.specifier.contains(version) for version, _ in versions)


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
def test_every_package_has_one_version_on_every_supported_python(python: str) -> None:
    machine = {
        "python_version": python,
        "python_full_version": f"{python}.0",
        "sys_platform": "linux",
        "os_name": "posix",
        "implementation_name": "cpython",
        "platform_python_implementation": "CPython",
    }
    for name, versions in pins().items():
        chosen = [v for v, marker in versions if not marker or Marker(marker).evaluate(machine)]
        assert len(chosen) <= 1, name


def texts() -> dict[str, str]:
    """Return all text files of the repository, tracked or about to be."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    try:
        names = subprocess.check_output(command, cwd=ROOT, text=True).splitlines()
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("not a git checkout")
    paths = [ROOT / name for name in names if not name.endswith(BINARY)]
    return {
        str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
        for path in paths
        if path.is_file()
    }


def test_no_file_names_this_machine_or_a_package_index() -> None:
    found = [
        f"{name}, line {number}: {what}"
        for name, text in texts().items()
        for number, line in enumerate(text.splitlines(), 1)
        for what, pattern in FOREIGN.items()
        if pattern.search(line)
    ]
    assert found == []


@pytest.mark.parametrize(
    "line",
    [
        "see /work" + "/notes.md",
        'path = "/home' + '/me/a.csv"',
        "pip install --index" + "-url https://x",
        "https://files.python" + "hosted.org/x.whl",
    ],
)
def test_the_search_would_find_them(line: str) -> None:
    assert any(pattern.search(line) for pattern in FOREIGN.values())


def test_the_import_contracts_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--no-cache"], capture_output=True, text=True, cwd=ROOT, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert "0 broken" in done.stdout


def test_the_tests_and_notebooks_are_no_packages() -> None:
    """An editable install puts the repository on the path; these must not become importable."""
    assert list((ROOT / "tests").rglob("__init__.py")) == []
    assert list((ROOT / "notebooks").rglob("__init__.py")) == []


CFF_KEYS = {
    *("cff-version", "message", "title", "authors", "type", "abstract", "version", "license"),
    *("keywords", "references"),
}
CFF_REFERENCE_KEYS = {"type", "title", "authors", "collection-title", "year", "notes"}


def test_the_citation_file_is_valid() -> None:
    """Required keys and types of the Citation File Format 1.2.0, and no others than ours."""
    found = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert found["cff-version"] == "1.2.0"
    assert set(found) == CFF_KEYS
    assert found["type"] == "software"
    assert found["title"] == PROJECT["name"]
    assert found["version"] == PROJECT["version"]
    assert found["license"] == PROJECT["license"]
    assert all(set(author) == {"name"} for author in found["authors"])
    for reference in found["references"]:
        assert set(reference) == CFF_REFERENCE_KEYS
        assert all(set(a) == {"family-names", "given-names"} for a in reference["authors"])
        assert isinstance(reference["year"], int)


def test_the_changelog_has_the_version_and_its_headings() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = text.split("\n## ")[1]
    assert newest.split()[0] in (PROJECT["version"], "Unreleased")
    headings = re.findall(r"^### (.+)$", newest, re.MULTILINE)
    assert set(headings) <= {"Added", "Changed", "Fixed", "Results change"}


def test_the_makefile_accepts_this_python() -> None:
    lines = (ROOT / "Makefile").read_text().splitlines()
    recipe = next(line for line in lines if "sys.exit" in line)
    command = recipe.strip().replace("$(PYTHON)", sys.executable)
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
    assert "or newer" in command


@pytest.mark.parametrize("package", ["policies", "simulator", "workloads"])
def test_no_module_hides_what_its_package_defines(package: str) -> None:
    """Importing `a.b` sets the name `b` in `a`, over a function of that name."""
    for init in (ROOT / package).rglob("__init__.py"):
        defined = {getattr(node, "name", "") for node in ast.parse(init.read_text()).body}
        assert not defined & {path.stem for path in init.parent.glob("*.py")}, init
