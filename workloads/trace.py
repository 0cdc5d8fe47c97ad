"""A workload as columns: who arrives when, for how much, and where the rows come from."""

from collections.abc import Iterator, Mapping
from copy import deepcopy

import numpy as np
from numpy.typing import ArrayLike, NDArray

from workloads import provenance as accounts
from workloads.base import FloatArray, IntArray
from workloads.columns import MAIN, Column, check, digest, freeze, freeze_all, to_requests
from workloads.context import OnOverlong, limit_context
from workloads.errors import WorkloadError, check_rate
from workloads.provenance import Provenance
from workloads.request import RequestSpec


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
        (``priority``, ``tenant``, ``size``, ``ttft_slo``, ``tpot_slo``, ``deadline``; NaN
        stands for none), others are kept beside them, such as ``line``.
    provenance : Provenance, optional
        Account of the rows' origin; "in memory" if left out.

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
    _provenance: Provenance

    def __init__(
        self,
        arrival_s: ArrayLike,
        prompt_tokens: ArrayLike,
        output_tokens: ArrayLike,
        max_tokens: ArrayLike | None = None,
        columns: Mapping[str, ArrayLike] | None = None,
        provenance: Provenance | None = None,
    ) -> None:
        put = super().__setattr__
        put("arrival_s", freeze("arrival_s", arrival_s, np.float64))
        put("prompt_tokens", freeze("prompt_tokens", prompt_tokens, np.int64))
        put("output_tokens", freeze("output_tokens", output_tokens, np.int64))
        caps = self.output_tokens if max_tokens is None else max_tokens
        put("max_tokens", freeze("max_tokens", caps, np.int64))
        put("columns", freeze_all(columns or {}))
        put("_provenance", deepcopy(provenance or accounts.origin("in memory", len(self))))
        self.validate()

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Trace does not change: cannot set {name!r}")

    def __reduce__(self) -> tuple[object, ...]:
        return Trace, (
            self.arrival_s,
            self.prompt_tokens,
            self.output_tokens,
            self.max_tokens,
            dict(self.columns),
            self._provenance,
        )

    def __len__(self) -> int:
        return self.arrival_s.size

    @property
    def provenance(self) -> Provenance:
        """A copy of the account: source, digest, rows read, kept and dropped, transforms."""
        return deepcopy(self._provenance)

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
        """Check every column; done for every trace when it is made.

        Raises
        ------
        WorkloadError
            Names the first request that breaks a rule.
        """
        check(self.table())
        kept = self._provenance["rows_kept"]
        if kept != len(self):
            raise WorkloadError(f"expected a provenance of {len(self)} rows kept", value=kept)

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
        return self._moved("rebase", {"by_s": -first}, self.arrival_s - first)

    def rescale(self, request_rate: float) -> "Trace":
        """Stretch or shrink time so that `rate` becomes the rate asked for.

        The gaps keep their CV, but every other time in the trace scales too: bursts, silences
        and drifts last longer or shorter by the same factor.

        Parameters
        ----------
        request_rate : float
            Requests per second, greater than 0.

        Raises
        ------
        WorkloadError
            The rate is not a positive number, or the trace has no span.
        """
        check_rate(request_rate)
        if not self.span_s > 0:
            raise WorkloadError(
                f"expected arrivals at two moments at least in {self._provenance['source']}"
            )
        factor = self.rate / request_rate
        parameters = {"request_rate": request_rate, "factor": factor}
        return self._moved("rescale", parameters, self.arrival_s * factor)

    def limit_context(self, max_model_len: int, how: OnOverlong = "error") -> "Trace":
        """Make every request fit a context; see `workloads.context.limit_context`."""
        return limit_context(self, max_model_len, how)

    def derive(
        self,
        transform: str,
        parameters: Mapping[str, object],
        *,
        keep: slice | NDArray[np.bool_] | None = None,
        **changed: ArrayLike,
    ) -> "Trace":
        """Return a trace with some rows, some columns replaced, and the account carried on.

        Parameters
        ----------
        transform : str
            Name under which the account lists the change and counts the rows it drops.
        parameters : mapping
            What else the account should say of it.
        keep : slice or array of bool, optional
            Rows to keep, applied after `changed`; all if left out.
        **changed : array_like
            New values of columns, one a row of this trace.

        Returns
        -------
        Trace
            The new trace.
        """
        rows = slice(None) if keep is None else keep
        table = {
            name: np.asarray(values)[rows] for name, values in (self.table() | changed).items()
        }
        account = accounts.after(self._provenance, transform, parameters, table[MAIN[0]].size)
        arrival_s, prompts, outputs, caps = (table.pop(name) for name in MAIN)
        return Trace(arrival_s, prompts, outputs, caps, table, account)

    def table(self) -> dict[str, Column]:
        """Return all columns by name: the four that every trace has, then the others."""
        return {name: getattr(self, name) for name in MAIN} | dict(self.columns)

    def requests(self) -> Iterator[RequestSpec]:
        """Yield the requests in order of arrival, numbered from 0."""
        return to_requests(self.table())

    def _moved(
        self, transform: str, parameters: Mapping[str, object], arrival_s: FloatArray
    ) -> "Trace":
        """Move the arrivals; deadlines leave each request as much time as before."""
        changed = {"arrival_s": arrival_s}
        if "deadline" in self.columns:
            changed["deadline"] = self.columns["deadline"] + (arrival_s - self.arrival_s)
        return self.derive(transform, parameters, keep=None, **changed)

    def content_hash(self) -> str:
        """Return the SHA-256 of everything that reaches the requests, as hexadecimal digits.

        Traces with the same hash yield the same requests, whatever their provenance.
        """
        return digest(self.table())

    def __repr__(self) -> str:
        account = self._provenance
        dropped = sum(account["dropped"].values())
        transforms = ", ".join(str(step["name"]) for step in account["transforms"])
        rate = f"{self.rate:.4g} requests/s, gap CV {self.cv:.3g}"
        return "\n".join(
            (
                f"Trace: {len(self):,} requests over {self.span_s:,.1f} s ({rate})",
                f"  prompt_tokens  {_summary(self.prompt_tokens)}",
                f"  output_tokens  {_summary(self.output_tokens)}",
                f"  source         {account['source']}: {account['rows_read']:,} rows read,"
                f" {dropped:,} dropped",
                f"  transforms     {transforms or 'none'}; {len(account['warnings'])} warnings",
            )
        )


def _summary(lengths: IntArray) -> str:
    middle, high = np.percentile(lengths, [50, 99])
    mean = f"mean {lengths.mean():,.1f}, median {middle:,.0f}"
    return f"{mean}, p99 {high:,.0f}, max {lengths.max():,}"
