"""`batchlab workload`: look at a workload, fit a generator to it, write one to a file."""

import json as js
from pathlib import Path
from typing import Annotated, Any, Final

import yaml
from cyclopts import App, Parameter

from simulator.errors import UserError
from simulator.explain import nearest
from simulator.settings import read_text
from simulator.spec import RunSpec, parse_yaml
from simulator.whole_file import write_whole
from workloads import (
    PRESETS,
    Characterisation,
    Streams,
    Trace,
    TurnSource,
    WorkloadError,
    characterise,
    fit_workload,
    get_preset,
    read_clients,
    read_trace,
    summarise,
    write_trace,
)

app = App(
    name="workload",
    help="Look at a workload, fit a generator to it, or write one to a file.",
    help_format="plaintext",
    help_formatter="plain",
)

_LARGE: Final = 2**28
"""Bytes of text from which on a file is summarised without storing its rows."""

Flag = Annotated[bool, Parameter(negative="")]
Out = Annotated[Path, Parameter(name=["--out", "-o"])]


@app.command
def inspect(
    workload: str,
    /,
    *,
    format: str | None = None,
    lenient: Flag = False,
    start_s: float | None = None,
    end_s: float | None = None,
    max_rows: int | None = None,
    time_unit: str | None = None,
    block_size: int | None = None,
    default_output: int | None = None,
    detick: Flag = False,
    summary: Flag = False,
    figure: Path | None = None,
    json: Flag = False,
) -> int:
    """Describe a trace file or a preset: arrivals, lengths, ties, prefixes, clients.

    For example:

      batchlab workload inspect AzureLLMInferenceTrace_conv.csv --figure conv.png
      batchlab workload inspect azure-conv-2023 --json
      batchlab workload inspect AzureLLMInferenceTrace_conv_1week.csv --start-s 3600 --end-s 7200

    Parameters
    ----------
    workload
        A file (plain, .gz or .zst), a folder or archive of ServeGen clients (10,000
        requests are drawn from them, or --max-rows), or the name of a preset.
    format
        Name of the format; found by the content if left out.
    lenient
        Drop bad rows and count them, instead of stopping at the first.
    start_s
        Leave out what arrives earlier, seconds from the first request.
    end_s
        Leave out what arrives at this time or later, seconds.
    max_rows
        Read no more than so many rows.
    time_unit
        Unit of the times in the file, such as s or ms.
    block_size
        Tokens in a block of the prefix ids.
    default_output
        Output tokens of rows that name none.
    detick
        Spread requests that a coarse clock puts at one time.
    summary
        Only the figures for which no rows are kept in memory. So are files of more than
        256 MiB, unless --start-s, --end-s or --max-rows cuts them.
    figure
        Also draw rate, dispersion and lengths into this file (png, pdf or svg).
    json
        Print one JSON object instead of text.
    """
    options = {
        "start_s": start_s,
        "end_s": end_s,
        "max_rows": max_rows,
        "time_unit": time_unit,
        "block_size": block_size,
        "default_output": default_output,
    }
    cut = any(limit is not None for limit in (start_s, end_s, max_rows))
    if summary or (_is_large(workload) and not cut):
        character = _summary(workload, format, lenient, detick, options)
    else:
        character = characterise(_trace(workload, format, lenient, detick, options))
    print(js.dumps(character, indent=2, allow_nan=False) if json else character.text())
    if figure is not None:
        from simulator.plots import save_whole
        from simulator.plots.workload import overview

        save_whole(overview(character, Path(workload).name), figure)
    return 0


@app.command
def fit(
    file: Path,
    /,
    *,
    out: Out,
    format: str | None = None,
    lenient: Flag = False,
    detick: Flag = False,
    seeds: int = 10,
) -> int:
    """Choose and fit a generator to a trace, and say how well it does.

    The report compares rate, dispersion, lengths and the wait in a single server with
    those of the trace. The file is the workload section of a specification.

    For example:

      batchlab workload fit AzureLLMInferenceTrace_code.csv -o code.yaml

    Parameters
    ----------
    file
        The trace.
    out
        YAML file for the generator.
    format
        Name of the format; found by the content if left out.
    lenient
        Drop bad rows and count them.
    detick
        Spread requests that a coarse clock puts at one time.
    seeds
        Draws of the generator that are compared with the trace.
    """
    if not out.parent.is_dir():
        raise UserError(f"{out}: cannot be written: no such folder")
    trace = _trace(str(file), format, lenient, detick, {})
    try:
        fitted = fit_workload(trace, seeds)
    except WorkloadError as error:
        raise UserError(str(error)) from None
    write_whole(out, yaml.safe_dump(fitted.to_dict(), sort_keys=False))
    print(fitted.text())
    return 0


