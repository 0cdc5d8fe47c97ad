"""The page on the regression gate: its suite is one, its snippets are YAML, its options exist."""

import re
from pathlib import Path

import pytest
import yaml

from simulator.commands.regress import app
from simulator.regress.suite import Suite

PAGE = (Path(__file__).parents[2] / "docs" / "regression-gate.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)


def test_the_suite_shown_can_be_read(tmp_path: Path) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(BLOCKS[0])
    (tmp_path / "mine.yaml").write_text("policy: static")
    suite = Suite(path)
    assert [scenario.exact for scenario in suite.scenarios] == [False, False, False, True]
    assert suite.num_cells == 9


@pytest.mark.parametrize("block", BLOCKS[1:])
def test_the_snippets_are_yaml_that_runs_the_check(block: str) -> None:
    assert "batchlab regress check suite.yaml" in str(yaml.safe_load(block))


def test_the_options_named_exist(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        app(["check", "--help"])
    shown = capsys.readouterr().out.lower()
    named = set(re.findall(r"--[a-z]+", PAGE)) - {"--reason", "--scenario"}
    assert [option for option in named if option not in shown] == []
