"""Step time on a real GPU: measured operators composed into one number per step.

Per step the model only adds, multiplies, divides, compares and looks up, in a fixed order, so
that a vectorised form can give the same bits.
"""

from bisect import bisect_right

import numpy as np

from simulator.cost.base import StepWork
from simulator.cost.compiled import CompiledTables, compile_tables
from simulator.cost.engine_profiles import EngineProfile, find_engine_profile
from simulator.cost.gpus import default_kappa, find_gpu
from simulator.cost.models import find_model
from simulator.cost.profile import FloatArray, load_profile


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

    See Also
    --------
    table_cost : Builds one by name.

    Notes
    -----
    With n decodes at mean context L, chunks of c tokens behind p stored ones, m tokens in all
    and r sampled rows::

        kernels = layers[m] + decode(n, L) + sum of prefill(c, p) + head[r]
        prefill = max(table[c], rate[c + p] * c * (c + 2 p), floor + serial * (c + p))
        gpu     = kernels * (1 + prefill_factor * prompt tokens / m)

    and the host time of the engine profile. When chunks and decodes share a step, decode becomes
    `kappa_mixed * (decode - floor)`. Kernel times come from NVIDIA AIConfigurator 0.12.0 (vLLM
    tables), the serial term from Frontier a4b22df, sampler and kappa from LLMServingSim 5daddb2.

    Known bias: uneven contexts cost what their mean costs (3 to 5 % low); kappa 1 outside
    FlashAttention-2 is assumed, not measured; a step that samples nothing pays no output head.

    Examples
    --------
    >>> cost = table_cost("h100", "llama-3.1-8b", engine_profile="ideal")
    >>> round(cost.step_time(StepWork(32, 32 * 1024, (), 32, 32)) * 1e3, 1)
    8.4
    """

    supports_runs = True

    def __init__(
        self,
        tables: CompiledTables,
        engine: EngineProfile,
        tp: int,
        kappa_mixed: float,
    ) -> None:
        self.num_extrapolated = 0
        self.calibration = tables.calibration
        self.notes = tables.notes
        self.profile_sha256 = tables.profile_sha256
        self.kappa_mixed = kappa_mixed
        self.engine_profile = engine.name
        self._tables = tables
        self._rows = tables.rows
        self._layers, self._max_tokens = tables.layers.total, tables.layers.last
        self._head, self._max_sampled = tables.head.total, tables.head.last
        self._host = engine.host_seconds(tp)
        self._host_per_row = engine.host_ms_per_sequence / 1e3
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
        if chunks:
            gpu = self._gpu_with_chunks(decodes, context, chunks, sampled)
        else:
            row = self._rows.get(decodes) or self._tables.decode_row(decodes)
            starts, base, slope, max_context = row
            mean = context / decodes
            piece = bisect_right(starts, mean) - 1
            attention = base[piece] + slope[piece] * mean
            if mean > max_context or decodes > self._max_tokens or sampled > self._max_sampled:
                self.num_extrapolated += 1
                gpu = self._tables.layers.at(decodes) + attention + self._tables.head.at(sampled)
            else:
                gpu = self._layers[decodes] + attention + self._head[sampled]
        host = self._host + self._host_per_row * rows
        if self._overlap:
            return gpu if gpu > host else host
        return gpu + host

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
        >>> cost = table_cost("h100", "llama-3.1-8b")
        >>> (cost.decode_run(32, 32 * 1024, 3) * 1e6).round().tolist()
        [9399.0, 9401.0, 9402.0]
        """
        row = self._tables.decode_row(num_decodes)
        if num_steps <= 0:
            return np.empty(0)
        means = self._mean_contexts(num_decodes, context_tokens, num_steps)
        self.num_extrapolated += self._num_outside(num_decodes, means)
        layers, head = self._tables.layers.at(num_decodes), self._tables.head.at(num_decodes)
        gpu = layers + row.along(means) + head
        host = self._host + self._host_per_row * num_decodes
        if self._overlap:
            return np.maximum(gpu, host)
        return gpu + host

    def take_back(self, num_decodes: int, context_tokens: int, num_steps: int) -> None:
        """Remove steps of a run from the count of extrapolated ones, as they were not done.

        Parameters
        ----------
        num_decodes, context_tokens, num_steps : int
            The steps that were not carried out, described as for `decode_run`.

        Examples
        --------
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
        longest = self._tables.decode_row(num_decodes).max_context
        if not len(means) or means[-1] <= longest:
            return 0
        return len(means) - int(np.searchsorted(means, longest, side="right"))

    def _gpu_with_chunks(
        self, decodes: int, context: int, chunks: tuple[tuple[int, int], ...], sampled: int
    ) -> float:
        """Return the GPU time of a step with prompt chunks, and count it when extrapolated."""
        tables = self._tables
        longest = len(tables.prefill) - 1
        outside = sampled > self._max_sampled
        prompt_tokens = 0
        prefill = 0.0
        for tokens, past in chunks:
            prompt_tokens += tokens
            prefill += self._chunk(tokens, past)
            if tokens + past > longest:
                outside = True
        attention = self._mixed_decodes(decodes, context) if decodes else 0.0
        total = decodes + prompt_tokens
        if outside or total > self._max_tokens or self._beyond_decode(decodes, context):
            self.num_extrapolated += 1
        kernels = tables.layers.at(total) + attention + prefill + tables.head.at(sampled)
        return kernels * (1.0 + self._prefill_factor * (prompt_tokens / total))

    def _chunk(self, tokens: int, past: int) -> float:
        """Return the attention of one prompt chunk."""
        tables = self._tables
        length = tokens + past
        rates = tables.prefill_rate
        longest = len(rates) - 1
        rate = rates[length] if length <= longest else rates[longest]
        seconds = rate * (tokens * (length + past))
        alone = tables.prefill[tokens] if tokens <= longest else rate * (tokens * tokens)
        if alone > seconds:
            seconds = alone
        serial = tables.floor + tables.serial * length
        return serial if serial > seconds else seconds

    def _mixed_decodes(self, decodes: int, context: int) -> float:
        """Return the attention of decodes that share the step with chunks."""
        return self.kappa_mixed * (self._decodes(decodes, context) - self._tables.floor)

    def _decodes(self, decodes: int, context: int) -> float:
        """Return the attention of decodes alone."""
        return self._tables.decode_row(decodes).at(context / decodes)

    def _beyond_decode(self, decodes: int, context: int) -> bool:
        """Tell whether the decodes lie outside the calibrated range."""
        if not decodes:
            return False
        return context / decodes > self._tables.decode_row(decodes).max_context

    def breakdown(self, work: StepWork) -> dict[str, float]:
        """Return the parts of a step time; counts nothing.

        Parameters
        ----------
        work : StepWork
            At least one decode or chunk.

        Returns
        -------
        dict of str to float
            Seconds of `linears`, `elementwise`, `all_reduce`, `attention_decode`,
            `attention_prefill`, `head`, `sampler`, `prefill_overhead` and `host`; they sum to
            `step_time(work)`. With overlap, `host` is what the GPU does not hide.

        Examples
        --------
        >>> cost = table_cost("h100", "llama-3.1-8b")
        >>> parts = cost.breakdown(StepWork(chunks=((2048, 0),), num_sampled=1, num_rows=1))
        >>> round(parts["linears"] * 1e3, 1), round(parts["host"] * 1e3, 1)
        (35.9, 1.0)
        """
        decodes, context, chunks, sampled, rows = work
        total = work.num_tokens
        decode = 0.0
        if decodes:
            decode = (self._mixed_decodes if chunks else self._decodes)(decodes, context)
        linears, elementwise, all_reduce = self._tables.layers.parts_at(total)
        head, sampler = self._tables.head.parts_at(sampled)
        parts = {
            "linears": linears,
            "elementwise": elementwise,
            "all_reduce": all_reduce,
            "attention_decode": decode,
            "attention_prefill": sum((self._chunk(tokens, past) for tokens, past in chunks), 0.0),
            "head": head,
            "sampler": sampler,
        }
        share = (total - decodes) / total
        parts["prefill_overhead"] = sum(parts.values()) * (self._prefill_factor * share)
        host = self._host + self._host_per_row * rows
        parts["host"] = max(host - sum(parts.values()), 0.0) if self._overlap else host
        return parts


def table_cost(
    gpu: str,
    model: str,
    tp: int = 1,
    *,
    engine_profile: str = "generic",
    kappa_mixed: float | None = None,
) -> TableCost:
    """Build the cost model of a known model on a known GPU.

    Parameters
    ----------
    gpu : str
        Key of `GPUS`.
    model : str
        Key of `MODELS`.
    tp : int
        Number of GPUs that share every layer: 1, 2, 4 or 8.
    engine_profile : str
        Key of `ENGINE_PROFILES`.
    kappa_mixed : float, optional
        Cost of mixing decodes with chunks, at least 0; by default that of the GPU.

    Returns
    -------
    TableCost
        A fresh model.

    Raises
    ------
    UserError
        If a name is unknown, `tp` does not divide the model, or the data file is damaged.

    Examples
    --------
    >>> table_cost("a100", "llama-3.1-8b").kappa_mixed
    1.6
    """
    architecture = find_model(model)
    heads, kv_heads = architecture.heads(tp)
    if kappa_mixed is None:
        kappa_mixed = default_kappa(find_gpu(gpu), heads / kv_heads)
    engine = find_engine_profile(engine_profile)
    tables = compile_tables(load_profile(gpu), architecture, tp)
    return TableCost(tables, engine, tp, kappa_mixed)
