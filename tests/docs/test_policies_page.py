"""The guide to the policies: complete, up to date, and what it shows runs."""

import doctest
import re
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import yaml

from policies import POLICIES, ROUTERS
from policies.budgets import BUDGETS
from policies.orders import ORDERS
from policies.vllm_v1 import PRESETS, VllmV1
from simulator import DecisionLog, RunSpec, simulate

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "policies.md").read_text(encoding="utf-8")
FILES = dict(re.findall(r"^<!-- file: (\S+) -->\n```\w+\n(.*?)^```$", PAGE, re.M | re.S))
SECTIONS = dict(re.findall(r"^### (\S+)\n(.*?)(?=^##)", PAGE, re.M | re.S))
KINDS = [model.model_fields["kind"].default for model in (*POLICIES, *ORDERS, *BUDGETS, *ROUTERS)]


@pytest.fixture(scope="module")
def guide() -> ModuleType:
    """Return the script that builds figures and tables."""
    spec = spec_from_file_location("policy_guide", DOCS.parent / "scripts" / "policy_guide.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["policy_guide"] = module  # dataclasses look for it there
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("kind", KINDS)
def test_every_policy_order_budget_and_router_has_its_section(kind: str) -> None:
    text = SECTIONS[kind]
    assert "figures/policies/" in text
    assert f"<!-- parameters: {kind} -->" in text
    assert len(text.split("![")[0].split()) > 15, "what it does and when it helps"


@pytest.mark.parametrize("kind", [policy.model_fields["kind"].default for policy in POLICIES])
def test_every_policy_names_its_source(kind: str) -> None:
    assert "\nSource: " in SECTIONS[kind]


def test_tables_of_parameters_are_those_of_the_code(guide: ModuleType) -> None:
    """Where this fails: `python scripts/policy_guide.py`."""
    assert guide.with_tables(PAGE) == PAGE
    assert [n for n, _ in guide.models() if f"<!-- parameters: {n} -->" not in PAGE] == []


def test_figures_shown_are_those_that_the_script_draws(guide: ModuleType) -> None:
    shown = re.findall(r"\]\(figures/policies/(\S+)\.png\)", PAGE)
    there = [path.stem for path in (DOCS / guide.FIGURES).iterdir()]
    assert sorted(shown) == sorted(there) == sorted(guide.EXAMPLES)
    assert all(path.stat().st_size < 10_000 for path in (DOCS / guide.FIGURES).iterdir())


DRAWN = ["static", "vllm-v0-recompute", "router-random"]
REST = [
    pytest.param(path.stem, marks=pytest.mark.slow)
    for path in sorted((DOCS / "figures" / "policies").iterdir())
    if path.stem not in DRAWN
]


@pytest.mark.parametrize("name", [*DRAWN, *REST])
def test_figure_is_what_a_run_gives_now(guide: ModuleType, tmp_path: Path, name: str) -> None:
    """Where this fails: `python scripts/policy_guide.py`, and look at the figures."""
    drawn = guide.draw(name, tmp_path)
    assert drawn.read_bytes() == (DOCS / guide.FIGURES / drawn.name).read_bytes()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder with the files of the page, on the path."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "shortest_prompt", raising=False)
    return tmp_path


def test_own_policy_takes_twenty_lines_and_its_doctests_pass(folder: Path) -> None:
    assert len([line for line in FILES["shortest_prompt.py"].splitlines() if line.strip()]) <= 20
    blocks = re.findall(r"^```pycon\n(.*?)^```$", PAGE, re.M | re.S)
    test = doctest.DocTestParser().get_doctest("\n".join(blocks), {}, "policies.md", None, 0)
    assert len(test.examples) > 10
    report: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(test, out=report.append)
    assert outcome.failed == 0, "".join(report)


def test_combination_in_yaml_needs_no_code(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    data = yaml.safe_load(FILES["edf-dynamic.yaml"])
    variants = [{}, {"order": "fcfs"}, {"budget": "fixed"}, {"decodes_first": False}]
    logs = [DecisionLog() for _ in variants]
    for part, log in zip(variants, logs, strict=True):
        spec = RunSpec.from_dict({**data, "policy": {**data["policy"], **part}})
        assert simulate(spec, observers=[log]).metrics["completed"] == 5
    combined, *others = (log.lines for log in logs)
    assert all(lines != combined for lines in others[:2]), "each part decides something"


@pytest.mark.parametrize("preset", PRESETS)
def test_presets_are_listed_and_pin_every_parameter(preset: str) -> None:
    assert f"| `{preset}` |" in PAGE
    assert set(PRESETS[preset]) == set(VllmV1.model_fields) - {"kind", "preset"}
    assert VllmV1(preset=preset, max_num_seqs=7).max_num_seqs == 7
