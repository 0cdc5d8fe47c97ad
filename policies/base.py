"""The contract between the engine and a policy.

The engine is the law: it owns time, the queues, the KV ledger and the machine. A policy is the
advice: asked at every decision point, it reads a view of the replica and returns a `Decision`.
The engine checks each decision and refuses a wrong one; it never clips or repairs.

A policy is two small classes in one file: a frozen `PolicySpec` that holds validated parameters,
and a `Policy` that holds the state of one run.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum, Flag, auto
from typing import Final, Literal, NamedTuple, Protocol

from pydantic import BaseModel, ConfigDict


class AllRunning(Enum):
    """Type of `ALL_RUNNING`."""

    ALL_RUNNING = "all-running"


ALL_RUNNING: Final = AllRunning.ALL_RUNNING
"""Every running request in running order: its listed chunk, or one token if it is a decode,
until the step's token limit is used up."""


class Release(Enum):
    """When the tokens of a batch are delivered."""

    PER_REQUEST = "per-request"
    """At the end of the step that made them (streaming)."""
    PER_BATCH = "per-batch"
    """All of them when the last member of the batch is done; KV blocks are kept until then."""


class Mode(Enum):
    """What happens to the KV blocks of a preempted request."""

    RECOMPUTE = "recompute"
    """Blocks are freed and all known tokens are computed again; generated tokens are kept."""
    SWAP = "swap"
    """Blocks are copied to host memory; the request is swapped in later and goes on."""


class Trigger(Flag):
    """Events that led to a decision point; several may coincide."""

    START = auto()
    STEP_DONE = auto()
    ARRIVAL = auto()
    TIMER = auto()
    CANCEL = auto()


class Work(NamedTuple):
    """Tokens that one request computes in a step (at least one)."""

    rid: int
    tokens: int


class Shape(NamedTuple):
    """Rows and columns charged for a padded step; it changes the cost, not the work."""

    rows: int
    cols: int


class Plan(NamedTuple):
    """The work of one step.

    Attributes
    ----------
    decodes : ALL_RUNNING or tuple of int
        Requests that compute one token. `ALL_RUNNING` names them without listing them.
    chunks : tuple of Work
        Prompt pieces, for running requests and for those admitted by the same decision.
    shape : Shape, optional
        Charged size of a padded batch. None: ragged, charged by its tokens.
    release : Release
        When the tokens are delivered.
    steady : bool
        Whether the same plan holds for the following steps as long as nobody arrives, finishes
        or runs out of blocks, and no chunk is the last of its prompt. It allows the engine to run
        them in one go.
    until_arrival : bool
        Whether, after this step and as long as nobody arrives, leaves early or runs out of blocks,
        every decode computes one token a step, whoever finishes meanwhile, and nothing is planned
        when nobody is left. Where the step leaves no prompt unfinished, the engine need not ask
        again until then.
    """

    decodes: AllRunning | tuple[int, ...] = ()
    chunks: tuple[Work, ...] = ()
    shape: Shape | None = None
    release: Release = Release.PER_REQUEST
    steady: bool = False
    until_arrival: bool = False


class KvOp(NamedTuple):
    """An operation on the KV ledger, as a policy tried it on a scratch ledger.

    Attributes
    ----------
    action : {"take", "hold", "decodes", "release"}
        Take the cached blocks of a request's prefix, hold blocks for `tokens` tokens in all, hold
        one more token for every running decode, or free all blocks.
    rid : int
        Request number; -1 for decodes.
    tokens : int
        Tokens to hold; 0 for the others.
    """

    action: Literal["take", "hold", "decodes", "release"]
    rid: int
    tokens: int = 0


class Decision(NamedTuple):
    """What the engine shall do now, applied in the order reject, preempt, swap in, admit, run.

    Attributes
    ----------
    plan : Plan, optional
        The step to run. None: sleep until the next event or `wake_at`.
    admit : tuple of int
        Waiting requests that join the running list, in this order.
    reserve : tuple of (rid, tokens)
        KV space that an admitted request holds from now to its end, used or not.
    preempt : tuple of (rid, Mode)
        Running requests that go back to the head of the waiting queue, or to the head of the
        swapped ones, one after the other.
    swap_in : tuple of int
        Swapped requests that join the running list, in this order. Copies take the replica's
        time before the step of the same decision.
    reject : tuple of (rid, reason)
        Waiting requests that are turned away.
    wake_at : float, optional
        Time in seconds of the next decision if no event comes first.
    kv : tuple of KvOp
        Journal of a scratch ledger, where the order of the operations matters (prefix caching);
        the engine repeats it. Empty: the engine frees, admits and allocates in this order.
    """

    plan: Plan | None = None
    admit: tuple[int, ...] = ()
    reserve: tuple[tuple[int, int], ...] = ()
    preempt: tuple[tuple[int, Mode], ...] = ()
    swap_in: tuple[int, ...] = ()
    reject: tuple[tuple[int, str], ...] = ()
    wake_at: float | None = None
    kv: tuple[KvOp, ...] = ()


