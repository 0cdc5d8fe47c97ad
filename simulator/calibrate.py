"""Turn kernel timings into an operator profile, and say how well it predicts what it has not seen.

The schema of the CSV files, and the layouts of other projects that are read as well, stand in
docs/cost-model.md.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simulator.calibrate_checks import check_rows
from simulator.calibrate_errors import HeldOut, hold_out
from simulator.calibrate_rows import read_timings
from simulator.calibrate_tables import build_tables
from simulator.cost.gpus import FA2_MIXING, Gpu, find_gpu
from simulator.cost.models import Dtype
from simulator.cost.profile import OperatorProfile, make_profile
from simulator.cost.profile_file import encode_profile
from simulator.errors import UserError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class CalibrationReport:
    """A profile and its errors on rows that were held out.

    Attributes
    ----------
    profile : OperatorProfile
        Built from all rows.
    data : bytes
        Its file.
    rows : dict of str to int
        Operator to rows used.
    from_cache : dict of str to int
        Operator to rows faster than memory, small enough to come from L2.
    ignored : dict of str to int
        Reason to rows left out.
    held_out : tuple of HeldOut
        Errors by operator and split.
    """

    profile: OperatorProfile
    data: bytes
    rows: dict[str, int]
    from_cache: dict[str, int]
    ignored: dict[str, int]
    held_out: tuple[HeldOut, ...]

    def frame(self) -> "pd.DataFrame":
        """Return the errors as a table, one row per operator and split; fractions, not percent."""
        import pandas as pd

        rows = [
            {
                "operator": held.operator,
                "split": held.split,
                "rows": held.num_rows,
                "mape": held.mape if len(held.measured_us) else None,
                "p95": held.p95 if len(held.measured_us) else None,
                "bias": held.bias if len(held.measured_us) else None,
            }
            for held in self.held_out
        ]
        columns = ["operator", "split", "rows", "mape", "p95", "bias"]
        return pd.DataFrame(rows, columns=columns)

    def text(self) -> str:
        """Return what was used, and the table of errors."""
        gpu = self.profile.gpu
        used = ", ".join(f"{count} {operator}" for operator, count in self.rows.items())
        lines = [f"{gpu.name} in {self.profile.dtype}: {used} rows"]
        lines += [f"left out: {count} rows {why}" for why, count in self.ignored.items()]
        lines += [
            f"kept: {count} {operator} rows faster than memory, small enough for L2"
            for operator, count in self.from_cache.items()
            if count
        ]
        serial = self.profile.metadata["serial_us_per_token"]
        tile = self.profile.metadata["prefill_tile"] or "unknown"
        cold = self.profile.metadata["cold_hbm_fraction"]
        lines += [
            f"serial prefill term {serial} us per token, query tile {tile}, memory read at {cold} "
            "of its peak",
            "",
            f"{'operator':<12}{'held out':<16}{'rows':>7}{'MAPE %':>9}{'p95 %':>8}{'bias %':>8}",
        ]
        for held in self.held_out:
            start = f"{held.operator:<12}{held.split:<16}{held.num_rows:>7}"
            if len(held.measured_us):
                errors = f"{held.mape:>9.1%}{held.p95:>8.1%}{held.bias:>+8.1%}".replace("%", " ")
                lines.append(start + errors)
            else:
                lines.append(f"{start}{'n/a':>9}{'n/a':>8}{'n/a':>8}")
        return "\n".join(line.rstrip() for line in lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain data."""
        errors = self.frame().to_dict("records")
        return {
            "gpu": self.profile.gpu.key,
            "dtype": self.profile.dtype,
            "profile_sha256": self.profile.sha256,
            "rows": self.rows,
            "from_cache": self.from_cache,
            "ignored": self.ignored,
            "errors": [
                {str(key): None if value != value else value for key, value in row.items()}
                for row in errors
            ],
        }

    def save(self, path: Path, *, force: bool = False) -> None:
        """Write the profile, for `TableSpec(profile=PATH)`.

        Raises
        ------
        UserError
            If the file exists and `force` is False, or cannot be written.
        """
        if path.exists() and not force:
            raise UserError(f"{path} exists: choose another name or replace it with --force")
        try:
            path.write_bytes(self.data)
        except OSError as error:
            raise UserError(f"{path}: cannot write profile: {error.strerror}") from error


