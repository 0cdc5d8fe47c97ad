"""Measured operator times of one GPU, as loaded from a data file."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.cost.gpus import GPUS, Gpu, find_gpu
from simulator.cost.models import Dtype
from simulator.cost.profile_file import decode_profile
from simulator.errors import UserError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

DATA_DIRECTORY = Path(__file__).parent / "data"
"""Where the shipped profiles lie, one file per GPU and number format."""

_REQUIRED = {
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
}
_OPTIONAL = {
    "all_reduce_gpus": 1,
    "all_reduce_bytes": 1,
    "all_reduce_us": 2,
    "elementwise_bytes": 1,
    "elementwise_us": 1,
    "moe_layers": 2,
    "moe_tokens": 1,
    "moe_us": 2,
    "sampler_rows": 1,
    "sampler_us": 1,
}
_EXACT = ("decode_layouts", "prefill_layouts", "all_reduce_gpus", "moe_layers")


@dataclass(frozen=True)
class OperatorProfile:
    """Operator tables of one GPU; equal and hashed by content, never by name.

    Attributes
    ----------
    sha256 : str
        Hash of the file.
    metadata : dict
        Source, licence, rows used, ranges, peaks, scalar parameters.
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
        Number of GPUs, and message sizes; empty when not measured.
    all_reduce_us : array (gpus, bytes)
        Custom all-reduce inside a CUDA graph, µs.
    elementwise_bytes, elementwise_us : array
        Memory-bound kernels by bytes read and written, µs; empty: a formula.
    moe_layers : array (r, 5)
        Hidden size, expert width, experts, active experts and number of GPUs.
    moe_tokens : array
        Token counts.
    moe_us : array (r, tokens)
        Expert layer with balanced routing, router excluded, µs.
    sampler_rows, sampler_us : array
        Sampler by rows, µs; empty: that of an RTX PRO 6000.

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
    elementwise_bytes: FloatArray = field(compare=False, repr=False)
    elementwise_us: FloatArray = field(compare=False, repr=False)
    moe_layers: IntArray = field(compare=False, repr=False)
    moe_tokens: FloatArray = field(compare=False, repr=False)
    moe_us: FloatArray = field(compare=False, repr=False)
    sampler_rows: FloatArray = field(compare=False, repr=False)
    sampler_us: FloatArray = field(compare=False, repr=False)

    @property
    def dtype(self) -> Dtype:
        """Number format of linear layers and KV cache."""
        return "fp8" if self.metadata["dtype"] == "fp8" else "bfloat16"

    @property
    def weight_bytes(self) -> int:
        """Bytes of one weight or input of a linear layer."""
        return 1 if self.dtype == "fp8" else 2

    @property
    def head_size(self) -> int:
        """Head size that the attention was measured with."""
        return int(self.metadata.get("head_size", 128))

    @property
    def peak_flops(self) -> float:
        """Peak arithmetic that the efficiencies refer to, operations per second."""
        return float(self.metadata["peaks"]["tflops"]) * 1e12

    @property
    def hbm_bytes_per_s(self) -> float:
        """Peak memory bandwidth that the efficiencies refer to, bytes per second."""
        return float(self.metadata["peaks"]["hbm_gb_per_s"]) * 1e9

    @property
    def cold_bytes_per_s(self) -> float:
        """Bandwidth of reading what no cache holds, bytes per second."""
        return float(self.metadata["cold_hbm_fraction"]) * self.hbm_bytes_per_s

    @property
    def gpu(self) -> Gpu:
        """The GPU: a known one, or the record that the file holds."""
        record = self.metadata.get("gpu_record")
        if record is None:
            return find_gpu(self.metadata["gpu"])
        return Gpu(**{**record, "mixing": tuple(record["mixing"])})


def make_profile(
    arrays: Mapping[str, NDArray[Any]], metadata: dict[str, Any], sha256: str, where: str
) -> OperatorProfile:
    """Return the profile of tables by name, after a check of what is there.

    Parameters
    ----------
    arrays : mapping of str to array
        Tables; optional ones may be left out.
    metadata : dict
        Must hold `gpu`, `dtype`, `peaks`, `cold_hbm_fraction`, `serial_us_per_token`.
    sha256 : str
        Identity of the contents.
    where : str
        Name for messages.

    Returns
    -------
    OperatorProfile
        The profile, with empty arrays for optional tables that are missing.

    Raises
    ------
    UserError
        If a table is missing or has the wrong number of dimensions.

    Examples
    --------
    >>> make_profile({}, {}, "0", "x.npz")
    Traceback (most recent call last):
    simulator.errors.UserError: x.npz: table gemm_shapes missing or of the wrong shape
    """
    tables: dict[str, Any] = {}
    for name, dimensions in {**_REQUIRED, **_OPTIONAL}.items():
        table = arrays.get(name)
        if table is None and name in _OPTIONAL:
            table = np.zeros((0, 5) if name == "moe_layers" else (0,) * dimensions)
        if table is None or table.ndim != dimensions:
            raise UserError(f"{where}: table {name} missing or of the wrong shape")
        tables[name] = table.astype(np.int64 if name in _EXACT else np.float64)
    return OperatorProfile(sha256, metadata, **tables)


def load_profile(gpu: str, dtype: Dtype = "bfloat16") -> OperatorProfile:
    """Return the shipped profile of a GPU.

    Parameters
    ----------
    gpu : str
        Short key, such as `h100`.
    dtype : {"bfloat16", "fp8"}
        Number format of linear layers and KV cache.

    Returns
    -------
    OperatorProfile
        The checked profile.

    Raises
    ------
    UserError
        If the GPU is unknown, has no timings in that format, or its file is damaged.

    Examples
    --------
    >>> load_profile("l40s").hbm_bytes_per_s / 1e9
    864.0
    >>> load_profile("a100", "fp8")
    Traceback (most recent call last):
    simulator.errors.UserError: no fp8 timings for a100 (there are for h100, h200, b200, l40s)
    """
    record = find_gpu(gpu)
    path = _path_of(record.scaled_from or record.key, dtype)
    if dtype != "bfloat16" and not path.exists():
        others = ", ".join(key for key in GPUS if _path_of(key, dtype).exists())
        raise UserError(f"no {dtype} timings for {gpu} (there are for {others})")
    profile = read_profile(path)
    if not record.scaled_from:
        return profile
    from simulator.cost.scaling import scale_bandwidth

    return scale_bandwidth(profile, record)


def _path_of(key: str, dtype: Dtype) -> Path:
    """Return where the shipped profile of a GPU lies, if there is one."""
    return DATA_DIRECTORY / (f"{key}.npz" if dtype == "bfloat16" else f"{key}-{dtype}.npz")


def read_profile(path: Path) -> OperatorProfile:
    """Return the profile that a file holds.

    The file is read at every call, and decoded again only when its bytes have changed.

    Parameters
    ----------
    path : pathlib.Path
        A file that `scripts/build_cost_profiles.py` or `calibrate` wrote.

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
    return make_profile(arrays, metadata, hashlib.sha256(data).hexdigest(), where)
