"""The baseline of a regression suite: a small text file that is reviewed like code."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field, model_validator

from simulator.errors import RunError, UserError
from simulator.experiments.fingerprint import code_hash
from simulator.explain import validated
from simulator.regress.run import Sample
from simulator.regress.suite import Scenario, Suite
from simulator.result import versions
from simulator.settings import read_text
from simulator.spec import Section, parse_yaml

FORMAT = "batchlab-baseline/1"


class Recorded(Section):
    """What is kept of a scenario; lists have one value a seed."""

    spec_sha256: str
    """Of the specification as it is written in the suite."""
    workload: tuple[str, ...] = Field(min_length=1)
    """Hashes of the requests."""
    behaviour: str | None = None
    """Hash of decisions and times, for an exact scenario."""
    values: dict[str, tuple[float, ...]] = Field(default_factory=dict)
    """Metric to values."""

    @model_validator(mode="after")
    def _equal_lengths(self) -> "Recorded":
        for name, values in self.values.items():
            if len(values) != len(self.workload):
                wanted = f"expected {len(self.workload)}, one for each workload"
                raise ValueError(f"values.{name} has {len(values)} values; {wanted}")
        return self


class Acceptance(Section):
    """A change of the baseline and why it was accepted."""

    reason: str
    version: str
    """Of batchlab."""
    changed: tuple[str, ...] = ()
    """Scenario, metric, mean before and after."""


class Baseline(Section):
    """The content of a baseline file."""

    format: Literal["batchlab-baseline/1"] = "batchlab-baseline/1"
    code: dict[str, str]
    """What can change a number besides the suite (`code_version`)."""
    history: tuple[Acceptance, ...] = ()
    """The latest acceptance last."""
    scenarios: dict[str, Recorded]
    """Name to what was recorded."""

    def to_yaml(self) -> str:
        """Return the file: every list on one line, so that a changed metric is one changed line."""
        data = self.model_dump(mode="json", exclude_none=True)
        return yaml.safe_dump(
            data, sort_keys=False, allow_unicode=True, width=2**30, default_flow_style=None
        )


def default_path(suite: Path) -> Path:
    """Return where the baseline of a suite lies.

    Examples
    --------
    >>> default_path(Path("tests/suite.yaml")).as_posix()
    'tests/suite.baseline.yaml'
    """
    return suite.with_name(f"{suite.stem}.baseline.yaml")


def read_baseline(path: Path) -> Baseline:
    """Read a baseline.

    Raises
    ------
    UserError
        If it cannot be read or is damaged.
    """
    if not path.exists():
        raise UserError(f"{path}: no such baseline; `batchlab regress record` makes one")
    return validated(Baseline, parse_yaml(read_text(path), str(path)), str(path))


def check_fit(baseline: Baseline, suite: Suite, chosen: Sequence[Scenario], path: Path) -> None:
    """Check that a baseline is one of this suite.

    Raises
    ------
    UserError
        Naming the first scenario that differs, and how.
    """
    again = f"the baseline does not fit {suite.path}; record it again or accept the change"
    for name in baseline.scenarios:
        if name not in suite.limits.scenarios:
            raise UserError(f"{path}: scenarios.{name}: is not in the suite; {again}")
    for scenario in chosen:
        where, found = f"{path}: scenarios.{scenario.name}", baseline.scenarios.get(scenario.name)
        if found is None:
            raise UserError(f"{where}: missing; {again}")
        if found.spec_sha256 != scenario.sha256 or (found.behaviour is None) == scenario.exact:
            raise UserError(f"{where}: is of another specification; {again}")
        for metric in scenario.rules:
            if metric not in found.values:
                raise UserError(f"{where}.values.{metric}: missing; {again}")
        if len(found.workload) < scenario.num_seeds(suite.limits.max_seeds):
            number = f"has {len(found.workload)} seeds, not {suite.limits.max_seeds}"
            raise UserError(f"{where}: {number}; {again}")


def new_baseline(
    suite: Suite, samples: dict[str, list[Sample]], history: tuple[Acceptance, ...] = ()
) -> Baseline:
    """Return the baseline that samples of all scenarios make.

    Raises
    ------
    RunError
        If a run failed.
    UserError
        If a metric has no value in some run.
    """
    scenarios = {one.name: _recorded(one, samples[one.name]) for one in suite.scenarios}
    return Baseline(code=code_version(), history=history, scenarios=scenarios)


def code_version() -> dict[str, str]:
    """Return what can change a number besides the suite: versions and a hash of batchlab's code."""
    return versions() | {"code_sha256": code_hash()[:16]}


def _recorded(scenario: Scenario, samples: Sequence[Sample]) -> Recorded:
    values: dict[str, list[float]] = {name: [] for name in scenario.rules}
    for seed, sample in enumerate(samples):
        if sample.error:
            raise RunError(f"{sample.error}; no baseline was written")
        for name, column in values.items():
            value = sample.values[name]
            if value is None:
                where = f"{scenario.path}: scenarios.{scenario.name}.metrics.{name}"
                raise UserError(f"{where}: n/a in seed {seed} (too few samples); use more requests")
            column.append(value)
    return Recorded(
        spec_sha256=scenario.sha256,
        workload=tuple(sample.workload for sample in samples),
        behaviour=samples[0].behaviour if scenario.exact else None,
        values={name: tuple(column) for name, column in values.items()},
    )


def changes(old: Baseline, new: Baseline) -> list[str]:
    """Return what differs between two baselines, a line for each scenario and metric."""
    lines: list[str] = []
    for name in {**old.scenarios, **new.scenarios}:
        before, after = old.scenarios.get(name), new.scenarios.get(name)
        if before is None or after is None:
            lines.append(f"{name}: {'new' if before is None else 'removed'}")
        else:
            lines += [f"{name}: {text}" for text in _differences(before, after)]
    return lines


def _differences(before: Recorded, after: Recorded) -> list[str]:
    lines = [
        part.replace("_sha256", "")
        for part in ("spec_sha256", "workload", "behaviour")
        if getattr(before, part) != getattr(after, part)
    ]
    for metric in {**before.values, **after.values}:
        pair = before.values.get(metric), after.values.get(metric)
        if pair[0] != pair[1]:
            lines.append(f"{metric} {_mean(pair[0])} -> {_mean(pair[1])}")
    return lines


def _mean(values: Sequence[float] | None) -> str:
    return "none" if values is None else f"{sum(values) / len(values):.6g}"


def accepted(old: Baseline, new: Baseline, reason: str, changed: Sequence[str]) -> Baseline:
    """Return a new baseline that tells why it replaces the old one."""
    entry = Acceptance(reason=reason, version=new.code["batchlab"], changed=tuple(changed))
    update: dict[str, Any] = {"history": (*old.history, entry)}
    return new.model_copy(update=update)
