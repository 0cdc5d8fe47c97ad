"""Step time on a real GPU: measured operators composed into one number per step.

Per step the model only adds, multiplies, divides, compares and looks up, in a fixed order, so
that a vectorised form can give the same bits.
"""

from bisect import bisect_right
from collections.abc import Iterator
from math import inf

import numpy as np

from simulator.cost.base import StepWork
from simulator.cost.compiled import CompiledTables
from simulator.cost.engine_profiles import EngineProfile
from simulator.cost.profile import FloatArray


class TableCost:
    """Step time composed of measured GPU operators and what an engine adds.

    Parameters
    ----------
    tables : CompiledTables
        Look-up tables of the model on the GPU.
    engine : EngineProfile
        What the engine adds.
    tp : int
        Number of GPUs that share every layer.
    kappa_mixed : float
        Factor on decode attention beyond its floor when a prompt chunk shares the step, at
        least 0.

    Attributes
    ----------
    num_extrapolated : int
        Steps so far outside `calibration`. They are timed by the physical form with the last
        measured efficiency, never clamped.
    calibration : dict of str to (least, greatest)
        Ranges of the measurements behind the tables.
    notes : tuple of str
        What stands in for a missing measurement.
    profile_sha256 : str
        Hash of the data file.
    kappa_mixed : float
        As above.
    engine_profile : str
        Name of the engine profile.
    tables : CompiledTables
        As above.

    See Also
    --------
    table_cost : Builds one by name.

    Notes
    -----
    With n decodes at mean context L, chunks of c tokens behind p stored ones, m tokens in all
    and r sampled rows::

        kernels = layers[m] + decode(n, L) + sum of prefill(c, p) + head[r]
        prefill = max(table[c], rate[c + p] * c * (c + 2 p), floor + serial[c] * (p + walked[c]))
        gpu     = kernels * (1 + prefill_factor * prompt tokens / m)

    and the host time of the engine profile. When chunks and decodes share a step, decode becomes
    `kappa_mixed * (decode - floor)`. Kernel times come from NVIDIA AIConfigurator 0.12.0 (vLLM
    tables), the serial term from Frontier a4b22df, sampler and kappa from LLMServingSim 5daddb2.

    Known bias: uneven contexts cost what their mean costs (3 to 5 % low); kappa 1 outside
    FlashAttention-2 is assumed, not measured; a step that samples nothing pays no output head.

    Examples
    --------
    >>> from simulator.cost import table_cost
    >>> cost = table_cost("h100", "llama-3.1-8b", engine_profile="ideal")
    >>> round(cost.step_time(StepWork(32, 32 * 1024, (), 32, 32)) * 1e3, 1)
    8.4
    """

    supports_runs = True

    def __init__(
        self, tables: CompiledTables, engine: EngineProfile, tp: int, kappa_mixed: float
    ) -> None:
        self.num_extrapolated = 0
        self.calibration = tables.calibration
        self.notes = tables.notes
        self.profile_sha256 = tables.profile_sha256
        self.kappa_mixed = kappa_mixed
        self.engine_profile = engine.name
        self.tables = tables
        self._rows = tables.rows
        self._layers, self._max_tokens = tables.layers.total, tables.layers.last
        self._head = tables.head.total
        self._max_sampled = int(tables.calibration["num_sampled"][1])
        self._longest = tables.prompts.longest
        self._host = engine.host_seconds(tp)
        self._host_per_row = engine.host_ms_per_sequence / 1e3
        self._host_per_prompt_token = engine.host_us_per_prompt_token / 1e6
        self._prefill_factor = engine.prefill_factor
        self._overlap = engine.overlap

    def step_time(self, work: StepWork) -> float:
        """Return the duration of a step in seconds.

        Parameters
        ----------
        work : StepWork
            At least one decode or chunk.

        Returns
        -------
        float
            Seconds, greater than 0.

        Raises
        ------
        ValueError
            If the step holds no token.
        """
        decodes, context, chunks, sampled, rows = work
        host = self._host + self._host_per_row * rows
        if chunks:
            gpu, prompt_tokens = self._gpu_with_chunks(decodes, context, chunks, sampled)
            host += self._host_per_prompt_token * prompt_tokens
        else:
            row = self._rows.get(decodes) or self.tables.decode_row(decodes)
            starts, base, slope, max_context = row
            mean = context / decodes
            piece = bisect_right(starts, mean) - 1
            attention = base[piece] + slope[piece] * mean
            if mean > max_context or decodes > self._max_tokens or sampled > self._max_sampled:
                self.num_extrapolated += 1
                gpu = self.tables.layers.at(decodes) + attention + self.tables.head.at(sampled)
            else:
                gpu = self._layers[decodes] + attention + self._head[sampled]
        if self._overlap:
            return gpu if gpu > host else host
        return gpu + host

    def decode_times(self, num_decodes: int, context_tokens: int) -> Iterator[float]:
        """Yield the durations of steps that hold nothing but the same decodes.

        Parameters
        ----------
        num_decodes : int
            Rows of every step, at least 1.
        context_tokens : int
            Tokens attended in the first step; grows by `num_decodes` a step.

        Yields
        ------
        float
            Seconds; the same bits, and the same count of extrapolated steps, as `step_time`
            called once per step.

        Raises
        ------
        ValueError
            If a step holds no token.

        Examples
        --------
        >>> from itertools import islice
        >>> from simulator.cost import table_cost
        >>> times = table_cost("h100", "llama-3.1-8b").decode_times(32, 32 * 1024)
        >>> [round(seconds * 1e6) for seconds in islice(times, 3)]
        [9399, 9401, 9402]
        """
        starts, base, slope, max_context = self._rows.get(num_decodes) or self.tables.decode_row(
            num_decodes
        )
        layers, head = self._outside_attention(num_decodes)
        host = self._host + self._host_per_row * num_decodes
        overlap = self._overlap
        if num_decodes > self._max_tokens or num_decodes > self._max_sampled:
            max_context = -1.0
        piece_end = -1.0
        while True:
            mean = context_tokens / num_decodes
            if mean >= piece_end:
                piece = bisect_right(starts, mean) - 1
                piece_end = starts[piece + 1] if piece + 1 < len(starts) else inf
                first, rise = base[piece], slope[piece]
            if mean > max_context:
                self.num_extrapolated += 1
            gpu = layers + (first + rise * mean) + head
            yield (gpu if gpu > host else host) if overlap else gpu + host
            context_tokens += num_decodes

    def decode_run(self, num_decodes: int, context_tokens: int, num_steps: int) -> FloatArray:
        """Return the durations of steps that hold nothing but the same decodes.

        Parameters
        ----------
        num_decodes : int
            Rows of every step, at least 1.
        context_tokens : int
            Tokens attended in the first step; grows by `num_decodes` a step.
        num_steps : int
            Length of the run, at least 0.

        Returns
        -------
        array of float64
            Seconds; the same bits, and the same count of extrapolated steps, as `step_time`
            called once per step.

        Raises
        ------
        ValueError
            If a step holds no token.

        Examples
        --------
        >>> from simulator.cost import table_cost
        >>> cost = table_cost("h100", "llama-3.1-8b")
        >>> (cost.decode_run(32, 32 * 1024, 3) * 1e6).round().tolist()
        [9399.0, 9401.0, 9402.0]
        """
        row = self.tables.decode_row(num_decodes)
        if num_steps <= 0:
            return np.empty(0)
        means = self._mean_contexts(num_decodes, context_tokens, num_steps)
        self.num_extrapolated += self._num_outside(num_decodes, means)
        layers, head = self._outside_attention(num_decodes)
        gpu = layers + row.along(means) + head
        host = self._host + self._host_per_row * num_decodes
        if self._overlap:
            return np.maximum(gpu, host)
        return gpu + host

    def _outside_attention(self, num_decodes: int) -> tuple[float, float]:
        """Return the seconds of the layers without attention, and of head and sampler."""
        if num_decodes > self._max_tokens or num_decodes > self._max_sampled:
            return self.tables.layers.at(num_decodes), self.tables.head.at(num_decodes)
        return self._layers[num_decodes], self._head[num_decodes]

    def take_back(self, num_decodes: int, context_tokens: int, num_steps: int) -> None:
        """Remove steps of a run from the count of extrapolated ones, as they were not done.

        Parameters
        ----------
        num_decodes, context_tokens, num_steps : int
            The steps that were not carried out, described as for `decode_run`.

        Examples
        --------
        >>> from simulator.cost import table_cost
        >>> cost = table_cost("h100", "llama-3.1-8b")
        >>> _ = cost.decode_run(1, 100_000, 5)
        >>> cost.take_back(1, 100_002, 3)
        >>> cost.num_extrapolated
        2
        """
        means = self._mean_contexts(num_decodes, context_tokens, num_steps)
        self.num_extrapolated -= self._num_outside(num_decodes, means)

    @staticmethod
    def _mean_contexts(num_decodes: int, context_tokens: int, num_steps: int) -> FloatArray:
        """Return the mean context of each step of a run, tokens."""
        last = context_tokens + num_steps * num_decodes
        return np.arange(context_tokens, last, num_decodes, dtype=np.float64) / num_decodes

    def _num_outside(self, num_decodes: int, means: FloatArray) -> int:
        """Return how many steps of a run lie outside the calibrated range."""
        if num_decodes > self._max_tokens or num_decodes > self._max_sampled:
            return len(means)
        longest = self.tables.decode_row(num_decodes).max_context
        if not len(means) or means[-1] <= longest:
            return 0
        return len(means) - int(np.searchsorted(means, longest, side="right"))

    def _gpu_with_chunks(
        self, decodes: int, context: int, chunks: tuple[tuple[int, int], ...], sampled: int
    ) -> tuple[float, int]:
        """Return GPU time and prompt tokens of a step with chunks; count it if extrapolated."""
        tables = self.tables
        chunk_time, longest = tables.prompts.chunk, self._longest
        outside = sampled > self._max_sampled
        prompt_tokens = 0
        prefill = 0.0
        for tokens, past in chunks:
            prompt_tokens += tokens
            prefill += chunk_time(tokens, past)
            if tokens + past > longest:
                outside = True
        attention = 0.0
        if decodes:
            mean = context / decodes
            row = self._rows.get(decodes) or tables.decode_row(decodes)
            attention = self.kappa_mixed * (row.at(mean) - tables.floor)
            outside = outside or mean > row.max_context
        total = decodes + prompt_tokens
        if total <= self._max_tokens:
            layers = self._layers[total]
        else:
            layers, outside = tables.layers.at(total), True
        if outside:
            self.num_extrapolated += 1
        head = tables.head.at(sampled) if sampled > self._max_sampled else self._head[sampled]
        kernels = layers + attention + prefill + head
        return kernels * (1.0 + self._prefill_factor * (prompt_tokens / total)), prompt_tokens

    def breakdown(self, work: StepWork) -> dict[str, float]:
        """Return the parts of a step time; counts nothing.

        Parameters
        ----------
        work : StepWork
            At least one decode or chunk.

        Returns
        -------
        dict of str to float
            Seconds of `linears`, `elementwise`, `all_reduce`, `launch` (kernels outside recorded
            graphs), `attention_decode`, `attention_prefill`, `head`, `sampler`,
            `prefill_overhead` and `host`; they sum to `step_time(work)`. With overlap, `host` is
            what the GPU does not hide.

        Examples
        --------
        >>> from simulator.cost import table_cost
        >>> cost = table_cost("h100", "llama-3.1-8b")
        >>> parts = cost.breakdown(StepWork(chunks=((2048, 0),), num_sampled=1, num_rows=1))
        >>> round(parts["linears"] * 1e3, 1), round(parts["host"] * 1e3, 1)
        (35.9, 1.0)
        """
        decodes, context, chunks, sampled, rows = work
        total = work.num_tokens
        prompt_tokens = total - decodes
        decode = self.tables.decode_row(decodes).at(context / decodes) if decodes else 0.0
        if decodes and chunks:
            decode = self.kappa_mixed * (decode - self.tables.floor)
        linears, elementwise, all_reduce, *launch = self.tables.layers.parts_at(total)
        head, sampler = self.tables.head.parts_at(sampled)
        parts = {
            "linears": linears,
            "elementwise": elementwise,
            "all_reduce": all_reduce,
            "launch": sum(launch),
            "attention_decode": decode,
            "attention_prefill": sum((self.tables.prompts.chunk(*chunk) for chunk in chunks), 0.0),
            "head": head,
            "sampler": sampler,
        }
        share = prompt_tokens / total
        parts["prefill_overhead"] = sum(parts.values()) * (self._prefill_factor * share)
        host = self._host + self._host_per_row * rows + self._host_per_prompt_token * prompt_tokens
        parts["host"] = max(host - sum(parts.values()), 0.0) if self._overlap else host
        return parts
