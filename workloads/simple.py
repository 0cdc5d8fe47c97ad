"""The arrival processes that are not made of others, told apart by kind."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from workloads.arrivals import BURSTINESS, DeterministicArrivals, GammaArrivals, PoissonArrivals
from workloads.base import ByKind, with_kind
from workloads.modulated import MmppArrivals, OnOffArrivals, VaryingArrivals
from workloads.renewal import HyperexponentialArrivals, WeibullArrivals
from workloads.windows import WindowedArrivals

SIMPLE: Final = (
    PoissonArrivals,
    GammaArrivals,
    WeibullArrivals,
    HyperexponentialArrivals,
    DeterministicArrivals,
    OnOffArrivals,
    MmppArrivals,
    VaryingArrivals,
    WindowedArrivals,
)

_MARKS: Final = {
    "profile": "varying",
    "width_s": "windowed",
    "mean_off_s": "on-off",
    "sojourns_s": "mmpp",
    "shape": "weibull",
    "cv": "gamma",
} | dict.fromkeys(BURSTINESS, "gamma")


def guess_kind(data: Mapping[str, Any]) -> str:
    """Return the kind that the keys of a description belong to."""
    return next((kind for mark, kind in _MARKS.items() if mark in data), "poisson")


SimpleArrivalSpec: TypeAlias = Annotated[
    PoissonArrivals
    | GammaArrivals
    | WeibullArrivals
    | HyperexponentialArrivals
    | DeterministicArrivals
    | OnOffArrivals
    | MmppArrivals
    | VaryingArrivals
    | WindowedArrivals,
    ByKind(SIMPLE),
    with_kind(guess_kind, number="request_rate"),
]
