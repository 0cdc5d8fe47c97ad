"""Build what is drawn and listed in docs/policies.md: figures of real runs, tables of parameters.

python scripts/policy_guide.py [FOLDER]

Without a folder, docs/ of this checkout is brought up to date.
"""

import re
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from PIL import Image
from pydantic import BaseModel

from policies import POLICIES, ROUTERS
from policies.budgets import BUDGETS
from policies.orders import ORDERS
from policies.predictors import PREDICTORS
from policies.sarathi import Decreasing
from policies.triton import PriorityQueuePolicy
from simulator import RunSpec, simulate
from simulator.descriptions import descriptions
from simulator.plots import save
from simulator.plots.request_timeline import Schedule, name_of, request_timeline

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = "policies.md"
FIGURES = Path("figures") / "policies"

Row = tuple[float, ...]
"""A request: arrival in ms, prompt tokens, output tokens, and what `Example.more` names."""


@dataclass(frozen=True)
class Example:
    """A worked example: requests, policy, machine."""

    policy: Mapping[str, Any]
    requests: Sequence[Row]
    more: tuple[str, ...] = ()
    cost: Mapping[str, Any] = field(default_factory=lambda: {"kind": "fixed", "step_ms": 10})
    engine: Mapping[str, Any] = field(default_factory=dict)

    def csv(self) -> str:
        """Return the requests as a trace file."""
        names = ("arrival_s", "prompt_tokens", "output_tokens", *self.more)
        rows = [(row[0] / 1e3, *row[1:]) for row in self.requests]
        return "\n".join(",".join(map(str, row)) for row in (names, *rows)) + "\n"

    def spec(self, trace: Path) -> RunSpec:
        """Return the run, with the requests in that file."""
        workload = {"path": str(trace), "format": "csv"}
        data = {"workload": workload, "policy": self.policy, "cost": self.cost}
        return RunSpec.from_dict({**data, "engine": self.engine})


STEP = {"kind": "fixed", "step_ms": 6}
BURSTS = [(arrival, 1, 1) for arrival in (0, 4, 13, 14, 15, 16)]
WINDOW = {"max_batch_size": 3, "max_wait_ms": 10}
TRITON = {
    "kind": "triton",
    "max_batch_size": 8,
    "preferred_batch_size": [4],
    "max_queue_delay_microseconds": 10_000,
}
SCARCE = {"block_size": 4, "num_blocks": 5}
TWO_LONG = [(0, 6, 8), (0, 6, 8)]
JOBS = [(0, 1, 5), (10, 1, 2), (20, 1, 1)]
SINGLE = {"kind": "vllm-v1", "max_num_seqs": 1}
ASCEND = {"kind": "ascend-table", "ctx_lens": [64], "d_nums": [1, 2, 4]}
ASCEND |= {"chunk_sizes": [8, 16, 32, 64]}
LINEAR = {"kind": "linear", "fixed_ms": 10, "per_decode_us": 1000, "per_prefill_token_us": 500}
LONG_PROMPT = [(0, 8, 5), (5, 40, 2)]
MIXED = [(0, 1, 9), (2, 1, 1), (14, 1, 1), (26, 1, 1), (38, 1, 2), (50, 1, 1)]
REPLICAS = {"num_replicas": 3}


def budgeted(budget: object) -> dict[str, Any]:
    """Return vllm-v1 with a budget, on steps of at most 64 tokens."""
    return {"kind": "vllm-v1", "max_num_batched_tokens": 64, "budget": budget}


