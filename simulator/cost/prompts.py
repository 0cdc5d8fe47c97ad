"""Attention of prompt chunks: by their length, and by what is stored before them."""

from dataclasses import dataclass

import numpy as np

from simulator.cost.attention import prefill_attention_s
from simulator.cost.models import ModelArchitecture
from simulator.cost.pieces import never_falling
from simulator.cost.profile import FloatArray, OperatorProfile
from simulator.cost.sum_table import stable


@dataclass(frozen=True)
class PromptTables:
    """Attention of one prompt chunk, summed over all layers.

    Attributes
    ----------
    alone : list of float
        Seconds of a prompt without stored context, by its length.
    rate : list of float
        Seconds per squared token, by total length; the last entry is held.
    floor : float
        Launch floor of attention, seconds.
    serial, walked : list of float
        By the number of tokens in a chunk: serial time per token walked over, and how many of
        the chunk's own tokens are walked over. The last entries are held.

    Notes
    -----
    A chunk of c tokens behind p stored ones takes the largest of: the time of a prompt of c
    tokens; its share `c (c + 2 p) / (c + p)²` of a prompt of c + p tokens; and the walk of its
    query tiles over all keys, `floor + serial[c] (p + walked[c])`.

    Examples
    --------
    >>> tables = PromptTables([0.0, 2.0, 5.0], [0.0, 2.0, 1.25], 1.0, [0.5] * 3, [0.0, 1.0, 2.0])
    >>> tables.chunk(1, 1), tables.chunk(1, 20)
    (3.75, 51.25)
    """

    alone: list[float]
    rate: list[float]
    floor: float
    serial: list[float]
    walked: list[float]

    @property
    def longest(self) -> int:
        """Longest prompt within the calibrated range, tokens."""
        return len(self.alone) - 1

    def chunk(self, tokens: int, past: int) -> float:
        """Return the seconds of a chunk of at least 1 token behind at least 0."""
        length = tokens + past
        longest = len(self.rate) - 1
        rate = self.rate[length] if length <= longest else self.rate[longest]
        seconds = rate * (tokens * (length + past))
        row = tokens if tokens <= longest else longest
        alone = self.alone[row] if tokens <= longest else rate * (tokens * tokens)
        if alone > seconds:
            seconds = alone
        serial = self.floor + self.serial[row] * (past + self.walked[row])
        return serial if serial > seconds else seconds


def compile_prompts(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, floor: float
) -> PromptTables:
    """Tabulate the attention of prompt chunks.

    Parameters
    ----------
    profile : OperatorProfile
        Measured times.
    model : ModelArchitecture
        The model.
    tp : int
        Number of GPUs that share every layer.
    floor : float
        Launch floor of attention over all layers, seconds.

    Returns
    -------
    PromptTables
        Tables up to the longest measured prompt.

    Examples
    --------
    >>> from simulator.cost.models import MODELS
    >>> from simulator.cost.profile import load_profile
    >>> tables = compile_prompts(load_profile("h100"), MODELS["llama-3.1-8b"], 1, 0.0)
    >>> round(tables.alone[2048] / 32 * 1e6)
    89
    """
    tokens = np.arange(1, int(profile.prefill_tokens[-1]) + 1, dtype=np.float64)
    seconds = model.num_layers * prefill_attention_s(profile, model, tp, tokens)
    seconds = stable(never_falling(seconds))
    rate = stable(seconds / (tokens * tokens))
    serial, walked = _serial(profile, model, tp, np.append(0.0, tokens))
    return PromptTables(
        alone=[0.0, *seconds.tolist()],
        rate=[0.0, *rate.tolist()],
        floor=floor,
        serial=serial.tolist(),
        walked=walked.tolist(),
    )


def _serial(
    profile: OperatorProfile, model: ModelArchitecture, tp: int, tokens: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return serial time per token, and own tokens walked over, by the length of a chunk.

    One tile of queries walks over all keys before it, however short the chunk is. Where the tile
    of the kernel is known, the tiles of all heads take turns on the multiprocessors; from the
    second round on a tile meets half of the chunk's own keys on average.
    """
    rounds = np.ones_like(tokens)
    tile = profile.metadata.get("prefill_tile")
    if tile:
        heads, _ = model.heads(tp)
        rounds = np.maximum(np.ceil(np.ceil(tokens / tile) * heads / profile.gpu.num_sms), 1.0)
    per_token = float(profile.metadata["serial_us_per_token"]) * 1e-6 * model.num_layers
    return per_token * rounds, np.where(rounds > 1.0, tokens / 2.0, tokens)
