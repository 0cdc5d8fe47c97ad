"""Feed damaged files to every trace reader and to the YAML of a specification.

A reader may accept a file or refuse it with a `WorkloadError` of one line; anything else is a
finding. With atheris installed, inputs are guided by coverage, otherwise they are mutations drawn
from a seed. Prints statistics and every finding; exit code 1 if there is one.

    python scripts/fuzz_readers.py --seconds 60
    python scripts/fuzz_readers.py --seconds 300 --corpus FOLDER_WITH_TRACES
"""

import argparse
import gzip
import io
import json
import os
import sys
import tempfile
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Sequence
from inspect import isfunction
from pathlib import Path

import numpy as np

from simulator.errors import UserError
from simulator.spec import RunSpec
from workloads import WorkloadError, read_trace, summarise, write_trace
from workloads.readers import READERS
from workloads.streams import Streams

WRITABLE = ("csv", "jsonl", "mooncake", "aiperf", "vllm", "guidellm", "azure", "vidur", "burstgpt")

WRITTEN: dict[str, object] = {
    "splitwise": "request_id,request_type,application_id,arrival_timestamp,batch_size,prompt_size,"
    "token_size\n0,2,0,0.5,1,374,44\n1,2,0,1.25,1,90,12\n",
    "arena": "timestamp,model,request_tokens,response_tokens\n1.5,a,12,34\n2.5,b,5,6\n",
    "qwen": {
        "chat_id": 1,
        "parent_chat_id": -1,
        "timestamp": 0.5,
        "input_length": 40,
        "output_length": 5,
        "type": "text",
        "turn": 1,
        "hash_ids": [1, 2, 3],
    },
    "llmservingsim": {"input_toks": 12, "output_toks": 3, "arrival_time_ns": 100},
    "aibrix": {"timestamp": 5, "requests": [{"prompt_length": 9, "output_length": 4}]},
    "conversation": {
        "id": "a",
        "models": ["m"],
        "block_size": 64,
        "requests": [{"t": 0.0, "type": "n", "in": 64, "out": 7, "hash_ids": [1]}],
    },
    "vllm result": {"input_lens": [3, 4], "output_lens": [5, 6], "start_times": [0.0, 0.5]},
    "aiperf records": {
        "metadata": {"request_start_ns": 10, "x_request_id": "a"},
        "metrics": {
            "input_sequence_length": {"value": 3, "unit": "tokens"},
            "output_sequence_length": {"value": 5, "unit": "tokens"},
        },
    },
    "specification": "policy: {kind: vllm-v1, max_num_seqs: 4}\n"
    "workload: {arrivals: {kind: poisson, request_rate: 2}, prompt_tokens: 9, output_tokens: 3,"
    " num_requests: 5}\ncost: {kind: fixed, step_ms: 10}\nseed: 3\n",
}
"""Small files of the formats that batchlab does not write."""

MAX_YAML = 600
"""Bytes; longer inputs are left to the readers, because parsing YAML is slow."""

TOKENS = [
    *(b"nan", b"-1", b"0", b"1e999", b"1e308", b"99999999999999999999", b"null", b"true", b"1.5"),
    *(b"[]", b"{}", b'""', b"[[[[", b"\x00", b"\xff\xfe", b"\xef\xbb\xbf", b"\r", b"\n\n", b'"'),
    *(b",", b":", b"\\ud800", b"2023-11-16 18:15:46", b"-0.0", b"Infinity", b"\t", b"!!python/x"),
    *("\u0663".encode(), b"*a", b"&a", b"<<: *a", b"1_0", b"0x10", b"' '", b"#", b"---\n"),
]


def seeds(folder: Path, corpus: Path | None = None) -> list[bytes]:
    """Return small valid files: written by batchlab, by hand, or the heads of those in a folder."""
    workload = {"name": "demo-chat", "num_requests": 4}
    trace = RunSpec.from_dict({"workload": workload}).workload.build(Streams(0))
    found = []
    for name in WRITABLE:
        path = folder / f"seed.{name}"
        write_trace(trace, path, name)
        found.append(path.read_bytes())
    texts = [text if isinstance(text, str) else json.dumps(text) for text in WRITTEN.values()]
    found += [f"{text}\n".encode() for text in texts]
    parquet = io.BytesIO()
    _frame(trace.arrival_s).to_parquet(parquet)
    found.append(parquet.getvalue())
    files = sorted(path for path in corpus.rglob("*") if path.is_file()) if corpus else []
    return found + [_head(path) for path in files]


def _frame(arrival_s: Sequence[float]) -> "object":
    import pandas as pd

    return pd.DataFrame({"arrival_s": arrival_s, "prompt_tokens": 5, "output_tokens": 3})


def _head(path: Path, size: int = 2000) -> bytes:
    with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as file:
        return file.read(size)


def mutations(found: Sequence[bytes], rng: np.random.Generator) -> Iterator[bytes]:
    """Yield damaged copies without end."""
    while True:
        data = bytearray(found[rng.integers(len(found))])
        for _ in range(rng.integers(1, 4)):
            _mutate(data, found, rng)
        yield bytes(data)


