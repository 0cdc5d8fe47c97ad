"""Cases with one server and one request at a time, and the server that all share."""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

from simulator.columns import Columns
from simulator.theory import single_server as theory
from simulator.theory.case import Case
from simulator.theory.laws import (
    EXPONENTIAL_PROMPTS,
    EXPONENTIAL_STEPS,
    PROMPT_STEPS,
    TOKENS_PER_S,
    Classes,
    Moments,
    exponential_tokens,
    one_token,
)
from simulator.theory.measured import Controls, Measured, look

# Warm-ups are five relaxation times, about 2.2 * rate * E[S²] / (1 - load)² each (exact for M/M/1
# within 5 %).


def mm1(rate: float, num_requests: int, warmup_s: float, *, is_quick: bool = False) -> Case:
    """Return M/M/1 with services of mean 1 s."""
    return Case(
        family="M/M/1",
        parameters={"rate": rate, "mu": 1},
        policy="none",
        run={
            "workload": one_token(rate, num_requests),
            "policy": "none",
            "cost": EXPONENTIAL_STEPS,
            "measure": {"warmup_s": warmup_s},
        },
        theory=lambda: {"W": theory.mm1_sojourn(rate, 1.0), "busy": rate},
        sample=look(
            {"W": Measured.sojourn, "busy": Measured.utilisation},
            Measured.number_controls,
            Measured.rest_controls,
            partial(Measured.service_controls, mean=1.0, second_moment=2.0),
        ),
        is_quick=is_quick,
    )


def md1(rate: float, num_requests: int, warmup_s: float, *, is_quick: bool = False) -> Case:
    """Return M/D/1 with services of 1 s."""
    return Case(
        family="M/D/1",
        parameters={"rate": rate, "S": 1},
        policy="none",
        run={
            "workload": one_token(rate, num_requests),
            "policy": "none",
            "cost": {"kind": "fixed", "step_ms": 1000},
            "measure": {"warmup_s": warmup_s},
        },
        theory=lambda: {
            "W_q": theory.mg1_wait(rate, 1.0, 1.0),
            "W": 1 + theory.mg1_wait(rate, 1.0, 1.0),
            "busy": rate,
        },
        sample=look(
            {"W_q": Measured.wait, "W": Measured.sojourn, "busy": Measured.utilisation},
            Measured.number_controls,
            Measured.rest_controls,
        ),
        is_quick=is_quick,
    )


def two_point_service() -> Case:
    """Return M/G/1 with services of 0.5 s (90 %) or 5.5 s (10 %)."""
    second = 0.9 * 0.5**2 + 0.1 * 5.5**2
    return Case(
        family="M/G/1",
        parameters={"rate": 0.5, "S": "0.5 or 5.5"},
        policy="none",
        run={
            "workload": one_token(0.5, 1000),
            "policy": "none",
            "cost": {"kind": "empirical", "values_ms": [500, 5500], "probs": [0.9, 0.1]},
            "measure": {"warmup_s": 80},
        },
        theory=lambda: {"W_q": theory.mg1_wait(0.5, 1.0, second), "busy": 0.5},
        sample=look(
            {"W_q": Measured.wait, "busy": Measured.utilisation},
            Measured.number_controls,
            lambda seen: seen.work_controls(seen.services(), Moments(1.0, 1.0, second)),
        ),
        is_quick=True,
    )


def prefill_machine() -> Case:
    """Return the prefill model of DistServe: TTFT = S + R S² / (2 (1 - R S))."""
    return Case(
        family="M/D/1",
        parameters={"R": 5, "S": 0.1},
        policy="vllm-v1, 1 seat",
        run={
            "workload": one_token(5.0, 800, prompt_tokens=200),
            "policy": {"kind": "vllm-v1", "max_num_seqs": 1},
            "cost": {
                "kind": "linear",
                "fixed_ms": 10,
                "per_decode_us": 0,
                "per_prefill_token_us": 450,
            },
            "measure": {"warmup_s": 5},
        },
        theory=lambda: {"TTFT": 0.1 + theory.mg1_wait(5.0, 0.1, 0.1**2)},
        sample=look({"TTFT": Measured.ttft}, Measured.number_controls, Measured.rest_controls),
    )