ALL_DECODES: Final = Decision(Plan(ALL_RUNNING, steady=True, until_arrival=True))
"""A step of decodes only, and the steps after it."""


class Limits(NamedTuple):
    """What a policy promises never to exceed; the engine holds it to that."""

    max_num_batched_tokens: int | None = None
    max_num_seqs: int | None = None


class RequestView(Protocol):
    """What a policy may know of a request. The output length is not part of it."""

    @property
    def id(self) -> int:
        """Number of the request in its run, in order of arrival."""

    @property
    def arrival(self) -> float:
        """Time of arrival, seconds from the start of the run."""

    @property
    def prompt_tokens(self) -> int:
        """Tokens of the prompt, at least 1."""

    @property
    def max_tokens(self) -> int:
        """Largest number of output tokens the client asked for, at least 1."""

    @property
    def priority(self) -> int:
        """Smaller is more urgent."""

    @property
    def tenant(self) -> str:
        """Client or class the request belongs to."""

    @property
    def ttft_slo(self) -> float | None:
        """Wanted time to the first token, seconds; None: not stated."""

    @property
    def tpot_slo(self) -> float | None:
        """Wanted time between tokens, seconds; None: not stated."""

    @property
    def deadline(self) -> float | None:
        """Time by which the last token is wanted, seconds of the run; None: not stated."""

    @property
    def size(self) -> int:
        """Batch rows the request takes, usually 1."""

    @property
    def computed(self) -> int:
        """Tokens whose keys and values are stored."""

    @property
    def generated(self) -> int:
        """Output tokens so far."""

    @property
    def promised(self) -> int:
        """Output tokens of steps in flight; 0 unless the engine plans ahead."""

    @property
    def known(self) -> int:
        """Tokens known so far: prompt, generated and promised ones."""

    @property
    def remaining(self) -> int:
        """Known tokens that are not computed; 1 for a decode."""

    @property
    def is_decode(self) -> bool:
        """Whether the prompt is computed and just the newest token is missing."""


class Queue(Protocol):
    """The waiting requests, head first."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[RequestView]: ...

    def __contains__(self, rid: int) -> bool:
        """Whether the request of that number waits."""

    @property
    def head(self) -> RequestView | None:
        """The first one, or None."""


class Running(Protocol):
    """The running requests in order of admission."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[RequestView]: ...

    @property
    def num_decodes(self) -> int:
        """How many are decodes. Constant time."""

    @property
    def partials(self) -> Iterable[RequestView]:
        """Those that are not decodes, in running order. Constant time to get."""

    def decodes_before(self, request: RequestView) -> int:
        """Return how many decodes stand before `request` in running order."""


class Hit(NamedTuple):
    """What a request finds in the prefix cache.

    Attributes
    ----------
    tokens, blocks : int
        Leading tokens that need not be computed, and the blocks that hold them.
    idle : int
        Those of the blocks that nobody holds: they count as free until they are taken.
    """

    tokens: int = 0
    blocks: int = 0
    idle: int = 0


class Scratch(Protocol):
    """A trial ledger: try a step request by request; nothing is done before the engine agrees."""

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""

    @property
    def journal(self) -> tuple[KvOp, ...]:
        """What was done, for `Decision.kv`; empty where the order does not matter."""

    def hit(self, request: RequestView) -> Hit:
        """Return what a waiting request finds in the prefix cache."""

    def take(self, request: RequestView) -> None:
        """Let a waiting request take the blocks it finds in the prefix cache."""

    def hold(self, request: RequestView, tokens: int) -> bool:
        """Hold blocks for `tokens` tokens in all; False, changing nothing, if too few are free."""

    def hold_decodes(self, running: Running) -> None:
        """Hold blocks for one more token of every running decode; they are known to be free."""

    def release(self, request: RequestView) -> None:
        """Free all blocks of the request."""