def calibrate(
    paths: Sequence[Path],
    gpu: str | Gpu,
    *,
    dtype: Dtype = "bfloat16",
    source: str = "own measurements",
    licence: str = "",
    seed: int = 0,
) -> CalibrationReport:
    """Build a profile from timing tables and judge it on held-out rows.

    Parameters
    ----------
    paths : sequence of pathlib.Path
        CSV files in the documented schema, or tables of AIConfigurator or Vidur.
    gpu : str or Gpu
        Key of a known GPU, or the record of another.
    dtype : {"bfloat16", "fp8"}
        Number format of linear layers and KV cache.
    source, licence : str
        Where the timings come from and under which terms; stored in the profile.
    seed : int
        Seed of the random splits.

    Returns
    -------
    CalibrationReport
        The profile, built from all rows, and its errors when parts of them are held out.

    Raises
    ------
    UserError
        One line that names file and rows: a time or size that is no positive number, a repeated
        or unsorted row, one above the peak of the GPU; or an operator that is missing.

    Notes
    -----
    Five splits are judged, each with a profile built without its rows: a random fifth of the
    points inside each curve, the largest fifth of the sizes, a fifth of the shapes of linear
    layers, and a fifth of the prompt chunks behind a stored context.
    """
    record = find_gpu(gpu) if isinstance(gpu, str) else gpu
    if not paths:
        raise UserError("no timing files given: expected at least one CSV file")
    timings = read_timings(paths, record, dtype)
    from_cache = check_rows(timings, record, dtype)
    arrays, metadata = build_tables(timings.frames, record, dtype)
    rows = {operator: len(frame) for operator, frame in timings.frames.items()}
    metadata |= {
        "source": source,
        "licence": licence,
        "files": list(timings.files),
        "tables": {operator: {"rows": count} for operator, count in rows.items()},
        "how_made": "batchlab calibrate",
    }
    data = encode_profile(arrays, metadata)
    profile = make_profile(arrays, metadata, hashlib.sha256(data).hexdigest(), "calibration")
    held_out = tuple(hold_out(timings.frames, record, dtype, seed))
    return CalibrationReport(profile, data, rows, from_cache, timings.ignored, held_out)


def own_gpu(
    key: str,
    *,
    bf16_tflops: float,
    hbm_gb_per_s: float,
    memory_gib: float,
    num_sms: int,
    l2_mb: int,
    attention_kernel: Literal["fa2", "fa3", "flashinfer"] = "fa2",
) -> Gpu:
    """Return the record of a GPU that is not known by name.

    Parameters
    ----------
    key : str
        Name to give it.
    bf16_tflops : float
        Peak dense bfloat16 arithmetic, 1e12 operations per second.
    hbm_gb_per_s : float
        Peak memory bandwidth, 1e9 bytes per second.
    memory_gib : float
        Device memory, GiB.
    num_sms : int
        Streaming multiprocessors.
    l2_mb : int
        Level-2 cache, MB.
    attention_kernel : {"fa2", "fa3", "flashinfer"}
        Attention kernel of the engine on it; decides the cost of mixing.

    Returns
    -------
    Gpu
        The record.

    Raises
    ------
    UserError
        If a figure is not above 0.

    Examples
    --------
    >>> gpu = own_gpu("mine", bf16_tflops=100, hbm_gb_per_s=900, memory_gib=24, num_sms=80, l2_mb=6)
    >>> gpu.memory_bytes, gpu.mixing
    (25769803776, (1.6, 2.8))
    """
    figures = {
        "bf16_tflops": bf16_tflops,
        "hbm_gb_per_s": hbm_gb_per_s,
        "memory_gib": memory_gib,
        "num_sms": num_sms,
        "l2_mb": l2_mb,
    }
    for name, value in figures.items():
        if not value > 0:
            raise UserError(f"{name} {value} of gpu {key}: expected a number above 0")
    return Gpu(
        key,
        key,
        int(memory_gib * 2**30),
        float(hbm_gb_per_s),
        float(bf16_tflops),
        num_sms,
        l2_mb,
        attention_kernel,
        FA2_MIXING if attention_kernel == "fa2" else (1.0, 1.0),
    )


def plot_errors(report: CalibrationReport, ax: "Axes") -> "Axes":
    """Draw predicted over measured time of all held-out rows.

    Parameters
    ----------
    report : CalibrationReport
        The report.
    ax : matplotlib.axes.Axes
        Where to draw.

    Returns
    -------
    matplotlib.axes.Axes
        The same axes.
    """
    markers = ("o", "s", "^", "D", "v", "P", "X")
    shown = [held for held in report.held_out if len(held.measured_us)]
    for number, held in enumerate(shown):
        ax.plot(
            held.measured_us,
            held.predicted_us / held.measured_us,
            marker=markers[number % len(markers)],
            markersize=2,
            linestyle="none",
            alpha=0.4,
            label=f"{held.operator}, {held.split}",
        )
    ax.axhline(1.0, color="black", linewidth=0.8)
    ax.set_xscale("log")
    ax.set_xlabel("Measured time (us)")
    ax.set_ylabel("Predicted / measured")
    ax.set_title(f"{report.profile.gpu.name}, {report.profile.dtype}, rows held out")
    if shown:
        ax.legend(markerscale=4)
    return ax
