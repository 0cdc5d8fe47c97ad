"""All arrival processes, told apart by kind."""

from collections.abc import Mapping
from typing import Annotated, Any, Final, TypeAlias

from workloads.arrivals import DeterministicArrivals, GammaArrivals, PoissonArrivals
from workloads.base import ByKind, with_kind
from workloads.compound import BatchArrivals, SuperposedArrivals
from workloads.modulated import MmppArrivals, OnOffArrivals, VaryingArrivals
from workloads.renewal import HyperexponentialArrivals, WeibullArrivals
from workloads.simple import SIMPLE, guess_kind
from workloads.windows import WindowedArrivals

ARRIVALS: Final = (*SIMPLE, BatchArrivals, SuperposedArrivals)
"""The classes, one a kind."""


def _kind(data: Mapping[str, Any]) -> str:
    if "batch_size" in data:
        return "batch"
    return "superposed" if "parts" in data else guess_kind(data)


ArrivalSpec: TypeAlias = Annotated[
    PoissonArrivals
    | GammaArrivals
    | WeibullArrivals
    | HyperexponentialArrivals
    | DeterministicArrivals
    | OnOffArrivals
    | MmppArrivals
    | VaryingArrivals
    | WindowedArrivals
    | BatchArrivals
    | SuperposedArrivals,
    ByKind(ARRIVALS),
    with_kind(_kind, number="request_rate"),
]
