"""A workload as columns: who arrives when, for how much, and where the rows come from."""

from collections.abc import Iterator, Mapping
from copy import deepcopy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads import provenance as accounts
from workloads.base import FloatArray, IntArray
from workloads.chains import Chains
from workloads.columns import MAIN, Column, check, digest, freeze, freeze_all, to_requests
from workloads.context import OnOverlong, limit_context
from workloads.errors import WorkloadError
from workloads.moves import moved, rescale
from workloads.provenance import Provenance
from workloads.request import RequestSpec
from workloads.statistics import figures
from workloads.summary import five_lines


class Trace:
    """Requests in order of arrival, one column a property. Never changes; methods return new ones.

    Parameters
    ----------
    arrival_s : array_like of float
        Times of arrival in seconds, ascending, 0 or more.
    prompt_tokens, output_tokens : array_like of int
        Lengths in tokens, 1 or more.
    max_tokens : array_like of int, optional
        Caps on the output, at least `output_tokens`; equal to them if left out.
    columns : mapping of str to array_like, optional
        Further columns. Those named like a field of `RequestSpec` reach the requests
        (``priority``, ``tenant``, ``size``, ``ttft_slo``, ``tpot_slo``, ``deadline``,
        ``conversation``, ``turn``; NaN stands for none), others are kept beside them, such
        as ``line`` or ``think_s``.
    provenance : Provenance, optional
        Account of the rows' origin; "in memory" if left out.
    chains : Chains, optional
        Prefix chains, one a request; cut to the blocks that the prompts reach.

    Raises
    ------
    WorkloadError
        No rows, columns of unequal length, or a value out of its range.

    Examples
    --------
    >>> trace = Trace([0.0, 1.0, 4.0], [100, 200, 300], [10, 20, 30])
    >>> trace.rate
    0.5
    >>> trace.rescale(request_rate=2.0).arrival_s.tolist()
    [0.0, 0.25, 1.0]
    >>> next(trace.requests()).prompt_tokens
    100
    """

    __slots__ = (
        "_provenance",
        "arrival_s",
        "chains",
        "columns",
        "max_tokens",
        "output_tokens",
        "prompt_tokens",
    )

    arrival_s: FloatArray
    prompt_tokens: IntArray
    output_tokens: IntArray
    max_tokens: IntArray
    columns: Mapping[str, Column]
    chains: Chains | None
    _provenance: Provenance

    def __init__(
        self,
        arrival_s: ArrayLike,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        max_tokens: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
        provenance: Provenance | None = None,
        chains: Chains | None = None,
    ) -> None:
        put = super().__setattr__
        put("arrival_s", freeze("arrival_s", arrival_s, np.float64))
        put("prompt_tokens", freeze("prompt_tokens", prompt_tokens, np.int64))
        put("output_tokens", freeze("output_tokens", output_tokens, np.int64))
        caps = self.output_tokens if max_tokens is None else max_tokens
        put("max_tokens", freeze("max_tokens", caps, np.int64))
        put("columns", freeze_all(columns or {}))
        account = deepcopy(provenance or accounts.origin("in memory", len(self)))
        account.pop("figures", None)
        put("_provenance", account)
        put("chains", chains)
        self.validate()
        put("chains", None if chains is None else chains.fit(self.prompt_tokens))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Trace does not change: cannot set {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        main = (self.arrival_s, self.prompt_tokens, self.output_tokens, self.max_tokens)
        return Trace, (*main, dict(self.columns), self._provenance, self.chains)

    def __len__(self) -> int:
        return self.arrival_s.size

    @property
    def provenance(self) -> Provenance:
        """A copy of the account: origin, rows kept and dropped, transforms, resulting figures."""
        account = deepcopy(self._provenance)
        account["figures"] = figures(self.arrival_s, self.prompt_tokens, self.output_tokens)
        return account

    @property
    def span_s(self) -> float:
        """Time from the first to the last arrival in seconds."""
        return float(self.arrival_s[-1] - self.arrival_s[0])

    @property
    def rate(self) -> float:
        """Mean rate (n - 1)/span in requests per second; NaN without a span."""
        return (len(self) - 1) / self.span_s if self.span_s > 0 else float("nan")

    @property
    def cv(self) -> float:
        """Standard deviation of the gaps over their mean; NaN below three requests."""
        if len(self) < 3 or self.span_s == 0:
            return float("nan")
        gaps = np.diff(self.arrival_s)
        return float(gaps.std() / gaps.mean())

    def validate(self) -> None:
        """Check every column, as is done when a trace is made; a `WorkloadError` names the row."""
        check(self.table())
        kept = self._provenance["rows_kept"]
        if kept != len(self):
            raise WorkloadError(f"expected a provenance of {len(self)} rows kept", value=kept)
        if self.chains is not None and len(self.chains) != len(self):
            raise WorkloadError(f"expected {len(self)} chains", value=len(self.chains))

    def head(self, n: int) -> "Trace":
        """Return the first `n` requests.

        Raises
        ------
        WorkloadError
            Fewer than `n` are there, or `n` is below 1.
        """
        if not 1 <= n <= len(self):
            whole = f"the {len(self)} of {self._provenance['source']}"
            raise WorkloadError(f"expected a num_requests from 1 to {whole}", value=n)
        return self if n == len(self) else self.derive("head", {"n": n}, keep=slice(n))

    def select(
        self,
        *,
        start_s: float | None = None,
        end_s: float | None = None,
        where: NDArray[np.bool_] | None = None,
    ) -> "Trace":
        """Return the requests that arrive in ``[start_s, end_s)`` and for which `where` is true.

        Parameters
        ----------
        start_s, end_s : float, optional
            Bounds in seconds on the trace's own clock, which goes on: see `rebase`.
        where : array of bool, optional
            One value a request, such as ``trace.columns["tenant"] == "a"``.

        Raises
        ------
        WorkloadError
            No request is left, or `where` has another length.
        """
        keep = np.ones(len(self), np.bool_) if where is None else np.array(where, np.bool_)
        if keep.shape != (len(self),):
            raise WorkloadError(f"expected {len(self)} values as where", value=keep.shape)
        if start_s is not None:
            keep &= self.arrival_s >= start_s
        if end_s is not None:
            keep &= self.arrival_s < end_s
        parameters = {"start_s": start_s, "end_s": end_s, "where": where is not None}
        return self.derive("select", parameters, keep=keep)

    def rebase(self) -> "Trace":
        """Move the clock so that the first arrival is at 0 s."""
        first = float(self.arrival_s[0])
        return moved(self, "rebase", {"by_s": -first}, self.arrival_s - first)

    def rescale(self, request_rate: float) -> "Trace":
        """Stretch or shrink time so that `rate` becomes the rate asked for.

        The gaps keep their CV, but every other time in the trace scales too: bursts,
        silences, drifts and think times last longer or shorter by the same factor.

        Parameters
        ----------
        request_rate : float
            Requests per second, greater than 0.

        Raises
        ------
        WorkloadError
            The rate is not a positive number, or the trace has no span.
        """
        return rescale(self, request_rate)

    def limit_context(self, max_model_len: int, how: OnOverlong = "error") -> "Trace":
        """Make every request fit a context; see `workloads.context.limit_context`."""
        return limit_context(self, max_model_len, how)

    def derive(
        self,
        transform: str,
        parameters: Mapping[str, object],
        *,
        keep: slice | NDArray[np.bool_] | IntArray | None = None,
        chains: Chains | None = None,
        **changed: ArrayLike,
    ) -> "Trace":
        """Return a trace with some rows, some columns replaced, and the account carried on.

        Parameters
        ----------
        transform : str
            Name under which the account lists the change and counts the rows it drops.
        parameters : mapping
            What else the account should say of it.
        keep : slice, array of bool or array of int, optional
            Rows to keep, applied after `changed`; all if left out.
        chains : Chains, optional
            New chains, one a row of this trace; the old ones if left out.
        **changed : array_like
            New values of columns, one a row of this trace.

        Returns
        -------
        Trace
            The new trace.
        """
        everything = np.arange(len(self))
        rows = everything if keep is None else everything[keep]
        new = {name: np.asarray(values)[rows] for name, values in changed.items()}
        chains = chains if chains is None or keep is None else chains.take(rows)
        return self.gather(transform, parameters, rows, chains, **new)

    def gather(
        self,
        transform: str,
        parameters: Mapping[str, object],
        rows: IntArray,
        chains: Chains | None = None,
        **changed: ArrayLike,
    ) -> "Trace":
        """Return a trace of some rows, in any order and number, with some columns replaced.

        Parameters
        ----------
        transform, parameters
            As for `derive`; more rows than before are counted as added.
        rows : array of int
            Rows of this trace.
        chains : Chains, optional
            Chains of the new trace; those of the rows if left out.
        **changed : array_like
            Columns of the new trace, one value a new row.

        Returns
        -------
        Trace
            The new trace.
        """
        old = {name: column[rows] for name, column in self.table().items() if name not in changed}
        table: dict[str, ArrayLike] = {**old, **changed}
        if chains is None and self.chains is not None:
            same = rows.size == len(self) and np.array_equal(rows, np.arange(rows.size))
            chains = self.chains if same else self.chains.take(rows)
        account = accounts.after(self._provenance, transform, parameters, rows.size)
        arrival_s, prompts, outputs, caps = (table.pop(name) for name in MAIN)
        return Trace(arrival_s, prompts, outputs, caps, table, account, chains)

    def with_provenance(self, account: Provenance) -> "Trace":
        """Return the same rows with another account."""
        main = (self.arrival_s, self.prompt_tokens, self.output_tokens, self.max_tokens)
        return Trace(*main, self.columns, account, self.chains)

    def table(self) -> dict[str, Column]:
        """Return all columns by name: the four that every trace has, then the others."""
        return {name: getattr(self, name) for name in MAIN} | dict(self.columns)

    def requests(self) -> Iterator[RequestSpec]:
        """Yield the requests in order of arrival, numbered from 0."""
        return to_requests(self.table(), self.chains)

    def content_hash(self) -> str:
        """Return the SHA-256 of all that reaches the requests, as hexadecimal digits."""
        return digest(self.table(), self.chains)

    def __repr__(self) -> str:
        return five_lines(self)
