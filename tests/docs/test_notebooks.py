"""The notebooks: stored clean, a question first, an answer last, and they run."""

import ast
import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import matplotlib as mpl
import pytest

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))

LESS = {
    "NUM_REQUESTS": 100,
    "REPLICATIONS": 2,
    "WAITS_MS": [0, 500],
    "BATCH_SIZES": [2, 8],
    "BUDGETS": [256, 512, 2048],
    "OBJECTIVES_MS": [20, 50, 100],
    "PATIENCES_S": [0, 2],
    "ONLY": "M/D/1 as none: rate 0.5",
    "JOBS": 1,
}
"""Parameters that are lowered here, so that a notebook takes a second or two."""

PERCENTILES = {"04-chunk-size-by-slo.ipynb": {"NUM_REQUESTS": 380}}
"""Notebooks that look at P99 of requests, of which it takes 368."""

PUBLIC = {"matplotlib", "numpy", "pandas", "policies", "scipy", "simulator", "workloads"}
PUBLIC |= {"pathlib", "pydantic"}

each_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.name)


def cells(path: Path, kind: str = "") -> list[dict[str, Any]]:
    """Return the cells, or those of a kind."""
    notebook = json.loads(path.read_text(encoding="utf-8"))
    return [cell for cell in notebook["cells"] if kind in ("", cell["cell_type"])]


def source(cell: dict[str, Any]) -> str:
    """Return the text of a cell."""
    return "".join(cell["source"])


def run_cells(path: Path) -> None:
    """Run the cells as a program, without Jupyter; `LESS` stands above their parameters."""
    names, less = vars(sys.modules["__main__"]), LESS | PERCENTILES.get(path.name, {})
    for cell in cells(path, "code"):
        exec(compile(source(cell), f"{path.name}, cell {cell['id']}", "exec"), names)
        names.update({name: value for name, value in less.items() if name in names})


def test_they_are_numbered() -> None:
    numbers = [int(path.name.partition("-")[0]) for path in NOTEBOOKS]
    assert numbers[0] == 1
    assert len(set(numbers)) == len(numbers)


@each_notebook
def test_it_is_stored_as_version_4_without_outputs(path: Path) -> None:
    notebook = json.loads(path.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    assert {cell["cell_type"] for cell in notebook["cells"]} == {"code", "markdown"}
    for cell in cells(path, "code"):
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@each_notebook
def test_its_first_line_is_a_question(path: Path) -> None:
    question = source(cells(path)[0]).splitlines()[0]
    assert question.startswith("# ")
    assert question.endswith("?")


@each_notebook
def test_its_parameters_come_first_and_hold_the_seed(path: Path) -> None:
    parameters, *rest = [source(cell) for cell in cells(path, "code")]
    names = []
    for statement in ast.parse(parameters).body:
        assert isinstance(statement, ast.Assign)
        ast.literal_eval(statement.value)
        names += [target.id for target in statement.targets if isinstance(target, ast.Name)]
    assert "SEED" in names
    used = {node.id for node in ast.walk(ast.parse("\n".join(rest))) if isinstance(node, ast.Name)}
    assert set(names) <= used


@each_notebook
def test_its_last_cell_prints_the_answer(path: Path) -> None:
    last = cells(path)[-1]
    assert last["cell_type"] == "code"
    texts = [
        node.value for node in ast.walk(ast.parse(source(last))) if isinstance(node, ast.Constant)
    ]
    assert any(str(text).startswith("Answer: ") or text == "Answer:" for text in texts)


@each_notebook
def test_it_uses_public_names_only(path: Path) -> None:
    for cell in cells(path, "code"):
        for node in ast.walk(ast.parse(source(cell))):
            if isinstance(node, ast.Attribute):
                assert not node.attr.startswith("_")
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            modules += [name.name for name in node.names] if isinstance(node, ast.Import) else []
            assert {module.partition(".")[0] for module in modules} <= PUBLIC


@each_notebook
def test_it_runs_with_less_of_everything(
    path: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "__main__", ModuleType("__main__"))
    mpl.use("agg")
    run_cells(path)
    assert "Answer:" in capsys.readouterr().out


@pytest.mark.slow
@each_notebook
def test_jupyter_runs_it_and_it_answers(path: Path, tmp_path: Path) -> None:
    pytest.importorskip("nbmake", reason="nbmake is in the extra `notebooks`")
    shutil.copy(path, tmp_path)
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "--nbmake", "--overwrite"]
    command = [sys.executable, "-m", "pytest", *options, path.name]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert done.returncode == 0, done.stdout
    last = cells(tmp_path / path.name)[-1]
    printed = "".join(line for output in last["outputs"] for line in output.get("text", []))
    assert printed.startswith("Answer:")
    assert any(
        "image/png" in o.get("data", {})
        for c in cells(tmp_path / path.name, "code")
        for o in c["outputs"]
    )
