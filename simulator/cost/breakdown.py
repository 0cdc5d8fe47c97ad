"""A step and its parts: time, arithmetic, traffic, and what limits each."""

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Term:
    """One part of a step.

    Attributes
    ----------
    name : str
        What it is.
    ms : float
        Its time over all layers, ms.
    flops, num_bytes : float
        Operations and bytes on each GPU.
    bound : str
        What limits it: `compute`, `memory`, `latency`, `link` or `host`.
    """

    name: str
    ms: float
    flops: float
    num_bytes: float
    bound: str

    @property
    def tflops_per_s(self) -> float:
        """Achieved arithmetic, 1e12 operations per second."""
        return self.flops / self.ms / 1e9 if self.ms else 0.0

    @property
    def gb_per_s(self) -> float:
        """Achieved memory traffic, 1e9 bytes per second."""
        return self.num_bytes / self.ms / 1e6 if self.ms else 0.0


@dataclass(frozen=True)
class StepBreakdown:
    """A step and its parts; prints as a table.

    Attributes
    ----------
    gpu, model, tp, dtype, engine_profile : str or int
        What is timed.
    decodes, context : int
        Decodes, and tokens that each attends.
    chunks : tuple of (tokens, past)
        Prompt pieces.
    terms : tuple of Term
        Parts in the order of their work; they sum to `ms`.
    ms : float
        Duration of the step, ms.
    peak_tflops, peak_gb_per_s : float
        Peaks of the GPU.
    outside : tuple of str
        What lies outside the calibrated range.
    notes : tuple of str
        What stands in for a missing measurement.
    """

    gpu: str
    model: str
    tp: int
    dtype: str
    engine_profile: str
    decodes: int
    context: int
    chunks: tuple[tuple[int, int], ...]
    terms: tuple[Term, ...]
    ms: float
    peak_tflops: float
    peak_gb_per_s: float
    outside: tuple[str, ...]
    notes: tuple[str, ...]

    @property
    def mfu(self) -> float:
        """Arithmetic of the step as a fraction of what the GPU could do in its time."""
        return sum(term.flops for term in self.terms) / self.ms / 1e9 / self.peak_tflops

    @property
    def bandwidth_utilisation(self) -> float:
        """Memory traffic of the step as a fraction of what the GPU could move in its time."""
        return sum(term.num_bytes for term in self.terms) / self.ms / 1e6 / self.peak_gb_per_s

    @property
    def shares(self) -> dict[str, float]:
        """Fraction of the step spent in terms of each bound, largest first."""
        shares: dict[str, float] = {}
        for term in self.terms:
            shares[term.bound] = shares.get(term.bound, 0.0) + term.ms / self.ms
        return dict(sorted(shares.items(), key=lambda item: (-item[1], item[0])))

    @property
    def bound(self) -> str:
        """What most of the step waits for."""
        return next(iter(self.shares))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        data = asdict(self)
        for term, row in zip(self.terms, data["terms"], strict=True):
            row |= {"tflops_per_s": term.tflops_per_s, "gb_per_s": term.gb_per_s}
        summary = {
            "bound": self.bound,
            "shares": self.shares,
            "mfu": self.mfu,
            "bandwidth_utilisation": self.bandwidth_utilisation,
        }
        return {**data, **summary}

    def text(self) -> str:
        """Return the step as a table with a summary below."""
        lines = [self._title(), ""]
        lines.append(f"{'term':<18}{'ms':>9}{'share':>8}{'TFLOP/s':>10}{'GB/s':>8}  bound")
        for term in self.terms:
            arithmetic = f"{term.tflops_per_s:.1f}" if term.flops else "-"
            traffic = f"{term.gb_per_s:.0f}" if term.num_bytes else "-"
            lines.append(
                f"{term.name:<18}{term.ms:>9.3f}{term.ms / self.ms:>8.1%}"
                f"{arithmetic:>10}{traffic:>8}  {term.bound}"
            )
        first, *others = [f"{bound} {share:.0%}" for bound, share in self.shares.items()]
        rest = f" (then {', '.join(others)})" if others else ""
        lines += [
            f"{'step':<18}{self.ms:>9.3f}",
            "",
            f"Bound by {first}{rest}.",
            f"MFU {self.mfu:.1%} of {self.peak_tflops:g} TFLOP/s, memory bandwidth "
            f"{self.bandwidth_utilisation:.1%} of {self.peak_gb_per_s:g} GB/s per GPU.",
        ]
        lines += [f"Outside the calibrated range: {what}." for what in self.outside]
        lines += [f"Note: {note}." for note in self.notes]
        return "\n".join(lines)

    def _title(self) -> str:
        work = [f"{self.decodes} decodes at context {self.context}"] if self.decodes else []
        work += [f"a chunk of {tokens} behind {past} tokens" for tokens, past in self.chunks]
        return (
            f"{self.model} in {self.dtype} on {self.tp} x {self.gpu}, engine profile "
            f"{self.engine_profile}: {', '.join(work)}"
        )
