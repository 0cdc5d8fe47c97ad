"""A workload as the sum of its clients, each with arrivals and lengths of its own."""

from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field, field_validator

from workloads.arrivals import ArrivalProcess
from workloads.base import IntArray, PositiveInt, RequestRate, Spec
from workloads.compound import superpose
from workloads.joint import ReasoningShare
from workloads.length_spec import LengthSpec
from workloads.modulated import MmppArrivals
from workloads.provenance import origin
from workloads.simple import SimpleArrivalSpec
from workloads.streams import Streams
from workloads.trace import Trace
from workloads.workload import OpenWorkload


class Client(Spec):
    """One client: when it asks, and for how much.

    A length law may be a list: one law for each stretch of `length_window_s` seconds, again
    and again.
    """

    name: str
    """Name of the client; becomes the tenant of its requests."""
    arrivals: SimpleArrivalSpec
    """Law of the times of arrival; a bare number is the rate of a Poisson process."""
    prompt_tokens: tuple[LengthSpec, ...] = Field(min_length=1)
    """Law of the prompts; a bare number is a fixed length."""
    output_tokens: tuple[LengthSpec, ...] = Field(min_length=1)
    """Law of the outputs; a bare number is a fixed length."""
    reasoning: tuple[ReasoningShare, ...] = ()
    """Share of the outputs that is reasoning; none by default."""
    length_window_s: float = Field(21_600.0, gt=0)
    """Time after which the next law of lengths holds, in seconds."""

    @field_validator("prompt_tokens", "output_tokens", "reasoning", mode="before")
    @classmethod
    def _one_is_a_list(cls, data: object) -> object:
        alone = isinstance(data, Mapping | Spec | int | float)
        return (data,) if alone else data


class ClientsWorkload(OpenWorkload):
    """Clients side by side, as in the decomposition of ServeGen.

    Few clients carry most of the load, and bursts come from them. Another total rate
    multiplies all clients' rates and keeps the mix; `draw_clients` takes so many clients at
    random, with replacement, and changes it. The account states each client's share.

    References
    ----------
    Xiang et al., ServeGen, arXiv 2505.09999.

    Examples
    --------
    >>> chat = {"name": "chat", "arrivals": 3, "prompt_tokens": 500, "output_tokens": 200}
    >>> batch = {"name": "batch", "arrivals": {"request_rate": 1, "cv": 4},
    ...          "prompt_tokens": 4000, "output_tokens": 50}
    >>> trace = ClientsWorkload.model_validate({"clients": [chat, batch]}).build(Streams(1))
    >>> trace.provenance["notes"]["clients"]
    '2; chat 74 % (asked 75), batch 26 % (asked 25)'
    """

    kind: Literal["clients"] = "clients"
    clients: tuple[Client, ...] = Field(min_length=1)
    """The clients."""
    request_rate: RequestRate | None = None
    """Rate of all clients together, in requests per second; their own if left out."""
    draw_clients: PositiveInt | None = None
    """Number of clients drawn at random, with replacement; all, once each, by default."""
    num_requests: PositiveInt = 1000
    """Number of requests, 1 or more."""

    @property
    def rate(self) -> float:
        """Rate asked for, in requests per second, before any clients are drawn."""
        return self.request_rate or sum(client.arrivals.rate for client in self.clients)

    def _rows(self, streams: Streams) -> Trace:
        clients = self._drawn(streams)
        total = sum(client.arrivals.rate for client in clients)
        factor = 1.0 if self.request_rate is None else self.request_rate / total
        parts = tuple(at_rate(c.arrivals, c.arrivals.rate * factor) for c in clients)
        times, member = superpose(parts, self.num_requests, streams("arrivals"))
        prompts, outputs, thoughts = np.zeros((3, times.size), np.int64)
        for at, client in enumerate(clients):
            mine = np.flatnonzero(member == at)
            window = (times[mine] // client.length_window_s).astype(np.int64)
            prompts[mine] = _by_window(client.prompt_tokens, window, streams, "prompt_tokens", at)
            outputs[mine] = _by_window(client.output_tokens, window, streams, "output_tokens", at)
            for part, share in enumerate(client.reasoning):
                here = mine[window % len(client.reasoning) == part]
                thoughts[here] = share.split(outputs[here], streams("reasoning", at, part))
        names = np.array([client.name for client in clients])
        columns: dict[str, Any] = {"tenant": names[member]}
        if any(client.reasoning for client in clients):
            columns["reasoning_tokens"] = thoughts
        notes = {
            "seed": str(streams.seed),
            "replication": str(streams.replication),
            "request_rate": f"{times.size / times[-1]:.6g}, asked {total * factor:.6g}",
            "clients": _shares(clients, member),
        }
        account = origin("clients", times.size, notes=notes)
        return Trace(times, prompts, outputs, columns=columns, provenance=account)

    def _drawn(self, streams: Streams) -> tuple[Client, ...]:
        if self.draw_clients is None:
            return self.clients
        numbers = streams("clients").integers(0, len(self.clients), self.draw_clients)
        return tuple(self.clients[number] for number in numbers)


def at_rate(process: ArrivalProcess, rate: float) -> ArrivalProcess:
    """Return a process at another mean rate; bursts and silences keep their lengths in time."""
    if isinstance(process, MmppArrivals):
        factor = rate / process.rate
        return process.model_copy(update={"rates": tuple(r * factor for r in process.rates)})
    faster: ArrivalProcess = process.model_copy(  # type: ignore[attr-defined]
        update={"request_rate": rate}
    )
    return faster


def _by_window(
    laws: tuple[LengthSpec, ...], window: IntArray, streams: Streams, name: str, client: int
) -> IntArray:
    """Draw lengths from the law that holds in each request's window."""
    part = window % len(laws)
    order = np.argsort(part, kind="stable")
    ends = np.searchsorted(part[order], np.arange(len(laws) + 1))
    lengths = np.zeros(window.size, np.int64)
    for at in np.flatnonzero(np.diff(ends)).tolist():
        here = order[ends[at] : ends[at + 1]]
        lengths[here] = laws[at].sample(here.size, streams(name, client, at))
    return lengths


def _shares(clients: tuple[Client, ...], member: IntArray) -> str:
    """Say which share of the requests the largest clients have, and should have."""
    rates = np.array([client.arrivals.rate for client in clients])
    asked, found = rates / rates.sum(), np.bincount(member, minlength=rates.size) / member.size
    largest = np.argsort(-asked, kind="stable")[:5]
    told = (f"{clients[c].name} {found[c]:.0%} (asked {asked[c] * 100:.0f})" for c in largest)
    return f"{len(clients)}; " + ", ".join(told).replace("%", " %")
