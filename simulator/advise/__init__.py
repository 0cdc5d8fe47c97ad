"""Whether batching is worth it for a workload, and with which settings: runs and judgement."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from simulator.advise.facts import Facts, Figure, over_seeds, without_batching
from simulator.advise.search import (
    NONE,
    TIE,
    Measured,
    Setting,
    attainment,
    can_be,
    families,
    point_of,
    preferred,
    search,
)
from simulator.errors import RunError, UserError
from simulator.experiments.grid import Point, make_points
from simulator.experiments.task import Row, Task
from simulator.metrics import Metrics
from simulator.settings import Nested
from simulator.spec import RunSpec
from simulator.stats import each_confidence

MIN_GAIN = 0.02
"""Batching pays if it lets at least this fraction of the requests more meet the objectives."""

CONFIDENCE = 0.95
"""Of all intervals; those of the attainment hold together for all policies compared."""

Verdict = Literal["worth it", "not worth it", "not resolved"]

Runner = Callable[[str, list[Task]], list[Row]]
"""Has the runs of a stage of that name done."""


@dataclass(frozen=True)
class Enquiry:
    """What is asked.

    Parameters
    ----------
    base : dict
        Specification of workload, machine and objectives; its policy does not matter.
    target : float
        Fraction of the requests that have to meet the objectives, between 0 and 1.
    seeds : int
        Replications on which the advice rests, at least 2.
    search_seeds : int
        Others, on which the settings are chosen, at least 1.
    load_change, cost_change : float
        How far load and step times are moved up and down, as fractions.
    timeout_s : float, optional
        Wall-clock time that a run may take, seconds.
    """

    base: Nested
    target: float = 0.9
    seeds: int = 6
    search_seeds: int = 2
    load_change: float = 0.3
    cost_change: float = 0.15
    timeout_s: float | None = None

    def __post_init__(self) -> None:
        if not 0 < self.target < 1:
            raise UserError(f"--attainment {self.target:g}: expected a fraction between 0 and 1")
        for name, number, least in (
            ("seeds", self.seeds, 2),
            ("search-seeds", self.search_seeds, 1),
        ):
            if number < least:
                raise UserError(f"--{name} {number}: expected at least {least}")
        for name, change in (("load", self.load_change), ("cost", self.cost_change)):
            if not 0 < change < 1:
                raise UserError(f"--{name}-change {change:g}: expected a fraction between 0 and 1")

    @property
    def spec(self) -> RunSpec:
        """The workload without batching."""
        return point_of(self.base, NONE).spec


@dataclass(frozen=True)
class Comparison:
    """No batching against the best setting of every policy, under one condition.

    Attributes
    ----------
    condition : str
        Such as "load +30 %".
    measured : dict
        Setting to the metrics of its replications; `NONE` is one of them.
    advised : Setting
        The batching setting that is compared with `NONE`.
    target : float
    """

    condition: str
    measured: Measured
    advised: Setting
    target: float

    @property
    def level(self) -> float:
        """Confidence of one interval, so that those of all batching policies hold together."""
        return each_confidence(CONFIDENCE, max(1, len(self.measured) - 1))

    def attained(self, setting: Setting) -> Figure:
        """Return the fraction of requests that meet the objectives."""
        runs = self.measured[setting]
        return over_seeds(
            "attainment", [run["slo_attainment"] for run in runs], confidence=self.level
        )

    @property
    def gain(self) -> Figure:
        """How much larger it is with batching, seed by seed."""
        pairs = zip(self.measured[NONE], self.measured[self.advised], strict=True)
        return over_seeds(
            "gain",
            [(b["slo_attainment"] or 0.0) - (a["slo_attainment"] or 0.0) for a, b in pairs],
            confidence=self.level,
        )

    @property
    def met_without(self) -> bool:
        """Whether the objectives are clearly met without batching."""
        low = self.attained(NONE).low
        return low is not None and low >= self.target

    @property
    def is_met(self) -> bool:
        """Whether the mean with batching meets them."""
        return attainment(self.measured[self.advised]) >= self.target

    @property
    def verdict(self) -> Verdict:
        """Not worth it: met without, or clearly gains less than `MIN_GAIN`; worth it: gains it."""
        gain = self.gain
        if self.met_without:
            return "not worth it"
        if gain.low is not None and gain.low >= MIN_GAIN:
            return "worth it"
        if gain.high is not None and gain.high < MIN_GAIN:
            return "not worth it"
        return "not resolved"

    @property
    def best(self) -> Setting:
        """The batching setting that would be chosen here."""
        return preferred({s: runs for s, runs in self.measured.items() if s != NONE})

    @property
    def regret(self) -> Figure:
        """How much more the setting chosen here attains than the advised one, seed by seed."""
        pairs = zip(self.measured[self.advised], self.measured[self.best], strict=True)
        values = [(b["slo_attainment"] or 0.0) - (a["slo_attainment"] or 0.0) for a, b in pairs]
        return over_seeds("better setting", values, confidence=self.level)

    @property
    def still_best(self) -> bool:
        """Whether no other setting attains clearly more than the advised one."""
        regret = self.regret
        return regret.mean is None or regret.mean <= TIE


@dataclass(frozen=True)
class Study:
    """Everything that was measured.

    Attributes
    ----------
    enquiry : Enquiry
    facts : list of dict
        What the workload is like, a replication each.
    searched : dict
        All settings that were tried, on the seeds of the search.
    nominal : Comparison
        The best setting of every policy as things are.
    changed : list of Comparison
        The same settings at other loads and step times.
    num_runs : int
    failed : tuple of str
        Settings that could not be run, and why.
    """

    enquiry: Enquiry
    facts: list[Facts]
    searched: Measured
    nominal: Comparison
    changed: list[Comparison]
    num_runs: int
    failed: tuple[str, ...]

    @property
    def advised(self) -> Setting:
        """The best batching setting."""
        return self.nominal.advised

    @property
    def chosen(self) -> Setting:
        """What is recommended: the best batching setting where batching is worth it."""
        return self.advised if self.nominal.verdict == "worth it" else NONE

    @property
    def spec(self) -> RunSpec:
        """The recommended specification."""
        return point_of(self.enquiry.base, self.chosen).spec


def study(enquiry: Enquiry, run: Runner) -> Study:
    """Simulate all that the advice needs.

    The workload without batching; the settings of every policy, from coarse to fine, on seeds of
    their own, so that the figures of the winners are not those that made them win; the winners on
    the seeds of the advice; and the same again at other loads and step times.

    Parameters
    ----------
    enquiry : Enquiry
    run : callable
        Has runs done.

    Raises
    ------
    UserError
        If the specification cannot be run or has no rate.
    RunError
        If a run takes too long, or fails in another way that may pass.
    """
    base, seeds = enquiry.base, enquiry.seeds
    goodput = enquiry.spec.measure.goodput
    assert goodput is not None
    _with_rate(base, 1.0)
    desk = _Desk(base, run)
    own, facts = without_batching(base, seeds, 100 * enquiry.target, enquiry.timeout_s)
    desk.num_runs += seeds

    def measure(settings: Sequence[Setting]) -> Measured:
        possible = [setting for setting in settings if can_be(base, setting)]
        return desk.measure("search", possible, range(seeds, seeds + enquiry.search_seeds))

    tried = families(goodput.ttft_ms is not None or goodput.tpot_ms is not None)
    winners, searched = search(tried, measure)
    if not winners:
        raise UserError(f"no batching setting can be run: {desk.failed[0]}")
    finalists = list(winners.values())
    measured = {NONE: own} | desk.measure("confirm", finalists, range(seeds))
    batching = {s: runs for s, runs in measured.items() if s != NONE}
    advised = preferred(batching)
    nominal = Comparison("as it is", measured, advised, enquiry.target)
    rate = _rate(enquiry.spec, own)
    changed = [
        Comparison(name, desk.measure(name, [NONE, *batching], range(seeds), other), advised,
                   enquiry.target)
        for name, other in _conditions(enquiry, rate)
    ]  # fmt: skip
    return Study(enquiry, facts, searched, nominal, changed, desk.num_runs, tuple(desk.failed))


class _Desk:
    """Has settings simulated, counts the runs, and notes those that fail."""

    def __init__(self, base: Nested, run: Runner) -> None:
        self._base = base
        self._run = run
        self.num_runs = 0
        self.failed: list[str] = []

    def measure(
        self,
        stage: str,
        settings: Sequence[Setting],
        replications: range,
        base: Nested | None = None,
    ) -> Measured:
        """Return the metrics of all settings that can be run."""
        points = [point_of(self._base if base is None else base, setting) for setting in settings]
        tasks = [Task(point, number) for point in points for number in replications]
        rows = iter(self._run(stage, tasks))
        self.num_runs += len(tasks)
        found: Measured = {}
        for setting, point in zip(settings, points, strict=True):
            own = [next(rows) for _ in replications]
            passing = [row["error"] for row in own if row.get("transient")]
            if passing:  # advice without this setting would depend on the machine
                raise RunError(f"{point.title}: {passing[0]}")
            errors = [row["error"] for row in own if "error" in row]
            if errors:
                self.failed.append(f"{point.title}: {errors[0]}")
            else:
                found[setting] = [row["metrics"] for row in own]
        return found


def _conditions(enquiry: Enquiry, rate: float) -> list[tuple[str, Nested]]:
    """Return the specifications at other loads and step times."""
    base, scale = enquiry.base, enquiry.spec.cost.scale
    found = []
    for sign in (-1, 1):
        change = sign * enquiry.load_change
        found.append((f"load {change:+.0%}", _with_rate(base, rate * (1 + change))))
    for sign in (-1, 1):
        change = sign * enquiry.cost_change
        cost = {**base["cost"], "scale": scale * (1 + change)}
        found.append((f"step times {change:+.0%}", {**base, "cost": cost}))
    return found


def _with_rate(base: Nested, rate: float) -> Nested:
    """Return the specification at a rate in requests per second."""
    try:
        point: Point = make_points({**base, "policy": dict(NONE)}, [{"request_rate": rate}])[0]
    except UserError as error:
        raise UserError(f"workload: its load cannot be changed: {error}") from None
    return point.spec.to_dict()


def _rate(spec: RunSpec, runs: Sequence[Metrics]) -> float:
    """Return the rate that is asked for, or else the one of the replications."""
    values = [run["request_rate"] or run["realised_rate"] or 0.0 for run in runs]
    return sum(values) / len(values)
