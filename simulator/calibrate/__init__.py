"""Turn kernel timings into an operator profile, and say how well it predicts what it has not seen.

The schema of the CSV files, and the layouts of other projects that are read as well, stand in
docs/cost-model.md.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from simulator.calibrate.checks import check_rows
from simulator.calibrate.errors import hold_out
from simulator.calibrate.rows import read_timings
from simulator.calibrate.tables import build_tables
from simulator.cost.gpus import FA2_MIXING, Gpu, find_gpu
from simulator.cost.models import Dtype
from simulator.cost.profile import OperatorProfile, make_profile
from simulator.cost.profile_file import encode_profile
from simulator.errors import UserError
from simulator.held_out import HeldOut, errors_frame, errors_lines, errors_records, plot_errors

__all__ = ["CalibrationReport", "calibrate", "own_gpu", "plot_errors", "write_profile"]

if TYPE_CHECKING:
    import pandas as pd


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

    @property
    def title(self) -> str:
        """What was measured, for a figure."""
        return f"{self.profile.gpu.name}, {self.profile.dtype}"

    def frame(self) -> "pd.DataFrame":
        """Return the errors as a table, one row per operator and split; fractions, not percent."""
        return errors_frame(self.held_out)

    def text(self) -> str:
        """Return what was used, and the table of errors."""
        gpu = self.profile.gpu
        used = ", ".join(f"{count} {operator}" for operator, count in self.rows.items())
        lines = [f"{gpu.name} in {self.profile.dtype}: {used} rows"]
        lines += [f"left out: {count} rows {why}" for why, count in self.ignored.items()]
        lines += self.profile.metadata.get("notes", [])
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
            *errors_lines(self.held_out),
        ]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return everything but the arrays as plain data."""
        return {
            "gpu": self.profile.gpu.key,
            "dtype": self.profile.dtype,
            "profile_sha256": self.profile.sha256,
            "rows": self.rows,
            "from_cache": self.from_cache,
            "ignored": self.ignored,
            "errors": errors_records(self.held_out),
        }

    def save(self, path: Path, *, force: bool = False) -> None:
        """Write the profile, for `TableSpec(profile=PATH)`.

        Raises
        ------
        UserError
            If the file exists and `force` is False, or cannot be written.
        """
        write_profile(path, self.data, force=force)


def write_profile(path: Path, data: bytes, *, force: bool = False) -> None:
    """Write a profile file.

    Raises
    ------
    UserError
        If the file exists and `force` is False, or cannot be written.
    """
    if path.exists() and not force:
        raise UserError(f"{path} exists: choose another name or replace it with --force")
    try:
        path.write_bytes(data)
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
        "notes": [f"{count} rows {what}" for what, count in timings.stand_ins.items()],
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