class KvView(Protocol):
    """The KV-cache ledger, read-only."""

    @property
    def total(self) -> int:
        """Usable blocks."""

    @property
    def free(self) -> int:
        """Blocks that nobody holds."""

    @property
    def host_free(self) -> int:
        """Blocks that still fit into host memory, for requests that are swapped out."""

    @property
    def block_size(self) -> int:
        """Tokens in a block."""

    @property
    def caching(self) -> bool:
        """Whether full blocks are kept for requests with the same prefix."""

    def scratch(self) -> Scratch:
        """Return a trial ledger that starts as this one stands."""

    @property
    def decode_growth(self) -> int:
        """Blocks that one more token for every running decode needs."""

    def blocks_for(self, tokens: int) -> int:
        """Return the number of blocks that hold `tokens` tokens."""

    def held(self, request: RequestView) -> int:
        """Return the number of blocks the request holds."""

    def need(self, request: RequestView, tokens: int) -> int:
        """Return how many more blocks the request needs to compute `tokens` more tokens."""


class OracleView(Protocol):
    """True output lengths."""

    def output_tokens(self, request: RequestView) -> int:
        """Return the number of tokens the request will generate."""


class View(Protocol):
    """What a policy sees of its replica at a decision point; read-only."""

    @property
    def now(self) -> float:
        """Time in seconds from the start of the run."""

    @property
    def waiting(self) -> Queue:
        """Requests that are not running, head of the queue first."""

    @property
    def running(self) -> Running:
        """Requests that hold KV blocks, in order of admission."""

    @property
    def swapped(self) -> Queue:
        """Requests whose KV blocks are in host memory, the last one swapped out first."""

    @property
    def context_tokens(self) -> int:
        """Tokens that all running decodes together attend to in their next step."""

    @property
    def kv(self) -> KvView:
        """The KV-cache ledger."""

    @property
    def max_model_len(self) -> int | None:
        """Largest number of prompt and output tokens of a request; None: no limit."""

    @property
    def plans_ahead(self) -> bool:
        """Whether steps are planned before the tokens of the step before are known."""

    @property
    def oracle(self) -> OracleView | None:
        """True output lengths; None unless the policy declares `needs_oracle`."""

    def step_time(
        self, num_decodes: int, context_tokens: int, chunks: Sequence[tuple[int, int]] = ()
    ) -> float:
        """Return how long a step is expected to take, in seconds, swapping aside.

        Parameters
        ----------
        num_decodes : int
            Requests that compute one token.
        context_tokens : int
            Tokens they attend to, all together, the new ones included.
        chunks : sequence of (tokens, past)
            Prompt pieces: tokens to compute, tokens stored before. Each is taken to complete
            its prompt.
        """


class Policy(ABC):
    """Decides what a replica does next; holds the state of one run.

    A policy that sets `needs_oracle` finds the true output lengths in `View.oracle`; no other
    does. Only `decide` is required. `on_submit` and `on_finish` are called only where a class
    overrides them, so that a policy pays for what it uses.
    """

    needs_oracle: bool = False
    limits: Limits = Limits()

    @abstractmethod
    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        """Return the next decision. Called whenever the replica is free and something happened."""

    def on_submit(self, request: RequestView, view: View) -> str | None:
        """Look at an arriving request: None accepts it, a text is the reason to reject it."""
        return None

    def on_finish(self, request: RequestView, view: View) -> None:
        """Take note that a request left: it finished or was turned away."""
        return


class Machine(NamedTuple):
    """What the parameters of a policy have to agree with.

    Attributes
    ----------
    max_model_len : int, optional
        Largest number of prompt and output tokens of a request; None: no limit.
    block_size : int, optional
        Tokens in a KV block; None: the cache has no limit, so blocks do not matter.
    plans_ahead : bool
        Whether a step is planned before the tokens of the step before are known.
    """

    max_model_len: int | None = None
    block_size: int | None = None
    plans_ahead: bool = False


class Parameters(BaseModel):
    """Base of what a person chooses: frozen, and unknown keys are errors; the text below describes.

    The validator is built when it is first needed.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


class PolicySpec(Parameters):
    """Validated parameters of a policy; immutable, comparable, picklable.

    A subclass adds its parameters as fields with their docstrings and builds a fresh `Policy` for
    every run. A class of your own is used by its dotted name, ``kind: my_module:MyPolicy``.
    """

    def build(self) -> Policy:
        """Return a new decision maker that has seen nothing yet."""
        raise NotImplementedError(f"{type(self).__name__} has to define build()")

    def refusal(self, machine: Machine) -> str | None:
        """Return why the parameters contradict the machine, or None."""
        return None


def by_name(value: object) -> object:
    """Let the bare name of a kind stand for the kind with its defaults.

    Examples
    --------
    >>> by_name("fcfs")
    {'kind': 'fcfs'}
    """
    return {"kind": value} if isinstance(value, str) else value


def total_size(requests: Sequence[RequestView]) -> int:
    """Return the batch rows that the requests take together."""
    return sum(request.size for request in requests)
