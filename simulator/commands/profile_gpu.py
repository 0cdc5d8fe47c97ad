"""`batchlab profile-gpu`: time the operators of a model on the GPU at hand."""

from pathlib import Path
from typing import Annotated, Literal

from cyclopts import Parameter

from simulator.cost.model_file import read_model_file
from simulator.cost.models import ModelArchitecture, find_model
from simulator.errors import UserError


def profile_gpu(
    *,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    model: str | None = None,
    model_config: Path | None = None,
    tp: Annotated[list[str], Parameter(consume_multiple=True, negative="")] = ["1"],  # noqa: B006  # cyclopts shows the default
    device: Literal["cuda", "cpu"] = "cuda",
    grid: Literal["small", "full"] | None = None,
) -> int:
    """Time the operators of a model on the GPU at hand, for `batchlab calibrate`.

    Needs PyTorch (extra `gpu`). Every point is written at once: an interrupted
    measurement goes on where it stopped when the same command is called again.
    `--device cpu` rehearses it in NumPy with a sixteenth of the width.

    For example:

      batchlab profile-gpu --model llama-3.1-8b --tp 1,2 -o timings.csv
      batchlab profile-gpu --model-config config.json -o timings.csv
      batchlab profile-gpu --device cpu -o rehearsal.csv

    Parameters
    ----------
    out
        CSV file to write, or to complete.
    model
        Model whose shapes are measured (default: llama-3.1-8b).
    model_config
        A config.json in Hugging Face's form instead of a known model.
    tp
        Degrees of tensor parallelism, such as 1,2.
    device
        Where: cuda, or cpu for a rehearsal.
    grid
        Sizes: full (default on a GPU) or small (default on a CPU).
    """
    from tqdm import tqdm

    from simulator.profile_gpu import profile_gpu as measure

    architecture = _model(model, model_config)
    sizes = _degrees(tp)
    with tqdm(desc="profile-gpu", unit="point", disable=None, leave=False) as bar:

        def show(done: int, total: int, point: str) -> None:
            bar.total = total
            bar.set_postfix_str(point, refresh=False)
            bar.update(done - bar.n)

        done = measure(
            architecture, out, device=device, tp_sizes=sizes, grid=grid, on_progress=show
        )
    print(done.text())
    return 0


def _model(name: str | None, file: Path | None) -> ModelArchitecture:
    """Return the model, which is given once at most."""
    if file is None:
        return find_model(name or "llama-3.1-8b")
    if name is not None:
        raise UserError("--model and --model-config: expected one of them")
    return read_model_file(file)


def _degrees(words: list[str]) -> list[int]:
    """Return degrees of tensor parallelism, given as `1,2` or `1 2`."""
    try:
        return [int(word) for word in ",".join(words).split(",")]
    except ValueError:
        raise UserError(f"--tp {' '.join(words)}: expected whole numbers such as 1,2") from None
