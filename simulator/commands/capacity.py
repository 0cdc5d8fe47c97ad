"""`batchlab capacity`: the highest rate, or the fewest replicas, that meets the objectives."""

import json as js
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from simulator.capacity import (
    AXES,
    Find,
    Probe,
    Question,
    find_capacity,
    measure_curve,
)
from simulator.capacity.report import as_dict, capacity_table, capacity_text, curve_table
from simulator.capacity.slo import ATTAINMENT, Objective, parse_objective, percentiles_of
from simulator.commands.base import (
    HERE,
    NOTHING,
    Flag,
    Settings,
    Short,
    Where,
    Words,
    base_of,
    check_figure,
    read_file,
)
from simulator.errors import UserError
from simulator.experiments.grid import Point, make_points, parse_axis
from simulator.experiments.grid_file import make_plan, split_section
from simulator.experiments.store import Store
from simulator.experiments.sweep import run_sweep
from simulator.experiments.task import Row, Task
from simulator.settings import Nested
from simulator.spec import RunSpec

if TYPE_CHECKING:
    import pandas as pd

RANGES: dict[Find, tuple[float, float]] = {"rate": (0.01, 1000.0), "replicas": (1, 64)}
"""What is searched, and the range if none is given."""


def capacity(
    spec: Path | None = None,
    /,
    *,
    find: Find = "rate",
    slo: Words = None,
    attainment: float = 0.9,
    grid: Words = None,
    low: float | None = None,
    high: float | None = None,
    start: float | None = None,
    tolerance: float = 0.02,
    seeds: int = 5,
    max_seeds: int = 20,
    confidence: float = 0.95,
    rates: str | None = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    force: Flag = False,
    figure: Path | None = None,
    json: Flag = False,
    where: Where = HERE,
    short: Short = NOTHING,
    settings: Settings = None,
) -> int:
    """Find the highest request rate, or the fewest replicas, that meets the SLOs.

    A rate meets an objective if the mean over seeds does. Every probe runs the
    same seeds; they are doubled until the interval lies on one side of the
    limit. Latencies are assumed to grow with the rate. Exit code 1: an SLO is
    met nowhere in the range.

    For example:

      batchlab capacity --goodput ttft:500 tpot:50 --num-requests 2000
      batchlab capacity --slo "p99_ttft_ms<=500" --grid policy=vllm-v0,vllm-v1
      batchlab capacity base.yaml --find replicas --rate 40 --goodput ttft:500

    Parameters
    ----------
    spec
        YAML file with the specification.
    find
        What is searched.
    slo
        Objectives on metrics, such as "p99_ttft_ms<=500" (as in the README).
    attainment
        Fraction of the requests that have to meet --goodput.
    grid
        Variants NAME=VALUE,VALUE,... that are searched one beside the other.
    low
        Lower end of the range (0.01 requests/s, 1 replica).
    high
        Upper end of the range (1000 requests/s, 64 replicas).
    start
        First value (the rate of the specification, or 1).
    tolerance
        The rate is found to this fraction.
    seeds
        Replications of a probe.
    max_seeds
        They are doubled up to this number while a verdict is unclear.
    confidence
        Probability that all verdicts of a search are right.
    rates
        Rates R1,R2,... that are run too, for curves.
    out
        Folder for the tables; finished runs in it are not done again.
    force
        Replace the results of another search.
    figure
        Also draw goodput against the rate into this file (png, pdf or svg).
    json
        Print one JSON object instead of the table.
    """
    data, name = read_file(spec)
    data, section = split_section(data, name)
    base = base_of(data, settings, short)
    plan = make_plan(section, [parse_axis(text) for text in grid or ()])
    variants = plan.combinations()
    if any(name.rsplit(".", 1)[-1] == AXES[find] for values in variants for name in values):
        raise UserError(f"axis {AXES[find]}: is what is searched")
    points = make_points(base, variants)
    variants = [point.given for point in points]
    objectives = _objectives(base, slo or [], attainment)
    base = _with_percentiles(base, objectives)
    extra = _rates(rates)
    question = Question(
        find, objectives, *_range(find, points[0].spec, start, low, high), tolerance,
        seeds, max_seeds, confidence,
    )  # fmt: skip
    if find != "rate" and (figure is not None or extra):
        raise UserError("--figure, --rates: do not apply with --find replicas")
    check_figure(figure)
    executor = where.executor()
    store = None
    if out is not None:
        definition = {
            "base": base,
            "variants": [dict(point.values) for point in points],
            "question": repr(question),
        }
        store = Store(out, definition | {"rates": extra}, kind="capacity", force=force)

    def run(tasks: list[Task]) -> list[Row]:
        return run_sweep(tasks, store, executor=executor)

    answers = find_capacity(base, variants, question, run, _tell(question))
    measure_curve(base, answers, variants, question, extra, run)
    table, curve = capacity_table(answers, question), curve_table(answers, question)
    if store is not None:
        store.write("capacity.csv", lambda path: table.to_csv(path, index=False))
        store.write("curve.csv", lambda path: curve.to_csv(path, index=False))
    if figure is not None:
        _draw(curve, table, figure)
    print(js.dumps(as_dict(question, table, curve), indent=2) if json
          else capacity_text(table, answers, question))  # fmt: skip
    return 1 if any(answer.status == "never met" for answer in answers) else 0


