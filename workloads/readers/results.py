"""Result files of load generators, as far as they hold the requests one by one.

They tell when each request was sent and how long it was, so that a run against a real server
can be simulated again.

References
----------
vLLM, ``vllm bench serve --save-result --save-detailed`` (``start_times`` exists in newer
versions; without it only the lengths are known). GuideLLM, ``benchmarks.json``, versions 0.2
to 0.4. AIPerf, ``profile_export.jsonl``.
"""

import math
from collections.abc import Iterator
from typing import Any, Final

from workloads.errors import WorkloadError
from workloads.readers.cells import BadCell
from workloads.readers.json_values import Json, lookup, number, parse, whole
from workloads.readers.jsonl_format import Dialect, JsonlFormat
from workloads.readers.options import Failures
from workloads.readers.rows import Enough, Rows
from workloads.readers.sample import Sample, share_of
from workloads.readers.text import TextFile

_GUIDELLM_STARTS: Final = ("request_start_time", "start_time", "info.timings.request_start")
_GUIDELLM_PROMPTS: Final = ("prompt_tokens", "input_metrics.text_tokens")
_GUIDELLM_OUTPUTS: Final = ("output_tokens", "output_metrics.text_tokens")


def _document(file: TextFile) -> Json:
    try:
        return parse(file.text())
    except BadCell as bad:
        raise WorkloadError(f"expected {bad.expected}", path=file.path) from None


def _take_sorted(rows: Rows, found: Iterator[tuple[int, Json, str]]) -> None:
    """Take requests from objects with `time`, `prompt` and `output`; results have no order."""
    try:
        for at, row, place in found:
            try:
                time = number(row, "time") if rows.timed else 0.0
                prompt = whole(row, "prompt", 0)
                output = whole(row, "output", 0)
                if prompt == 0 and output > 0:
                    whole(row, "prompt")
                rows.keep(at, time, prompt, output, ordered=False)
            except BadCell as bad:
                bad.column = f"{place} ({bad.column})"
                rows.reject(at, bad)
    except Enough:
        pass


class VllmResult:
    """Reads the result of ``vllm bench serve``; column ``line`` is the number of the request."""

    name = "vllm-result"
    about = "detailed result of vLLM's serving benchmark"
    failures: Failures = "drop"

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        if "input_lens" in sample.keys:
            return share_of(sample.keys, ("input_lens", "output_lens"))
        return 0.9 * share_of(sample.keys, ("backend", "num_prompts", "completed", "duration"))

    def read(self, file: TextFile, rows: Rows) -> None:
        """Read a file.

        Raises
        ------
        WorkloadError
            Not such a document, or without the lists of lengths.
        """
        document = _document(file)
        columns = {}
        for key in ("input_lens", "output_lens", "start_times"):
            values = document.get(key)
            if values is None and key == "start_times":
                continue
            if not isinstance(values, list) or len(values) != len(document["input_lens"]):
                expected = "expected lists of equal length (--save-detailed writes them)"
                raise WorkloadError(expected, path=file.path, column=key)
            columns[key] = values
        rows.timed = "start_times" in columns
        rows.declare()
        _take_sorted(rows, _vllm_rows(columns))


def _vllm_rows(columns: dict[str, list[Any]]) -> Iterator[tuple[int, Json, str]]:
    names = {"input_lens": "prompt", "output_lens": "output", "start_times": "time"}
    for at, values in enumerate(zip(*columns.values(), strict=True), start=1):
        row = dict(zip((names[key] for key in columns), values, strict=True))
        yield at, row, f"request {at}"


class GuideLlmResult:
    """Reads a GuideLLM report: the first benchmark with requests, or the only one."""

    name = "guidellm-result"
    about = "report of GuideLLM (benchmarks.json)"
    failures: Failures = "drop"

    def fits(self, sample: Sample) -> float:
        """Say how well the beginning of a file fits: 1 is certain, 0 is not at all."""
        return 0.9 * share_of(sample.keys, ("benchmarks",))

    def read(self, file: TextFile, rows: Rows) -> None:
        """Read a file; its requests that ended well, the others count as failures.

        Raises
        ------
        WorkloadError
            Not such a document, or several benchmarks: their clocks overlap.
        """
        benchmarks = _document(file).get("benchmarks")
        if not isinstance(benchmarks, list) or not benchmarks:
            raise WorkloadError("expected a list", path=file.path, column="benchmarks")
        if len(benchmarks) > 1:
            told = f"expected one benchmark, got {len(benchmarks)}: split the report"
            raise WorkloadError(told, path=file.path, column="benchmarks")
        rows.declare()
        _take_sorted(rows, _guidellm_rows(benchmarks[0]))


def _guidellm_rows(benchmark: Json) -> Iterator[tuple[int, Json, str]]:
    at = 0
    for state in ("successful", "incomplete", "errored"):
        for request in lookup(benchmark, f"requests.{state}") or ():  # type: ignore[attr-defined]
            at += 1
            row = {
                "time": _first(request, _GUIDELLM_STARTS),
                "prompt": _first(request, _GUIDELLM_PROMPTS),
                "output": _first(request, _GUIDELLM_OUTPUTS) if state == "successful" else 0,
            }
            yield at, row, f"{state} request {at}"


def _first(row: Json, keys: tuple[str, ...]) -> object:
    return next((found for key in keys if (found := lookup(row, key)) is not None), None)


class _AiperfRecords(Dialect):
    """One record a request; warm-up requests are dropped, cancelled ones are failures."""

    def __init__(self, rows: Rows) -> None:
        super().__init__(rows)
        rows.declare(ticks_per_s=1_000_000_000, numbers=["turn"])

    def take(self, line: int, row: Json) -> None:
        if lookup(row, "metadata.benchmark_phase") == "warmup":
            self.rows.drop("warm-up")
            return
        time = whole_ns(row, "metadata.request_start_ns")
        failed = bool(row.get("error")) or lookup(row, "metadata.was_cancelled") is True
        prompt = whole(row, "metrics.input_sequence_length.value", default=0 if failed else None)
        output = 0 if failed else whole(row, "metrics.output_sequence_length.value", 0)
        turn = whole(row, "metadata.turn_index", 0, 0)
        self.rows.keep(line, time, prompt, output, (turn,), ordered=False)


def whole_ns(row: Json, key: str) -> int:
    """Return a time in whole nanoseconds, which a float would round."""
    value = lookup(row, key)
    if type(value) is int and 0 <= value < 2**63:
        return value
    time = number(row, key)
    return math.floor(time)


AIPERF_RECORDS = JsonlFormat(
    "aiperf-records",
    "records of AIPerf (profile_export.jsonl), in nanoseconds",
    _AiperfRecords,
    required=("metadata", "metrics"),
    failures="drop",
)
