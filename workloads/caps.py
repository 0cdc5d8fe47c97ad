"""The cap on output tokens that a client sends along, which traces do not record."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias

import numpy as np
from pydantic import Field

from workloads.base import ByKind, PositiveInt, Spec, with_kind
from workloads.errors import WorkloadError
from workloads.trace import Trace


class OracleCap(Spec):
    """The client knows the length: the cap equals the output."""

    kind: Literal["oracle"] = "oracle"

    def apply(self, trace: Trace, max_model_len: int | None) -> Trace:
        """Return the trace with its caps set."""
        return _capped(trace, self.kind, trace.output_tokens, max_model_len)


class ConstantCap(Spec):
    """The same cap for all requests.

    An output longer than the cap is an error: shorten the outputs instead (``max`` of their
    law), so that the work asked for is the work that is stated.
    """

    kind: Literal["constant"] = "constant"
    tokens: PositiveInt
    """The cap in tokens, at least every output."""

    def apply(self, trace: Trace, max_model_len: int | None) -> Trace:
        """Return the trace with its caps set."""
        return _capped(trace, self.kind, np.full(len(trace), self.tokens), max_model_len)


class FactorCap(Spec):
    """A cap in proportion to the output, rounded up: a client with a rough idea."""

    kind: Literal["factor"] = "factor"
    factor: float = Field(ge=1)
    """Cap over output, 1 or more."""

    def apply(self, trace: Trace, max_model_len: int | None) -> Trace:
        """Return the trace with its caps set."""
        caps = np.ceil(np.round(trace.output_tokens * self.factor, 6)).astype(np.int64)
        return _capped(trace, self.kind, caps, max_model_len)


class RoomCap(Spec):
    """All the room that the prompt leaves in the context: a client who sends no cap."""

    kind: Literal["room"] = "room"
    at_most: PositiveInt | None = None
    """Upper bound in tokens; none by default."""

    def apply(self, trace: Trace, max_model_len: int | None) -> Trace:
        """Return the trace with its caps set.

        Raises
        ------
        WorkloadError
            There is no `max_model_len`.
        """
        if max_model_len is None:
            raise WorkloadError("expected a max_model_len, as max_tokens is the room it leaves")
        caps = max_model_len - trace.prompt_tokens
        if self.at_most is not None:
            caps = np.minimum(caps, self.at_most)
        return _capped(trace, self.kind, caps, max_model_len)


def _capped(
    trace: Trace, kind: str, caps: np.ndarray[Any, Any], max_model_len: int | None
) -> Trace:
    if max_model_len is not None:
        caps = np.minimum(caps, max_model_len - trace.prompt_tokens)
    return trace.derive("max_tokens", {"kind": kind}, max_tokens=caps)


def _kind(data: Mapping[str, Any]) -> str:
    if "tokens" in data:
        return "constant"
    return "factor" if "factor" in data else "room" if "at_most" in data else "oracle"


CAPS = (OracleCap, ConstantCap, FactorCap, RoomCap)

CapSpec: TypeAlias = Annotated[
    OracleCap | ConstantCap | FactorCap | RoomCap,
    ByKind(CAPS),
    with_kind(_kind, number="tokens"),
]
