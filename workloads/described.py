"""Presets that are descriptions of a workload, with all parameters derived from a data set."""

from functools import cached_property
from typing import Any, Final

from workloads.clients import ClientsWorkload
from workloads.conversation import ConversationWorkload
from workloads.shipped import Shipped
from workloads.streams import Streams
from workloads.trace import Trace

FORMAT: Final = "batchlab description 1"

Described = ClientsWorkload | ConversationWorkload


def description_table(
    spec: dict[str, Any], about: dict[str, str], **figures: float
) -> dict[str, Any]:
    """Put a description and the figures it was made with into a table ready for JSON."""
    return {"format": FORMAT, **about, **figures, "spec": spec}


class ClientsPreset(Shipped):
    """A sum of clients, after a decomposition that was published for a real service.

    There is no trace of requests behind it, so how well it reproduces queueing is not known.
    """

    @property
    def request_rate(self) -> float:
        """Rate of all clients together, in requests per second."""
        return self._spec.rate

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean length of a prompt in tokens, as published."""
        return float(self._table["mean_prompt_tokens"])

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of an output in tokens, as published."""
        return float(self._table["mean_output_tokens"])

    def trace(
        self,
        num_requests: int | None = None,
        request_rate: float | None = None,
        *,
        streams: Streams,
    ) -> Trace:
        """Draw requests; another rate multiplies those of all clients and keeps the mix."""
        n = self._checked(num_requests, request_rate)
        update = {"num_requests": n, "request_rate": request_rate}
        return self._named(self._spec.model_copy(update=update).build(streams))

    def _named(self, trace: Trace) -> Trace:
        account = self._account(len(trace))
        account["notes"] |= trace.provenance["notes"]
        return trace.with_provenance(account)

    @cached_property
    def _spec(self) -> ClientsWorkload:
        return ClientsWorkload.model_validate(self._table["spec"])


class ConversationPreset(Shipped):
    """Conversations after published tables of turns, lengths and think times.

    Arrivals depend on completions: a run asks the source. `trace` gives the earliest arrivals,
    as if each answer took no time. There is no trace with a common clock behind it.
    """

    is_open = False

    @property
    def request_rate(self) -> float:
        """Starts of conversations times the mean number of turns, per second."""
        return self._spec.arrivals.rate * float(self._table["mean_turns"])

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean length of a prompt in tokens, as published."""
        return float(self._table["mean_prompt_tokens"])

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of an output in tokens, as published."""
        return float(self._table["mean_output_tokens"])

    def trace(
        self,
        num_requests: int | None = None,
        request_rate: float | None = None,
        *,
        streams: Streams,
    ) -> Trace:
        """Draw the table of requests, the earliest `num_requests` of enough conversations."""
        n = self._checked(num_requests, request_rate)
        spec = self._spec
        if request_rate is not None:
            starts = request_rate / float(self._table["mean_turns"])
            arrivals = spec.arrivals.model_copy(update={"request_rate": starts})
            spec = spec.model_copy(update={"arrivals": arrivals})
        conversations = max(4, n // int(self._table["mean_turns"]))
        while True:
            update = {"num_conversations": conversations}
            table = spec.model_copy(update=update).source(streams).table
            if len(table) >= n:
                break
            conversations *= 2
        head = table.head(n)
        account = self._account(n)
        account["notes"] |= head.provenance["notes"]
        return head.with_provenance(account)

    @cached_property
    def _spec(self) -> ConversationWorkload:
        return ConversationWorkload.model_validate(self._table["spec"])
