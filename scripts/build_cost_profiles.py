"""Compile measured GPU kernel tables into the operator profiles that the simulator ships.

Usage: python scripts/build_cost_profiles.py KERNELS_DIR [-o OUT_DIR]

KERNELS_DIR holds the folder `aiconfigurator` with the tables as published (gzip CSV). One file
per GPU is written; equal tables give equal bytes.
"""

import argparse
from pathlib import Path
from typing import Any

from cost_tables import (
    DTYPE,
    SOURCE,
    SOURCE_KEYS,
    read_all_reduce,
    read_decode,
    read_gemm,
    read_prefill,
)

from simulator.cost.gpus import GPUS
from simulator.cost.profile import DATA_DIRECTORY
from simulator.cost.profile_file import encode_profile

HOW = (
    "bfloat16 rows only; linear layers stored as roofline time over measured time, gaps filled "
    "log-log along the token counts; attention and all-reduce stored as measured"
)
COLD_HBM_FRACTION = {"l40s": 0.75}
"""Bandwidth of reading keys and values from memory, as a fraction of the peak (else 0.87)."""


def build(kernels: Path, gpu: str) -> bytes:
    """Return the profile file of one GPU.

    Parameters
    ----------
    kernels : pathlib.Path
        Folder that holds `aiconfigurator`.
    gpu : str
        Key of `SOURCE_KEYS`.

    Returns
    -------
    bytes
        The file.
    """
    directory = kernels / "aiconfigurator"
    record = GPUS[gpu]
    peaks = {"bf16_tflops": record.bf16_tflops, "hbm_gb_per_s": record.hbm_gb_per_s}
    tables = {
        "linear layers": read_gemm(
            directory, gpu, record.bf16_tflops * 1e12, record.hbm_gb_per_s * 1e9
        ),
        "decode attention": read_decode(directory, gpu),
        "prefill attention": read_prefill(directory, gpu),
        "all-reduce": read_all_reduce(directory, gpu),
    }
    arrays = {name: array for part, _ in tables.values() for name, array in part.items()}
    metadata: dict[str, Any] = {
        "gpu": gpu,
        "source": SOURCE,
        "source_key": SOURCE_KEYS[gpu],
        "licence": "Apache-2.0",
        "attribution": "Copyright NVIDIA CORPORATION & AFFILIATES; measurements filtered and "
        "rearranged by the batchlab authors",
        "dtype": DTYPE,
        "peaks": peaks,
        "cold_hbm_fraction": COLD_HBM_FRACTION.get(gpu, 0.87),
        "how_made": HOW,
        "tables": {name: about for name, (_, about) in tables.items()},
    }
    return encode_profile(arrays, metadata)


def main() -> None:
    """Read the arguments and write one file per GPU."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", type=Path, metavar="KERNELS_DIR")
    parser.add_argument("-o", "--out", type=Path, default=DATA_DIRECTORY, metavar="OUT_DIR")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for gpu in SOURCE_KEYS:
        data = build(arguments.kernels, gpu)
        (arguments.out / f"{gpu}.npz").write_bytes(data)
        print(f"{gpu}.npz: {len(data)} bytes")


if __name__ == "__main__":
    main()
