"""Timings that follow a physical form exactly, but for a little noise, and where they may be."""

import itertools

import numpy as np
import pandas as pd

from simulator.cost import Gpu

MINE = Gpu("mine", "Test GPU", 40 * 1024**3, 1000.0, 100.0, 100, 20, "fa2", (1.5, 2.5))
SHAPES = ((6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336), (128256, 4096), (2048, 2048))
TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
SERIAL_US, TILE = 0.02, 64


def physical_rows() -> pd.DataFrame:
    """Timings of a GPU that follows the physical forms exactly, but for 1 % of noise."""
    rng = np.random.default_rng(4)
    rows: list[dict[str, object]] = []

    def add(operator: str, time_us: float, **size: float) -> None:
        noisy = time_us * rng.lognormal(0, 0.01)
        rows.append({"operator": operator, "dtype": "bfloat16", **size, "time_us": noisy})

    for (n, k), m in itertools.product(SHAPES, TOKENS):
        moved = 2 * (n * k + m * k + m * n)
        time_us = 2.0 + max(2 * m * n * k / 80e6, moved / 0.85e6)
        add("linear", time_us, out_features=n, in_features=k, tokens=m)
    for (q, kv), batch, context in itertools.product(
        ((32, 8), (16, 4)), (1, 2, 4, 8, 16, 32, 64, 128), (64, 256, 1024, 4096, 16384)
    ):
        time_us = 6.0 + batch * context * kv * 512 / 0.88e6
        add("decode", time_us, q_heads=q, kv_heads=kv, head_size=128, batch=batch, context=context)
    for q, kv in ((32, 8), (16, 4)):
        for past, chunk in itertools.product(
            (0, 2048, 4096, 8192), (16, 32, 64, 256, 1024, 2048, 4096)
        ):
            work = 4 * q * 128 * chunk * (past + chunk / 2) / 60e6
            rounds = max(1, int(np.ceil(np.ceil(chunk / TILE) * q / MINE.num_sms)))
            walk = SERIAL_US * rounds * (past + (chunk / 2 if rounds > 1 else chunk))
            time_us = 6.0 + max(work, walk if past else 0)
            add("prefill", time_us, q_heads=q, kv_heads=kv, head_size=128, tokens=chunk, past=past)
    for half_octave in range(20, 56):
        num_bytes = int(2 ** (half_octave / 2))
        add("elementwise", 2.0 + num_bytes / 0.8e6, num_bytes=num_bytes)
    for gpus, power in itertools.product((2, 4), range(10, 26)):
        add("all_reduce", 5.0 + 2**power / 0.1e6, num_gpus=gpus, num_bytes=2**power)
    return pd.DataFrame(rows)
