"""S8: a Triton batcher in a closed loop, throughput and p95 latency against concurrency.

Published: Triton tutorial, part 2 (triton-inference-server/tutorials, BSD-3-Clause), text
recognition, requests of 2 inputs, at most 4 requests a batch, no queue delay. A batch of b
requests takes s(b) = fixed + b * per_request; the two constants come from the compute times that
the server reports at concurrency 16, without batching (b = 1) and with it. All other points are
predictions. A client asks again 10 µs after its answer, and clients start one after the other; if
they all started at once and came back in no time, they would stay together for ever, which no real
client does. Two instances share the GPU, so they get constants of their own, from their throughput
at concurrency 2 (one request each) and their compute time at 16; they are modelled as two servers,
of which the client's request joins the one with fewer requests, not as one queue.
"""

from pathlib import Path

import pandas as pd

from simulator import Result
from tests.shapes.common import Line, closed, run

INPUTS = 2
"""In one request."""
ROUNDS = 50
"""Requests of each user."""
THINK_S, RAMP_UP_S = 1e-5, 0.01
"""Time between answer and next request, and in which the clients start."""
THROUGHPUT, LATENCY = 0.05, 0.1
"""Largest relative errors of a point."""
SETTINGS = {"none": "no batching", "dyn": "dynamic batching", "dyn2": "two instances"}


def read(shared: Path) -> pd.DataFrame:
    """Return the published points, with the setting as a column."""
    table = pd.read_csv(shared / "validation" / "dynamic_batching.csv")
    return table.assign(setting=table["record_id"].str.split("-").str[1])


def service_times(table: pd.DataFrame) -> dict[str, tuple[float, float]]:
    """Return fixed and per-request time of a batch in ms, for one and for two instances."""
    at = table.set_index(["setting", "concurrency"])
    batch = at["mean_exec_batch_inferences"] / INPUTS
    compute = at["mean_compute_ms"]
    alone = compute["none", 16]
    slope = (compute["dyn", 16] - alone) / (batch["dyn", 16] - 1)
    shared = 2 * INPUTS / at["throughput_inf_s"]["dyn2", 2] * 1e3
    steep = (compute["dyn2", 16] - shared) / (batch["dyn2", 16] - 1)
    return {"one": (alone - slope, slope), "two": (shared - steep, steep)}


def serve(setting: str, users: int, service: tuple[float, float]) -> Result:
    """Run the closed loop."""
    fixed, per_request = service
    cost = {"kind": "linear-batch", "fixed_ms": fixed, "per_request_ms": per_request}
    policy = {"kind": "triton", "max_batch_size": 1 if setting == "none" else 4}
    engine: dict[str, object] = {}
    if setting == "dyn2":
        engine = {"num_replicas": 2, "router": {"kind": "least-outstanding"}}
    measure = {"warmup_s": 0.02, "percentiles": [95]}
    workload = closed(users, ROUNDS * users, THINK_S, RAMP_UP_S)
    return run(workload, policy, cost, engine=engine, measure=measure)


def predictions(shared: Path) -> pd.DataFrame:
    """Return the published points with simulated throughput and p95 latency beside them."""
    table = read(shared)
    service = service_times(table)
    found = []
    for row in table.itertuples():
        times = service["two" if row.setting == "dyn2" else "one"]
        metrics = serve(row.setting, row.concurrency, times).metrics
        found.append((metrics["request_throughput"] * INPUTS, metrics["p95_e2el_ms"]))
    return table.assign(
        throughput=[throughput for throughput, _ in found],
        latency=[latency for _, latency in found],
        is_fitted=[(r.setting, r.concurrency) in FITTED for r in table.itertuples()],
    )


FITTED = {("none", 16), ("dyn", 16), ("dyn2", 2), ("dyn2", 16)}
"""Points of which a compute time or a rate went into the constants."""


def lines(shared: Path) -> list[Line]:
    """Compare all points; those that were fitted count for nothing."""
    table = predictions(shared)
    service = service_times(read(shared))
    result = []
    for setting, name in SETTINGS.items():
        rows = table[table["setting"] == setting]
        others = rows[~rows["is_fitted"]]
        fixed, per_request = service["two" if setting == "dyn2" else "one"]
        for what, told, found, bound in (
            ("inferences/s", "throughput_inf_s", "throughput", THROUGHPUT),
            ("p95 latency, ms", "latency_p95_ms", "latency", LATENCY),
        ):
            digits = 0 if what == "inferences/s" else 1
            assert rows[found].notna().all(), "a percentile without enough samples"
            error = float((others[found] / others[told] - 1).abs().max())
            shown = [" ".join(f"{v:.{digits}f}" for v in rows[c]) for c in (told, found)]
            criterion = f"level: within {bound:.0%}; largest error {error:.1%}"
            title = f"{name}, {what}, 2 to 16 clients; batch {fixed:.2f} + {per_request:.3f} b ms"
            result.append(Line(title, *shown, criterion, error <= bound))
    by = {
        key: rows.set_index("concurrency")["throughput"] for key, rows in table.groupby("setting")
    }
    gain = by["dyn"] / by["none"]
    told = "1.04, then 3.2 to 3.3 from 8 on"
    shown = f"{gain[2]:.2f}, then {gain[8]:.2f} to {gain[16]:.2f}"
    holds = abs(gain[2] - 1) < 0.05 and gain[8] > 3 and gain[16] / gain[8] < 1.1
    result.append(
        Line("gain of batching, 2 and 8 to 16 clients", told, shown, "order", bool(holds))
    )
    more = by["dyn2"] / by["dyn"]
    told = "1.45, 1.04 to 1.09, 1.25 to 1.30"
    shown = f"{more[2]:.2f}, {more[8]:.2f}, {more[16]:.2f}"
    holds = more[2] > 1.2 and more[16] > 1.1 and 1 <= more[8] < more[16]
    what = "gain of a second instance, 2, 4 to 10 and 12 to 16 clients"
    result.append(Line(what, told, shown, "order", bool(holds)))
    return result
