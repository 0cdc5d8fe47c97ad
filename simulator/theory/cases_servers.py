"""Cases with several servers, and with clients that wait for their answers."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from simulator.result import Result
from simulator.theory import several_servers as theory
from simulator.theory.case import Case
from simulator.theory.closed import closed_system
from simulator.theory.laws import EXPONENTIAL_STEPS, one_token
from simulator.theory.measured import Measured, look
from simulator.theory.replications import Sample
from simulator.theory.single_server import mm1_sojourn
from simulator.theory.spans import Level


def seats(
    rate: float,
    servers: int,
    tokens: int,
    num_requests: int,
    warmup_s: float,
    *,
    is_quick: bool = False,
) -> Case:
    """Return M/M/c with services of mean 1 s: one replica whose steps all take the same time.

    However many seats are taken, a step gives each of them a token. An arrival that finds a free
    seat still waits for the end of the step under way, so the waits are those of small steps.
    """
    return Case(
        family="M/M/c",
        parameters={"rate": rate, "mu": 1, "c": servers, "steps a service": tokens},
        policy="vllm-v1",
        run={
            "workload": one_token(rate, num_requests)
            | {"output_tokens": {"kind": "geometric", "mean": tokens}},
            "policy": {"kind": "vllm-v1", "max_num_seqs": servers},
            "cost": {"kind": "fixed", "step_ms": 1000 / tokens},
            "measure": {"warmup_s": warmup_s},
        },
        theory=lambda: {"W": 1 + theory.mmc_wait(rate, 1.0, servers)},
        sample=look(
            {"W": Measured.sojourn},
            Measured.number_controls,
            partial(Measured.finish_controls, mean=tokens),
        ),
        is_quick=is_quick,
    )


def routed(
    router: str,
    rate: float,
    servers: int,
    size: tuple[int, float],
    sojourn: Callable[[], float],
    *,
    is_quick: bool = False,
) -> Case:
    """Return servers of mean 1 s behind a router; `size` is requests and warm-up in seconds."""
    num_requests, warmup_s = size
    return Case(
        family="M/M/1 each",
        parameters={"rate": rate, "mu": 1, "servers": servers},
        policy=f"none, router {router}",
        run={
            "workload": one_token(servers * rate, num_requests),
            "policy": "none",
            "cost": EXPONENTIAL_STEPS,
            "engine": {"num_replicas": servers, "router": {"kind": router}},
            "measure": {"warmup_s": warmup_s},
        },
        theory=lambda: {"W": sojourn()},
        sample=look(
            {"W": Measured.sojourn},
            Measured.number_controls,
            Measured.rest_controls,
            Measured.replica_controls,
            partial(Measured.service_controls, mean=1.0, second_moment=2.0),
        ),
        is_quick=is_quick,
    )


def closed(
    num_clients: int, think_s: float, size: tuple[int, int], *, is_quick: bool = False
) -> Case:
    """Return clients with time to think before a server of mean 1 s; `size`: requests, warm-up."""
    num_requests, first = size

    def values() -> Mapping[str, float]:
        found = closed_system(num_clients, think_s, 1.0)
        return {"R": found.sojourn, "X": found.throughput}

    workload: dict[str, Any] = {
        "kind": "closed",
        "num_users": num_clients,
        "think_s": {"kind": "exponential", "mean_s": think_s},
        "prompt_tokens": 1,
        "output_tokens": 1,
        "num_requests": num_requests,
    }
    return Case(
        family="closed network",
        parameters={"N": num_clients, "Z": think_s, "mu": 1},
        policy="none",
        run={"workload": workload, "policy": "none", "cost": EXPONENTIAL_STEPS},
        theory=values,
        sample=partial(closed_sample, first=first, num_clients=num_clients, think_s=think_s),
        is_quick=is_quick,
    )


def closed_sample(result: Result, *, first: int, num_clients: int, think_s: float) -> Sample:
    """Return response time and throughput between two arrivals of fixed numbers.

    The last tenth of the requests only keeps the others company: some clients are done before.
    Controls: a client that thinks comes back at the rate 1 / Z, whatever went before, and a
    service takes 1 s in the mean.
    """
    table, steps = result.tables["requests"], result.tables["steps"]
    order = np.argsort(table["arrival_s"], kind="stable")
    arrivals, ends = (table[name][order].astype(float) for name in ("arrival_s", "finish_s"))
    last = len(order) * 9 // 10
    low, high = float(arrivals[first]), float(arrivals[last])
    times, number = arrivals[first + 1 : last + 1], last - first
    present = Level.of(arrivals, ends)
    area, squares = present.area(low, high), present.squared().area(low, high)
    starts = steps["start_s"].astype(float)
    inside = (starts > low) & (starts <= high)
    luck = (steps["end_s"].astype(float) - starts - 1.0)[inside]
    thinking = num_clients * (high - low) - area, num_clients * area - squares
    found = len(times), present.before(times).sum()
    return Sample(
        {"R": float((ends - arrivals)[first:last].mean()), "X": number / (high - low)},
        (
            *(float(f - rest / think_s) / number for f, rest in zip(found, thinking, strict=True)),
            float(luck.sum()) / number,
            float((luck * steps["num_waiting"][inside]).sum()) / number,
        ),
        len(result.trace),
    )


ROUND_ROBIN, POWER_OF_TWO = "round-robin", "power-of-two"

SERVERS = (
    seats(1.0, 2, 50, 700, 30, is_quick=True),
    seats(2.0, 3, 200, 4000, 60),
    seats(1.6, 2, 200, 4000, 100),
    seats(6.4, 8, 200, 4000, 40),
    routed("random", 0.5, 2, (5000, 50), lambda: mm1_sojourn(0.5, 1.0)),
    routed(
        ROUND_ROBIN,
        0.4,
        2,
        (900, 30),
        lambda: theory.round_robin_sojourn(0.4, 1.0),
        is_quick=True,
    ),
    routed(ROUND_ROBIN, 0.8, 2, (12_000, 200), lambda: theory.round_robin_sojourn(0.8, 1.0)),
    routed(
        POWER_OF_TWO,
        0.3,
        2,
        (1200, 30),
        lambda: theory.shortest_of_two_sojourn(0.3, 1.0),
        is_quick=True,
    ),
    routed(POWER_OF_TWO, 0.5, 100, (4000, 20), lambda: theory.power_of_two_sojourn(0.5, 1.0)),
    routed(
        "least-outstanding",
        0.8,
        2,
        (20_000, 200),
        lambda: theory.shortest_of_two_sojourn(0.8, 1.0),
    ),
    closed(20, 10.0, (1000, 200), is_quick=True),
    closed(10, 10.0, (4000, 100)),
)
"""The cases."""
