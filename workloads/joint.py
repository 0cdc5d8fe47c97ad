"""Prompts and outputs that belong together: resampled in pairs, tied by rank, or by bins."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol, Self, TypeAlias

import numpy as np
from pydantic import Field, model_validator

from workloads.base import ByKind, IntArray, PositiveInt, Spec, with_kind
from workloads.length_spec import LengthSpec
from workloads.streams import Streams


class JointLengths(Protocol):
    """A law of pairs of lengths."""

    def sample(self, n: int, streams: Streams) -> tuple[IntArray, IntArray]:
        """Return `n` prompts and their outputs."""
        ...


class PairLengths(Spec):
    """Pairs drawn from a table with replacement, which keeps whatever they have in common.

    The table stands in place, or is that of a trace file, with or without times. With
    `block_rows` above 1, runs of so many rows are drawn, from anywhere in the file, so that
    neighbours stay neighbours.
    """

    kind: Literal["pairs"] = "pairs"
    pairs: tuple[tuple[PositiveInt, PositiveInt], ...] | None = Field(None, min_length=1)
    """Prompt and output tokens of each pair."""
    path: Path | None = None
    """Trace file that holds the pairs."""
    format: str | None = None
    """Name of its format; found by the content if left out."""
    block_rows: PositiveInt = 1
    """Rows drawn together."""

    @model_validator(mode="after")
    def _one_table(self) -> Self:
        if (self.pairs is None) == (self.path is None):
            raise ValueError("expected exactly one of pairs and path")
        return self

    def sample(self, n: int, streams: Streams) -> tuple[IntArray, IntArray]:
        """Return `n` prompts and their outputs.

        Raises
        ------
        WorkloadError
            The file cannot be used.
        """
        prompts, outputs = self._table()
        starts = streams("lengths").integers(0, prompts.size, -(-n // self.block_rows))
        rows = (starts[:, None] + np.arange(self.block_rows)).ravel()[:n] % prompts.size
        return prompts[rows], outputs[rows]

    def _table(self) -> tuple[IntArray, IntArray]:
        if self.path is None:
            prompts, outputs = np.array(self.pairs, np.int64).T
            return prompts, outputs
        from workloads.readers import read_trace

        trace = read_trace(self.path, self.format)
        return trace.prompt_tokens, trace.output_tokens


class CopulaLengths(Spec):
    """Two laws tied by a rank correlation (Gaussian copula).

    Notes
    -----
    Both lengths are drawn from their laws; the outputs are then put into the order of a
    normal variable that has the correlation 2·sin(π·ρ/6) with another, in whose order the
    prompts are put. So both laws are kept exactly. Which output a prompt gets depends on
    how many are drawn.

    References
    ----------
    Iman and Conover, A distribution-free approach to inducing rank correlation among input
    variables, Communications in Statistics B 11 (1982).
    """

    kind: Literal["copula"] = "copula"
    prompt_tokens: LengthSpec
    """Law of the prompts."""
    output_tokens: LengthSpec
    """Law of the outputs."""
    rank_correlation: float = Field(gt=-1, lt=1)
    """Spearman's correlation of the two."""

    def sample(self, n: int, streams: Streams) -> tuple[IntArray, IntArray]:
        """Return `n` prompts and their outputs."""
        prompts = self.prompt_tokens.sample(n, streams("prompt_tokens"))
        outputs = self.output_tokens.sample(n, streams("output_tokens"))
        r = 2 * math.sin(math.pi * self.rank_correlation / 6)
        one, other = streams("lengths").normal(size=(2, n))
        other = r * one + math.sqrt(1 - r * r) * other
        return _in_order_of(prompts, one), _in_order_of(outputs, other)


class ConditionalLengths(Spec):
    """Outputs whose law depends on how long the prompt is."""

    kind: Literal["conditional"] = "conditional"
    prompt_tokens: LengthSpec
    """Law of the prompts."""
    up_to: tuple[PositiveInt, ...] = Field(min_length=1)
    """Longest prompt of each bin but the last, ascending."""
    output_tokens: tuple[LengthSpec, ...] = Field(min_length=2)
    """Law of the outputs in each bin; one more than `up_to`."""

    @model_validator(mode="after")
    def _bins_make_sense(self) -> Self:
        if len(self.output_tokens) != len(self.up_to) + 1:
            raise ValueError("expected one more law in output_tokens than numbers in up_to")
        if np.any(np.diff(self.up_to) <= 0):
            raise ValueError("expected up_to to ascend")
        return self

    def sample(self, n: int, streams: Streams) -> tuple[IntArray, IntArray]:
        """Return `n` prompts and their outputs."""
        prompts = self.prompt_tokens.sample(n, streams("prompt_tokens"))
        drawn = [
            law.sample(n, streams("output_tokens", at)) for at, law in enumerate(self.output_tokens)
        ]
        return prompts, np.array(drawn)[np.searchsorted(self.up_to, prompts), np.arange(n)]


class ReasoningShare(Spec):
    """How much of an output is reasoning that the user does not see.

    Given as `values` with `probs`, such as the bimodal table of a real service, or as one
    value.
    """

    values: tuple[Annotated[float, Field(ge=0, le=1)], ...] = Field(min_length=1)
    """Fractions of the output, 0 to 1."""
    probs: tuple[Annotated[float, Field(ge=0, le=1)], ...] | None = None
    """Probability of each; equal ones if left out."""

    @model_validator(mode="after")
    def _probs_make_sense(self) -> Self:
        if self.probs is not None and len(self.probs) != len(self.values):
            raise ValueError("expected as many probs as values")
        if self.probs is not None and abs(sum(self.probs) - 1) > 1e-6:
            raise ValueError(f"expected probs that add up to 1, got {sum(self.probs):.9g}")
        return self

    def split(self, outputs: IntArray, rng: np.random.Generator) -> IntArray:
        """Return the reasoning tokens of each output, rounded half up."""
        probs = None if self.probs is None else np.array(self.probs) / sum(self.probs)
        shares = rng.choice(np.array(self.values), size=outputs.size, p=probs)
        return np.asarray(np.floor(outputs * shares + 0.5), np.int64)


def _in_order_of(values: IntArray, keys: np.ndarray[Any, Any]) -> IntArray:
    """Return the values so that the smallest stands where the smallest key does, and so on."""
    result = np.empty_like(values)
    result[np.argsort(keys, kind="stable")] = np.sort(values)
    return result


def _kind(data: Mapping[str, Any]) -> str:
    if "rank_correlation" in data:
        return "copula"
    return "conditional" if "up_to" in data else "pairs"


JOINTS = (PairLengths, CopulaLengths, ConditionalLengths)

JointSpec: TypeAlias = Annotated[
    PairLengths | CopulaLengths | ConditionalLengths, ByKind(JOINTS), with_kind(_kind)
]
