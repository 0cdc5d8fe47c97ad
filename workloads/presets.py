"""Workloads by name."""

from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final, Protocol

from workloads.arrivals import PoissonArrivals
from workloads.blocks import BlockPreset
from workloads.bursts import BurstPreset
from workloads.described import ClientsPreset, ConversationPreset
from workloads.errors import WorkloadError, check_rate
from workloads.lengths import LengthDistribution, LognormalLength
from workloads.pairs import PairPreset
from workloads.streams import Streams
from workloads.synthetic import generate
from workloads.trace import Trace


class Preset(Protocol):
    """A workload that is known by its name."""

    @property
    def name(self) -> str:
        """What it is, in a word."""
        ...

    @property
    def about(self) -> str:
        """What it is, in a line."""
        ...

    @property
    def is_open(self) -> bool:
        """Whether no arrival depends on a completion."""
        ...

    @property
    def source(self) -> str:
        """Where it comes from, with its citation."""
        ...

    @property
    def licence(self) -> str:
        """Terms of use of the source."""
        ...

    @property
    def num_rows(self) -> int:
        """Requests it makes by default."""
        ...

    @property
    def request_rate(self) -> float:
        """Mean rate of its own in requests per second."""
        ...

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean length of a prompt in tokens."""
        ...

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of an output in tokens."""
        ...

    def trace(
        self,
        num_requests: int | None = None,
        request_rate: float | None = None,
        *,
        streams: Streams,
    ) -> Trace:
        """Draw requests, all by default; at another mean rate if one is given."""
        ...


@dataclass(frozen=True, slots=True)
class SyntheticPreset:
    """A made-up workload: Poisson arrivals and independent lengths.

    Parameters
    ----------
    name, about : str
        What it is, in a word and in a line.
    num_rows : int
        Requests made by default.
    request_rate : float
        Mean rate in requests per second.
    prompt_tokens, output_tokens : LengthDistribution
        Laws of the lengths.
    """

    name: str
    about: str
    num_rows: int
    request_rate: float
    prompt_tokens: LengthDistribution
    output_tokens: LengthDistribution
    source: str = "made up"
    licence: str = "none needed"
    is_open: bool = True

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean length of a prompt in tokens, before rounding and truncation."""
        return self.prompt_tokens.mean

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of an output in tokens, before rounding and truncation."""
        return self.output_tokens.mean

    def trace(
        self,
        num_requests: int | None = None,
        request_rate: float | None = None,
        *,
        streams: Streams,
    ) -> Trace:
        """Draw requests, `num_rows` by default; at another mean rate if one is given."""
        rate = self.request_rate if request_rate is None else request_rate
        check_rate(rate)
        return generate(
            PoissonArrivals(request_rate=rate),
            self.prompt_tokens,
            self.output_tokens,
            self.num_rows if num_requests is None else num_requests,
            streams,
            f"preset {self.name}",
        )


_ALL: Final[tuple[Preset, ...]] = (
    SyntheticPreset(
        "demo-chat",
        "small and made up: Poisson arrivals, lognormal lengths as in a chat",
        num_rows=500,
        request_rate=4.0,
        prompt_tokens=LognormalLength(mean=512, cv=1.0, max=4096, truncation="clip"),
        output_tokens=LognormalLength(mean=192, cv=0.8, max=1024, truncation="clip"),
    ),
    BlockPreset(
        "azure-conv-2023",
        "chat, one hour of Azure on 2023-11-16; rate and lengths drift together",
    ),
    BurstPreset(
        "azure-code-2023",
        "code completion, one hour of Azure on 2023-11-16; bursts and silences",
    ),
    BlockPreset(
        "mooncake-conversation",
        "long-context chat, one hour of Kimi; near Poisson, prefixes only by replay of the file",
    ),
    BlockPreset(
        "arena-27-clients",
        "chat, 27 clients of unequal size over 10 minutes, as the requests' tenants",
    ),
    PairPreset("sharegpt-8k", "chat lengths of ShareGPT; the rate is yours"),
    PairPreset("arxiv-4k", "lengths of summarising papers; the rate is yours"),
    ClientsPreset("reasoning-r1", "reasoning, 73 clients, with the share of hidden reasoning"),
    ConversationPreset(
        "coding-assistant",
        "conversations with a coding assistant: long contexts, many machine-paced turns",
    ),
    ClientsPreset("chat-small", "day of a small chat model; lengths of 43 % of its requests"),
    ClientsPreset("chat-mid", "day of a mid-size chat model; lengths of 71 % of its requests"),
    ClientsPreset("chat-large", "day of a large chat model; lengths of 63 % of its requests"),
)

PRESETS: Final = MappingProxyType({preset.name: preset for preset in _ALL})
"""The presets by name."""


def get_preset(name: str) -> Preset:
    """Return a preset by name.

    Raises
    ------
    WorkloadError
        No such name; the message suggests the nearest or lists all.

    Examples
    --------
    >>> get_preset("demo-chat").request_rate
    4.0
    """
    if name in PRESETS:
        return PRESETS[name]
    near = get_close_matches(name, PRESETS, 1)
    hint = f"did you mean {near[0]!r}?" if near else f"expected one of {', '.join(PRESETS)}"
    raise WorkloadError(f"not the name of a preset; {hint}", value=name)
