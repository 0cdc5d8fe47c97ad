"""A trace in five lines."""

from typing import TYPE_CHECKING

import numpy as np

from workloads.base import IntArray

if TYPE_CHECKING:
    from workloads.trace import Trace


def five_lines(trace: "Trace") -> str:
    """Return number, rate, lengths, origin and transforms of a trace."""
    account = trace.provenance
    dropped = sum(account["dropped"].values())
    transforms = ", ".join(str(step["name"]) for step in account["transforms"])
    rate = f"{trace.rate:.4g} requests/s, gap CV {trace.cv:.3g}"
    return "\n".join(
        (
            f"Trace: {len(trace):,} requests over {trace.span_s:,.1f} s ({rate})",
            f"  prompt_tokens  {_lengths(trace.prompt_tokens)}",
            f"  output_tokens  {_lengths(trace.output_tokens)}",
            f"  source         {account['source']}: {account['rows_read']:,} rows read,"
            f" {dropped:,} dropped",
            f"  transforms     {transforms or 'none'}; {len(account['warnings'])} warnings",
        )
    )


def _lengths(lengths: IntArray) -> str:
    middle, high = np.percentile(lengths, [50, 99])
    mean = f"mean {lengths.mean():,.1f}, median {middle:,.0f}"
    return f"{mean}, p99 {high:,.0f}, max {lengths.max():,}"
