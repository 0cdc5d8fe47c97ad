"""One request as the workload asks it: an immutable row."""

import math
from typing import NamedTuple, NoReturn, Self

from workloads.errors import WorkloadError


class _Fields(NamedTuple):
    """The fields of a request, unchecked."""

    id: int
    arrival: float
    prompt_tokens: int
    output_tokens: int
    max_tokens: int = 0
    priority: int = 0
    tenant: str = ""
    size: int = 1
    ttft_slo: float | None = None
    tpot_slo: float | None = None
    deadline: float | None = None
    conversation: int = -1
    turn: int = 0
    block_ids: tuple[int, ...] = ()
    id_block_size: int = 0


class RequestSpec(_Fields):
    """What one request asks for, and when.

    Parameters
    ----------
    id : int
        Position in the workload, counted from 0.
    arrival : float
        Time of arrival in seconds, 0 or more.
    prompt_tokens : int
        Length of the prompt in tokens, 1 or more.
    output_tokens : int
        Tokens that the request will truly generate, 1 or more. Hidden from policies.
    max_tokens : int, default 0
        Cap that the client asked for, at least `output_tokens`; 0 stands for exactly
        `output_tokens`, that is a client who knows the length. Policies may see it.
    priority : int, default 0
        Smaller values go first where a policy looks at priorities.
    tenant : str, default ''
        Client or class the request belongs to.
    size : int, default 1
        Rows of a batch the request fills, 1 or more.
    ttft_slo : float, optional
        Longest time to the first token that still counts as good, in seconds.
    tpot_slo : float, optional
        Longest mean time per further token that still counts as good, in seconds.
    deadline : float, optional
        Moment of simulated time, in seconds, by which the request should be finished.
    conversation : int, default -1
        Number of the conversation the request belongs to; -1 for none.
    turn : int, default 0
        Position in its conversation, counted from 0.
    block_ids : tuple of int, default ()
        Prefix chain of the prompt (see `workloads.chains.Chains`): two prompts whose chains
        begin alike share these blocks. What lies beyond the chain is the request's own.
    id_block_size : int, default 0
        Tokens in a block of the chain; 0 without a chain.

    Raises
    ------
    WorkloadError
        A value out of its range.

    Examples
    --------
    >>> RequestSpec(0, arrival=0.5, prompt_tokens=100, output_tokens=20).max_tokens
    20
    """

    __slots__ = ()

    def __new__(
        cls,
        id: int,
        arrival: float,
        prompt_tokens: int,
        output_tokens: int,
        max_tokens: int = 0,
        priority: int = 0,
        tenant: str = "",
        size: int = 1,
        ttft_slo: float | None = None,
        tpot_slo: float | None = None,
        deadline: float | None = None,
        conversation: int = -1,
        turn: int = 0,
        block_ids: tuple[int, ...] = (),
        id_block_size: int = 0,
    ) -> Self:
        """Check the values."""
        fields = (
            id,
            arrival,
            prompt_tokens,
            output_tokens,
            max_tokens or output_tokens,
            priority,
            tenant,
            size,
            ttft_slo,
            tpot_slo,
            deadline,
            conversation,
            turn,
            block_ids,
            id_block_size,
        )
        request = cls._make(fields)
        if not 0.0 <= arrival < math.inf:
            _refuse(request, "arrival", "a finite time of at least 0 s")
        for name in ("prompt_tokens", "output_tokens", "size"):
            if getattr(request, name) < 1:
                _refuse(request, name, "at least 1")
        if block_ids and id_block_size < 1:
            _refuse(request, "id_block_size", "at least 1")
        if request.max_tokens < output_tokens:
            _refuse(request, "max_tokens", f"at least output_tokens, {output_tokens}")
        return request

    def at(self, arrival: float) -> Self:
        """Return the same request with another time of arrival, seconds.

        Examples
        --------
        >>> RequestSpec(0, 0.5, 100, 20).at(2.0).arrival
        2.0
        """
        return type(self)(self.id, arrival, *self[2:])


def _refuse(request: RequestSpec, name: str, expected: str) -> NoReturn:
    told = f"expected {expected} as {name} of request {request.id}"
    raise WorkloadError(told, value=getattr(request, name))
