"""What is measured on a GPU: operators and sizes of a model, as an ordered list of points."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Literal, NamedTuple

from simulator.cost.layers import linear_shapes
from simulator.cost.models import ModelArchitecture

GridSize = Literal["full", "small"]


class Point(NamedTuple):
    """One measurement to take.

    Attributes
    ----------
    operator : str
        `linear`, `decode`, `prefill`, `elementwise` or `all_reduce`.
    size : tuple of (str, int)
        Columns of the timing schema and their values, in the order in which rows are sorted.
    """

    operator: str
    size: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        """Return operator and sizes, for a progress bar."""
        return f"{self.operator} {' '.join(str(value) for _, value in self.size)}"


@dataclass(frozen=True)
class Grid:
    """Sizes to measure.

    Attributes
    ----------
    tokens : tuple of int
        Rows of the linear layers.
    head_rows : int
        Greatest number of rows of the output head.
    batches, contexts : tuple of int
        Decode attention: sequences, and tokens that each attends.
    chunks, pasts : tuple of int
        Prefill attention: prompt tokens, and tokens stored before them.
    element_bytes : tuple of int
        Bytes that elementwise kernels move.
    message_bytes : tuple of int
        Messages of the all-reduce.
    longest : int
        Greatest chunk with its past, tokens.
    cache_bytes : int
        Greatest KV cache of one layer.
    """

    tokens: tuple[int, ...]
    head_rows: int
    batches: tuple[int, ...]
    contexts: tuple[int, ...]
    chunks: tuple[int, ...]
    pasts: tuple[int, ...]
    element_bytes: tuple[int, ...]
    message_bytes: tuple[int, ...]
    longest: int
    cache_bytes: int


def _powers(first: int, last: int, step: int = 1) -> tuple[int, ...]:
    return tuple(2**power for power in range(first, last + 1, step))


GRIDS = {
    "full": Grid(
        tokens=tuple(sorted({*_powers(0, 13), 24, 48, 96, 192, 320, 384, 768, 1536, 3072, 6144})),
        head_rows=1024,
        batches=(*_powers(0, 5), 48, 64, 96, 128, 192, 256, 512),
        contexts=(16, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768, 65536),
        chunks=(*_powers(4, 9), 768, 1024, 1536, 2048, 3072, 4096, 6144, 8192, 12288, 16384),
        pasts=(0, 512, 2048, 8192, 16384),
        element_bytes=_powers(12, 29),
        message_bytes=_powers(10, 27),
        longest=32768,
        cache_bytes=2 * 2**30,
    ),
    "small": Grid(
        tokens=(1, 8, 64),
        head_rows=8,
        batches=(1, 4),
        contexts=(16, 64, 256),
        chunks=(16, 64, 128),
        pasts=(0, 128),
        element_bytes=_powers(12, 20, 2),
        message_bytes=(),
        longest=512,
        cache_bytes=2**24,
    ),
}
"""Grids by name: `full` takes a GPU some minutes per model, `small` a CPU some seconds."""


def shrunk(model: ModelArchitecture) -> ModelArchitecture:
    """Return a model with the same heads and a sixteenth of the width, for a rehearsal on a CPU.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> shrunk(MODELS["llama-3.1-8b"]).hidden_size
    256
    """
    return replace(
        model,
        key=f"{model.key}/16",
        hidden_size=model.hidden_size // 16,
        head_size=max(model.head_size // 16, 1),
        ffn_size=model.ffn_size // 16,
        vocabulary_size=model.vocabulary_size // 16,
    )


def points(
    model: ModelArchitecture, tp_sizes: Sequence[int], grid: Grid, num_gpus: int
) -> list[Point]:
    """Return what to measure, each point once, in the order of a sorted file.

    Parameters
    ----------
    model : ModelArchitecture
        A dense model.
    tp_sizes : sequence of int
        Degrees of tensor parallelism whose shapes are measured (on one GPU).
    grid : Grid
        Sizes.
    num_gpus : int
        GPUs here; from two on the all-reduce is measured.

    Returns
    -------
    list of Point
        Sorted by operator and sizes.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> plan = points(MODELS["llama-3.1-8b"], [1], GRIDS["small"], num_gpus=1)
    >>> len(plan), str(plan[0]), str(plan[-1])
    (31, 'linear 4096 4096 1', 'elementwise 1048576')
    """
    plan: list[Point] = []
    for part in (_linear, _decode, _prefill):
        plan += sorted({point for tp in tp_sizes for point in part(model, tp, grid)})
    plan += [Point("elementwise", (("num_bytes", size),)) for size in grid.element_bytes]
    plan += [
        Point("all_reduce", (("num_gpus", count), ("num_bytes", size)))
        for count, size in product((2, 4, 8), grid.message_bytes)
        if count <= num_gpus
    ]
    return plan


def _linear(model: ModelArchitecture, tp: int, grid: Grid) -> Iterator[Point]:
    head = (-(-model.vocabulary_size // tp), model.hidden_size)
    for shape, tokens in product((*linear_shapes(model, tp).values(), head), grid.tokens):
        if shape != head or tokens <= grid.head_rows:
            yield _point("linear", ("out_features", "in_features", "tokens"), (*shape, tokens))


def _decode(model: ModelArchitecture, tp: int, grid: Grid) -> Iterator[Point]:
    names = ("q_heads", "kv_heads", "head_size", "batch", "context")
    heads, kv_heads = model.heads(tp)
    token_bytes = 2 * kv_heads * model.head_size * model.kv_bytes
    for batch, context in product(grid.batches, grid.contexts):
        if batch * context * token_bytes <= grid.cache_bytes:
            yield _point("decode", names, (heads, kv_heads, model.head_size, batch, context))


def _prefill(model: ModelArchitecture, tp: int, grid: Grid) -> Iterator[Point]:
    names = ("q_heads", "kv_heads", "head_size", "past", "tokens")
    heads, kv_heads = model.heads(tp)
    for past, chunk in product(grid.pasts, grid.chunks):
        if past + chunk <= grid.longest:
            yield _point("prefill", names, (heads, kv_heads, model.head_size, past, chunk))


def _point(operator: str, names: Iterable[str], values: Iterable[int]) -> Point:
    return Point(operator, tuple(zip(names, values, strict=True)))