@app.command
def generate(
    spec: str,
    /,
    *,
    out: Out,
    format: str = "csv",
    seed: int = 0,
    num_requests: int | None = None,
    request_rate: float | None = None,
) -> int:
    """Draw a workload and write it as a trace that other tools read.

    For example:

      batchlab workload generate azure-conv-2023 -o load.jsonl --format vllm --num-requests 500
      batchlab workload generate code.yaml -o code.csv --seed 3
      batchlab workload generate coding-assistant -o talk.jsonl --format aiperf

    Parameters
    ----------
    spec
        YAML file with a workload (alone, or as the section of a specification), a folder
        or archive of ServeGen clients, or a preset.
    out
        The file.
    format
        csv, jsonl, mooncake, aiperf, vllm, guidellm, azure, vidur or burstgpt.
    seed
        Root of all random streams.
    num_requests
        Number of requests.
    request_rate
        Mean requests per second.
    """
    data: dict[str, Any] = {"name": spec}
    clients = _holds_clients(spec)
    if spec not in PRESETS and not clients:
        _exists(spec)
        read = parse_yaml(read_text(Path(spec)), spec)
        data = read.get("workload", read)
    wanted = {"num_requests": num_requests, "request_rate": request_rate}
    data = data | {key: value for key, value in wanted.items() if value is not None}
    try:
        if clients:
            trace = read_clients(spec, num_requests or 1000).build(Streams(seed))
            trace = trace if request_rate is None else trace.rescale(request_rate)
        else:
            workload = RunSpec.from_dict({"workload": data}, spec).workload
            trace = _rows_to_write(workload, spec, format, Streams(seed))
        write_trace(trace, out, format)
    except WorkloadError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"{out}: cannot be written: {error.strerror}") from None
    print(f"{len(trace)} requests at {trace.rate:.3f} per second in {out}")
    return 0


def _rows_to_write(workload: Any, name: str, format: str, streams: Streams) -> Trace:
    """Draw a workload; where turns wait for answers, the format has to be able to say so."""
    if workload.is_open:
        opened: Trace = workload.build(streams)
        return opened
    source = workload.source(streams)
    if not isinstance(source, TurnSource):
        raise UserError(f"{name}: max_concurrency is kept by the client that sends the requests")
    if format not in ("aiperf", "mooncake"):
        told = "turns wait for answers here, which only the formats aiperf and mooncake can say"
        raise UserError(f"{name}: {told}, not {format}")
    return source.table


def _exists(name: str) -> None:
    if not Path(name).exists():
        raise UserError(f"{name}: no such file or preset; {nearest(name, PRESETS)}")


def _trace(
    name: str, format: str | None, lenient: bool, detick: bool, options: dict[str, Any]
) -> Trace:
    given = {key: value for key, value in options.items() if value is not None}
    max_rows = given.get("max_rows")
    try:
        if name in PRESETS:
            if given or format or lenient or detick:
                raise UserError(f"{name}: is a preset; reading options are for files")
            return get_preset(name).trace(streams=Streams(0))
        _exists(name)
        if _holds_clients(name):
            return read_clients(name, max_rows or 10_000).build(Streams(0))
        trace = read_trace(Path(name), format, strict=not lenient, **given)
        if not detick:
            return trace
        from workloads.ticks import detick as spread

        return spread(trace, Streams(0)("ticks"))
    except WorkloadError as error:
        raise UserError(str(error)) from None


def _summary(
    name: str, format: str | None, lenient: bool, detick: bool, options: dict[str, Any]
) -> Characterisation:
    from tqdm import tqdm

    if detick or name in PRESETS or _holds_clients(name):
        raise UserError(f"{name}: a summary needs a file of requests, read as it is")
    _exists(name)
    given = {key: value for key, value in options.items() if value is not None}
    try:
        with tqdm(desc="inspect", unit=" rows", unit_scale=True, disable=None, leave=False) as bar:
            return summarise(Path(name), format, strict=not lenient, on_rows=bar.update, **given)
    except WorkloadError as error:
        raise UserError(str(error)) from None


def _is_large(name: str) -> bool:
    """Whether a file holds so much that its rows are better not stored; text packs to a fifth."""
    path = Path(name)
    packed = path.suffix in (".gz", ".zst")
    return path.is_file() and path.stat().st_size * (5 if packed else 1) > _LARGE


def _holds_clients(name: str) -> bool:
    """Whether a path is a ServeGen folder or archive: clients, from which requests are drawn."""
    path = Path(name)
    if path.is_dir():
        return any(path.glob("chunk-*-trace.csv"))
    return path.is_file() and path.name.endswith((".tar", ".tar.gz"))
