import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from simulator.cost import GPUS, MODELS, load_profile
from simulator.cost.layers import linear_shapes
from simulator.cost.operators import gemm_s
from simulator.cost.profile import DATA_DIRECTORY

ROOT = Path(__file__).resolve().parents[3]
KERNELS = ROOT.parent / "shared" / "kernels"
SOURCE_KEYS = {gpu: f"{gpu}_sxm" for gpu in ("h100", "a100", "h200", "b200")} | {"l40s": "l40s"}
FP8_GPUS = ("h100", "h200", "b200", "l40s")

pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not KERNELS.is_dir(), reason="the measured kernel tables are not here"),
]


def test_the_shipped_profiles_are_what_the_script_makes_of_the_originals(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "build_cost_profiles.py"
    command = [sys.executable, str(script), str(KERNELS), "-o", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env=environment, capture_output=True)
    built = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    shipped = {path.name: path.read_bytes() for path in DATA_DIRECTORY.glob("*.npz")}
    names = [gpu.key for gpu in GPUS.values() if not gpu.scaled_from]
    names += [f"{gpu}-fp8" for gpu in FP8_GPUS]
    assert sorted(built) == sorted(shipped) == sorted(f"{name}.npz" for name in names)
    assert built == shipped


@pytest.mark.parametrize("gpu", SOURCE_KEYS)
@pytest.mark.parametrize("model_key", ["llama-3.1-8b", "llama-3.1-70b", "qwen3-32b"])
def test_linear_layers_match_an_independent_interpolation(gpu: str, model_key: str) -> None:
    model, profile = MODELS[model_key], load_profile(gpu)
    table = pd.read_csv(KERNELS / "derived" / "linear_us_by_model.csv.gz")
    table = table[(table.gpu == SOURCE_KEYS[gpu]) & (table.gemm_dtype == "bfloat16")]
    table = table[table.model == model_key]
    for tp, rows in table.groupby("tp_size"):
        heads, kv_heads = model.heads(int(tp))
        shapes = {
            "qkv_us": ((heads + 2 * kv_heads) * 128, model.hidden_size),
            "o_us": (model.hidden_size, heads * 128),
            "gate_up_us": (2 * model.ffn_size // tp, model.hidden_size),
            "down_us": (model.hidden_size, model.ffn_size // tp),
            "lm_head_bf16_us": (model.vocabulary_size // tp, model.hidden_size),
        }
        tokens = rows.num_tokens.to_numpy(dtype=np.float64)
        for column, (out_features, in_features) in shapes.items():
            times = gemm_s(profile, out_features, in_features, tokens) * 1e6
            assert times == pytest.approx(rows[column].to_numpy(), rel=1e-3)


@pytest.mark.parametrize("gpu", FP8_GPUS)
def test_fp8_linear_layers_match_an_independent_interpolation(gpu: str) -> None:
    model, profile = MODELS["llama-3.1-8b"], load_profile(gpu, "fp8")
    table = pd.read_csv(KERNELS / "derived" / "linear_us_by_model.csv.gz")
    table = table[(table.gpu == SOURCE_KEYS[gpu]) & (table.gemm_dtype == "fp8")]
    rows = table[(table.model == model.key) & (table.tp_size == 1)]
    tokens = rows.num_tokens.to_numpy(dtype=np.float64)
    for name, shape in linear_shapes(model, 1).items():
        times = gemm_s(profile, *shape, tokens) * 1e6
        assert times == pytest.approx(rows[f"{name}_us"].to_numpy(), rel=0.05)
