"""A replica on paper: test a policy's decisions without an engine, a clock or a GPU."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from policies.base import Hit, KvOp, RequestView, Scratch


@dataclass(slots=True)
class ScriptedRequest:
    """A request with every visible field free to set (`policies.base.RequestView`)."""

    id: int
    prompt_tokens: int = 1
    arrival: float = 0.0
    max_tokens: int = 1
    priority: int = 0
    tenant: str = ""
    size: int = 1
    computed: int = 0
    generated: int = 0
    promised: int = 0
    ttft_slo: float | None = None
    tpot_slo: float | None = None
    deadline: float | None = None

    @property
    def known(self) -> int:
        """Tokens known so far: prompt, generated and promised ones."""
        return self.prompt_tokens + self.generated + self.promised

    @property
    def remaining(self) -> int:
        """Known tokens that are not computed."""
        return self.known - self.computed

    @property
    def is_decode(self) -> bool:
        """Whether the prompt is computed and just the newest token is missing."""
        return self.remaining == 1 and self.computed >= self.prompt_tokens


class ScriptedQueue:
    """Waiting or running requests in a fixed order."""

    def __init__(self, requests: Iterable[RequestView]) -> None:
        self._requests = list(requests)

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[RequestView]:
        return iter(self._requests)

    def __contains__(self, rid: int) -> bool:
        return any(request.id == rid for request in self._requests)

    @property
    def head(self) -> RequestView | None:
        """The first one, or None."""
        return self._requests[0] if self._requests else None

    @property
    def num_decodes(self) -> int:
        """How many are decodes."""
        return sum(r.is_decode for r in self._requests)

    @property
    def partials(self) -> list[RequestView]:
        """Those that are not decodes."""
        return [r for r in self._requests if not r.is_decode]

    def decodes_before(self, request: RequestView) -> int:
        """Return how many decodes stand before `request`."""
        return sum(r.is_decode for r in self._requests[: self._requests.index(request)])


class ScriptedKv:
    """A ledger in which each running request holds just the blocks of its computed tokens."""

    def __init__(
        self, total: int, block_size: int, running: Iterable[RequestView], host_free: int = 0
    ) -> None:
        self.total = total
        self.block_size = block_size
        self.host_free = host_free
        self._running = list(running)

    caching = False

    def scratch(self) -> Scratch:
        """Return a trial ledger that starts as this one stands."""
        return ScriptedScratch(self)

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""
        return self.total - sum(self.held(r) for r in self._running)

    @property
    def decode_growth(self) -> int:
        """Blocks that one more token for every running decode needs."""
        return sum(self.need(r, 1) for r in self._running if r.is_decode)

    def blocks_for(self, tokens: int) -> int:
        """Return the number of blocks that hold `tokens` tokens."""
        return -(-tokens // self.block_size)

    def held(self, request: RequestView) -> int:
        """Return the number of blocks the request holds."""
        return self.blocks_for(request.computed)

    def need(self, request: RequestView, tokens: int) -> int:
        """Return how many more blocks the request needs to compute `tokens` more tokens."""
        return self.blocks_for(request.computed + tokens) - self.held(request)


class ScriptedScratch:
    """A trial ledger that counts blocks."""

    journal: tuple[KvOp, ...] = ()

    def __init__(self, kv: ScriptedKv) -> None:
        self._kv = kv
        self._held: dict[int, int] = {}
        self.free = kv.free

    def hit(self, request: RequestView) -> Hit:
        """Return that nothing is found."""
        return Hit()

    def take(self, request: RequestView) -> None:
        """Take nothing."""

    def hold(self, request: RequestView, tokens: int) -> bool:
        """Hold blocks for `tokens` tokens in all; False if too few are free."""
        held = self._held.get(request.id, self._kv.held(request))
        blocks = max(held, self._kv.blocks_for(tokens))
        if blocks - held > self.free:
            return False
        self.free -= blocks - held
        self._held[request.id] = blocks
        return True

    def hold_decodes(self, running: Iterable[RequestView]) -> None:
        """Hold blocks for one more token of every running decode."""
        for request in running:
            if request.is_decode:
                self.hold(request, request.computed + 1)

    def release(self, request: RequestView) -> None:
        """Free all blocks of the request."""
        self.free += self._held.get(request.id, self._kv.held(request))
        self._held[request.id] = 0


class ScriptedOracle:
    """True output lengths, as a test gives them."""

    def __init__(self, output_tokens: Mapping[int, int]) -> None:
        self._output_tokens = output_tokens

    def output_tokens(self, request: RequestView) -> int:
        """Return the number of tokens the request will generate."""
        return self._output_tokens[request.id]


def one_second(
    num_decodes: int, context_tokens: int, chunks: Sequence[tuple[int, int]] = ()
) -> float:
    """Return the time of any step of a machine that takes a second for each, seconds."""
    return 1.0


class ScriptedView:
    """A replica in any state you like.

    Parameters
    ----------
    now : float
        Time in seconds.
    waiting, running : list of int or ScriptedRequest
        A number stands for a fresh request with a prompt of that many tokens that arrived at 0.
        Numbers are given in order: waiting, running, swapped.
    swapped : list of int or ScriptedRequest
        Requests in host memory.
    num_blocks, block_size : int
        Size of the KV cache.
    max_model_len : int, optional
        Largest number of prompt and output tokens.
    plans_ahead : bool
        Whether steps are planned before the tokens of the step before are known.
    oracle : mapping, optional
        Request number to true output length, for policies that declare `needs_oracle`.
    step_time : callable, optional
        Expected seconds of a step, by decodes, context tokens and chunks. None: a second.
    host_free : int
        KV blocks that fit into host memory.

    Examples
    --------
    >>> view = ScriptedView(waiting=[4, 2], num_blocks=8, block_size=4)
    >>> [r.prompt_tokens for r in view.waiting], view.kv.free
    ([4, 2], 8)
    """

    def __init__(
        self,
        now: float = 0.0,
        waiting: Iterable[int | ScriptedRequest] = (),
        running: Iterable[int | ScriptedRequest] = (),
        num_blocks: int = 2**20,
        block_size: int = 16,
        max_model_len: int | None = None,
        plans_ahead: bool = False,
        swapped: Iterable[int | ScriptedRequest] = (),
        oracle: Mapping[int, int] | None = None,
        step_time: Callable[[int, int, Sequence[tuple[int, int]]], float] | None = None,
        host_free: int = 2**20,
    ) -> None:
        self.now = now
        waiting, running = list(waiting), list(running)
        self.waiting = ScriptedQueue(_request(i, item) for i, item in enumerate(waiting))
        offset = len(waiting)
        self.running = ScriptedQueue(_request(offset + i, item) for i, item in enumerate(running))
        offset += len(running)
        self.swapped = ScriptedQueue(_request(offset + i, item) for i, item in enumerate(swapped))
        self.kv = ScriptedKv(num_blocks, block_size, self.running, host_free)
        self.max_model_len = max_model_len
        self.plans_ahead = plans_ahead
        self.oracle = None if oracle is None else ScriptedOracle(oracle)
        self._step_time = one_second if step_time is None else step_time

    @property
    def context_tokens(self) -> int:
        """Tokens that all running decodes together attend to in their next step."""
        return sum(r.known for r in self.running if r.is_decode)

    def step_time(
        self, num_decodes: int, context_tokens: int, chunks: Sequence[tuple[int, int]] = ()
    ) -> float:
        """Return how long a step is expected to take, in seconds."""
        return self._step_time(num_decodes, context_tokens, chunks)


def _request(number: int, item: int | ScriptedRequest) -> ScriptedRequest:
    return ScriptedRequest(number, prompt_tokens=item) if isinstance(item, int) else item
