"""Recordings of the real vLLM scheduler, replayed through our engine and policy, step by step.

The format is `vllm-sched-golden/1`: JSON lines, a header with the configuration and the requests,
a line for every step, a footer. Time plays no part in it; a request is submitted before a step.
"""

import gzip
import json
from collections.abc import Hashable, Sequence
from pathlib import Path
from typing import Any

from policies.base import Decision, Trigger
from policies.orders import Fcfs, Priority
from policies.vllm_v1 import VllmV1
from simulator.ahead import AheadEngine
from simulator.clock import Clock
from simulator.cost.analytic import FixedCost
from simulator.engine import Engine
from simulator.errors import UserError
from simulator.kv_cache import BlockManager
from simulator.observer import Observer
from simulator.prefix_cache import PrefixLedger
from simulator.request import Request, State
from workloads.request import RequestSpec

FORMAT = "vllm-sched-golden/1"
Line = dict[str, Any]


def check_recording(path: str | Path) -> str | None:
    """Replay a recording; return None if all is equal, else the first difference.

    Parameters
    ----------
    path : path
        File in the format `vllm-sched-golden/1`, plain or gzip.

    Returns
    -------
    str or None
        Step, field, recorded and simulated value.

    Raises
    ------
    UserError
        If the file is no such recording.
    """
    header, recorded = read_recording(Path(path))
    simulated = replay(header)
    for expected, found in zip(recorded, simulated, strict=False):
        for name in (*FIELDS, *sorted(set(expected) - set(FIELDS))):
            if expected.get(name) != found.get(name) and (expected.get(name) or found.get(name)):
                return (
                    f"step {expected['s']}, {name}: recorded {expected.get(name)}, "
                    f"simulated {found.get(name)}"
                )
    if len(recorded) != len(simulated):
        return f"recorded {len(recorded)} steps, simulated {len(simulated)}"
    return None


FIELDS = (
    "s",
    "arr",
    "ab",
    "sch",
    "pre",
    "new",
    "res",
    "run",
    "nw",
    "wh",
    "kv",
    "fin",
    "kvu",
    "upd",
)
"""Fields of a step, in the order in which they are compared."""


def read_recording(path: Path) -> tuple[Line, list[Line]]:
    """Return the header and the steps of a recording, with all shorthands written out.

    Raises
    ------
    UserError
        Naming file and line.
    """
    lines = read_lines(path)
    if not lines or lines[0].get("format") != FORMAT:
        raise UserError(f"{path}, line 1: expected a header with format {FORMAT}")
    if lines[-1].get("end") != 1:
        raise UserError(f"{path}, line {len(lines)}: expected the footer; the file is cut off")
    _check_header(lines[0], path)
    known: dict[int, int] = {}
    for line in lines[1:-1]:
        work = [[e, 1, known[e]] if isinstance(e, int) else e for e in line.get("sch", [])]
        known = {rid: computed + tokens for rid, tokens, computed in work}
        line["sch"] = work
        line.setdefault("run", [rid for rid, _, _ in work])
        line.setdefault("kvu", line["kv"])
    return lines[0], lines[1:-1]


CONFIG = (
    "max_num_batched_tokens",
    "max_num_seqs",
    "max_num_active_seqs",
    "max_model_len",
    "block_size",
    "num_gpu_blocks",
    "enable_chunked_prefill",
    "long_prefill_token_threshold",
    "long_prefill_token_threshold_adaptive",
    "policy",
    "enable_prefix_caching",
    "watermark",
    "scheduler_reserve_full_isl",
    "async_scheduling",
)
"""Fields of the configuration in a header."""


def _check_header(header: Line, path: Path) -> None:
    for name in ("config", "requests", "arrival_time"):
        if name not in header:
            raise UserError(f"{path}, line 1: field {name} is missing")
    missing = [name for name in CONFIG if name not in header["config"]]
    if missing:
        raise UserError(f"{path}, line 1: field config.{missing[0]} is missing")


def read_lines(path: Path) -> list[Line]:
    """Return the objects of a file of JSON lines, plain or gzip.

    Raises
    ------
    UserError
        Naming file and line.
    """
    return [_parse(path, number, text) for number, text in enumerate(_texts(path), 1)]


def _texts(path: Path) -> list[str]:
    try:
        raw = path.read_bytes()
        if raw[:2] == b"\x1f\x8b":
            raw = gzip.decompress(raw)
        return raw.decode().splitlines()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None


def _parse(path: Path, number: int, text: str) -> Line:
    try:
        line = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{path}, line {number}: not valid JSON: {error.msg}") from None
    if not isinstance(line, dict):
        raise UserError(f"{path}, line {number}: expected a JSON object")
    return line


