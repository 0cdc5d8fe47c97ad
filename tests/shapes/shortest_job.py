"""S13: shortest job first helps where there is a queue, and only there.

Published: reordering by length raises throughput by 9 % (Llama-2-7B, vLLM pull request 2357), by 6
% with objectives (29366); median latency -7.5 % with throughput +0.5 % (DeepSeek-R1, 8 GB200). No
rates are given. Stand-in: Llama-3.1-8B on one A100, lengths of ShareGPT (preset sharegpt-8k), at
most 64 requests at once, at a fifth of the capacity and as one burst.
"""

from pathlib import Path

from simulator import Result
from tests.shapes.common import Line, percent, run

COST = {"kind": "table", "gpu": "a100", "model": "llama-3.1-8b"}
NUM_REQUESTS = 400
SLOW, BURST = 1.0, 10_000.0
"""Requests per second."""
PREDICTORS = ("oracle", "noisy-oracle")


def serve(rate: float, order: object) -> Result:
    """Run one order at one rate."""
    workload = {"name": "sharegpt-8k", "num_requests": NUM_REQUESTS, "request_rate": rate}
    return run(workload, {"kind": "vllm-v1", "max_num_seqs": 64, "order": order}, COST)


def lines(folder: Path) -> list[Line]:
    """Compare mean and median latency, and throughput, with first come, first served."""
    result = []
    for rate, load in ((SLOW, "no queue"), (BURST, "burst")):
        fcfs = serve(rate, "fcfs").metrics
        for predictor in PREDICTORS:
            sjf = serve(rate, {"kind": "sjf", "predictor": predictor}).metrics
            mean, median, throughput = (
                sjf[key] / fcfs[key]
                for key in ("mean_e2el_ms", "median_e2el_ms", "output_throughput")
            )
            shown = (
                f"mean latency {percent(mean)}, median {percent(median)}, "
                f"throughput {percent(throughput)}"
            )
            if load == "burst":
                told = "median -7.5 %, throughput +0.5 to +9 %"
                holds = mean < 0.93 and median < 0.93 and 0.9 < throughput < 1.1
            else:
                told = "no change"
                holds = 0.98 < mean < 1.02 and 0.98 < throughput < 1.02
            what = f"sjf ({predictor}) against fcfs, {load}"
            result.append(Line(what, told, shown, "order", holds))
    return result
