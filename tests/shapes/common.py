"""What the shape checks share: a line of the table, machines, and runs of given requests."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from simulator import Result, RunSpec, simulate
from simulator.cost import TableSpec
from tests.simulator.harness import Row, given

Json = dict[str, Any]


class Line(NamedTuple):
    """One published fact, what the simulator gives, and whether that meets the criterion.

    Attributes
    ----------
    what : str
        Quantity and setting.
    published, simulated : str
        With units.
    criterion : str
        What has to hold; "level" compares numbers, "order" only which is larger.
    holds : bool or None
        Whether it does; None: shown, but not judged.
    """

    what: str
    published: str
    simulated: str
    criterion: str
    holds: bool | None


MODELS: Mapping[str, Json] = {
    # The published shapes of dense decoders that are not shipped by name.
    "yi-34b": {
        "num_hidden_layers": 60,
        "hidden_size": 7168,
        "num_attention_heads": 56,
        "num_key_value_heads": 8,
        "intermediate_size": 20480,
        "vocab_size": 64000,
        "max_position_embeddings": 200000,
    },
    "llama-2-13b": {
        "num_hidden_layers": 40,
        "hidden_size": 5120,
        "num_attention_heads": 40,
        "num_key_value_heads": 40,
        "intermediate_size": 13824,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    },
    "llama-2-7b": {
        "num_hidden_layers": 32,
        "hidden_size": 4096,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "intermediate_size": 11008,
        "vocab_size": 32000,
        "max_position_embeddings": 4096,
    },
}


def machine(folder: Path, model: str, gpu: str, tp: int = 1, **more: Any) -> TableSpec:
    """Return the cost model of one of `MODELS` on a GPU; its description goes to the folder."""
    path = folder / f"{model}.json"
    path.write_text(json.dumps(MODELS[model]))
    return TableSpec(architecture=str(path), gpu=gpu, tp=tp, **more)


def run(workload: object, policy: object, cost: object, **sections: Any) -> Result:
    """Simulate one run."""
    return simulate(RunSpec(workload=workload, policy=policy, cost=cost, **sections))


def burst(rows: Sequence[tuple[int, int]]) -> Any:
    """Return requests of (prompt, output) that all arrive at 0."""
    requests: list[Row] = [(0.0, prompt, output) for prompt, output in rows]
    return given(requests)


def closed(num_users: int, num_requests: int, think_s: float, ramp_up_s: float) -> Json:
    """Return users of one-token requests who ask again after a moment."""
    return {
        "kind": "closed",
        "num_users": num_users,
        "think_s": think_s,
        "ramp_up_s": ramp_up_s,
        "prompt_tokens": 1,
        "output_tokens": 1,
        "num_requests": num_requests,
    }


def gaps_percentile(result: Result, percent: float) -> float:
    """Return a percentile of the times between tokens, pooled, in seconds."""
    gaps = result.tables["gaps"]
    order = np.argsort(gaps["gap_s"])
    share = np.cumsum(gaps["count"][order]) / gaps["count"].sum()
    return float(gaps["gap_s"][order][np.searchsorted(share, percent / 100)])


def percent(ratio: float) -> str:
    """Return a ratio as a change in per cent.

    Examples
    --------
    >>> percent(1.25), percent(0.9)
    ('+25 %', '-10 %')
    """
    return f"{(ratio - 1) * 100:+.0f} %"
