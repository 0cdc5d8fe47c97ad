"""A profile for a GPU that differs from a measured one only in its memory bandwidth."""

import hashlib
from dataclasses import replace
from functools import lru_cache

import numpy as np

from simulator.cost.attention import WARM_HBM_FRACTION
from simulator.cost.gpus import Gpu
from simulator.cost.profile import FloatArray, OperatorProfile
from simulator.errors import UserError


@lru_cache(maxsize=4)
def scale_bandwidth(profile: OperatorProfile, gpu: Gpu) -> OperatorProfile:
    """Return the profile of a GPU with the same cores and a slower or faster memory.

    The ratios to the physical forms are kept and the bandwidth in the forms is exchanged: what
    computes stays as fast as it was, what moves data gets slower in proportion.

    Parameters
    ----------
    profile : OperatorProfile
        The measured GPU; expert layers are not scaled and must be absent.
    gpu : Gpu
        The GPU wanted.

    Returns
    -------
    OperatorProfile
        Its profile, marked `scaled_from` in the metadata.

    Examples
    --------
    >>> from simulator.cost.gpus import GPUS
    >>> from simulator.cost.profile import load_profile
    >>> scaled = scale_bandwidth(load_profile("a100"), GPUS["a100-40gb"])
    >>> scaled.hbm_bytes_per_s / 1e9, scaled.metadata["scaled_from"]
    (1555.0, 'a100')
    """
    if len(profile.moe_layers):
        raise UserError(f"expert layers of {profile.metadata['gpu']} cannot be scaled to {gpu.key}")
    old = WARM_HBM_FRACTION * profile.hbm_bytes_per_s
    new = WARM_HBM_FRACTION * gpu.hbm_gb_per_s * 1e9
    metadata = {
        **profile.metadata,
        "gpu": gpu.key,
        "scaled_from": profile.metadata["gpu"],
        "peaks": {"tflops": gpu.bf16_tflops, "hbm_gb_per_s": gpu.hbm_gb_per_s},
        "notes": [
            *profile.metadata.get("notes", []),
            f"{gpu.key} was never measured: {profile.metadata['gpu']} scaled by memory bandwidth",
        ],
    }
    sha256 = hashlib.sha256(f"{profile.sha256} as {gpu}".encode()).hexdigest()
    return replace(
        profile, sha256=sha256, metadata=metadata, decode_us=_scaled_decode(profile, old, new)
    )


def _scaled_decode(profile: OperatorProfile, old: float, new: float) -> FloatArray:
    """Return the decode times with another bandwidth in the physical form."""
    scaled = np.empty_like(profile.decode_us)
    grid = profile.decode_batches[:, None] * profile.decode_contexts
    for index, (_, kv_heads) in enumerate(profile.decode_layouts):
        measured = profile.decode_us[index]
        floor = float(np.nanmin(measured))
        moved_us = grid * (kv_heads * profile.head_size * 2 * profile.weight_bytes) * 1e6
        scaled[index] = measured * (floor + moved_us / new) / (floor + moved_us / old)
    return scaled
