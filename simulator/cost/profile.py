"""Measured operator times of one GPU, as loaded from a data file."""

import hashlib
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.cost.gpus import find_gpu
from simulator.cost.profile_file import decode_profile
from simulator.errors import UserError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DATA_DIRECTORY = Path(__file__).parent / "data"
"""Where the shipped profiles lie, one file per GPU."""

_DIMENSIONS = {
    "gemm_shapes": 2,
    "gemm_tokens": 1,
    "gemm_efficiency": 2,
    "decode_layouts": 2,
    "decode_batches": 1,
    "decode_contexts": 1,
    "decode_us": 3,
    "prefill_layouts": 2,
    "prefill_tokens": 1,
    "prefill_us": 2,
    "all_reduce_gpus": 1,
    "all_reduce_bytes": 1,
    "all_reduce_us": 2,
}


@dataclass(frozen=True)
class OperatorProfile:
    """Operator tables of one GPU in bfloat16; equal and hashed by content, never by name.

    Attributes
    ----------
    sha256 : str
        Hash of the file.
    metadata : dict
        Source, licence, rows used, ranges, peaks.
    gemm_shapes : array (s, 2)
        Output and input features of the measured linear layers.
    gemm_tokens : array (m,)
        Token counts.
    gemm_efficiency : array (s, m)
        Roofline time divided by measured time, in (0, 1] up to noise.
    decode_layouts, prefill_layouts : array (l, 2)
        Query and KV heads per GPU.
    decode_batches, decode_contexts : array
        Sequences, and tokens that each attends.
    decode_us : array (l, batches, contexts)
        Decode attention of one layer, µs; NaN where not measured.
    prefill_tokens : array
        Prompt lengths.
    prefill_us : array (l, tokens)
        Causal attention of one prompt without a stored context, one layer, µs.
    all_reduce_gpus, all_reduce_bytes : array
        Number of GPUs, and message sizes.
    all_reduce_us : array (gpus, bytes)
        Custom all-reduce inside a CUDA graph, µs.

    Examples
    --------
    >>> load_profile("h100").metadata["licence"]
    'Apache-2.0'
    """

    sha256: str
    metadata: dict[str, Any] = field(compare=False, repr=False)
    gemm_shapes: FloatArray = field(compare=False, repr=False)
    gemm_tokens: FloatArray = field(compare=False, repr=False)
    gemm_efficiency: FloatArray = field(compare=False, repr=False)
    decode_layouts: IntArray = field(compare=False, repr=False)
    decode_batches: FloatArray = field(compare=False, repr=False)
    decode_contexts: FloatArray = field(compare=False, repr=False)
    decode_us: FloatArray = field(compare=False, repr=False)
    prefill_layouts: IntArray = field(compare=False, repr=False)
    prefill_tokens: FloatArray = field(compare=False, repr=False)
    prefill_us: FloatArray = field(compare=False, repr=False)
    all_reduce_gpus: IntArray = field(compare=False, repr=False)
    all_reduce_bytes: FloatArray = field(compare=False, repr=False)
    all_reduce_us: FloatArray = field(compare=False, repr=False)

    @property
    def peak_flops(self) -> float:
        """Peak arithmetic that the efficiencies refer to, operations per second."""
        return float(self.metadata["peaks"]["bf16_tflops"]) * 1e12

    @property
    def hbm_bytes_per_s(self) -> float:
        """Peak memory bandwidth that the efficiencies refer to, bytes per second."""
        return float(self.metadata["peaks"]["hbm_gb_per_s"]) * 1e9


def load_profile(gpu: str) -> OperatorProfile:
    """Return the shipped profile of a GPU.

    Parameters
    ----------
    gpu : str
        Short key, such as `h100`.

    Returns
    -------
    OperatorProfile
        The checked profile.

    Raises
    ------
    UserError
        If the GPU is unknown, or its file is missing or damaged.

    Examples
    --------
    >>> load_profile("l40s").hbm_bytes_per_s / 1e9
    864.0
    """
    return read_profile(DATA_DIRECTORY / f"{find_gpu(gpu).key}.npz")


def read_profile(path: Path) -> OperatorProfile:
    """Return the profile that a file holds.

    The file is read at every call, and decoded again only when its bytes have changed.

    Parameters
    ----------
    path : pathlib.Path
        A file that `scripts/build_cost_profiles.py` wrote.

    Returns
    -------
    OperatorProfile
        The checked profile.

    Raises
    ------
    UserError
        If the file cannot be read, is truncated, was changed by hand, or has another version.

    Examples
    --------
    >>> read_profile(DATA_DIRECTORY / "b200.npz").metadata["gpu"]
    'b200'
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path.name}: cannot read cost profile: {error.strerror}") from error
    return _decode(data, path.name)


@lru_cache(maxsize=8)
def _decode(data: bytes, where: str) -> OperatorProfile:
    """Decode and check the bytes of a file."""
    arrays, metadata = decode_profile(data, where)
    for name, dimensions in _DIMENSIONS.items():
        if name not in arrays or arrays[name].ndim != dimensions:
            raise UserError(f"{where}: table {name} missing or of the wrong shape: build it again")
    exact = ("decode_layouts", "prefill_layouts", "all_reduce_gpus")
    tables: dict[str, Any] = {
        name: arrays[name].astype(np.int64 if name in exact else np.float64) for name in _DIMENSIONS
    }
    return OperatorProfile(hashlib.sha256(data).hexdigest(), metadata, **tables)
