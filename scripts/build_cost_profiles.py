"""Compile measured GPU kernel tables into the operator profiles that the simulator ships.

Usage: python scripts/build_cost_profiles.py KERNELS_DIR [-o OUT_DIR]

KERNELS_DIR holds the folders `aiconfigurator` and `llmservingsim` with the tables as published
(gzip CSV). One file per GPU and number format is written; equal tables give equal bytes.
"""

import argparse
from pathlib import Path
from typing import Any

import cost_layers
import cost_tables
from cost_tables import SOURCE_KEYS

from simulator.cost.gpus import GPUS
from simulator.cost.profile import DATA_DIRECTORY
from simulator.cost.profile_file import encode_profile

HOW = (
    "rows of one number format; linear layers stored as roofline time over measured time, gaps "
    "filled log-log along the token counts; attention, experts and all-reduce stored as measured"
)
COLD_HBM_FRACTION = {"l40s": 0.75}
"""Bandwidth of reading keys and values from memory, as a fraction of the peak (else 0.87)."""
SERIAL_US_PER_TOKEN = 0.0135
"""Serial attention time per token: Frontier a4b22df, FlashInfer on an H800."""
PREFILL_TILE = {"h100": 128, "h200": 128}
"""Queries in one tile, where measurements of the same architecture (Frontier, H800) show it."""
FP8_GPUS = ("h100", "h200", "b200", "l40s")


def build(kernels: Path, gpu: str, dtype: str) -> bytes:
    """Return the profile file of one GPU with tables of AIConfigurator.

    Parameters
    ----------
    kernels : pathlib.Path
        Folder that holds `aiconfigurator`.
    gpu : str
        Key of `SOURCE_KEYS`.
    dtype : str
        `bfloat16` or `fp8`.

    Returns
    -------
    bytes
        The file.
    """
    directory = kernels / "aiconfigurator"
    tflops = GPUS[gpu].bf16_tflops * (2 if dtype == "fp8" else 1)
    bandwidth = GPUS[gpu].hbm_gb_per_s
    tables = {
        "linear layers": cost_tables.read_gemm(
            directory, gpu, dtype, tflops * 1e12, bandwidth * 1e9
        ),
        "decode attention": cost_tables.read_decode(directory, gpu, dtype),
        "prefill attention": cost_tables.read_prefill(directory, gpu, dtype),
        "all-reduce": cost_tables.read_all_reduce(directory, gpu),
    }
    if dtype == cost_tables.BFLOAT16:
        tables["expert layers"] = cost_tables.read_moe(directory, gpu)
    metadata: dict[str, Any] = {
        "gpu": gpu,
        "source": cost_tables.SOURCE,
        "source_key": SOURCE_KEYS[gpu],
        "licence": "Apache-2.0",
        "attribution": "Copyright NVIDIA CORPORATION & AFFILIATES; measurements filtered and "
        "rearranged by the batchlab authors",
        "dtype": dtype,
        "peaks": {"tflops": tflops, "hbm_gb_per_s": bandwidth},
        "cold_hbm_fraction": COLD_HBM_FRACTION.get(gpu, 0.87),
        "serial_us_per_token": SERIAL_US_PER_TOKEN,
        "prefill_tile": PREFILL_TILE.get(gpu, 0),
        "how_made": HOW,
        "tables": {name: about for name, (_, about) in tables.items()},
    }
    arrays = {name: array for part, _ in tables.values() for name, array in part.items()}
    return encode_profile(arrays, metadata)


def build_all(kernels: Path) -> dict[str, bytes]:
    """Return every profile file by its name."""
    files = {f"{gpu}.npz": build(kernels, gpu, "bfloat16") for gpu in SOURCE_KEYS}
    files |= {f"{gpu}-fp8.npz": build(kernels, gpu, "fp8") for gpu in FP8_GPUS}
    files |= {f"{gpu}.npz": cost_layers.build(kernels, gpu) for gpu in cost_layers.GPU_KEYS}
    return files


def main() -> None:
    """Read the arguments and write the files."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kernels", type=Path, metavar="KERNELS_DIR")
    parser.add_argument("-o", "--out", type=Path, default=DATA_DIRECTORY, metavar="OUT_DIR")
    arguments = parser.parse_args()
    arguments.out.mkdir(parents=True, exist_ok=True)
    for name, data in build_all(arguments.kernels).items():
        (arguments.out / name).write_bytes(data)
        print(f"{name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
