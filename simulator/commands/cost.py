"""`batchlab cost`: one step of a model on a GPU, taken apart."""

import json as js
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from simulator.cost import TableSpec, describe_step, parse_chunk
from simulator.explain import validated


def cost(
    *,
    gpu: str | None = None,
    model: str | None = None,
    model_config: Path | None = None,
    profile: Path | None = None,
    tp: int = 1,
    dtype: str | None = None,
    engine_profile: str = "generic",
    decodes: int = 0,
    context: int = 0,
    chunk: Annotated[list[str] | None, Parameter(consume_multiple=True)] = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> int:
    """Take one step apart: the time of every term, and what bounds it.

    For example:

      batchlab cost --gpu h100 --model llama-3.1-8b --decodes 128 --context 1024 --chunk 512
      batchlab cost --gpu a100 --chunk 512:4096

    Parameters
    ----------
    gpu
        GPU type (see `batchlab list gpus`).
    model
        Model (see `batchlab list models`).
    model_config
        A config.json in Hugging Face's form instead of a known model.
    profile
        A profile file made by `calibrate` instead of a known GPU.
    tp
        GPUs that share every layer: 1, 2, 4 or 8.
    dtype
        Number format: bfloat16 or fp8.
    engine_profile
        What the engine adds to the kernels.
    decodes
        Requests that compute one token each.
    context
        Tokens that each of them attends to.
    chunk
        Prompt pieces, as TOKENS or TOKENS:PAST.
    json
        Print one JSON object instead of text.
    """
    given = {
        "gpu": gpu,
        "model": model,
        "architecture": None if model_config is None else str(model_config),
        "profile": None if profile is None else str(profile),
        "dtype": dtype,
    }
    options = {key: value for key, value in given.items() if value is not None}
    spec = validated(TableSpec, options | {"tp": tp, "engine_profile": engine_profile}, "")
    step = describe_step(spec, decodes, context, [parse_chunk(text) for text in chunk or ()])
    print(js.dumps(step.to_dict(), indent=2) if json else step.text())
    return 0