def _mutate(data: bytearray, found: Sequence[bytes], rng: np.random.Generator) -> None:
    at = int(rng.integers(len(data) + 1))
    end = at + int(rng.integers(1, 9))
    kind = rng.integers(8)
    if kind == 0 and at < len(data):
        data[at] = int(rng.integers(256))
    elif kind == 1:
        del data[at:end]
    elif kind == 2:
        del data[at:]
    elif kind in (3, 4):
        data[at : end if kind == 3 else at] = TOKENS[rng.integers(len(TOKENS))]
    elif kind == 5:
        lines = data.splitlines(keepends=True)
        rng.shuffle(lines)  # type: ignore[arg-type]
        data[:] = b"".join(lines)
    elif kind == 6:
        data[at:at] = data[at:end] * 20
    else:
        other = found[rng.integers(len(found))]
        data[at:] = other[int(rng.integers(len(other) + 1)) :]


def attempt(data: bytes, path: Path, formats: Sequence[str | None]) -> Counter[str]:
    """Give a file to the readers; return how often it was accepted and refused.

    Raises
    ------
    AssertionError
        If a message is no single line.
    Exception
        Whatever a reader lets out besides its own errors.
    """
    outcome: Counter[str] = Counter()
    path.write_bytes(data)
    for name in formats:
        for read in (read_trace, summarise):
            try:
                read(path, name)
                outcome["accepted"] += 1
            except WorkloadError as error:
                _check_message(error)
                outcome["refused"] += 1
    if len(data) > MAX_YAML:
        return outcome
    try:
        RunSpec.from_yaml(data.decode("utf-8", "replace"), "fuzz.yaml")
        outcome["specifications accepted"] += 1
    except UserError as error:
        _check_message(error)
        outcome["specifications refused"] += 1
    return outcome


def _check_message(error: Exception) -> None:
    text = str(error)
    if not text or len(text.splitlines()) != 1:
        raise AssertionError(f"expected a message of one line, got {text!r}")


class Fuzzer:
    """Counts what happens to inputs, and keeps the findings."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "input"
        self.outcomes: Counter[str] = Counter()
        self.findings: dict[str, tuple[bytes, str]] = {}
        self.inputs = 0
        self._names = [None, *READERS]

    def try_one(self, data: bytes) -> None:
        """Let the format be found, and force one format in turn."""
        self.inputs += 1
        forced = self._names[self.inputs % len(self._names)]
        try:
            self.outcomes += attempt(data, self.path, [None, forced] if forced else [None])
        except Exception:
            lines = traceback.format_exc().strip().splitlines()
            ours = [line for line in lines if "/workloads/" in line or "/simulator/" in line]
            place, kind = (ours or lines)[-1], lines[-1].partition(":")[0]
            self.findings.setdefault(f"{place}\n{kind}", (data, lines[-1]))

    def report(self, seconds: float, how: str) -> int:
        """Print the statistics; return the exit code."""
        print(f"{self.inputs} inputs in {seconds:.0f} s ({how})")
        for name, number in sorted(self.outcomes.items()):
            print(f"  {number} {name}")
        print(f"{len(self.findings)} findings")
        for place, (data, message) in self.findings.items():
            print(f"--- {data[:300]!r}\n{place}: {message[:300]}")
        return 1 if self.findings else 0


def _functions() -> Iterator["object"]:
    """Yield the functions whose branches guide the choice: those of the readers."""
    for name, module in list(sys.modules.items()):
        if name.startswith("workloads.readers"):
            for part in vars(module).values():
                inside = vars(part).values() if isinstance(part, type) else [part]
                yield from (
                    f for f in inside if getattr(f, "__module__", "") == name and isfunction(f)
                )


def guided(fuzzer: Fuzzer, corpus: Sequence[bytes], seconds: float, folder: Path) -> None:
    """Let atheris choose the inputs; ends the process, as libFuzzer never returns."""
    import atheris

    kept = folder / "corpus"
    kept.mkdir()
    for number, data in enumerate(corpus):
        (kept / str(number)).write_bytes(data)
    for function in _functions():
        atheris.instrument_func(function)
    started = time.perf_counter()

    def one(data: bytes) -> None:
        fuzzer.try_one(data)
        spent = time.perf_counter() - started
        if spent > seconds:
            code = fuzzer.report(spent, "guided by coverage")
            sys.stdout.flush()
            os._exit(code)

    atheris.Setup([sys.argv[0], "-verbosity=0", "-max_len=6000", str(kept)], one)
    atheris.Fuzz()


def main() -> int:
    """Fuzz for the time given on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--corpus", type=Path, help="folder with files to start from")
    parser.add_argument("--guided", action="store_true", help="let atheris choose the inputs")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder, started = Path(name), time.perf_counter()
        found, fuzzer = seeds(folder, arguments.corpus), Fuzzer(Path(name))
        if arguments.guided:
            guided(fuzzer, found, arguments.seconds, folder)
        for data in mutations(found, np.random.default_rng(arguments.seed)):
            if time.perf_counter() > started + arguments.seconds:
                break
            fuzzer.try_one(data)
        return fuzzer.report(time.perf_counter() - started, f"mutations, seed {arguments.seed}")


if __name__ == "__main__":
    sys.exit(main())
