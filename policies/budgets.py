"""Token budgets: how much work a step of continuous batching may take on."""

from abc import ABC, abstractmethod
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, field_validator, model_validator

from policies.ascend_table import LookupTable, Row, read_table
from policies.base import Parameters, View, by_name


class Budget(ABC):
    """Gives the token budget of each step."""

    is_constant: bool = False
    """Whether it is the same in every step."""

    @abstractmethod
    def tokens(self, view: View) -> int:
        """Return the budget of the next step, decodes included."""

    def at_least(self, num_decodes: int) -> int:
        """Return a number below which no step with so many decodes will find its budget.

        Where it is enough for them, it is enough for fewer.
        """
        return 0


class ConstantBudget(Budget):
    """The same in every step."""

    is_constant = True

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens

    def tokens(self, view: View) -> int:
        """Return the budget."""
        return self._tokens

    def at_least(self, num_decodes: int) -> int:
        """Return the budget."""
        return self._tokens


class BudgetSpec(Parameters, ABC):
    """Parameters of a budget."""

    @property
    def decodes_first(self) -> bool:
        """Whether the budget is meant for a step that serves decodes before prompts."""
        return False

    @abstractmethod
    def build(self, max_num_batched_tokens: int) -> Budget:
        """Return a fresh budget that never exceeds `max_num_batched_tokens`."""


class Fixed(BudgetSpec):
    """Always `max_num_batched_tokens`."""

    kind: Literal["fixed"] = "fixed"

    def build(self, max_num_batched_tokens: int) -> Budget:
        """Return a fresh budget."""
        return ConstantBudget(max_num_batched_tokens)