def prompt_work(seen: Measured) -> Controls:
    """Return the controls of exponential prompts as services of mean 1 s."""
    services = seen.tokens("prompt_tokens") / TOKENS_PER_S
    short = exponential_tokens(TOKENS_PER_S, shorter_than=1.0)
    return (
        *seen.work_controls(services, exponential_tokens(TOKENS_PER_S)),
        *seen.class_controls(services, short, is_short),
    )


def is_short(requests: Columns) -> NDArray[np.bool_]:
    """Return which requests take less than 1 s."""
    return requests["prompt_tokens"].astype(int) < TOKENS_PER_S


def shown(values: dict[str, float], is_quick: bool) -> dict[str, float]:
    """Return what is compared: no waits in the quick cases, which take longest to estimate."""
    return {name: value for name, value in values.items() if not (is_quick and "W_q" in name)}


def priorities(rate: float, num_requests: int, warmup_s: float, *, is_quick: bool = False) -> Case:
    """Return M/M/1 with two classes of equal rate, of which the first goes first."""
    half = rate / 2

    def waits() -> dict[str, float]:
        first, second = theory.priority_waits([half, half], [1, 1], [2, 2])
        values = {"W_q of 1st": first, "W_q of 2nd": second}
        return shown(values | {"W of 1st": 1 + first, "W of 2nd": 1 + second}, is_quick)

    return Case(
        family="priorities (Cobham)",
        parameters={"rate": f"{half:g} + {half:g}", "mu": 1},
        policy="vllm-v1, 1 seat, order priority",
        run={
            "workload": Classes.model_validate(
                one_token(rate, num_requests) | {"urgent_share": 0.5}
            ),
            "policy": {"kind": "vllm-v1", "max_num_seqs": 1, "order": "priority"},
            "cost": EXPONENTIAL_STEPS,
            "measure": {"warmup_s": warmup_s},
        },
        theory=waits,
        sample=look(
            {
                "W_q of 1st": partial(Measured.wait_of, priority=0),
                "W_q of 2nd": partial(Measured.wait_of, priority=1),
                "W of 1st": partial(Measured.sojourn_of, priority=0),
                "W of 2nd": partial(Measured.sojourn_of, priority=1),
            },
            Measured.number_controls,
            class_work,
        ),
        is_quick=is_quick,
    )


WHOLE = {"max_num_batched_tokens": 1_000_000}
"""A prompt is one step."""


def class_work(seen: Measured) -> Controls:
    """Return the controls of services that are drawn as they start."""
    services, every, half = seen.services(), Moments(1.0, 1.0, 2.0), Moments(0.5, 0.5, 1.0)
    return (
        *seen.work_controls(services, every),
        *seen.class_controls(services, half, is_urgent),
        *seen.draw_controls(services, 1.0, is_urgent),
        *seen.draw_controls(services, 1.0, lambda requests: ~is_urgent(requests)),
    )


def is_urgent(requests: Columns) -> NDArray[np.bool_]:
    """Return which requests have priority 0."""
    urgent: NDArray[np.bool_] = requests["priority"].astype(int) == 0
    return urgent


def shortest_first(
    rate: float, num_requests: int, warmup_s: float, *, is_quick: bool = False
) -> Case:
    """Return M/M/1 that serves the shortest prompt first."""
    return Case(
        family="SJF",
        parameters={"rate": rate, "mu": 1},
        policy="vllm-v1, 1 seat, order sjf",
        run={
            "workload": one_token(rate, num_requests, EXPONENTIAL_PROMPTS),
            "policy": {"kind": "vllm-v1", "max_num_seqs": 1, "order": "sjf", **WHOLE},
            "cost": PROMPT_STEPS,
            "measure": {"warmup_s": warmup_s},
        },
        theory=lambda: shown(
            {
                "W_q": theory.mm1_sjf_wait(rate, 1.0),
                "W": 1 + theory.mm1_sjf_wait(rate, 1.0),
            },
            is_quick,
        ),
        sample=look(
            {"W_q": Measured.wait, "W": Measured.sojourn}, Measured.number_controls, prompt_work
        ),
        is_quick=is_quick,
    )


