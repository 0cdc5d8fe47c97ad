"""Pairs of rows that must differ, or must not."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from simulator.errors import UserError
from simulator.validation.levels import Outcome
from simulator.validation.rows import Measurement, read_table

TIE = 0.08
"""Largest difference of a tie."""
COLUMNS = ("ordering_id", "kind", "metric", "greater_record_id", "lesser_record_id")
KINDS = ("order", "tie")


@dataclass(frozen=True)
class Ordering:
    """A pair of rows.

    Attributes
    ----------
    ordering_id, axis : str
        Name, and what differs between the rows.
    metric : str
        Column that is compared.
    kind : str
        `order`: the first value must be the greater one; `tie`: both must be nearly equal.
    greater, lesser : str
        Records.
    """

    ordering_id: str
    axis: str
    metric: str
    kind: str
    greater: str
    lesser: str


@dataclass(frozen=True)
class OrderOutcome:
    """What became of a pair: the ratios, and whether a level holds and is met."""

    ordering: Ordering
    measured: float | None
    predicted: float | None
    passed: bool
    no_level: str = ""

    @property
    def verdict(self) -> str:
        """`PASS`, `FAIL`, or `-` where no level holds."""
        if self.no_level:
            return "-"
        return "PASS" if self.passed else "FAIL"


def read_orderings(path: Path) -> list[Ordering]:
    """Read the table of pairs.

    Raises
    ------
    UserError
        If the file cannot be read, lacks a column, or names an unknown kind or metric.
    """
    found = []
    for line, cells in read_table(path, COLUMNS):
        where = f"{path.name}, line {line}"
        if cells["kind"] not in KINDS:
            raise UserError(f"{where}: kind {cells['kind']!r}: expected order or tie")
        if cells["metric"] not in Measurement.__dataclass_fields__:
            raise UserError(f"{where}: metric {cells['metric']!r}: expected a column of the rows")
        found.append(
            Ordering(
                cells["ordering_id"],
                cells.get("axis", ""),
                cells["metric"],
                cells["kind"],
                cells["greater_record_id"],
                cells["lesser_record_id"],
            )
        )
    return found


def judge_ordering(ordering: Ordering, outcomes: Mapping[str, Outcome]) -> OrderOutcome:
    """Compare the two rows of a pair.

    The level holds where both rows were run under the policy of their engine, with all settings
    that the rows name.
    """
    pair = [outcomes.get(record) for record in (ordering.greater, ordering.lesser)]
    if pair[0] is None or pair[1] is None:
        missing = ordering.greater if pair[0] is None else ordering.lesser
        return OrderOutcome(ordering, None, None, False, f"no record {missing}")
    measured = _ratio([getattr(one.row, ordering.metric) for one in pair])  # type: ignore[union-attr]
    values = [
        one.prediction.values.get(ordering.metric) if one and one.prediction else None
        for one in pair
    ]
    predicted = _ratio(values)
    if predicted is None:
        reasons = [reason for one in pair for reason in one.no_level if one.prediction is None]  # type: ignore[union-attr]
        return OrderOutcome(ordering, measured, None, False, (*reasons, "not predicted")[0])
    passed = abs(predicted - 1) <= TIE if ordering.kind == "tie" else predicted > 1
    foreign = [r for one in pair if one and one.scenario for r in one.scenario.inexpressible]
    return OrderOutcome(ordering, measured, predicted, passed, foreign[0] if foreign else "")


def _ratio(values: list[float | None]) -> float | None:
    if values[0] is None or values[1] is None:
        return None
    return values[0] / values[1]