EXAMPLES: Mapping[str, Example] = {
    "none": Example({"kind": "none"}, [(0, 4, 2), (0, 2, 2)]),
    "static": Example(
        {"kind": "static", "max_batch_size": 3}, [(0, 4, 2), (0, 2, 5), (0, 3, 3), (10, 2, 2)]
    ),
    "window-pull": Example({"kind": "window-pull", **WINDOW}, BURSTS, cost=STEP),
    "window-enqueue": Example({"kind": "window-enqueue", **WINDOW}, BURSTS, cost=STEP),
    "window-freeze": Example(
        {"kind": "window-freeze", **WINDOW},
        [(0, 1, 1), (13, 1, 1), (24, 1, 1)],
        cost={"kind": "fixed", "step_ms": 30},
    ),
    "triton": Example(
        TRITON, [(arrival, 1, 1) for arrival in (0, 2, 3, 11, 17, 17, 17, 17, 17)], cost=STEP
    ),
    "clipper-aimd": Example(
        {"kind": "clipper-aimd", "slo_ms": 8, "additive_increase": 2},
        [(0, 1, 1)] * 13,
        cost={"kind": "linear-batch", "fixed_ms": 2, "per_request_ms": 1.5},
    ),
    "orca": Example(
        {"kind": "orca", "max_bs": 2, "n_slots": 20},
        [(0, 3, 2, 8), (0, 2, 4, 8), (0, 2, 2, 8)],
        ("max_tokens",),
    ),
    "vllm-v0": Example(
        {"kind": "vllm-v0", "max_num_batched_tokens": 16}, [(0, 6, 4), (0, 6, 3), (15, 5, 2)]
    ),
    "vllm-v0-recompute": Example({"kind": "vllm-v0", "watermark": 0}, TWO_LONG, engine=SCARCE),
    "vllm-v0-swap": Example(
        {"kind": "vllm-v0", "watermark": 0, "preemption_mode": "swap"}, TWO_LONG, engine=SCARCE
    ),
    "vllm-v1": Example(
        {"kind": "vllm-v1", "max_num_batched_tokens": 8}, [(0, 5, 3), (0, 10, 2), (15, 3, 3)]
    ),
    "sarathi": Example({"kind": "sarathi", "chunk_size": 8}, [(0, 5, 4), (0, 12, 2), (0, 4, 2)]),
    "order-fcfs": Example(SINGLE, JOBS),
    "order-sjf": Example({**SINGLE, "order": "sjf"}, JOBS),
    "order-srpt": Example({**SINGLE, "order": "srpt"}, JOBS),
    "order-priority": Example(
        {**SINGLE, "order": "priority"},
        [(0, 1, 3, 1), (10, 1, 2, 2), (20, 1, 2, 0)],
        ("priority",),
    ),
    "order-edf": Example(
        {**SINGLE, "order": "edf"},
        [(0, 1, 3, 0.09), (10, 1, 2, 0.1), (20, 1, 2, 0.04)],
        ("ttft_slo_s",),
    ),
    "budget-fixed": Example(budgeted("fixed"), LONG_PROMPT, cost=LINEAR),
    "budget-ascend-table": Example(budgeted({**ASCEND, "slo_ms": 20}), LONG_PROMPT, cost=LINEAR),
    "budget-model-predictive": Example(
        budgeted({"kind": "model-predictive", "tpot_slo_ms": 20, "slo_fraction": 1}),
        LONG_PROMPT,
        cost=LINEAR,
    ),
    **{
        f"router-{kind}": Example(
            {"kind": "none"}, MIXED, engine={**REPLICAS, "router": {"kind": kind}}
        )
        for kind in ("round-robin", "random", "least-outstanding", "power-of-two")
    },
}
"""Name of the figure to what it shows. All but one are the worked examples of the golden tests."""

TABLES: Mapping[str, tuple[type[BaseModel], ...]] = {
    "policies": POLICIES,
    "orders": ORDERS,
    "predictors": PREDICTORS,
    "budgets": BUDGETS,
    "routers": ROUTERS,
    "parts": (PriorityQueuePolicy, Decreasing),
}
"""What has a table of parameters: everything that can be named in a specification."""


def draw(name: str, folder: Path) -> Path:
    """Run an example and draw it; return the figure."""
    example = EXAMPLES[name]
    with tempfile.TemporaryDirectory() as scratch:
        trace = Path(scratch) / "example.csv"
        trace.write_text(example.csv())
        schedule = Schedule()
        result = simulate(example.spec(trace), observers=[schedule], stepper="reference")
    names: dict[int, str] = {}
    if result.spec.engine.num_replicas > 1:
        where = zip(result.requests["request_id"], result.requests["replica"], strict=True)
        names = {rid: f"{name_of(rid)} on {replica}" for rid, replica in where}
    path = folder / f"{name}.png"
    save(request_timeline(schedule, unit="ms", names=names), path)
    with Image.open(path) as image:  # few colours: a quarter of the size
        palette = image.convert("RGB").quantize(16, dither=Image.Dither.NONE)
    palette.save(path, optimize=True)
    return path


def parameter_table(model: type[BaseModel]) -> str:
    """Return the parameters of a class with defaults and meaning, as a table."""
    rows = ["| parameter | default | meaning |", "|---|---|---|"]
    texts = descriptions(model)
    for name, info in model.model_fields.items():
        if name != "kind":
            default = "required" if info.is_required() else f"`{_plain(info.default)}`"
            rows.append(f"| `{name}` | {default} | {' '.join(texts.get(name, '').split())} |")
    return "\n".join(rows) if len(rows) > 2 else "No parameters."


def _plain(value: object) -> object:
    if isinstance(value, BaseModel):
        return value.model_dump().get("kind", value)
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    if isinstance(value, tuple):
        shown = list(value) if len(value) <= 6 else f"[{value[0]}, {value[1]}, ..., {value[-1]}]"
        return shown
    return getattr(value, "value", value)


def models() -> Iterator[tuple[str, type[BaseModel]]]:
    """Yield the name under which a class has its table, and the class."""
    for group in TABLES.values():
        for model in group:
            kind = model.model_fields.get("kind")
            yield (str(kind.default) if kind else model.__name__), model


_TABLE = re.compile(r"(<!-- parameters: (\S+) -->\n).*?(<!-- end -->)", re.DOTALL)


def with_tables(page: str) -> str:
    """Return a page whose tables of parameters are those of the code."""
    known = dict(models())
    return _TABLE.sub(lambda m: f"{m[1]}{parameter_table(known[m[2]])}\n{m[3]}", page)


def main(folder: Path = DOCS) -> None:
    """Draw all figures and renew the tables of the page."""
    (folder / FIGURES).mkdir(parents=True, exist_ok=True)
    for name in EXAMPLES:
        draw(name, folder / FIGURES)
    page = with_tables((DOCS / PAGE).read_text(encoding="utf-8"))
    (folder / PAGE).write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
