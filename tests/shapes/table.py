"""The published shapes that are checked, and the page that shows them.

`python tests/shapes/table.py` runs all of them (half a minute) and puts the numbers into
docs/shapes.md. The published curve of S8 is read from the reference material beside the checkout.
"""

import re
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))

from tests.shapes import (  # noqa: E402  # as a script, the path comes first
    chunking,
    knee,
    prefill,
    shortest_job,
    smoothing,
    static_batches,
    triton_batcher,
)
from tests.shapes.common import Line  # noqa: E402

PAGE = ROOT / "docs" / "shapes.md"


class Shape(NamedTuple):
    """A published shape: its key, how it is measured, and what that takes."""

    name: str
    lines: Callable[[Path], list[Line]]
    is_slow: bool = False
    is_shared: bool = False


SHAPES = (
    Shape("S1", chunking.lines, is_slow=True),
    Shape("S2", prefill.chunk_lines),
    Shape("S3", prefill.saturation_lines),
    Shape("S4", static_batches.lines, is_slow=True),
    Shape("S6", knee.lines, is_slow=True),
    Shape("S8", triton_batcher.lines, is_shared=True),
    Shape("S10", smoothing.lines),
    Shape("S13", shortest_job.lines),
)

MISSES: dict[str, set[str]] = {
    "S1": {"arXiv: TTFT of both over hybrid only"},
    "S2": {
        "chunk 512, prompts of 4096 / 8192 / 16384",
        "chunk 2048, prompts of 4096 / 8192 / 16384",
        "257 tokens against 256",
    },
    "S4": {
        "paged over iteration-level, cap known, cuts 32 / 128 / 512 / 1536",
        "paged over iteration-level, 2048 reserved, cuts 32 / 128 / 512 / 1536",
    },
    "S6": {"TPOT, ms, at 1 / 31 / 62 / 92 / 123 requests/s"},
    "S8": {
        "two instances, inferences/s, 2 to 16 clients",
        "gain of a second instance, 2, 4 to 10 and 12 to 16 clients",
    },
}
"""What does not come out, by shape; the page says why."""


def rows(lines: Sequence[Line]) -> str:
    """Return a table of published against simulated."""
    verdicts = {True: "yes", False: "**no**", None: "not judged"}
    head = ["| what | published | simulated | criterion | holds |", "|---|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(r[:4])} | {verdicts[r.holds]} |" for r in lines)])


def page(text: str, folder: Path, shared: Path) -> str:
    """Return the page with the tables of now; `folder` is for scratch files."""
    for shape in SHAPES:
        table = rows(shape.lines(shared if shape.is_shared else folder))
        mark = re.compile(rf"(<!-- shape: {shape.name} -->\n).*?(<!-- end -->)", re.DOTALL)
        if not mark.search(text):
            raise ValueError(f"{PAGE}: no place for {shape.name}")
        text = mark.sub(lambda m, table=table: f"{m[1]}{table}\n{m[2]}", text)
    return text


def main() -> None:
    """Renew the page."""
    with tempfile.TemporaryDirectory() as folder:
        text = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(page(text, Path(folder), ROOT.parent / "shared"), encoding="utf-8")


if __name__ == "__main__":
    main()
