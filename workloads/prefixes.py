"""Beginnings that prompts have in common, and the chains of blocks that follow from them."""

import numpy as np
from pydantic import Field

from workloads.base import IntArray, PositiveInt, Spec
from workloads.chains import Chains
from workloads.length_laws import ZipfLength
from workloads.length_spec import LengthSpec
from workloads.streams import Streams


class SharedPrefix(Spec):
    """A number of texts, some of them more popular than others.

    Examples
    --------
    >>> layer = SharedPrefix(count=2, tokens={"tokens": 100})
    >>> which, tokens = layer.draw(4, Streams(1), "system")
    >>> tokens.tolist()
    [100, 100, 100, 100]
    """

    count: PositiveInt = 1
    """Number of different texts."""
    tokens: LengthSpec
    """Law of their lengths; a bare number is the same for all."""
    popularity: float = Field(0.0, ge=0, le=100)
    """Zipf exponent of how often each is used; 0 is equally often."""

    def draw(self, n: int, streams: Streams, name: str) -> tuple[IntArray, IntArray]:
        """Return for each of `n` conversations which text it has, and its length."""
        lengths = self.tokens.sample(self.count, streams(f"{name} tokens"))
        rank = ZipfLength(low=1, high=self.count, exponent=self.popularity)
        which = rank.sample(n, streams(f"{name} choice")) - 1
        return which, lengths[which]


def build_chains(
    prompts: IntArray,
    conversation: IntArray,
    epoch: IntArray,
    layers: list[tuple[IntArray, IntArray]],
    block_size: int,
) -> Chains:
    """Make the chains of conversations with shared beginnings.

    Parameters
    ----------
    prompts : array of int
        Prompt tokens of each request.
    conversation, epoch : array of int
        Conversation of each request, and how often its context was replaced before.
    layers : list of (array, array)
        For each shared layer, from the outer to the inner: per conversation the number of the
        text, and the tokens up to its end.
    block_size : int
        Tokens in a block.

    Returns
    -------
    Chains
        The whole blocks of each prompt. Blocks inside a shared layer have the ids of its text;
        a block across the end of a layer, and all after it, those of the conversation.
    """
    lengths = prompts // block_size
    row = np.repeat(np.arange(prompts.size), lengths)
    ends = np.cumsum(lengths)
    depth = np.arange(row.size) - np.repeat(ends - lengths, lengths)
    own = np.unique(np.stack([conversation, epoch]), axis=1, return_inverse=True)[1].ravel()
    longest = int(lengths.max(initial=0)) + 1
    owner = own[row]
    first_free = int(own.max(initial=-1)) + 1
    done = np.zeros(row.size, np.bool_)
    for member, tokens in layers:
        inside = (depth < (tokens // block_size)[conversation[row]]) & ~done
        owner = np.where(inside, first_free + member[conversation[row]], owner)
        first_free += int(member.max(initial=-1)) + 1
        done |= inside
    return Chains(owner * longest + depth, ends, block_size)