def _objectives(base: Nested, words: list[str], attainment: float) -> tuple[Objective, ...]:
    known = ("slo_attainment", "request_goodput", "kv_usage_max", "busy_fraction", "rejected")
    found = [parse_objective(word, known) for text in words for word in text.split(",")]
    measure = base.get("measure", {})
    if measure.get("goodput"):
        if not 0 < attainment <= 1:
            raise UserError(f"--attainment {attainment:g}: expected a fraction in 0..1")
        found.insert(0, Objective(ATTAINMENT, ">=", attainment))
    if not found:
        raise UserError("no objective: give --goodput ttft:500 tpot:50 or --slo METRIC<=NUMBER")
    return tuple(found)


def _with_percentiles(base: Nested, objectives: tuple[Objective, ...]) -> Nested:
    """Return the specification that measures all percentiles the objectives name."""
    measure = dict(base.get("measure", {}))
    present = RunSpec.from_dict({"measure": measure}).measure.percentiles
    wanted = sorted({*present, *percentiles_of(objectives)})
    return {**base, "measure": measure | {"percentiles": wanted}}


def _rates(text: str | None) -> list[float]:
    try:
        values = [float(word) for word in (text or "").split(",") if word]
    except ValueError:
        values = [-1.0]
    if any(not 0 < value < 1e9 for value in values):
        raise UserError(f"--rates {text}: expected numbers above 0, such as 1,2,4")
    return values


def _range(
    find: Find, spec: RunSpec, start: float | None, low: float | None, high: float | None
) -> tuple[float, float, float]:
    """Return where the search begins and its range."""
    least, most = RANGES[find]
    least, most = least if low is None else low, most if high is None else high
    if start is None:
        arrivals = getattr(spec.workload, "arrivals", spec.workload)
        rate = getattr(arrivals, "request_rate", None) or 1.0
        start = min(max(rate if find == "rate" else 1, least), most)
    if find == "replicas" and any(value != int(value) for value in (start, least, most)):
        raise UserError("--start, --low, --high: expected whole numbers of replicas")
    return start, least, most


def _tell(question: Question) -> Any:
    """Return what says on standard error how a probe went."""

    def tell(variant: Point, probe: Probe) -> None:
        parts = [
            f"{j.objective.metric} {j.mean:.4g}" + (f" ± {j.high - j.mean:.2g}" if j.high else "")
            for j in probe.judgements
        ]
        what = f"{variant.title}: " if variant.values else ""
        unit = "requests/s" if question.find == "rate" else "replicas"
        print(
            f"capacity: {what}{probe.value:g} {unit} {probe.verdict} "
            f"({', '.join(parts)}; {len(probe.runs)} seeds)",
            file=sys.stderr,
        )

    return tell


def _draw(curve: "pd.DataFrame", table: "pd.DataFrame", path: Path) -> None:
    from simulator import plots
    from simulator.plots import capacity as plots_capacity

    ax = plots_capacity.goodput_curves(curve, limits=table)
    plots.save_whole(ax, path)
