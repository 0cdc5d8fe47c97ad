"""A regression suite: which runs, which metrics, and how much worse is too much."""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, model_validator

from simulator.errors import UserError
from simulator.explain import nearest, validated
from simulator.settings import merge, read_text
from simulator.spec import RunSpec, Section, parse_yaml
from simulator.stats import each_confidence

Direction = Literal["lower", "higher", "same"]
"""What is better: a lower value, a higher one, or none (then every change is harm)."""

_LOWER = (
    *("rejected", "unfinished", "num_preemptions", "recomputed_tokens"),
    *("padding_fraction", "mean_num_waiting", "mean_step_ms"),
)
_HIGHER = (
    *("completed", "request_throughput", "output_throughput", "total_token_throughput"),
    *("request_goodput", "slo_attainment"),
)
_LATENCIES = ("_ttft_ms", "_tpot_ms", "_itl_ms", "_e2el_ms", "_queue_ms", "_norm_ms")


class Rule(Section):
    """How one metric is judged."""

    direction: Direction | None = None
    """What is better; known for latencies, throughputs, goodput and counts of trouble."""
    tolerance: float | None = Field(None, ge=0, allow_inf_nan=False)
    """Largest change that does not matter, as a fraction of the baseline. None: the suite's."""
    tolerance_abs: float = Field(0.0, ge=0, allow_inf_nan=False)
    """The same in the unit of the metric; the larger of the two counts."""


class ScenarioSpec(Section):
    """One specification of a suite."""

    spec: dict[str, Any] | str = Field(default_factory=dict)
    """A run specification, or the YAML file with one; on top of the suite's `base`."""
    exact: bool = False
    """Compare every decision and every time of replication 0, instead of metrics."""
    metrics: dict[str, Rule | None] | None = None
    """Metrics of this scenario. None: the suite's."""


class SuiteSpec(Section):
    """The content of a suite file."""

    seeds: int = Field(10, ge=2)
    """Replications of a scenario."""
    max_seeds: int = Field(40, ge=2)
    """Replications after which an unclear metric stays inconclusive."""
    tolerance: float = Field(0.02, ge=0, allow_inf_nan=False)
    """Largest relative change that does not matter."""
    confidence: float = Field(0.95, gt=0, lt=1)
    """Probability that all intervals of the suite hold at the same time."""
    metrics: dict[str, Rule | None] = Field(default_factory=dict)
    """Metrics of all scenarios and how each is judged."""
    base: dict[str, Any] = Field(default_factory=dict)
    """What the specifications of all scenarios share."""
    scenarios: dict[str, ScenarioSpec] = Field(min_length=1)
    """Name to specification."""

    @model_validator(mode="after")
    def _seeds_fit(self) -> "SuiteSpec":
        if self.max_seeds < self.seeds:
            raise ValueError(f"max_seeds {self.max_seeds}: expected at least seeds {self.seeds}")
        return self


class Scenario:
    """A scenario, ready to run.

    Attributes
    ----------
    name : str
    path : Path
        The suite it belongs to.
    spec : RunSpec
    sha256 : str
        Of the specification as it is written, defaults left out.
    exact : bool
        Whether behaviour is compared instead of metrics.
    rules : dict
        Metric to its rule, direction and tolerance filled in.
    """

    def __init__(
        self,
        name: str,
        path: Path,
        spec: RunSpec,
        written: dict[str, Any],
        exact: bool,
        rules: dict[str, Rule],
    ) -> None:
        self.name = name
        self.path = path
        self.spec = spec
        text = json.dumps(written, sort_keys=True, separators=(",", ":"), default=str)
        self.sha256 = hashlib.sha256(text.encode()).hexdigest()
        self.exact = exact
        self.rules = rules

    def num_seeds(self, number: int) -> int:
        """Return how many of so many replications this scenario is run with."""
        return 1 if self.exact else number


class Suite:
    """A suite file, read and checked.

    Attributes
    ----------
    path : Path
    limits : SuiteSpec
        Seeds, tolerance and confidence.
    scenarios : list of Scenario
        In the order of the file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.limits = validated(SuiteSpec, parse_yaml(read_text(path), str(path)), str(path))
        self.scenarios = [self._scenario(*item) for item in self.limits.scenarios.items()]

    @property
    def num_cells(self) -> int:
        """Pairs of scenario and metric that are judged by an interval."""
        return sum(len(scenario.rules) for scenario in self.scenarios if not scenario.exact)

    @property
    def confidence(self) -> float:
        """Confidence of one interval, so that all of them hold together (Bonferroni)."""
        return each_confidence(self.limits.confidence, max(1, self.num_cells))

    def only(self, names: list[str]) -> list[Scenario]:
        """Return the named scenarios, or all if none is named.

        Raises
        ------
        UserError
            If there is none of that name.
        """
        for name in names:
            if name not in self.limits.scenarios:
                near = nearest(name, self.limits.scenarios)
                raise UserError(f"--scenario {name}: is not in {self.path}; {near}")
        return [one for one in self.scenarios if not names or one.name in names]

    def _scenario(self, name: str, given: ScenarioSpec) -> Scenario:
        where = f"{self.path}: scenarios.{name}"
        own = given.spec
        if isinstance(own, str):
            file = self.path.parent / own
            own = parse_yaml(read_text(file), str(file))
        written = merge(self.limits.base, own)
        spec = RunSpec.from_dict({**RunSpec().to_dict(), **written}, f"{where}.spec")
        metrics = self.limits.metrics if given.metrics is None else given.metrics
        if not metrics and not given.exact:
            raise UserError(f"{where}.metrics: expected at least one metric")
        rules = {key: self._rule(where, key, rule or Rule()) for key, rule in metrics.items()}
        return Scenario(name, self.path, spec, written, given.exact, {} if given.exact else rules)

    def _rule(self, where: str, metric: str, rule: Rule) -> Rule:
        direction = rule.direction or known_direction(metric)
        if direction is None:
            raise UserError(
                f"{where}.metrics.{metric}.direction: missing; expected lower, higher or same"
            )
        tolerance = self.limits.tolerance if rule.tolerance is None else rule.tolerance
        return rule.model_copy(update={"direction": direction, "tolerance": tolerance})


def known_direction(metric: str) -> Direction | None:
    """Return what is better for a metric, or None where that is a matter of taste.

    Examples
    --------
    >>> known_direction("p99_ttft_ms"), known_direction("request_goodput")
    ('lower', 'higher')
    >>> known_direction("busy_fraction") is None
    True
    """
    if metric in _LOWER or metric.endswith(_LATENCIES):
        return "lower"
    return "higher" if metric in _HIGHER else None


def check_metrics(scenario: Scenario, found: Mapping[str, object]) -> None:
    """Check that a run has all metrics that are to be judged.

    Raises
    ------
    UserError
        Naming the first it has not, and the nearest it has.
    """
    for name in scenario.rules:
        if name not in found:
            where = f"{scenario.path}: scenarios.{scenario.name}.metrics"
            raise UserError(f"{where}: no such metric {name!r}; {nearest(name, found)}")