def output_work(tokens: int) -> Callable[[Measured], Controls]:
    """Return the controls of exponential outputs of that mean as services of mean 1 s."""
    moments = exponential_tokens(tokens)
    return lambda seen: seen.work_controls(seen.tokens("target_output_tokens") / tokens, moments)


def shortest_remainder(
    rate: float, tokens: int, num_requests: int, warmup_s: float, *, is_quick: bool = False
) -> Case:
    """Return M/M/1 that serves the shortest remainder, in steps of one token each."""
    return Case(
        family="SRPT",
        parameters={"rate": rate, "mu": 1, "steps a service": tokens},
        policy="vllm-v1, 1 seat, order srpt",
        run={
            "workload": one_token(rate, num_requests)
            | {"output_tokens": {"kind": "exponential", "mean": tokens}},
            "policy": {"kind": "vllm-v1", "max_num_seqs": 1, "order": "srpt", **WHOLE},
            "cost": {"kind": "fixed", "step_ms": 1000 / tokens},
            "measure": {"warmup_s": warmup_s},
        },
        theory=lambda: {"W": theory.mm1_srpt_sojourn(rate, 1.0)},
        sample=look({"W": Measured.sojourn}, Measured.number_controls, output_work(tokens)),
        is_quick=is_quick,
    )


def processor_sharing(
    rate: float, tokens: int, num_requests: int, *, is_fixed: bool, is_quick: bool
) -> Case:
    """Return the limit of continuous batching whose steps take a time for each row alone."""
    outputs = tokens if is_fixed else {"kind": "geometric", "mean": tokens}
    controls = [] if is_fixed else [partial(Measured.finish_controls, mean=tokens)]
    return Case(
        family="processor sharing",
        parameters={
            "rate": rate,
            "S": "fixed" if is_fixed else "geometric",
            "steps a service": tokens,
        },
        policy="vllm-v1",
        run={
            "workload": one_token(rate, num_requests) | {"output_tokens": outputs},
            "policy": "vllm-v1",
            "cost": {"kind": "linear-batch", "fixed_ms": 0, "per_request_ms": 1000 / tokens},
            "measure": {"warmup_s": 50},
        },
        theory=lambda: {"W": theory.processor_sharing_sojourn(rate, 1.0)},
        sample=look({"W": Measured.sojourn}, Measured.number_controls, *controls),
        is_quick=is_quick,
    )


SINGLE_SERVER = (
    mm1(0.5, 800, 40, is_quick=True),
    mm1(0.8, 12_000, 450),
    md1(0.5, 800, 40, is_quick=True),
    md1(0.6, 1600, 60),
    md1(0.8, 8000, 220),
    two_point_service(),
    prefill_machine(),
    priorities(0.4, 400, 40, is_quick=True),
    priorities(0.6, 2000, 80),
    priorities(0.8, 6000, 300),
    shortest_first(0.5, 600, 40, is_quick=True),
    shortest_first(0.8, 12_000, 450),
    shortest_remainder(0.3, 100, 400, 30, is_quick=True),
    shortest_remainder(0.5, 100, 1500, 50),
    shortest_remainder(0.8, 100, 5000, 450),
    processor_sharing(0.3, 20, 500, is_fixed=False, is_quick=True),
    processor_sharing(0.5, 100, 2500, is_fixed=False, is_quick=False),
    processor_sharing(0.5, 100, 2500, is_fixed=True, is_quick=False),
)
"""The cases."""
