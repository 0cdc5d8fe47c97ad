"""Published shapes: what comes out comes out, and what does not is known.

`docs/shapes.md` shows the numbers; `python tests/shapes/table.py` renews them.
"""

from pathlib import Path

import pytest

from tests.shapes.table import MISSES, PAGE, SHAPES, Shape, rows


def checked(shape: Shape) -> object:
    """Return a shape as a parameter: the longer ones are slow, one needs a published file."""
    marks = [pytest.mark.slow] * shape.is_slow + [pytest.mark.shared] * shape.is_shared
    return pytest.param(shape, id=shape.name, marks=marks)


@pytest.mark.parametrize("shape", [checked(shape) for shape in SHAPES])
def test_what_comes_out_and_what_does_not(shape: Shape, tmp_path: Path, shared: Path) -> None:
    """Where the page shows other numbers: `python tests/shapes/table.py`."""
    lines = shape.lines(shared if shape.is_shared else tmp_path)
    missed = {line.what.split(";")[0] for line in lines if line.holds is False}
    assert missed == MISSES.get(shape.name, set())
    assert f"<!-- shape: {shape.name} -->\n{rows(lines)}\n<!-- end -->" in PAGE.read_text("utf-8")
