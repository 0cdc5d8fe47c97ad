"""The outputs that the README shows, and what the commands print now.

`python tests/docs/outputs.py` runs the commands and puts their output into the README, and the
figure beside it. To be done after a change of results, together with an entry in the changelog.
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
FIGURE = Path("docs/figures/throughput-ttft.png")

COMMANDS = {
    "$ make demo\n": ["demo", "--out", "results/demo"],
    "$ batchlab run\n": ["run"],
}
"""Line in the README before an output, and the words after `batchlab` that print it."""


def shown(command: str) -> str:
    """Return the output that the README shows below a command."""
    return README.read_text(encoding="utf-8").split(command)[1].split("```")[0]


def printed(command: str, folder: Path) -> str:
    """Run a command in a folder and return what it prints."""
    program = Path(sys.executable).with_name("batchlab")
    words = [program, *COMMANDS[command]]
    return subprocess.run(words, capture_output=True, text=True, cwd=folder, check=True).stdout


def figure(folder: Path) -> Path:
    """Return the figure of the README as the demonstration left it in a folder."""
    return folder / "results" / "demo" / "figures" / FIGURE.name


def refresh() -> None:
    """Put the real outputs into the README, and the real figure beside it."""
    text = README.read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        for command in COMMANDS:
            before, _, rest = text.partition(command)
            _, fence, after = rest.partition("```")
            text = before + command + printed(command, Path(folder)) + fence + after
        shutil.copyfile(figure(Path(folder)), ROOT / FIGURE)
    README.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    refresh()
