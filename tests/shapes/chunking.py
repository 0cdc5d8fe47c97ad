"""S1: hybrid batches, chunked prefills, and both.

Published: Sarathi-Serve (OSDI 2024), Table 4: Yi-34B on two A100 of 80 GB, budget 1024, 128
requests, P50 of TTFT and P99 of TBT; no rate is printed. Stand-in: the same model, machine and
budget; lengths of ShareGPT from the preset sharegpt-8k, of arXiv lognormal with the published
median of 7059 (outputs: median 200, both with sigma 0.47); Poisson arrivals, 0.9 requests/s of the
one and 0.4 of the other, about four fifths of the capacity. "Hybrid only" takes whole prompts
beside decodes (`vllm-v1` without chunked prefill); "chunking only" alternates steps of one prompt
piece and steps of decodes (`_Alternating` below); "both" is `sarathi`.
"""

from math import log
from pathlib import Path

from policies import Decision, Plan, Policy, PolicySpec, Trigger, View, Work
from simulator import Result
from tests.shapes.common import Json, Line, gaps_percentile, machine, run

BUDGET, CONTEXT = 1024, 16384


class Alternating(PolicySpec):
    """Prompt pieces and decodes in steps of their own, by turns."""

    def build(self) -> Policy:
        return _Alternating()


class _Alternating(Policy):
    def __init__(self) -> None:
        self._prompts_next = True

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        prompts = [r for r in view.running if not r.is_decode]
        decodes = tuple(r.id for r in view.running if r.is_decode)
        head = view.waiting.head
        if not prompts and head is not None and len(view.running) < 128:
            blocks = view.kv.blocks_for(head.prompt_tokens + head.max_tokens)
            if blocks <= view.kv.free:
                prompts = [head]
        if prompts and (self._prompts_next or not decodes):
            self._prompts_next = False
            first = prompts[0]
            plan = Plan(chunks=(Work(first.id, min(first.remaining, BUDGET)),))
            if first is not head:
                return Decision(plan)
            whole = first.prompt_tokens + first.max_tokens
            return Decision(plan, admit=(first.id,), reserve=((first.id, whole),))
        self._prompts_next = True
        return Decision(Plan(decodes)) if decodes else Decision()


SCHEDULERS: dict[str, object] = {
    "hybrid batches only": {
        "kind": "vllm-v1",
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": CONTEXT,
        "max_num_seqs": 128,
    },
    "chunking only": Alternating(),
    "both": {"kind": "sarathi", "chunk_size": BUDGET},
}
PUBLISHED = {
    "ShareGPT": {
        "hybrid batches only": (0.53, 0.68),
        "chunking only": (1.04, 0.17),
        "both": (0.76, 0.14),
    },
    "arXiv": {
        "hybrid batches only": (3.78, 1.38),
        "chunking only": (5.38, 0.20),
        "both": (3.90, 0.17),
    },
}
NUM_REQUESTS = 128
LOADS: dict[str, Json] = {
    "ShareGPT": {"name": "sharegpt-8k", "num_requests": NUM_REQUESTS, "request_rate": 0.9},
    "arXiv": {
        "arrivals": 0.4,
        "prompt_tokens": {"kind": "lognormal", "mu": log(7059), "sigma": 0.47},
        "output_tokens": {"kind": "lognormal", "mu": log(200), "sigma": 0.47},
        "num_requests": NUM_REQUESTS,
        "on_overlong": "clip",
    },
}


def serve(data: str, scheduler: str, folder: Path) -> Result:
    """Run one scheduler on one data set."""
    engine = {"max_model_len": CONTEXT}
    cost = machine(folder, "yi-34b", "a100", 2)
    return run(LOADS[data], SCHEDULERS[scheduler], cost, engine=engine)


def lines(folder: Path) -> list[Line]:
    """Compare P50 of TTFT and P99 of TBT."""
    result = []
    for data, published in PUBLISHED.items():
        found = {}
        for name in SCHEDULERS:
            outcome = serve(data, name, folder)
            ttft = float(outcome.requests["ttft_s"].median())
            found[name] = (ttft, gaps_percentile(outcome, 99))
        told, shown = (
            "; ".join(f"{ttft:.2f} / {tbt:.2f}" for ttft, tbt in table.values())
            for table in (published, found)
        )
        hybrid, chunked, both = found.values()
        what = f"{data}: P50 TTFT / P99 TBT in s, hybrid only; chunking only; both"
        result += [
            Line(what, told, shown, "not judged: no rate is printed", None),
            _order(f"{data}: TBT of hybrid only over both", published, found, 1, 2.0),
            Line(
                f"{data}: TTFT, hybrid only <= both <= chunking only",
                "holds",
                "holds" if hybrid[0] <= both[0] <= chunked[0] else "does not",
                "order",
                hybrid[0] <= both[0] <= chunked[0],
            ),
            Line(
                f"{data}: TBT of both is the least, chunking only near it",
                f"{published['chunking only'][1] / published['both'][1]:.1f} times",
                f"{chunked[1] / both[1]:.1f} times",
                "order: 1 to 2 times",
                1 <= chunked[1] / both[1] <= 2,
            ),
            _near(f"{data}: TTFT of both over hybrid only", published, found),
            _order(f"{data}: TTFT of chunking only over hybrid only", published, found, 0, 1.05),
        ]
    return result


def _near(
    what: str, published: dict[str, tuple[float, float]], found: dict[str, tuple[float, float]]
) -> Line:
    """Return the line of the price of chunks in TTFT."""
    told, ours = (
        table["both"][0] / table["hybrid batches only"][0] for table in (published, found)
    )
    close = told / 1.25 < ours < told * 1.25
    return Line(what, f"{told:.2f}", f"{ours:.2f}", "level: within 25 %", close)


def _order(
    what: str,
    published: dict[str, tuple[float, float]],
    found: dict[str, tuple[float, float]],
    column: int,
    least: float,
) -> Line:
    """Return the line of a ratio that has to be at least so large."""
    other = "both" if column else "hybrid batches only"
    top = "hybrid batches only" if column else "chunking only"
    told, ours = (table[top][column] / table[other][column] for table in (published, found))
    return Line(what, f"{told:.1f}", f"{ours:.1f}", f"order: at least {least}", ours >= least)