def replay(header: Line) -> list[Line]:
    """Run the requests of a recording through engine and policy; return the steps."""
    config = header["config"]
    rows = header["requests"]
    env = Clock()
    ledger = PrefixLedger if config["enable_prefix_caching"] else BlockManager
    kv = ledger(config["num_gpu_blocks"] - 1, config["block_size"])
    outputs = {rid: min(row[2], config["max_model_len"] - row[1]) for rid, row in enumerate(rows)}
    feeder = _Feeder(header, kv)
    engine_type = AheadEngine if config["async_scheduling"] else Engine
    engine = engine_type(
        env,
        policy_of(config).build(),
        FixedCost(1.0),
        kv,
        outputs,
        config["max_model_len"],
        (feeder,),
    )
    feeder.engine = engine
    engine.start()
    env.run()
    engine.check_done()
    return feeder.lines


def policy_of(config: Line) -> VllmV1:
    """Return the policy with the parameters of a recording."""
    return VllmV1(
        max_num_batched_tokens=config["max_num_batched_tokens"],
        max_num_seqs=config["max_num_seqs"],
        max_num_active_seqs=config["max_num_active_seqs"],
        enable_chunked_prefill=config["enable_chunked_prefill"],
        long_prefill_token_threshold=config["long_prefill_token_threshold"],
        long_prefill_token_threshold_adaptive=config["long_prefill_token_threshold_adaptive"],
        watermark=config["watermark"],
        scheduler_reserve_full_isl=config["scheduler_reserve_full_isl"],
        order=Priority() if config["policy"] == "priority" else Fcfs(),
    )


def _segments(rid: int, parts: Sequence[Sequence[int]] | None) -> list[tuple[Hashable, int]] | None:
    """Return a prompt's content as the ledger names it."""
    if parts is None:
        return None
    segments: list[tuple[Hashable, int]] = []
    for number, (source, length) in enumerate(parts):
        if source >= 0:
            segments.append((("shared", source), length))
        elif source == -1:
            segments.append((("own", rid, number), length))
        else:
            segments.append((("output", -(source + 2)), length))
    return segments


class _Feeder(Observer):
    """Submits and aborts the requests before the steps they belong to, and writes the lines."""

    engine: Engine

    def __init__(self, header: Line, kv: BlockManager) -> None:
        self.lines: list[Line] = []
        self._config = header["config"]
        self._distinct = header["arrival_time"] == "distinct"
        self._rows = header["requests"]
        self._kv = kv
        self._next = 0
        self._step = -1
        self._aborts = sorted(
            (row[5], rid) for rid, row in enumerate(self._rows) if row[5] is not None
        )
        self._line: Line = {}
        self._requests: dict[int, Request] = {}
        self._in_flight: int | None = None

    def before_decision(self, now: float) -> None:
        """Submit and abort what is due before this step."""
        self._step += 1
        if not self.engine.unfinished():
            self._in_flight = None
            if self._next < len(self._rows):
                self._step = self._rows[self._next][0]
        self._line = {"s": self._step, "arr": [], "ab": []}
        while self._next < len(self._rows) and self._rows[self._next][0] <= self._step:
            self._submit(self._next)
            self._next += 1
        while self._aborts and self._aborts[0][0] <= self._step:
            rid = self._aborts.pop(0)[1]
            self._line["ab"].append(rid)
            self.engine.cancel(rid)

    def _submit(self, rid: int) -> None:
        step, prompt, output, priority, parts, _ = self._rows[rid]
        arrival = step + rid * 1e-6 if self._distinct else step
        request = Request(RequestSpec(rid, arrival, prompt, output, priority=priority or 0))
        request.arrival = arrival
        request.segments = _segments(rid, parts)
        self._requests[rid] = request
        self._line["arr"].append(rid)
        self.engine.submit(request)

    def on_decision(
        self, now: float, trigger: Trigger, decision: Decision, work: list[tuple[int, int]]
    ) -> None:
        """Write down the schedule of this step."""
        line = self._line
        if not self.engine.unfinished() and not line["ab"]:
            return
        waiting = list(self.engine.waiting.values())
        if self._config["policy"] == "priority":
            waiting.sort(key=lambda r: (r.priority, r.arrival, r.id))
        requests = self._requests
        line["sch"] = [[rid, tokens, requests[rid].computed] for rid, tokens in work]
        line["pre"] = [rid for rid, _ in decision.preempt]
        line["new"] = [rid for rid in decision.admit if not requests[rid].preemptions]
        line["res"] = [rid for rid in decision.admit if requests[rid].preemptions]
        line["run"] = [request.id for request in self.engine.running]
        line["nw"] = len(waiting)
        line["wh"] = [request.id for request in waiting[:3]]
        line["kv"] = line["kvu"] = [self._kv.used, self._kv.free]
        line["fin"] = []
        if self._config["async_scheduling"] and self._in_flight is not None:
            line["upd"] = self._in_flight
        self._in_flight = line["s"] if work else None
        self.lines.append(line)

    def on_leave(self, request: Request, now: float) -> None:
        """Write down who finished in the update after the schedule."""
        if request.state is State.FINISHED:
            line = self.lines[-1]
            line["fin"].append(request.id)
            line["kvu"] = [self._kv.used, self._kv.free]
