"""S6: the knee of an open-loop sweep with a client that keeps at most 440 requests under way.

Published: kubernetes-sigs/inference-perf, Llama-3.1-8B on one H100, vLLM 0.11 (0.9 for V0),
prompts of 204, outputs of 64 tokens, constant rates; in overload 183 requests/s, 223 with 192
seats, 254 with prefix caching, 236 with V0; whole prompts but with prefix caching; contexts of 512
tokens; 100 prompts in turn, ten to a system prompt of 128 tokens. Here: the same settings, 30 s of
each rate (the first 9 not counted), engine profile `generic`, which was not fitted on these rows.
"""

from pathlib import Path
from typing import Any

import numpy as np

from simulator import Result
from tests.shapes.common import Json, Line, percent, run
from tests.simulator.harness import Given
from workloads import Trace
from workloads.chains import Chains

RATES = (1, 31, 62, 92, 123)
TPOT_MS = (7.1, 8.2, 10.2, 15.4, 19.0)
CAP, PROMPT, OUTPUT, SECONDS = 440, 204, 64, 30
COST = {"kind": "table", "gpu": "h100", "model": "llama-3.1-8b"}
WHOLE = {"kind": "vllm-v1", "enable_chunked_prefill": False}


def serve(rate: float, policy: Json, **engine: Any) -> Result:
    """Run one rate."""
    number = max(40, int(SECONDS * rate))
    trace = prompts(number, rate) if engine else None
    laws = {"arrivals": 1, "prompt_tokens": 1, "output_tokens": 1}
    workload: Any = (
        Given(**laws, trace=trace, max_concurrency=CAP)
        if trace is not None
        else {
            "arrivals": {"kind": "deterministic", "request_rate": rate},
            "prompt_tokens": PROMPT,
            "output_tokens": OUTPUT,
            "num_requests": number,
            "max_concurrency": CAP,
        }
    )
    measure = {"warmup_s": 0.3 * SECONDS, "horizon_s": SECONDS, "percentiles": [50]}
    return run(workload, policy, COST, engine={"max_model_len": 512, **engine}, measure=measure)


def prompts(number: int, rate: float) -> Trace:
    """Return requests that repeat a hundred prompts, ten behind each system prompt."""
    system, own = 128 // 16, PROMPT // 16 - 128 // 16
    chains = [
        (
            *(1000 * (n % 10) + i for i in range(1, system + 1)),
            *(1_000_000 + 1000 * (n % 100) + i for i in range(own)),
        )
        for n in range(number)
    ]
    lengths = np.full(number, PROMPT), np.full(number, OUTPUT)
    blocks = Chains.of(chains, block_size=16)
    return Trace(np.arange(number) / rate, *lengths, chains=blocks)


def lines(folder: Path) -> list[Line]:
    """Compare TPOT, TTFT and capacity along the sweep."""
    seats = {"max_num_seqs": 128}
    sweep = {rate: serve(rate, WHOLE | seats).metrics for rate in RATES}
    tpot = [sweep[rate]["mean_tpot_ms"] for rate in RATES]
    ttft = [sweep[rate]["mean_ttft_ms"] for rate in RATES]
    full = serve(183.38, WHOLE | seats).metrics
    wider = serve(222.83, WHOLE | {"max_num_seqs": 192}).metrics
    cached = serve(254.49, {"kind": "vllm-v1", **seats}, enable_prefix_caching=True).metrics
    v0 = serve(236.12, {"kind": "vllm-v0", **seats}).metrics
    capacity = full["request_throughput"]
    more, reuse, old = (m["request_throughput"] / capacity for m in (wider, cached, v0))
    slower = wider["mean_tpot_ms"] / full["mean_tpot_ms"]
    told, ours = (" ".join(f"{value:.1f}" for value in values) for values in (TPOT_MS, tpot))
    error = max(abs(a / b - 1) for a, b in zip(tpot, TPOT_MS, strict=True))
    result = [
        Line(
            "TPOT, ms, at 1 / 31 / 62 / 92 / 123 requests/s",
            told,
            ours,
            f"level: within 10 %; largest error {error:.0%}",
            error < 0.1,
        ),
        Line(
            "TPOT grows along the sweep",
            "yes",
            "yes" if tpot == sorted(tpot) else "no",
            "order",
            tpot == sorted(tpot),
        ),
        Line(
            "TTFT, ms, at the same rates (published: with network and client)",
            "30 to 50 up to 92; 2900 at 123",
            " ".join(f"{value:.0f}" for value in ttft),
            "order: below 60 to the knee",
            max(ttft[:4]) < 60,
        ),
        Line(
            "capacity with 128 seats, requests/s",
            "103",
            f"{capacity:.0f}",
            "level: within 10 %",
            abs(capacity / 103 - 1) < 0.1,
        ),
        Line(
            "capacity with 192 seats",
            "+10 to +12 %",
            percent(more),
            "order: more",
            more > 1.02,
        ),
        Line(
            "TPOT at overload with 192 seats",
            "25.5 ms (+34 %)",
            f"{wider['mean_tpot_ms']:.1f} ms ({percent(slower)})",
            "order: more",
            slower > 1.1,
        ),
        Line("capacity with repeated prompts", "+68 %", percent(reuse), "order: more", reuse > 1.2),
        Line("capacity of V0", "-26 %", percent(old), "order: less", old < 0.97),
    ]
    for limit, metrics, told in (
        (128, full, "3.03 against 2.94"),
        (192, wider, "2.18 against 2.20"),
    ):
        formula = (CAP - limit) / metrics["request_throughput"]
        found = metrics["mean_ttft_ms"] / 1e3
        shown, holds = f"{formula:.2f} against {found:.2f}", abs(found / formula - 1) < 0.1
        what = f"(440 - {limit}) / throughput against TTFT in overload, s"
        result.append(Line(what, told, shown, "level: within 10 %", holds))
    return result
