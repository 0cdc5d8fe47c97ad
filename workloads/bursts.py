"""Presets that keep a trace burst by burst, for services that are silent most of the time.

Each burst keeps its beginning, its parts (times without a longer pause, each with a length and
a count) and its pairs of lengths, but neither the moments of arrival inside a part nor the
order of the pairs.
"""

from functools import cached_property
from typing import Any, Final

import numpy as np

from workloads.base import FloatArray, IntArray
from workloads.blocks import shuffled
from workloads.shipped import Shipped
from workloads.streams import Streams
from workloads.trace import Trace

FORMAT: Final = "batchlab bursts 1"
_FEWEST: Final = 6


def burst_table(
    trace: Trace, silence_s: float, pause_s: float, about: dict[str, str]
) -> dict[str, Any]:
    """Reduce a trace to its bursts.

    Parameters
    ----------
    trace : Trace
        The trace, its first arrival at 0 s.
    silence_s : float
        A longer gap ends a burst, in seconds.
    pause_s : float
        A longer gap ends a part of a burst, in seconds.
    about : dict of str to str
        Source, licence and the like, put in front.

    Returns
    -------
    dict
        A table ready for JSON; times in milliseconds. ``cv`` is that of the gaps inside the
        parts of at least six requests, over the mean of their part.
    """
    times = trace.arrival_s
    gaps = np.diff(times)
    parts = np.split(np.arange(times.size), np.flatnonzero(gaps > pause_s) + 1)
    inside = [np.diff(times[part]) for part in parts if part.size >= _FEWEST]
    cv = float(np.concatenate([gap / gap.mean() for gap in inside]).std())
    bursts = []
    for rows in np.split(np.arange(times.size), np.flatnonzero(gaps > silence_s) + 1):
        order = rows[np.lexsort((trace.output_tokens[rows], trace.prompt_tokens[rows]))]
        own = [part for part in parts if rows[0] <= part[0] <= rows[-1]]
        bursts.append(
            {
                "parts": [
                    [_ms(times[part[0]]), _ms(times[part[-1]] - times[part[0]]), part.size]
                    for part in own
                ],
                "prompt_tokens": trace.prompt_tokens[order].tolist(),
                "output_tokens": trace.output_tokens[order].tolist(),
            }
        )
    limits = {"silence_s": silence_s, "pause_s": pause_s, "cv": round(cv, 4)}
    return {"format": FORMAT, **about, **limits, "bursts": bursts}


def _ms(seconds: float) -> int:
    return round(float(seconds) * 1000)


class BurstPreset(Shipped):
    """A workload after a real trace of bursts and silences.

    The first and the last request of each part of a burst stand at its ends; between them the
    gaps are gamma with the trace's own variability, scaled to the length of the part. The
    pairs of lengths of a burst come in random order.

    Notes
    -----
    Bursts and silences are the same in every draw, so replications differ little, and their
    spread says nothing about other hours of the same service. In one server with work in
    proportion to the prompt, at load 0.7, ``azure-code-2023`` waits 59.7 s on average and
    157.5 s at the 99th percentile (standard deviation over 40 draws 0.3 s and 0.6 s), the
    original trace 59.8 s and 157.4 s. A Poisson process of the same rate gives 0.6 s and 3.5 s.

    Examples
    --------
    >>> preset = BurstPreset("azure-code-2023", "code completion")
    >>> preset.num_rows, round(preset.request_rate, 2)
    (8819, 2.57)
    """

    @property
    def num_rows(self) -> int:
        """Requests in the bursts."""
        return int(self._parts[2].sum())

    @property
    def request_rate(self) -> float:
        """Requests over the time from the first to the last, per second."""
        starts, lengths, _ = self._parts
        return self.num_rows / float(starts[-1] + lengths[-1])

    @property
    def mean_prompt_tokens(self) -> float:
        """Mean length of a prompt in tokens."""
        return float(self._column("prompt_tokens").mean())

    @property
    def mean_output_tokens(self) -> float:
        """Mean length of an output in tokens."""
        return float(self._column("output_tokens").mean())

    def trace(
        self,
        num_requests: int | None = None,
        request_rate: float | None = None,
        *,
        streams: Streams,
    ) -> Trace:
        """Draw a trace from the bursts.

        Parameters
        ----------
        num_requests : int, optional
            Number of requests; all that the bursts hold if left out. Fewer are the leading
            ones. More are the bursts again and again, a mean gap apart, drawn afresh.
        request_rate : float, optional
            Requests per second, to which time is stretched as a whole: the requests over the
            time to the last of them are exactly this.
        streams : Streams
            Root of the streams ``arrivals`` and ``lengths``.

        Returns
        -------
        Trace
            The requests, the first at 0 s.

        Raises
        ------
        WorkloadError
            Number or rate out of range.
        """
        n = self._checked(num_requests, request_rate)
        rounds = -(-n // self.num_rows)
        period = self.num_rows / self.request_rate + 1 / self.request_rate
        rng = streams("arrivals")
        times = np.concatenate([self._moments(rng) + period * turn for turn in range(rounds)])[:n]
        sizes = [len(burst["prompt_tokens"]) for burst in self._table["bursts"]]
        rows = shuffled(np.tile(sizes, rounds), streams("lengths"))[:n] % self.num_rows
        account = self._account(n)
        if request_rate is not None and times[-1] > 0:
            factor = n / float(times[-1]) / request_rate
            step: dict[str, object] = {"request_rate": request_rate, "factor": factor}
            account["transforms"].append({"name": "rescale", **step})
            times = times * factor
        prompts, outputs = self._column("prompt_tokens")[rows], self._column("output_tokens")[rows]
        return Trace(times, prompts, outputs, provenance=account)

    def _moments(self, rng: np.random.Generator) -> FloatArray:
        """Return the moments of one round."""
        starts, lengths, counts = self._parts
        shape = float(self._table["cv"]) ** -2
        gaps = rng.gamma(shape, 1.0, int(counts.sum()))
        first = np.cumsum(counts) - counts
        gaps[first] = 0.0
        part = np.repeat(np.arange(counts.size), counts)
        walk = np.cumsum(gaps)
        walk -= walk[first][part]
        total = np.maximum(walk[first + counts - 1], 1e-300)
        return np.asarray(starts[part] + walk * (lengths / total)[part], np.float64)

    @cached_property
    def _parts(self) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return beginning and length in seconds, and count, of all parts."""
        parts = np.concatenate([np.array(burst["parts"]) for burst in self._table["bursts"]])
        return parts[:, 0] / 1000, parts[:, 1] / 1000, parts[:, 2].astype(np.int64)

    def _column(self, name: str) -> IntArray:
        bursts = self._table["bursts"]
        return np.concatenate([np.array(burst[name], np.int64) for burst in bursts])
