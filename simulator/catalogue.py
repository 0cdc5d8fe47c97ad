"""What can be chosen: policies, workloads, GPUs, models and cost models, as plain rows."""

import inspect
from collections.abc import Callable, Iterable

from pydantic import BaseModel

from simulator.descriptions import descriptions

Row = dict[str, str]


def policies() -> list[Row]:
    """Return the built-in policies with their parameters and defaults."""
    from policies import POLICIES

    return [_model_row(policy) for policy in POLICIES]


def routers() -> list[Row]:
    """Return the routers with their parameters and defaults."""
    from policies.routers import ROUTERS

    return [_model_row(router) for router in ROUTERS]


def costs() -> list[Row]:
    """Return the cost models with their parameters and defaults."""
    from simulator.cost.spec import COSTS

    return [_model_row(cost) for cost in COSTS]


def workloads() -> list[Row]:
    """Return the named workloads with source and licence."""
    from workloads.presets import PRESETS

    return [
        {
            "name": preset.name,
            "about": preset.about,
            "requests": str(preset.num_rows),
            "rate": f"{preset.request_rate:.2f} req/s",
            "tokens": f"{preset.mean_prompt_tokens:.0f} in, {preset.mean_output_tokens:.0f} out",
            "source": preset.source,
            "licence": preset.licence,
        }
        for preset in PRESETS.values()
    ]


def gpus() -> list[Row]:
    """Return the GPUs with kernel timings."""
    from simulator.cost.gpus import GPUS

    return [
        {
            "name": gpu.key,
            "about": gpu.name,
            "memory": f"{gpu.memory_bytes / 2**30:.1f} GiB",
            "bandwidth": f"{gpu.hbm_gb_per_s:g} GB/s",
            "bf16": f"{gpu.bf16_tflops:g} TFLOP/s",
        }
        for gpu in GPUS.values()
    ]


def models() -> list[Row]:
    """Return the model architectures."""
    from simulator.cost.models import MODELS

    return [
        {
            "name": model.key,
            "about": f"{model.num_layers} layers, hidden {model.hidden_size}",
            "weights": f"{model.weight_bytes(1) / 1e9:.1f} GB",
            "KV": f"{model.kv_bytes_per_token(1) / 1024:.0f} KiB a token",
            "context": f"{model.max_context} tokens",
        }
        for model in MODELS.values()
    ]


CATALOGUES: dict[str, Callable[[], list[Row]]] = {
    "policies": policies,
    "routers": routers,
    "workloads": workloads,
    "gpus": gpus,
    "models": models,
    "costs": costs,
}
"""What `batchlab list` knows."""


def as_text(rows: Iterable[Row]) -> str:
    """Return rows as an indented list.

    Examples
    --------
    >>> print(as_text([{"name": "x", "about": "a thing", "unit": "m"}]))
    x: a thing
        unit: m
    """
    lines: list[str] = []
    for row in rows:
        lines.append(f"{row['name']}: {row['about']}")
        lines += [f"    {key}: {text}" for key, text in row.items() if key not in ("name", "about")]
    return "\n".join(lines)


def _model_row(model: type[BaseModel]) -> Row:
    """Return name, first line, source and parameters of a specification class."""
    kind = model.model_fields["kind"].default
    about = (inspect.getdoc(model) or "").splitlines()[0].rstrip(".")
    row = {"name": str(kind), "about": about}
    texts = descriptions(model)
    for name, field in model.model_fields.items():
        if name != "kind":
            default = "required" if field.is_required() else f"default {_plain(field.default)}"
            row[name] = f"{default}. {texts.get(name, '')}".strip().replace("\n", " ")
    return row


def _plain(value: object) -> object:
    return getattr(value, "value", value)
