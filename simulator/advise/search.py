"""Settings that advice chooses from, and a search from coarse to fine among them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from simulator.errors import UserError
from simulator.experiments.grid import Point
from simulator.metrics import Metrics
from simulator.settings import Nested
from simulator.spec import RunSpec

TIE = 0.005
"""Attainments that differ by less count as equal."""

TIE_LATENCY = 0.02
"""And so do mean response times that differ by less than this fraction."""

ROUNDS = 2
"""How often the neighbours of the best setting are tried."""

BOUNDS = {
    "max_batch_size": (1, 1024),
    "max_wait_ms": (1, 5000),
    "max_num_seqs": (1, 2048),
    "max_num_batched_tokens": (64, 65_536),
    "chunk_size": (64, 8192),
}
"""Smallest and largest value of every limit."""

Setting = tuple[tuple[str, object], ...]
"""Parameters of a policy, its kind first."""

Measured = dict[Setting, list[Metrics]]
"""Setting to the metrics of its replications."""

Measure = Callable[[Sequence[Setting]], Measured]
"""Has settings simulated; those that cannot be run are left out."""

NONE: Setting = (("kind", "none"),)
"""No batching: one request at a time."""


@dataclass(frozen=True)
class Family:
    """A policy and the limits that are varied.

    Parameters
    ----------
    kind : str
        Name of the policy.
    axes : dict
        Limit to the values that are tried first; the usual one comes first.
    fixed : dict
        Other parameters.
    """

    kind: str
    axes: Mapping[str, tuple[int, ...]]
    fixed: Mapping[str, object] = field(default_factory=dict)

    def coarse(self) -> list[Setting]:
        """Return all combinations of the first values."""
        return [
            self.setting(dict(zip(self.axes, values, strict=True)))
            for values in product(*self.axes.values())
        ]

    def setting(self, values: Mapping[str, object]) -> Setting:
        """Return the setting with these limits."""
        return tuple(({"kind": self.kind} | dict(values) | dict(self.fixed)).items())

    def around(self, setting: Setting) -> list[Setting]:
        """Return the settings with one limit halved or doubled.

        Examples
        --------
        >>> [dict(s)["chunk_size"] for s in SARATHI.around(SARATHI.coarse()[0])][:2]
        [256, 1024]
        """
        values = {name: value for name, value in setting if name in self.axes}
        found: list[Setting] = []
        for name, value in values.items():
            assert isinstance(value, int)
            low, high = BOUNDS[name]
            near = [other for other in (value // 2, value * 2) if low <= other <= high]
            found += [self.setting(values | {name: other}) for other in near]
        return found


VLLM = Family("vllm-v1", {"max_num_seqs": (256, 32), "max_num_batched_tokens": (8192, 2048, 512)})
SARATHI = Family("sarathi", {"chunk_size": (512, 1024, 256), "max_num_seqs": (128,)})


def families(is_streamed: bool) -> tuple[Family, ...]:
    """Return the policies that are tried, the simplest first.

    Parameters
    ----------
    is_streamed : bool
        Whether batches of whole requests deliver every token as it comes, not all at the end.
    """
    fixed = {"release": "per-request" if is_streamed else "per-batch"}
    return (
        Family("static", {"max_batch_size": (16, 4, 64)}, fixed),
        Family("window-pull", {"max_wait_ms": (50, 10, 200), "max_batch_size": (16,)}, fixed),
        VLLM,
        SARATHI,
    )


def title(setting: Setting) -> str:
    """Return a setting in one line.

    Examples
    --------
    >>> title(NONE), title(SARATHI.coarse()[0])
    ('none', 'sarathi chunk_size=512 max_num_seqs=128')
    """
    kind, *rest = (value for _, value in setting)
    names = [name for name, _ in setting[1:]]
    shown = [f"{n}={v}" for n, v in zip(names, rest, strict=True) if n != "release"]
    return " ".join([str(kind), *shown])


def point_of(base: Nested, setting: Setting, **axes: object) -> Point:
    """Return what is simulated for a setting.

    Raises
    ------
    UserError
        If the limits contradict each other, or the specification.
    """
    spec = RunSpec.from_dict({**base, "policy": dict(setting)})
    return Point((("policy", title(setting)), *axes.items()), spec)


def can_be(base: Nested, setting: Setting) -> bool:
    """Whether the limits of a setting agree with each other."""
    try:
        point_of(base, setting)
    except UserError:
        return False
    return True


def attainment(runs: Sequence[Metrics]) -> float:
    """Return the mean fraction of requests that meet the objectives."""
    return mean_of(runs, "slo_attainment") or 0.0


def mean_of(runs: Sequence[Metrics], metric: str) -> float | None:
    """Return the mean of a metric over replications; None if one has no value."""
    values = [run.get(metric) for run in runs]
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known and len(known) == len(values) else None


def preferred(measured: Measured) -> Setting:
    """Return the setting to choose: most requests meet the objectives, at the least latency.

    Of the settings within `TIE` of the best attainment, those within `TIE_LATENCY` of the least
    mean response time are equal; the first of them is chosen.
    """
    most = max(map(attainment, measured.values()))
    good = {s: runs for s, runs in measured.items() if attainment(runs) >= most - TIE}
    latency = {s: mean_of(runs, "mean_e2el_ms") for s, runs in good.items()}
    known = [value for value in latency.values() if value is not None]
    limit = min(known, default=0.0) * (1 + TIE_LATENCY)
    return next((s for s, value in latency.items() if value is not None and value <= limit),
                next(iter(good)))  # fmt: skip


def search(tried: Sequence[Family], measure: Measure) -> tuple[dict[str, Setting], Measured]:
    """Return the best setting of every policy, and all that was measured on the way.

    All combinations of a few values come first; then, up to `ROUNDS` times, the neighbours of
    the best of each policy, with one limit halved or doubled, until none of them is better.
    """
    seen = measure([setting for family in tried for setting in family.coarse()])
    going = {family.kind: family for family in tried if _best(family, seen) is not None}
    best = {kind: _best(family, seen) for kind, family in going.items()}
    for _ in range(ROUNDS):
        near = [s for kind, family in going.items() for s in family.around(best[kind] or NONE)]
        seen |= measure([setting for setting in dict.fromkeys(near) if setting not in seen])
        now = {kind: _best(family, seen) for kind, family in going.items()}
        going = {kind: family for kind, family in going.items() if now[kind] != best[kind]}
        best |= now
        if not going:
            break
    return {kind: setting for kind, setting in best.items() if setting is not None}, seen


def _best(family: Family, seen: Measured) -> Setting | None:
    own = {s: runs for s, runs in seen.items() if dict(s)["kind"] == family.kind}
    return preferred(own) if own else None
