"""Workloads for LLM servers: who asks, when, and for how much.

Laws of arrivals and lengths, traces in the formats of their publishers, and named presets, all
reproducible from one seed. Nothing here knows of policies or of the simulation.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from workloads.arrival_spec import ARRIVALS, ArrivalSpec
from workloads.arrivals import (
    ArrivalProcess,
    DeterministicArrivals,
    GammaArrivals,
    PoissonArrivals,
)
from workloads.caps import CAPS, CapSpec, ConstantCap, FactorCap, OracleCap, RoomCap
from workloads.chains import Chains
from workloads.clients import Client, ClientsWorkload
from workloads.closed import ClosedWorkload
from workloads.compound import BatchArrivals, SuperposedArrivals
from workloads.conversation import ConversationWorkload
from workloads.empirical import EmpiricalLength
from workloads.errors import WorkloadError
from workloads.joint import JOINTS, JointSpec, ReasoningShare
from workloads.length_spec import LENGTHS, LengthSpec, MixtureLength
from workloads.lengths import (
    FixedLength,
    LengthDistribution,
    LognormalLength,
    UniformLength,
)
from workloads.modulated import MmppArrivals, OnOffArrivals, VaryingArrivals
from workloads.prefixes import SharedPrefix
from workloads.provenance import Provenance
from workloads.renewal import HyperexponentialArrivals, WeibullArrivals
from workloads.request import RequestSpec
from workloads.sources import CappedSource, Source, TraceSource
from workloads.spec import (
    WORKLOADS,
    PresetWorkload,
    SyntheticWorkload,
    WorkloadSpec,
    parse_workload,
)
from workloads.streams import Streams
from workloads.times import TIMES, TimeSpec
from workloads.trace import Trace
from workloads.trace_spec import TraceWorkload
from workloads.turns import TurnSource
from workloads.windows import WindowedArrivals

if TYPE_CHECKING:
    from workloads.character import Characterisation, characterise
    from workloads.fitting import WorkloadFit, fit_workload
    from workloads.imports import from_aiperf, from_guidellm
    from workloads.presets import PRESETS, Preset, get_preset
    from workloads.readers import READERS, TraceReader, read_trace
    from workloads.readers.servegen import read_clients
    from workloads.readers.summarise import summarise
    from workloads.writers import write_trace

_LAZY = {
    "Characterisation": "workloads.character",
    "PRESETS": "workloads.presets",
    "Preset": "workloads.presets",
    "READERS": "workloads.readers",
    "TraceReader": "workloads.readers",
    "WorkloadFit": "workloads.fitting",
    "characterise": "workloads.character",
    "fit_workload": "workloads.fitting",
    "from_aiperf": "workloads.imports",
    "from_guidellm": "workloads.imports",
    "get_preset": "workloads.presets",
    "read_clients": "workloads.readers.servegen",
    "read_trace": "workloads.readers",
    "summarise": "workloads.readers.summarise",
    "write_trace": "workloads.writers",
}


def __getattr__(name: str) -> Any:
    """Import what is seldom needed when it is asked for."""
    if name in _LAZY:
        return getattr(import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "ARRIVALS",
    "CAPS",
    "JOINTS",
    "LENGTHS",
    "PRESETS",
    "READERS",
    "TIMES",
    "WORKLOADS",
    "ArrivalProcess",
    "ArrivalSpec",
    "BatchArrivals",
    "CapSpec",
    "CappedSource",
    "Chains",
    "Characterisation",
    "Client",
    "ClientsWorkload",
    "ClosedWorkload",
    "ConstantCap",
    "ConversationWorkload",
    "DeterministicArrivals",
    "EmpiricalLength",
    "FactorCap",
    "FixedLength",
    "GammaArrivals",
    "HyperexponentialArrivals",
    "JointSpec",
    "LengthDistribution",
    "LengthSpec",
    "LognormalLength",
    "MixtureLength",
    "MmppArrivals",
    "OnOffArrivals",
    "OracleCap",
    "PoissonArrivals",
    "Preset",
    "PresetWorkload",
    "Provenance",
    "ReasoningShare",
    "RequestSpec",
    "RoomCap",
    "SharedPrefix",
    "Source",
    "Streams",
    "SuperposedArrivals",
    "SyntheticWorkload",
    "TimeSpec",
    "Trace",
    "TraceReader",
    "TraceSource",
    "TraceWorkload",
    "TurnSource",
    "UniformLength",
    "VaryingArrivals",
    "WeibullArrivals",
    "WindowedArrivals",
    "WorkloadError",
    "WorkloadFit",
    "WorkloadSpec",
    "characterise",
    "fit_workload",
    "from_aiperf",
    "from_guidellm",
    "get_preset",
    "parse_workload",
    "read_clients",
    "read_trace",
    "summarise",
    "write_trace",
]
