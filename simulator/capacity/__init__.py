"""How much load meets the objectives: the highest request rate, or the fewest replicas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import ceil, log2
from typing import Literal

from simulator.capacity.bisection import Bracket, Search, highest, lowest_whole, most_probes
from simulator.capacity.slo import Judgement, Objective, Verdict, judge
from simulator.errors import RunError, UserError
from simulator.experiments.grid import Point, Values, make_points
from simulator.experiments.task import Row, Task
from simulator.metrics import Metrics
from simulator.settings import Nested
from simulator.stats import each_confidence, mean_interval

Find = Literal["rate", "replicas"]

AXES: dict[Find, str] = {"rate": "request_rate", "replicas": "num_replicas"}
"""What is searched, and the key of the specification that it is."""


@dataclass(frozen=True)
class Question:
    """What is asked.

    Parameters
    ----------
    find : {"rate", "replicas"}
    objectives : sequence of Objective
        All have to be met.
    start, low, high : float
        Where the search begins, and its range: requests per second, or replicas.
    tolerance : float
        The search for a rate ends when it is known to this fraction.
    seeds, max_seeds : int
        Replications of a probe, doubled until the verdict is clear or `max_seeds` are reached.
    confidence : float
        Probability that all verdicts of one search are right.
    """

    find: Find
    objectives: tuple[Objective, ...]
    start: float
    low: float
    high: float
    tolerance: float = 0.02
    seeds: int = 5
    max_seeds: int = 20
    confidence: float = 0.95

    def __post_init__(self) -> None:
        if not 0 < self.low <= self.start <= self.high:
            raise UserError(
                f"--low {self.low:g}, --start {self.start:g}, --high {self.high:g}: expected "
                "0 < low <= start <= high"
            )
        if not 0.001 <= self.tolerance <= 1:
            raise UserError(f"--tolerance {self.tolerance:g}: expected a number in 0.001..1")
        if not 2 <= self.seeds <= self.max_seeds:
            raise UserError(
                f"--seeds {self.seeds}, --max-seeds {self.max_seeds}: expected "
                "2 <= seeds <= max-seeds"
            )
        if not 0 < self.confidence < 1:
            raise UserError(f"--confidence {self.confidence:g}: expected a number between 0 and 1")

    @property
    def verdict_confidence(self) -> float:
        """Confidence of a single interval, so that all of a search hold together (Bonferroni)."""
        tolerance = self.tolerance if self.find == "rate" else None
        probes = most_probes(self.start, self.low, self.high, tolerance)
        looks = 1 + ceil(log2(self.max_seeds / self.seeds))
        return each_confidence(self.confidence, probes * looks * len(self.objectives))

    def search(self) -> Search:
        """Return a fresh search."""
        if self.find == "rate":
            return highest(self.start, self.low, self.high, self.tolerance)
        return lowest_whole(int(self.start), int(self.low), int(self.high))


@dataclass(frozen=True)
class Probe:
    """One value that was tried.

    Attributes
    ----------
    value : float
        Requests per second, or replicas.
    judgements : tuple of Judgement
        One for each objective.
    runs : tuple of dict
        Metrics of the replications.
    """

    value: float
    judgements: tuple[Judgement, ...]
    runs: tuple[Metrics, ...]

    @property
    def verdict(self) -> Verdict:
        """Meets: all objectives do; misses: one does; else unresolved."""
        verdicts = {judgement.verdict for judgement in self.judgements}
        if "misses" in verdicts:
            return "misses"
        return "meets" if verdicts == {"meets"} else "unresolved"

    @property
    def is_good(self) -> bool:
        """Whether the means over the replications meet all objectives."""
        return all(j.objective.met_by(j.mean) for j in self.judgements)

    def interval(self, metric: str) -> tuple[float | None, float | None, float | None]:
        """Return mean and 95 % interval of a metric; None if a run has no value."""
        import numpy as np

        values = [run.get(metric) for run in self.runs]
        known = [value for value in values if value is not None]
        return mean_interval(np.array(known, float)) if len(known) == len(values) else (None,) * 3


@dataclass
class Answer:
    """What was found for one variant.

    Attributes
    ----------
    variant : Point
    bracket : Bracket
        The best value whose means meet the objectives, and its neighbour whose means do not.
    probes : list of Probe
    """

    variant: Point
    bracket: Bracket = field(default_factory=lambda: Bracket(None, None))
    probes: list[Probe] = field(default_factory=list)

    @property
    def status(self) -> Literal["found", "never met", "always met"]:
        """Whether there is a limit in the range."""
        if self.bracket.good is None:
            return "never met"
        return "found" if self.bracket.bad is not None else "always met"

    @property
    def best(self) -> Probe | None:
        """The probe at the capacity."""
        return next((p for p in self.probes if p.value == self.bracket.good), None)

    def resolved(self, verdict: Verdict) -> float | None:
        """Return the value nearest to the limit that clearly meets, or misses."""
        values = [probe.value for probe in self.probes if probe.verdict == verdict]
        limit = self.bracket.good if self.bracket.good is not None else self.bracket.bad
        assert limit is not None
        return min(values, key=lambda value: abs(value - limit), default=None)


Runner = Callable[[list[Task]], list[Row]]
"""Has tasks done and returns their rows."""


def find_capacity(
    base: Nested,
    variants: Sequence[Values],
    question: Question,
    run: Runner,
    tell: Callable[[Point, Probe], object] = lambda variant, probe: None,
) -> list[Answer]:
    """Search the capacity of each variant; the searches go on side by side.

    Every probe of every variant runs the same replications, so that all meet the same random
    numbers.

    Parameters
    ----------
    base : dict
        Specification that all share.
    variants : sequence of dict
        What differs: axis name to value.
    question : Question
    run : callable
        Has the runs done.
    tell : callable
        Told of each probe that is judged.

    Raises
    ------
    UserError
        If the specification has no such key, or an objective no value.
    RunError
        If a run fails.
    """
    searches = {index: question.search() for index in range(len(variants))}
    answers = [Answer(make_points(base, [values])[0]) for values in variants]
    waiting = {index: (next(search), question.seeds) for index, search in searches.items()}
    while waiting:
        tasks: list[Task] = []
        for index, (value, seeds) in waiting.items():
            point = point_at(base, variants[index], question.find, value)
            tasks += [Task(point, number) for number in range(seeds)]
        rows = iter(zip(tasks, run(tasks), strict=True))
        following: dict[int, tuple[float, int]] = {}
        for index, (value, seeds) in waiting.items():
            runs = tuple(metrics_of(*next(rows)) for _ in range(seeds))
            probe = judge_all(value, runs, question)
            if probe.verdict == "unresolved" and seeds < question.max_seeds:
                following[index] = (value, min(2 * seeds, question.max_seeds))
                continue
            answers[index].probes.append(probe)
            tell(answers[index].variant, probe)
            try:
                following[index] = (searches[index].send(probe.is_good), question.seeds)
            except StopIteration as stop:
                answers[index].bracket = stop.value
        waiting = following
    return answers


def measure_curve(
    base: Nested,
    answers: Sequence[Answer],
    variants: Sequence[Values],
    question: Question,
    values: Sequence[float],
    run: Runner,
) -> None:
    """Add probes at given values to all answers, for curves that can be compared."""
    wanted = [
        (answer, value, point_at(base, variant, question.find, value))
        for answer, variant in zip(answers, variants, strict=True)
        for value in values
        if value not in {probe.value for probe in answer.probes}
    ]
    tasks = [Task(point, n) for _, _, point in wanted for n in range(question.seeds)]
    rows = iter(zip(tasks, run(tasks), strict=True))
    for answer, value, _ in wanted:
        runs = tuple(metrics_of(*next(rows)) for _ in range(question.seeds))
        answer.probes.append(judge_all(value, runs, question))


def point_at(base: Nested, variant: Values, find: Find, value: float) -> Point:
    """Return the specification of a variant at a rate or number of replicas."""
    return make_points(base, [{**variant, AXES[find]: value}])[0]


def judge_all(value: float, runs: tuple[Metrics, ...], question: Question) -> Probe:
    """Return a probe with the judgement of every objective."""
    level = question.verdict_confidence
    return Probe(value, tuple(judge(o, runs, level) for o in question.objectives), runs)


def metrics_of(task: Task, row: Row) -> Metrics:
    """Return the metrics of a run.

    Raises
    ------
    RunError
        If it failed.
    """
    if "error" in row:
        raise RunError(f"{task.point.title}, replication {task.replication}: {row['error']}")
    metrics: Metrics = row["metrics"]
    return metrics
