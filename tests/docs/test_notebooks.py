"""The notebooks: stored clean, parameters first, and they run."""

import ast
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import matplotlib as mpl
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LESS = {"NUM_REQUESTS": 40, "REPLICATIONS": 2, "ONLY": "M/D/1 as none: rate 0.5", "JOBS": 1}
"""Parameters that are lowered here, so that a notebook takes no time."""

PUBLIC = {"matplotlib", "numpy", "pandas", "policies", "scipy", "simulator", "workloads"}


def cells(path: Path, kind: str = "code") -> list[dict[str, Any]]:
    """Return the cells of a kind."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if cell["cell_type"] == kind]


def source(cell: dict[str, Any]) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def test_there_is_a_first_notebook() -> None:
    assert NOTEBOOKS[0].name == "01-first-run.ipynb"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_is_stored_without_outputs(path: Path) -> None:
    for cell in cells(path):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_the_first_cell_asks_the_question_and_holds_the_parameters(path: Path) -> None:
    first = source(json.loads(path.read_text(encoding="utf-8"))["cells"][0])
    question = first.splitlines()[0]
    assert question.startswith("# ")
    assert question.endswith("?")
    for statement in ast.parse(first).body:
        assert isinstance(statement, ast.Assign)
        ast.literal_eval(statement.value)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)
def test_it_uses_public_names_only(path: Path) -> None:
    for cell in cells(path):
        for node in ast.walk(ast.parse(source(cell))):
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_")
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert {module.partition(".")[0] for module in modules} <= PUBLIC


@pytest.mark.parametrize(
    "path",
    [NOTEBOOKS[0], *(pytest.param(path, marks=pytest.mark.slow) for path in NOTEBOOKS[1:])],
    ids=lambda path: path.name,
)
def test_its_cells_run_with_less_of_everything(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The cells as a program, without Jupyter; a last expression is evaluated as Jupyter does."""
    monkeypatch.chdir(tmp_path)
    mpl.use("agg")
    names: dict[str, Any] = {}
    for cell in cells(path):
        exec(compile(source(cell), f"{path.name}, cell {cell['id']}", "exec"), names)
        names |= {name: value for name, value in LESS.items() if name in names}
    assert capsys.readouterr().out


@pytest.mark.slow
def test_jupyter_runs_them() -> None:
    pytest.importorskip("nbmake", reason="nbmake is in the extra `notebooks`")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "--nbmake", *NOTEBOOKS]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stdout
