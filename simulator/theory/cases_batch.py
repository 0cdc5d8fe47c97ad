"""Cases with batches: linear, capped, threshold, random, started by a timer, and of many tokens."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from simulator.result import Result
from simulator.theory import batch_service as theory
from simulator.theory.case import Case
from simulator.theory.continuous import continuous_batches, static_efficiency
from simulator.theory.laws import exponential_tokens, one_token
from simulator.theory.measured import Controls, Measured, look
from simulator.theory.replications import Sample

NO_LIMIT = 10**6
"""A batch size that is never reached."""
FOR_EVER = 10**12
"""A delay that is never over, µs."""


def batch_case(
    family: str,
    parameters: Mapping[str, Any],
    policy: tuple[str, Mapping[str, Any]],
    cost: Mapping[str, Any],
    size: tuple[float, int, float],
    solution: Callable[[], theory.Batches],
    *controls: Callable[[Measured], Controls],
    is_quick: bool = False,
) -> Case:
    """Return a server of batches; `size` is rate, number of requests and warm-up in seconds."""
    rate, num_requests, warmup_s = size

    def values() -> dict[str, float]:
        found = solution()
        return {"1/E[b]": 1 / found.size, "W": found.sojourn, "busy": found.utilisation}

    return Case(
        family=family,
        parameters=parameters,
        policy=policy[0],
        run={
            "workload": one_token(rate, num_requests),
            "policy": policy[1],
            "cost": cost,
            "measure": {"warmup_s": warmup_s},
        },
        theory=values,
        sample=look(
            {
                "1/E[b]": Measured.batches,
                "W": Measured.sojourn,
                "busy": Measured.utilisation,
            },
            Measured.number_controls,
            Measured.rest_controls,
            *controls,
        ),
        is_quick=is_quick,
    )


def linear_cost(alpha: float, tau0: float) -> dict[str, Any]:
    """Return steps of `alpha` seconds a request and `tau0` seconds."""
    return {"kind": "linear-batch", "fixed_ms": 1e3 * tau0, "per_request_ms": 1e3 * alpha}


def unlimited(
    rate: float,
    alpha: float,
    tau0: float,
    num_requests: int,
    warmup_s: float,
    *,
    is_quick: bool = False,
) -> Case:
    """Return a batch without a limit whose time is linear in its size."""
    return batch_case(
        "unlimited batch (Inoue)",
        {"rate": rate, "alpha": alpha, "tau0": tau0},
        ("static", {"kind": "static", "max_batch_size": NO_LIMIT}),
        linear_cost(alpha, tau0),
        (rate, num_requests, warmup_s),
        lambda: theory.linear_batches(rate, alpha, tau0),
        is_quick=is_quick,
    )


STATIC, SEATS = "static", "vllm-v1"


def capped(
    rate: float,
    alpha: float,
    tau0: float,
    largest: int,
    num_requests: int,
    warmup_s: float,
    *,
    kind: str = STATIC,
    is_quick: bool = False,
) -> Case:
    """Return a capped batch whose time is linear in its size.

    With one token each, `vllm-v1` with as many seats is the same server.
    """
    limit = "max_batch_size" if kind == STATIC else "max_num_seqs"
    return batch_case(
        "capped batch",
        {"rate": rate, "alpha": alpha, "tau0": tau0, "b": largest},
        (kind, {"kind": kind, limit: largest}),
        linear_cost(alpha, tau0),
        (rate, num_requests, warmup_s),
        lambda: theory.linear_batches(rate, alpha, tau0, largest),
        is_quick=is_quick,
    )


def threshold(
    rate: float,
    alpha: float,
    tau0: float,
    sizes: tuple[int, int],
    num_requests: int,
    warmup_s: float,
    *,
    is_quick: bool = False,
) -> Case:
    """Return a server that waits for the smallest batch: all sizes preferred, an endless delay."""
    smallest, largest = sizes
    policy = {
        "kind": "triton",
        "max_batch_size": largest,
        "preferred_batch_size": list(range(smallest, largest + 1)),
        "max_queue_delay_microseconds": FOR_EVER,
    }
    return batch_case(
        "threshold batch",
        {"rate": rate, "alpha": alpha, "tau0": tau0, "[a,b]": f"[{smallest},{largest}]"},
        ("triton", policy),
        linear_cost(alpha, tau0),
        (rate, num_requests, warmup_s),
        lambda: theory.linear_batches(rate, alpha, tau0, largest, smallest),
        is_quick=is_quick,
    )


def whole_batches(
    rate: float,
    alpha: float,
    tau0: float,
    size: int,
    num_requests: int,
    warmup_s: float,
) -> Case:
    """Return a server of full batches: a window that never ends."""
    return batch_case(
        "threshold batch",
        {"rate": rate, "alpha": alpha, "tau0": tau0, "[a,b]": f"[{size},{size}]"},
        ("window-pull", {"kind": "window-pull", "max_batch_size": size, "max_wait_ms": 1e9}),
        linear_cost(alpha, tau0),
        (rate, num_requests, warmup_s),
        lambda: theory.linear_batches(rate, alpha, tau0, size, size),
    )


def bulk(
    rate: float, largest: int, num_requests: int, warmup_s: float, *, is_quick: bool = False
) -> Case:
    """Return M/M^[1,b]/1 with batches of mean 1 s."""
    return batch_case(
        "M/M^[1,b]/1",
        {"rate": rate, "mu": 1, "b": largest},
        ("static", {"kind": "static", "max_batch_size": largest}),
        {"kind": "exponential", "mean_ms": 1000},
        (rate, num_requests, warmup_s),
        lambda: theory.exponential_batches(rate, 1.0, largest),
        partial(Measured.service_controls, mean=1.0, second_moment=2.0),
        is_quick=is_quick,
    )


def timer(
    rate: float, window_s: float, kind: str, num_requests: int, *, is_quick: bool = False
) -> Case:
    """Return a window alone: no size limit and next to no service time."""

    def values() -> dict[str, float]:
        size, wait = theory.window_only(rate, window_s)
        return {"1/E[b]": 1 / size, "W_q": wait}

    def controls(seen: Measured) -> Controls:
        return seen.number_controls()[:2]  # nobody is ever in service

    policy = {"kind": kind, "max_batch_size": NO_LIMIT, "max_wait_ms": 1e3 * window_s}
    return Case(
        family="timer only",
        parameters={"rate": rate, "T": window_s},
        policy=kind,
        run={
            "workload": one_token(rate, num_requests),
            "policy": policy,
            "cost": {"kind": "fixed", "step_ms": 1e-4},  # nobody arrives meanwhile
            "measure": {"warmup_s": 10 * window_s},
        },
        theory=values,
        sample=look({"1/E[b]": Measured.batches, "W_q": Measured.wait}, controls),
        is_quick=is_quick,
    )


def continuous(
    rate: float,
    alpha: float,
    tau0: float,
    tokens: int,
    seats: int,
    size: tuple[int, float],
    *,
    is_quick: bool = False,
) -> Case:
    """Return continuous batching of geometric lengths; `size` is requests and warm-up."""
    num_requests, warmup_s = size
    solution = partial(continuous_batches, rate, alpha, tau0, tokens, seats)
    return Case(
        family="continuous batches",
        parameters={"rate": rate, "alpha": alpha, "tau0": tau0, "E[D]": tokens, "seats": seats},
        policy="vllm-v1",
        run={
            "workload": one_token(rate, num_requests)
            | {"output_tokens": {"kind": "geometric", "mean": tokens}},
            "policy": {"kind": "vllm-v1", "max_num_seqs": seats},
            "cost": linear_cost(alpha, tau0),
            "measure": {"warmup_s": warmup_s},
        },
        theory=lambda: {
            "steps a request": tokens / solution().size,
            "W": solution().sojourn,
            "busy": solution().utilisation,
        },
        sample=look(
            {
                "steps a request": Measured.batches,
                "W": Measured.sojourn,
                "busy": Measured.utilisation,
            },
            Measured.number_controls,
            partial(Measured.finish_controls, mean=tokens),
        ),
        is_quick=is_quick,
    )


def static_rows(batch: int, tokens: int, num_batches: int, *, is_quick: bool = False) -> Case:
    """Return the rows of static batches for each useful one, from a backlog of requests."""
    return Case(
        family="static efficiency",
        parameters={"b": batch, "D": f"exponential, mean {tokens}"},
        policy="static",
        run={
            "workload": one_token(1e6, batch * num_batches)
            | {"output_tokens": {"kind": "exponential", "mean": tokens}},
            "policy": {"kind": "static", "max_batch_size": batch},
            "cost": {"kind": "fixed", "step_ms": 1000},
        },
        theory=lambda: {"charged / useful": 1 / static_efficiency(batch)},
        sample=partial(row_efficiency, tokens=tokens),
        is_quick=is_quick,
    )


def row_efficiency(result: Result, *, tokens: int) -> Sample:
    """Return charged rows over useful rows; controls are the luck of the lengths.

    The ratio has next to no bias this way round: for exponential lengths, the covariance of the
    longest with the sum is the variance of the sum, each over its mean.
    """
    steps = result.tables["steps"]
    rows = float(steps["charged_tokens"].sum() / steps["useful_tokens"].sum())
    times = result.tables["requests"]["target_output_tokens"].astype(float) / tokens
    moments = exponential_tokens(tokens)
    luck = [float(times.mean()) - moments.first, float((times**2).mean()) - moments.second]
    for longest in (1.0, 2.0, 4.0):
        below = exponential_tokens(tokens, shorter_than=longest).share
        luck.append(float((times < longest).mean()) - below)
    return Sample({"charged / useful": rows}, tuple(luck), len(result.trace))


BATCHES = (
    unlimited(2.0, 0.25, 1.0, 1600, 30, is_quick=True),
    unlimited(0.1, 1.0, 1.0, 4000, 50),
    unlimited(0.3, 1.0, 1.0, 4000, 50),
    unlimited(0.5, 1.0, 1.0, 2400, 60),
    unlimited(0.9, 1.0, 1.0, 20_000, 1000),
    unlimited(1.0, 0.25, 1.0, 4000, 30),
    capped(1.5, 0.25, 1.0, 8, 1600, 40, is_quick=True),
    capped(1.5, 0.25, 1.0, 8, 1600, 40, kind=SEATS),
    capped(0.5, 1.0, 1.0, 4, 2600, 60),
    capped(0.5, 1.0, 1.0, 8, 4000, 60),
    capped(0.5, 0.25, 1.0, 4, 4000, 30),
    capped(1.0, 0.25, 1.0, 4, 4000, 30),
    capped(1.8, 0.25, 1.0, 8, 4000, 60),
    capped(2.0, 0.0, 1.0, 4, 1600, 30),
    threshold(1.5, 0.25, 1.0, (4, 8), 1600, 40, is_quick=True),
    threshold(0.5, 0.25, 1.0, (2, 4), 2000, 40),
    whole_batches(1.5, 0.25, 1.0, 4, 2000, 40),
    bulk(0.5, 4, 1500, 50, is_quick=True),
    bulk(1.5, 2, 12_000, 300),
    bulk(3.0, 4, 20_000, 300),
    bulk(6.4, 8, 30_000, 500),
    timer(2.0, 1.0, "window-enqueue", 1500, is_quick=True),
    timer(0.5, 4.0, "window-enqueue", 1500),
    timer(2.0, 1.0, "window-pull", 1500),
    timer(2.0, 1.0, "window-freeze", 1500),
    static_rows(4, 25, 100, is_quick=True),
    static_rows(8, 200, 200),
    continuous(1.0, 0.01, 0.02, 20, 8, (800, 20)),
    continuous(1.5, 0.02, 0.01, 20, 32, (3000, 60)),
)
"""The cases."""