class AscendTable(BudgetSpec):
    """The dynamic batch of vllm-ascend: the largest step in a table that meets the objective.

    For each context and number of decodes in the table, the budget is the largest `chunk_size`
    whose cost is at most `slo_ms`. A step looks up the smallest context and number that are not
    below its own mean and number. The budget counts decodes; without decodes it is
    `max_num_batched_tokens`, and it is never more. Decodes are served first, in the order in which
    their prompts were done.

    Notes
    -----
    Source: vllm-ascend releases/v0.13.0 and v0.18.0, `core/scheduler_dynamic_batch.py`
    (BudgetRefiner, SchedulerDynamicBatch); RFC #3328, PR #3490; removed from main by PR #11933.

    Where the source errs, a switch brings the error back: a miss (too many decodes, too long a
    context, or an objective that nothing meets) raises the budget to the full one with
    ``on_miss: default``; keys are searched in the order of a Python set, so that a larger one may
    be found first, with ``lookup_order: cpython_set``. Other deviations: a missing file is refused
    (there, it switches the refinement off) and so is one with gaps; without a file the table
    comes from the cost model; a table value above `max_num_batched_tokens` is cut to it.

    Examples
    --------
    Steps of 10 ms + 1 ms a decode + 0.5 ms a prompt token; three decodes with 40 tokens each:

    >>> from policies.testing import ScriptedRequest, ScriptedView
    >>> def step_time(decodes, context, chunks):
    ...     return (10 + decodes + 0.5 * sum(tokens for tokens, _ in chunks)) / 1e3
    >>> running = [ScriptedRequest(i, 39, computed=39, generated=1) for i in range(3)]
    >>> grid = {"ctx_lens": (64,), "d_nums": (1, 2, 4), "chunk_sizes": (8, 16, 32)}
    >>> budget = AscendTable(slo_ms=20, **grid).build(64)
    >>> budget.tokens(ScriptedView(running=running, step_time=step_time))
    16
    """

    kind: Literal["ascend-table"] = "ascend-table"
    slo_ms: float = Field(50.0, ge=-1, allow_inf_nan=False)
    """Longest step, in the unit of the table's cost, ms; larger is looser. Suggested: 35, 50, 75.
    0: no refinement, but decodes first (the documented baseline); -1: off altogether."""
    path: str | None = None
    """CSV file with columns ctx_len, d_num, chunk_size, cost. None: from the cost model."""
    on_miss: Literal["min", "default"] = "min"
    """Budget where the table has no answer: the smallest chunk_size, but a token for each decode;
    or `max_num_batched_tokens`, as in the source."""
    lookup_order: Literal["sorted", "cpython_set"] = "sorted"
    """How keys are searched: in ascending order, or as CPython iterates over a set (source)."""
    ctx_lens: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768)
    """Contexts of a generated table, tokens, ascending."""
    d_nums: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
    """Numbers of decodes of a generated table, ascending."""
    chunk_sizes: tuple[int, ...] = tuple(2**i * m // 4 for i in range(4, 14) for m in (4, 6))
    """Step sizes of a generated table, tokens, decodes included, ascending."""
    prefix_tokens: int = Field(0, ge=0)
    """Tokens stored before the prompt piece of a generated row."""

    @field_validator("ctx_lens", "d_nums", "chunk_sizes")
    @classmethod
    def _is_ascending(cls, values: tuple[int, ...]) -> tuple[int, ...]:
        if not values or values[0] < 1 or list(values) != sorted(set(values)):
            raise ValueError(f"{list(values)}: expected ascending numbers of at least 1")
        return values

    @field_validator("path")
    @classmethod
    def _is_table(cls, path: str | None) -> str | None:
        if path is not None:
            read_table(path)
        return path

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        if -1 < self.slo_ms < 0:
            raise ValueError(f"slo_ms {self.slo_ms:g}: expected -1 (off), 0 (baseline) or above 0")
        if self.chunk_sizes[-1] < self.d_nums[0]:
            raise ValueError("chunk_sizes: the largest step does not hold the fewest decodes")
        return self

    @property
    def decodes_first(self) -> bool:
        """Whether decodes are served before prompts: unless the feature is off."""
        return self.slo_ms >= 0

    def build(self, max_num_batched_tokens: int) -> Budget:
        """Return a fresh budget."""
        if self.slo_ms <= 0:
            return ConstantBudget(max_num_batched_tokens)
        return _TableBudget(self, max_num_batched_tokens)

    def rows(self, view: View) -> list[Row]:
        """Return the table: the file's, or one of the view's machine."""
        if self.path is not None:
            return read_table(self.path)
        return [
            Row(ctx, number, size, self._cost(view, ctx, number, size))
            for ctx in self.ctx_lens
            for number in self.d_nums
            for size in self.chunk_sizes
            if size >= number
        ]

    def _cost(self, view: View, ctx: int, number: int, size: int) -> float:
        chunks = ((size - number, self.prefix_tokens),) if size > number else ()
        return milliseconds(view.step_time(number, number * ctx, chunks))


class _TableBudget(Budget):
    def __init__(self, spec: AscendTable, cap: int) -> None:
        self._spec = spec
        self._cap = cap
        self._table: LookupTable | None = None

    def at_least(self, num_decodes: int) -> int:
        if self._table is None:
            return 0
        found = min(self._table.largest.values(), default=self._cap)
        return min(found, self._on_miss(num_decodes), self._cap)

    def tokens(self, view: View) -> int:
        if self._table is None:
            spec = self._spec
            in_set_order = spec.lookup_order == "cpython_set"
            self._table = LookupTable(spec.rows(view), spec.slo_ms, in_set_order)
        number, context = view.running.num_decodes, view.context_tokens
        for request in view.running.partials:
            if request.computed >= request.prompt_tokens:  # recomputes its output: a decode there
                number += 1
                context += request.known
        if not number:
            return self._cap
        budget = self._table.find(context / number, number)
        return min(self._on_miss(number) if budget is None else budget, self._cap)

    def _on_miss(self, number: int) -> int:
        if self._table is None or self._spec.on_miss == "default":
            return self._cap
        return max(self._table.smallest, number)


class ModelPredictive(BudgetSpec):
    """The largest prompt chunk whose step, as the cost model predicts it, meets the TPOT target.

    The step to come is the decodes as they stand and one chunk, which continues the first prompt
    under way or else starts a new one. Without decodes the budget is `max_num_batched_tokens`.

    Notes
    -----
    Our own baseline, the exact-knowledge reference for table and feedback controllers. The search
    halves intervals, so it takes step times for increasing in the length of the chunk.

    Examples
    --------
    >>> from policies.testing import ScriptedRequest, ScriptedView
    >>> def step_time(decodes, context, chunks):
    ...     return 0.005 + 0.00002 * (decodes + sum(tokens for tokens, _ in chunks))
    >>> running = [ScriptedRequest(i, 8, computed=8, generated=1) for i in range(10)]
    >>> view = ScriptedView(running=running, step_time=step_time)
    >>> ModelPredictive(tpot_slo_ms=30, slo_fraction=1).build(8192).tokens(view)
    1250
    """

    kind: Literal["model-predictive"] = "model-predictive"
    tpot_slo_ms: float = Field(50.0, gt=0, allow_inf_nan=False)
    """Wanted time between tokens, ms."""
    slo_fraction: float = Field(0.9, gt=0, le=1)
    """Part of it that a step may take."""
    min_chunk: int = Field(16, ge=1)
    """Prompt tokens that are always allowed, so that prompts get on."""

    def build(self, max_num_batched_tokens: int) -> Budget:
        """Return a fresh budget."""
        limit = self.slo_fraction * self.tpot_slo_ms
        return _ModelPredictive(limit, self.min_chunk, max_num_batched_tokens)


class _ModelPredictive(Budget):
    def __init__(self, limit_ms: float, min_chunk: int, cap: int) -> None:
        self._limit_ms = limit_ms
        self._min_chunk = min_chunk
        self._cap = cap

    def at_least(self, num_decodes: int) -> int:
        return min(num_decodes + self._min_chunk, self._cap)

    def tokens(self, view: View) -> int:
        decodes, context = view.running.num_decodes, view.context_tokens
        if not decodes:
            return self._cap
        past = next((request.computed for request in view.running.partials), 0)
        # Between a chunk that is allowed and one that is too long; the cap ends the search.
        good, bad = self._min_chunk, max(self._cap - decodes, self._min_chunk) + 1
        while bad - good > 1:
            chunk = (good + bad) // 2
            if milliseconds(view.step_time(decodes, context, ((chunk, past),))) <= self._limit_ms:
                good = chunk
            else:
                bad = chunk
        return min(decodes + good, self._cap)


def milliseconds(seconds: float) -> float:
    """Return a time in ms, rounded to a picosecond: the noise of binary fractions is not time.

    Examples
    --------
    >>> 0.005 + 0.00002 * 1250 <= 0.03, milliseconds(0.005 + 0.00002 * 1250) <= 30
    (False, True)
    """
    return round(seconds * 1e3, 9)


BUDGETS = (Fixed, AscendTable, ModelPredictive)
"""The budgets."""

AnyBudget = Annotated[
    Fixed | AscendTable | ModelPredictive, Field(discriminator="kind"), BeforeValidator(by_name)
]
"""Any of them, told apart by `kind`; a bare name stands for its defaults."""
