"""Names of GPUs, models and number formats as people write them, and ours."""

import re

from simulator.cost.gpus import GPUS
from simulator.cost.models import MODELS, Dtype

_NO_NAME = r"\d+gb|nvidia|tesla|geforce|sxm\d?|server|edition|blackwell|hbm3e?"
_SUFFIXES = r"(instruct|chat|it|hf|base|fp8|v\d+\.\d+|\d{4})"
_SIZE_TOLERANCE = 0.1
"""Sizes of memory that stand for the same GPU, as 180 and 192 GB."""
_SAME_SHAPE = {
    "llama-3-8b": "llama-3.1-8b",
    "llama-3-70b": "llama-3.1-70b",
    "llama-3.3-70b": "llama-3.1-70b",
    "mistral-7b": "mistral-7b-v0.3",
}
"""Models whose layers have the shape of one that we hold."""


def gpu_key(text: str) -> str | None:
    """Return the key of a GPU, or None if there are no tables for it.

    Examples
    --------
    >>> gpu_key("A100-SXM-80GB"), gpu_key("A100-40GB"), gpu_key("RTXPRO6000-96GB")
    ('a100', 'a100-40gb', 'rtxpro6000')
    >>> gpu_key("NVIDIA H100 80GB HBM3"), gpu_key("H100-PCIe-80GB"), gpu_key("MI300X")
    ('h100', None, None)
    """
    words = re.findall(r"[a-z0-9]+", text.lower())
    if {"pcie", "nvl"} & set(words):
        return None
    sizes = [int(word[:-2]) for word in words if re.fullmatch(r"\d+gb", word)]
    name = "".join(word for word in words if not re.fullmatch(_NO_NAME, word))
    for key, gpu in GPUS.items():
        if name != key.split("-")[0]:
            continue
        nominal = int(re.findall(r"(\d+)GB", gpu.name)[0])
        if all(abs(size / nominal - 1) <= _SIZE_TOLERANCE for size in sizes):
            return key
    return None


def model_key(text: str) -> str | None:
    """Return the key of a model of that shape, or None if we hold none.

    Examples
    --------
    >>> model_key("Llama-3.3-70B-Instruct"), model_key("Qwen3-30B-A3B-Instruct-2507")
    ('llama-3.1-70b', 'qwen3-30b-a3b')
    >>> model_key("Qwen3-235B")
    """
    name = text.lower().rsplit("/", 1)[-1].removeprefix("meta-")
    while name not in MODELS and name not in _SAME_SHAPE:
        shorter = re.sub(rf"-{_SUFFIXES}$", "", name)
        if shorter == name:
            return None
        name = shorter
    return _SAME_SHAPE.get(name, name)


def dtype_of(text: str) -> Dtype | None:
    """Return a number format, or None if nothing was measured in it; empty text is bfloat16.

    Examples
    --------
    >>> dtype_of("fp16"), dtype_of("fp8 (checkpoint default)"), dtype_of("int4")
    ('bfloat16', 'fp8', None)
    """
    name = text.lower().split(" ")[0]
    if name in ("", "bf16", "fp16", "bfloat16", "float16"):
        return "bfloat16"
    return "fp8" if name in ("fp8", "float8") else None


def limit_of(text: str) -> int | None:
    """Return the number in a limit such as `default(8192 on H100)`, or None.

    Examples
    --------
    >>> limit_of("128"), limit_of("default(8192 on H100)"), limit_of("default")
    (128, 8192, None)
    """
    found = re.search(r"\d+", text)
    return int(found[0]) if found else None


def version_of(text: str) -> tuple[int, int] | None:
    """Return major and minor number of a version, or None if none is stated.

    Examples
    --------
    >>> version_of("0.11.0"), version_of("1.0.0rc3"), version_of("2025-10 release, not stated")
    ((0, 11), (1, 0), None)
    """
    found = re.match(r"v?(\d+)\.(\d+)", text)
    return (int(found[1]), int(found[2])) if found else None
