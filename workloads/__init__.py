"""Workloads for LLM servers: who asks, when, and for how much.

Laws of arrivals and lengths, traces in the formats of their publishers, and named presets, all
reproducible from one seed. Nothing here knows of policies or of the simulation.
"""

from workloads.arrivals import (
    ARRIVALS,
    ArrivalProcess,
    ArrivalSpec,
    DeterministicArrivals,
    GammaArrivals,
    PoissonArrivals,
)
from workloads.caps import CAPS, CapSpec, ConstantCap, FactorCap, OracleCap, RoomCap
from workloads.empirical import EmpiricalLength
from workloads.errors import WorkloadError
from workloads.lengths import (
    LENGTHS,
    FixedLength,
    LengthDistribution,
    LengthSpec,
    LognormalLength,
    UniformLength,
)
from workloads.presets import PRESETS, Preset, get_preset
from workloads.provenance import Provenance
from workloads.readers import READERS, TraceReader, read_trace
from workloads.request import RequestSpec
from workloads.sources import Source, TraceSource
from workloads.spec import (
    WORKLOADS,
    PresetWorkload,
    SyntheticWorkload,
    TraceWorkload,
    WorkloadSpec,
    parse_workload,
)
from workloads.streams import Streams
from workloads.trace import Trace

__all__ = [
    "ARRIVALS",
    "CAPS",
    "LENGTHS",
    "PRESETS",
    "READERS",
    "WORKLOADS",
    "ArrivalProcess",
    "ArrivalSpec",
    "CapSpec",
    "ConstantCap",
    "DeterministicArrivals",
    "EmpiricalLength",
    "FactorCap",
    "FixedLength",
    "GammaArrivals",
    "LengthDistribution",
    "LengthSpec",
    "LognormalLength",
    "OracleCap",
    "PoissonArrivals",
    "Preset",
    "PresetWorkload",
    "Provenance",
    "RequestSpec",
    "RoomCap",
    "Source",
    "Streams",
    "SyntheticWorkload",
    "Trace",
    "TraceReader",
    "TraceSource",
    "TraceWorkload",
    "UniformLength",
    "WorkloadError",
    "WorkloadSpec",
    "get_preset",
    "parse_workload",
    "read_trace",
]
