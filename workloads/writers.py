"""Traces written to files, so that the same workload can be sent to a real server."""

import csv
import gzip
import io
import json
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from os import PathLike
from pathlib import Path
from typing import Any, Final

from workloads.complete import complete
from workloads.errors import WorkloadError
from workloads.trace import Trace

_DAY: Final = datetime(2024, 1, 1)
_MOONCAKE_BLOCK: Final = 512


def write_trace(trace: Trace, path: str | PathLike[str], format: str = "csv") -> Path:
    """Write a trace.

    Parameters
    ----------
    trace : Trace
        The requests.
    path : path-like
        The file; compressed if its name ends in ``.gz``. An existing one is replaced.
    format : str, default 'csv'
        ``csv`` and ``jsonl``: all that reaches the requests, and read back without a column
        map. ``mooncake`` (also ``aiperf``, ``guidellm``, ``vllm``): milliseconds, lengths and
        prefix chains, for AIPerf, Dynamo, SGLang and vLLM's ``timed_trace``; GuideLLM reads
        the time as seconds and gets them so. Where think times are known, ``mooncake`` and
        ``aiperf`` give later turns of a conversation a delay instead of a time, and ``vllm``
        gives prompts without a chain blocks of their own. ``azure``, ``vidur``, ``burstgpt``:
        times and lengths only.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    WorkloadError
        Unknown format, or a file that cannot be written; then there is none.

    Examples
    --------
    >>> import tempfile
    >>> from workloads import read_trace
    >>> trace = Trace([0.0, 1.5], [100, 200], [10, 20])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = write_trace(trace, f"{folder}/a.jsonl.gz", "mooncake")
    ...     read_trace(path).arrival_s.tolist()
    [0.0, 1.5]
    """
    if format not in WRITERS:
        raise WorkloadError(f"expected a format out of {', '.join(WRITERS)}", value=format)
    target = Path(path)
    try:
        with complete(target) as file, file.open("wb") as raw:
            # No name and no time in the header: equal traces give equal bytes.
            packed = gzip.GzipFile("", "wb", 9, raw, mtime=0) if target.suffix == ".gz" else raw
            with io.TextIOWrapper(packed, "utf-8", newline="") as stream:
                stream.writelines(WRITERS[format](trace))
    except OSError as error:
        raise WorkloadError(f"cannot be written: {error.strerror}", path=target) from None
    return target


def _rows(trace: Trace) -> Iterator[tuple[float, int, int]]:
    columns = (trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    return zip(*(column.tolist() for column in columns), strict=True)


def _azure(trace: Trace) -> Iterator[str]:
    yield "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
    for time, prompt, output in _rows(trace):
        # 100 ns, as in the files of 2023.
        seconds, ticks = divmod(round(time * 10_000_000), 10_000_000)
        moment = _DAY + timedelta(seconds=seconds)
        yield f"{moment:%Y-%m-%d %H:%M:%S}.{ticks:07d},{prompt},{output}\r\n"


def _vidur(trace: Trace) -> Iterator[str]:
    yield "arrived_at,num_prefill_tokens,num_decode_tokens\n"
    for time, prompt, output in _rows(trace):
        yield f"{time!r},{prompt},{output}\n"


def _burstgpt(trace: Trace) -> Iterator[str]:
    yield "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    for time, prompt, output in _rows(trace):
        yield f"{time!r},batchlab,{prompt},{output},{prompt + output},API log\n"


def _own_columns(trace: Trace) -> dict[str, list[Any]]:
    """Return the columns that the generic formats hold, where they say something."""
    columns: dict[str, list[Any]] = {
        "arrival_s": trace.arrival_s.tolist(),
        "prompt_tokens": trace.prompt_tokens.tolist(),
        "output_tokens": trace.output_tokens.tolist(),
    }
    if (trace.max_tokens != trace.output_tokens).any():
        columns["max_tokens"] = trace.max_tokens.tolist()
    for name in ("tenant", "priority", "size"):
        if name in trace.columns:
            columns[name] = trace.columns[name].tolist()
    for name in ("ttft_slo", "tpot_slo"):
        if name in trace.columns:
            seconds = trace.columns[name].tolist()
            columns[f"{name}_s"] = [None if value != value else value for value in seconds]
    if "conversation" in trace.columns:
        numbers = trace.columns["conversation"].tolist()
        columns["conversation"] = [None if number < 0 else number for number in numbers]
    return columns


def _csv(trace: Trace) -> Iterator[str]:
    columns = _own_columns(trace)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow(["" if value is None else value for value in row])
        yield buffer.getvalue()
        buffer.seek(0)
        buffer.truncate()
    yield buffer.getvalue()


def _jsonl(trace: Trace) -> Iterator[str]:
    columns = _own_columns(trace)
    for at, row in enumerate(zip(*columns.values(), strict=True)):
        entry = {name: v for name, v in zip(columns, row, strict=True) if v is not None}
        if trace.chains is not None:
            entry["hash_ids"] = list(trace.chains[at])
            entry["id_block_size"] = trace.chains.block_size
        yield _line(entry)


def _mooncake(
    trace: Trace, *, per_s: int = 1000, delays: bool = True, always_ids: bool = False
) -> Iterator[str]:
    """Yield lines with chains as long as their readers want them, in the chains' block size.

    A prompt that goes beyond its chain gets ids of its own. With `delays`, later turns of a
    conversation with a think time have a ``delay`` instead of a time.
    """
    fresh = 0 if trace.chains is None else int(trace.chains.ids.max(initial=-1)) + 1
    block = _MOONCAKE_BLOCK if trace.chains is None else trace.chains.block_size
    numbers = trace.columns.get("conversation")
    think = trace.columns.get("think_s")
    for at, (time, prompt, output) in enumerate(_rows(trace)):
        entry: dict[str, Any] = {}
        if numbers is not None and numbers[at] >= 0:
            entry["session_id"] = str(numbers[at])
        if delays and "session_id" in entry and think is not None and think[at] >= 0:
            entry["delay"] = round(float(think[at]) * per_s, 3)
        else:
            entry["timestamp"] = round(time * per_s, 6 if per_s == 1 else 3)
        entry |= {"input_length": prompt, "output_length": output}
        if trace.chains is not None or always_ids:
            ids = [] if trace.chains is None else list(trace.chains[at])
            missing = -(-prompt // block) - len(ids)
            entry["hash_ids"] = [*ids, *range(fresh, fresh + missing)]
            fresh += max(missing, 0)
        yield _line(entry)


def _guidellm(trace: Trace) -> Iterator[str]:
    return _mooncake(trace, per_s=1, delays=False)


def _vllm(trace: Trace) -> Iterator[str]:
    return _mooncake(trace, delays=False, always_ids=True)


def _line(entry: Mapping[str, Any]) -> str:
    return json.dumps(entry, separators=(", ", ": ")) + "\n"


WRITERS: Final[Mapping[str, Callable[[Trace], Iterator[str]]]] = {
    "csv": _csv,
    "jsonl": _jsonl,
    "mooncake": _mooncake,
    "aiperf": _mooncake,
    "vllm": _vllm,
    "guidellm": _guidellm,
    "azure": _azure,
    "vidur": _vidur,
    "burstgpt": _burstgpt,
}
"""Functions that yield the text of a file, by format."""
