from typing import Any

from matplotlib.figure import Figure

from simulator.plots.theory import deviations


def row(quantity: str, deviation: float, *, inside: bool) -> dict[str, Any]:
    return {
        "case": "M/D/1",
        "policy": "none",
        "quantity": quantity,
        "theory": 2.0,
        "half_width": 0.01,
        "deviation_percent": deviation,
        "inside": inside,
    }


def test_rows_have_names_units_and_a_mark_where_theory_is_outside() -> None:
    ax = deviations([row("W", 0.1, inside=True), row("W_q", -3.0, inside=False)])
    assert isinstance(ax.figure, Figure)
    ax.figure.draw_without_rendering()
    assert [label.get_text() for label in ax.get_yticklabels()] == [
        "M/D/1, none: W",
        "M/D/1, none: W_q",
    ]
    assert "%" in ax.get_xlabel()
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == [
        "theory inside the 99.9 % interval",
        "outside",
    ]
