"""Measure the operators of a model on the GPU at hand, for `calibrate`."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from simulator.cost.models import ModelArchitecture, find_model
from simulator.errors import UserError
from simulator.profile_gpu.backend import Backend, NumpyBackend, PointFailed
from simulator.profile_gpu.file import TimingFile
from simulator.profile_gpu.grid import GRIDS, GridSize, Point, points, shrunk

Progress = Callable[[int, int, str], None]
"""Told how many points are done, of how many, and which one comes now."""


@dataclass(frozen=True)
class Measured:
    """What a measurement did.

    Attributes
    ----------
    path : pathlib.Path
        The timing file.
    device, software : str
        What was measured with what.
    num_new, num_kept : int
        Points measured now, and points that were in the file already.
    failed : tuple of str
        Points that could not be measured, with the reason.
    """

    path: Path
    device: str
    software: str
    num_new: int
    num_kept: int
    failed: tuple[str, ...]

    def text(self) -> str:
        """Return a summary in a few lines."""
        lines = [
            f"{self.device} with {self.software}: {self.num_new} points measured, "
            f"{self.num_kept} were there, {len(self.failed)} failed",
            *(f"failed: {reason}" for reason in self.failed[:10]),
            f"Timings in {self.path}",
        ]
        return "\n".join(lines)


def profile_gpu(
    model: str | ModelArchitecture,
    out: Path,
    *,
    device: Literal["cuda", "cpu"] = "cuda",
    tp_sizes: Sequence[int] = (1,),
    grid: GridSize | None = None,
    backend: Backend | None = None,
    on_progress: Progress | None = None,
) -> Measured:
    """Time the operators of a model and write them to a CSV file that `calibrate` reads.

    A file that is there is taken up: points in it are not measured again, and every point is
    written as soon as it is taken. At the end the rows are sorted.

    Parameters
    ----------
    model : str or ModelArchitecture
        A dense model.
    out : pathlib.Path
        CSV file to write or to complete.
    device : {"cuda", "cpu"}
        `cuda` measures with PyTorch. `cpu` is a rehearsal in NumPy, in float32 and with a
        sixteenth of the width.
    tp_sizes : sequence of int
        Degrees of tensor parallelism whose shapes are measured; the all-reduce is, when that
        many GPUs are here.
    grid : {"full", "small"}, optional
        Sizes; by default `full` on a GPU and `small` on a CPU.
    backend : Backend, optional
        What measures, in place of the one that `device` names.
    on_progress : callable, optional
        Called before every point, and after the last, with the number done, the number of
        points, and the point.

    Returns
    -------
    Measured
        What was done.

    Raises
    ------
    UserError
        If the model is no dense one, PyTorch or a GPU is missing, or the file belongs to another
        device.

    See Also
    --------
    simulator.calibrate.calibrate : Turns the file into a profile.
    """
    architecture = find_model(model) if isinstance(model, str) else model
    if architecture.num_experts:
        raise UserError(f"{architecture.key} is a mixture of experts: expected a dense model")
    if device == "cpu":
        architecture = shrunk(architecture)
    machine = backend or _backend(device)
    size = grid or ("full" if device == "cuda" else "small")
    plan = points(architecture, tp_sizes, GRIDS[size], machine.num_gpus)
    failed: list[str] = []
    with TimingFile(out, machine) as file:
        missing = [point for point in plan if point not in file]
        kept = len(plan) - len(missing)
        for number, point in enumerate(missing):
            if on_progress is not None:
                on_progress(kept + number, len(plan), str(point))
            failed += _measure(machine, point, file)
        if on_progress is not None:
            on_progress(len(plan), len(plan), "")
    done = len(missing) - len(failed)
    return Measured(out, machine.device, machine.software, done, kept, tuple(failed))


def _measure(machine: Backend, point: Point, file: TimingFile) -> list[str]:
    """Take one point; return why it could not be taken, if it could not."""
    try:
        sample = machine.measure(point)
    except PointFailed as reason:
        return [f"{point}: {reason}"]
    file.append(point, sample)
    return []


def _backend(device: Literal["cuda", "cpu"]) -> Backend:
    """Return what measures on a device."""
    if device == "cpu":
        return NumpyBackend()
    from simulator.profile_gpu.torch import TorchBackend

    return TorchBackend("cuda")
