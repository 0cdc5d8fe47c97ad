"""`batchlab calibrate`: timings to a cost profile, judged on rows that were held out."""

import json as js
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

from cyclopts import Parameter

from simulator.cost.gpus import Gpu, find_gpu
from simulator.errors import UserError
from simulator.held_out import Judged, plot_errors
from simulator.whole_file import write_whole

Flag = Annotated[bool, Parameter(negative="")]


class _Report(Judged, Protocol):
    """What both kinds of calibration return."""

    def text(self) -> str: ...

    def to_dict(self) -> dict[str, Any]: ...

    def save(self, path: Path, *, force: bool = False) -> None: ...


def calibrate(
    *files: Path,
    out: Annotated[Path, Parameter(name=["--out", "-o"])],
    gpu: str | None = None,
    bf16_tflops: float | None = None,
    hbm_gb_per_s: float | None = None,
    memory_gib: float | None = None,
    num_sms: int | None = None,
    l2_mb: int | None = None,
    attention_kernel: Literal["fa2", "fa3", "flashinfer"] = "fa2",
    dtype: Literal["bfloat16", "fp8"] = "bfloat16",
    steps: Annotated[list[Path] | None, Parameter(consume_multiple=True, negative="")] = None,
    time: str | None = None,
    between_steps_us: float | None = None,
    new_request_us: float | None = None,
    source: str = "own measurements",
    licence: str = "",
    seed: int = 0,
    report: Path | None = None,
    figure: Path | None = None,
    force: Flag = False,
    json: Flag = False,
) -> int:
    r"""Turn timings into a cost profile, and say how well it predicts held-out rows.

    Kernel timings (our schema, or tables of AIConfigurator or Vidur; see
    docs/cost-model.md) become a profile of a GPU, for --cost.profile. With --steps,
    whole steps from the log of an engine become a linear model of its steps, for
    --cost.kind step-linear --cost.profile.

    For example:

      batchlab calibrate timings.csv --gpu h200 -o mine.npz
      batchlab calibrate timings.csv -o mine.npz --gpu mine --bf16-tflops 100 \
        --hbm-gb-per-s 900 --memory-gib 24 --num-sms 80 --l2-mb 6
      batchlab calibrate --steps sweep.steps.csv.gz -o engine.json

    Parameters
    ----------
    files
        CSV files of kernel timings, plain or gzip.
    out
        The profile to write.
    gpu
        GPU that was measured (see `batchlab list gpus`), or a name for your own.
    bf16_tflops
        Own GPU: peak dense bfloat16 arithmetic, 1e12 operations per second.
    hbm_gb_per_s
        Own GPU: peak memory bandwidth, 1e9 bytes per second.
    memory_gib
        Own GPU: device memory, GiB.
    num_sms
        Own GPU: streaming multiprocessors.
    l2_mb
        Own GPU: level-2 cache, MB.
    attention_kernel
        Own GPU: attention kernel of the engine; decides the cost of mixing.
    dtype
        Number format of linear layers and KV cache.
    steps
        CSV files of whole steps, in place of kernel timings.
    time
        Column with the time of a step, ms (default: cpu_ms if it is there, else wall_ms).
    between_steps_us
        With --steps: pause of the engine after a step, µs (default: as the log shows).
    new_request_us
        With --steps: hand-over of a request before its first step, µs (likewise).
    source
        Where the timings come from; stored in the profile.
    licence
        Under which terms; stored in the profile.
    seed
        Seed of the random splits.
    report
        Also write the printed report into this file.
    figure
        Also draw predicted over measured time of the held-out rows (png, pdf or svg).
    force
        Replace files that exist.
    json
        Print one JSON object instead of text.
    """
    _check_targets([out, report, figure], force=force)
    if figure is not None and figure.suffix not in (".png", ".pdf", ".svg"):
        raise UserError(f"--figure {figure}: expected a name that ends in png, pdf or svg")
    own = {
        "bf16_tflops": bf16_tflops,
        "hbm_gb_per_s": hbm_gb_per_s,
        "memory_gib": memory_gib,
        "num_sms": num_sms,
        "l2_mb": l2_mb,
    }
    pauses = {"between_steps": between_steps_us, "new_request": new_request_us}
    origin = {"source": source, "licence": licence, "seed": seed}
    if steps is not None:
        if files or gpu is not None or _given(own):
            raise UserError("--steps: takes the place of kernel timings and of --gpu")
        found = _from_steps(steps, time, _given(pauses), origin)
    else:
        if time is not None or _given(pauses):
            raise UserError("--time, --between-steps-us, --new-request-us: belong to --steps")
        from simulator.calibrate import calibrate as from_kernels

        record = _record(gpu, own, attention_kernel)
        found = from_kernels(files, record, dtype=dtype, **origin)  # type: ignore[arg-type]
    text = js.dumps(found.to_dict(), indent=2, allow_nan=False) if json else found.text()
    found.save(out, force=force)
    print(text)
    if not json:
        print(f"Profile in {out}")
    if report is not None:
        write_whole(report, text + "\n")
    if figure is not None:
        _draw(found, figure)
    return 0


def _check_targets(paths: list[Path | None], *, force: bool) -> None:
    """Refuse files that cannot or must not be written, before anything is."""
    for path in filter(None, paths):
        if path.exists() and not force:
            raise UserError(f"{path} exists: choose another name or replace it with --force")
        if not path.absolute().parent.is_dir():
            raise UserError(f"{path}: cannot be written: there is no folder {path.parent}")


def _given(options: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in options.items() if value is not None}


def _from_steps(
    paths: list[Path], time: str | None, pauses_us: dict[str, float], origin: dict[str, Any]
) -> _Report:
    from simulator.calibrate.steps import calibrate_steps

    for name, value in pauses_us.items():
        if not 0 <= value < inf:
            raise UserError(f"--{name.replace('_', '-')}-us {value}: expected at least 0")
    return calibrate_steps(paths, time=time, pauses_us=pauses_us, **origin)


def _record(
    key: str | None,
    own: dict[str, float | None],
    attention_kernel: Literal["fa2", "fa3", "flashinfer"],
) -> Gpu:
    """Return the GPU that was measured: a known one, or one given by its figures."""
    from simulator.calibrate import own_gpu

    if key is None:
        raise UserError("--gpu: expected the key of the GPU that was measured, or a name for it")
    missing = [name for name in own if own[name] is None]
    if len(missing) == len(own):
        return find_gpu(key)
    if missing:
        options = ", ".join(f"--{name.replace('_', '-')}" for name in missing)
        raise UserError(f"--gpu {key}: an own GPU needs {options} as well")
    return own_gpu(key, attention_kernel=attention_kernel, **own)  # type: ignore[arg-type]


def _draw(found: _Report, path: Path) -> None:
    from simulator.plots import new_axes, save_whole

    save_whole(plot_errors(found, new_axes()), path)
