"""The README does what it says: its commands, its Python, its tables, its links."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import matplotlib as mpl
import pytest

from simulator import RunSpec, simulate
from tests.docs import outputs

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
PROGRAM = Path(sys.executable).with_name("batchlab")

BLOCK = re.compile(r"^<!-- (test|file): (\S+) -->\n```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A block of the README to be tested, and where it stands."""

    action: str
    name: str
    language: str
    text: str
    line: int


BLOCKS = [Block(*match.groups(), README[: match.start()].count("\n") + 1)
          for match in BLOCK.finditer(README)]  # fmt: skip
COMMANDS = [block for block in BLOCKS if (block.action, block.language) == ("test", "sh")]


def lines_of(block: Block) -> list[str]:
    """Return the commands in a block."""
    return block.text.strip().splitlines()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Return a folder with the files of the README, and a short trace under the name it uses."""
    for block in BLOCKS:
        if block.action == "file":
            (tmp_path / block.name).write_text(block.text)
    rows = [f"2023-11-16 18:15:{s:02}.6805900,{300 + s},{5 + s % 7}" for s in range(60)]
    text = "\r\n".join(["TIMESTAMP,ContextTokens,GeneratedTokens", *rows])
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_bytes(text.encode())
    return tmp_path


def test_there_is_something_to_test() -> None:
    assert {block.name for block in BLOCKS if block.action == "file"} == {
        "run.yaml",
        "one_prompt.py",
    }
    assert len(COMMANDS) >= 4


@pytest.mark.parametrize("block", COMMANDS, ids=lambda block: f"line-{block.line}")
def test_the_commands_run(folder: Path, block: Block) -> None:
    """All commands of a block one after the other, as a shell runs them."""
    path = f"{PROGRAM.parent}:/usr/local/bin:/usr/bin:/bin"
    done = subprocess.run(
        ["sh", "-e", "-c", block.text],
        capture_output=True,
        text=True,
        cwd=folder,
        env={"PATH": path},
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    for line in lines_of(block):
        if match := re.search(r"(?:-o|>) (\S+)", line):
            assert (folder / match[1]).exists()


def test_every_batchlab_command_of_the_readme_is_run() -> None:
    tested = "".join(block.text for block in COMMANDS)
    shown = [
        line
        for language, text in FENCE.findall(README)
        if language == "sh"
        for line in text.splitlines()
        if line.startswith("batchlab ")
    ]
    assert [line for line in shown if line not in tested] == []


def test_the_python_blocks_run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    mpl.use("agg")
    names: dict[str, object] = {}
    blocks = [b for b in BLOCKS if (b.action, b.language) == ("test", "python")]
    for block in blocks:
        code = "\n" * block.line + block.text  # so that an error names the line of the README
        exec(compile(code, "README.md", "exec"), names)
    assert (folder / "ttft.png").stat().st_size > 1000
    assert (folder / "results" / "first" / "summary.json").exists()


def test_python_takes_three_lines() -> None:
    first = next(b for b in BLOCKS if (b.action, b.language) == ("test", "python"))
    assert len([line for line in lines_of(first) if line]) == 3


def test_the_policy_of_the_readme_is_short_and_keeps_the_contract(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simulator.testing import check_policy

    text = (folder / "one_prompt.py").read_text()
    assert len([line for line in text.splitlines() if line.strip()]) <= 25
    monkeypatch.syspath_prepend(folder)
    spec = RunSpec(policy={"kind": "one_prompt:OnePrompt", "max_num_seqs": 3})
    check_policy(spec.policy)


def section(heading: str) -> str:
    """Return the text below a heading."""
    return README.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def metric_keys() -> list[str]:
    """Return the keys that the table of metrics explains, with braces written out."""
    rows = [
        line.split("|")[1] for line in section("Metrics").splitlines() if line.startswith("| `")
    ]
    keys: list[str] = []
    for key in (found for row in rows for found in re.findall(r"`([^`]+)`", row)):
        before, brace, rest = key.partition("{")
        inside, _, after = rest.partition("}")
        keys += [before + word + after for word in inside.split(",")] if brace else [key]
    return keys


def test_the_table_of_metrics_is_that_of_a_run() -> None:
    workload = {"arrivals": 2, "prompt_tokens": 9, "output_tokens": 3, "num_requests": 9}
    spec = RunSpec.from_dict({"workload": workload, "cost": {"kind": "fixed", "step_ms": 5}})
    keys = metric_keys()
    assert len(set(keys)) == len(keys)
    assert set(keys) == set(simulate(spec).metrics)


def test_the_sample_sizes_are_those_of_the_program() -> None:
    from simulator.stats import min_samples

    found = re.findall(r"P([\d.]+)\s+below\s+([\d,]+)", section("Metrics"))
    assert len(found) == 4
    assert [min_samples(float(p)) for p, _ in found] == [int(n.replace(",", "")) for _, n in found]


def test_the_exit_codes_are_those_of_the_program() -> None:
    from simulator import cli

    codes = {
        int(code) for code in re.findall(r"^\| (\d+) \|", section("Determinism"), re.MULTILINE)
    }
    assert codes == {
        cli.OK,
        cli.GATE_FAILED,
        cli.WRONG_INPUT,
        cli.RUN_FAILED,
        cli.INTERRUPTED,
    }


DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")


@pytest.mark.parametrize("name", DOCUMENTS)
def test_make_targets_and_files_exist(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    makefile = (ROOT / "Makefile").read_text()
    for target in set(re.findall(r"\bmake ([a-z-]+)`", text) + re.findall(r"\$ make (\S+)", text)):
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target
    for link in re.findall(r"\]\(([^)#]+)\)", text):
        assert link.startswith("https://") or (ROOT / link).exists(), link
    for path in re.findall(
        r"`((?:tests|docs|notebooks|scripts|simulator|policies|workloads)/[^`]*)`", text
    ):
        assert (ROOT / path.split(",")[0]).exists(), path


def test_the_figures_are_small() -> None:
    figures = list((ROOT / "docs" / "figures").iterdir())
    assert figures
    assert all(path.stat().st_size < 150_000 for path in figures)


@pytest.mark.slow
@pytest.mark.parametrize("command", outputs.COMMANDS, ids=lambda command: command.strip())
def test_the_outputs_shown_are_the_real_ones(tmp_path: Path, command: str) -> None:
    """Where this fails after a change of results: `python tests/docs/outputs.py`."""
    assert outputs.shown(command) == outputs.printed(command, tmp_path)
    if "demo" in command:
        real = outputs.figure(tmp_path).read_bytes()
        assert (ROOT / outputs.FIGURE).read_bytes() == real
