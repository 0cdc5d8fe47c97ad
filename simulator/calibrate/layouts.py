"""The layouts of timing tables that calibration reads, and how each maps to operators."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pandas as pd

from simulator.cost.gpus import Gpu
from simulator.cost.models import Dtype

SOURCE_KEYS = {
    "a100": "a100_sxm",
    "h100": "h100_sxm",
    "h200": "h200_sxm",
    "b200": "b200_sxm",
}
"""Key of a GPU in tables of AIConfigurator and Vidur, where it differs from ours."""


REHEARSAL = "float32"
"""Number format of a rehearsal on a CPU (`profile-gpu --device cpu`), taken for bfloat16."""


@dataclass
class Found:
    """What a table holds: rows by operator; how many were left out, or stand in, and why."""

    frames: dict[str, pd.DataFrame] = field(default_factory=dict)
    ignored: dict[str, int] = field(default_factory=dict)
    stand_ins: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Layout:
    """A layout of columns.

    Attributes
    ----------
    name : str
        Whose it is.
    needs : frozenset of str
        Columns that tell it from others.
    read : callable
        Turns a table, a GPU and a number format into rows by operator.
    """

    name: str
    needs: frozenset[str]
    read: Callable[[pd.DataFrame, Gpu, Dtype], Found]


def _keep(found: Found, table: pd.DataFrame, wanted: pd.Series, reason: str) -> pd.DataFrame:
    """Return the wanted rows and count the others."""
    dropped = int((~wanted).sum())
    if dropped:
        found.ignored[reason] = found.ignored.get(reason, 0) + dropped
    return table[wanted]


def _of_gpu(found: Found, table: pd.DataFrame, gpu: Gpu) -> pd.DataFrame:
    """Return the rows of a GPU, if the table names GPUs."""
    if "gpu" not in table:
        return table
    names = (gpu.key, SOURCE_KEYS.get(gpu.key, gpu.key))
    return _keep(found, table, table["gpu"].isin(names), "of another GPU")


def _renamed(table: pd.DataFrame, names: dict[str, str], curve: list[str]) -> pd.DataFrame:
    """Return the table with our column names; rows that agree in `curve` are one curve."""
    renamed = table.rename(columns=names)
    return renamed.assign(curve=_label(renamed, curve))


def _label(table: pd.DataFrame, columns: list[str]) -> "pd.Series[str]":
    """Return the values of some columns as one text per row."""
    first, *others = (table[column].astype(str) for column in columns)
    for other in others:
        first = first + "|" + other
    return first


def _ours(table: pd.DataFrame, gpu: Gpu, dtype: Dtype) -> Found:
    """Read our own schema: one row a measurement, whatever its operator."""
    curves = {
        "linear": ["out_features", "in_features"],
        "decode": ["q_heads", "kv_heads", "batch"],
        "prefill": ["q_heads", "kv_heads", "past"],
        "elementwise": ["operator"],
        "all_reduce": ["num_gpus"],
    }
    found = Found()
    if "dtype" in table:
        rehearsed = int((table["dtype"] == REHEARSAL).sum()) if dtype == "bfloat16" else 0
        if rehearsed:
            table = table.assign(dtype=table["dtype"].replace(REHEARSAL, dtype))
            found.stand_ins[f"in {REHEARSAL} stand for {dtype}"] = rehearsed
        same = table["dtype"].isin([dtype]) | table["operator"].isin(["elementwise", "all_reduce"])
        table = _keep(found, table, same, "in another number format")
    table = _keep(found, table, table["operator"].isin(curves), "of an unknown operator")
    if "head_size" not in table:
        table = table.assign(head_size=128)
    for operator, rows in table.groupby("operator"):
        names = [name for name in curves[str(operator)] if name in rows]
        found.frames[str(operator)] = _renamed(rows, {}, names or ["operator"])
    return found


def _linear_of_aiconfigurator(table: pd.DataFrame, gpu: Gpu, dtype: Dtype) -> Found:
    found = Found()
    rows = _keep(found, table, table["gemm_dtype"] == dtype, "in another number format")
    names = {"n": "out_features", "k": "in_features", "m": "tokens"}
    found.frames["linear"] = _renamed(rows, names, ["out_features", "in_features"])
    return found


_HEADS = {"num_q_heads": "q_heads", "num_kv_heads": "kv_heads", "head_dim": "head_size"}


def _decode_of_aiconfigurator(table: pd.DataFrame, gpu: Gpu, dtype: Dtype) -> Found:
    found = Found()
    rows = _of_gpu(found, table, gpu)
    rows = _keep(found, rows, rows["kv_dtype"] == dtype, "in another number format")
    names = {**_HEADS, "batch_seqs": "batch", "kv_tokens_per_seq": "context"}
    found.frames["decode"] = _renamed(rows, names, ["q_heads", "kv_heads", "batch"])
    return found


def _prefill_of_aiconfigurator(table: pd.DataFrame, gpu: Gpu, dtype: Dtype) -> Found:
    found = Found()
    rows = _of_gpu(found, table, gpu)
    rows = _keep(found, rows, rows["kv_dtype"] == dtype, "in another number format")
    rows = _keep(found, rows, rows["batch_seqs"] == 1, "of several prompts at once")
    names = {**_HEADS, "chunk_tokens": "tokens", "past_kv_tokens": "past"}
    found.frames["prefill"] = _renamed(rows, names, ["q_heads", "kv_heads", "past"])
    return found


def _all_reduce_of_aiconfigurator(table: pd.DataFrame, gpu: Gpu, dtype: Dtype) -> Found:
    found = Found()
    rows = _of_gpu(found, table, gpu)
    rows = _keep(found, rows, rows["op"] == "all_reduce", "of another collective")
    rows = _keep(found, rows, rows["impl"] == "vllm_graph", "outside a CUDA graph")
    found.frames["all_reduce"] = _renamed(rows, {"message_bytes": "num_bytes"}, ["num_gpus"])
    return found


def _layers_of_vidur(table: pd.DataFrame, gpu: Gpu, dtype: Dtype) -> Found:
    """Read Vidur's wide table: one row per model, TP and token count, one column per kernel."""
    found = Found()
    if dtype != "bfloat16":
        found.ignored["in another number format"] = len(table)
        return found
    rows = _of_gpu(found, table, gpu)
    tp, hidden = rows["tp_size"], rows["hidden_size"]
    head_size = hidden // rows["num_q_heads"]
    query = rows["num_q_heads"] // tp
    kv_heads = (rows["num_kv_heads"] // tp).clip(lower=1)
    inner = rows["inter_size"] // tp
    linears = {
        "attn_pre_proj_us": ((query + 2 * kv_heads) * head_size, hidden),
        "attn_post_proj_us": (hidden, query * head_size),
        "mlp_up_proj_us": (2 * inner, hidden),
        "mlp_down_proj_us": (hidden, inner),
    }
    elementwise = {
        "input_layernorm_us": 4 * hidden,
        "attn_rope_us": 4 * (query + kv_heads) * head_size,
        "mlp_act_us": 6 * inner,
    }
    curve = _label(rows, ["model", "tp_size"])
    common = {"tokens": rows["num_tokens"], "row": rows["row"]}
    found.frames["linear"] = pd.concat(
        pd.DataFrame(
            {**common, "out_features": n, "in_features": k, "time_us": rows[column]}
        ).assign(curve=column + "|" + curve)
        for column, (n, k) in linears.items()
    )
    found.frames["elementwise"] = pd.concat(
        pd.DataFrame(
            {"row": rows["row"], "num_bytes": rows["num_tokens"] * size, "time_us": rows[column]}
        ).assign(curve=column + "|" + curve)
        for column, size in elementwise.items()
    )
    return found


def _all_reduce_of_vidur(table: pd.DataFrame, gpu: Gpu, dtype: Dtype) -> Found:
    found = Found()
    rows = _keep(found, table, table["network"] == f"{gpu.key}_dgx", "of another network")
    same = rows["num_gpus"] == rows["gpus_per_node"]
    rows = _keep(found, rows, same, "of GPUs on several servers")
    found.frames["all_reduce"] = _renamed(rows, {"message_bytes": "num_bytes"}, ["num_gpus"])
    return found


LAYOUTS = (
    Layout("batchlab", frozenset({"operator", "time_us"}), _ours),
    Layout("AIConfigurator", frozenset({"gemm_dtype", "n", "k", "m"}), _linear_of_aiconfigurator),
    Layout(
        "AIConfigurator",
        frozenset({"kv_dtype", "batch_seqs", "kv_tokens_per_seq"}),
        _decode_of_aiconfigurator,
    ),
    Layout(
        "AIConfigurator",
        frozenset({"kv_dtype", "batch_seqs", "chunk_tokens", "past_kv_tokens"}),
        _prefill_of_aiconfigurator,
    ),
    Layout(
        "AIConfigurator", frozenset({"impl", "op", "message_bytes"}), _all_reduce_of_aiconfigurator
    ),
    Layout("Vidur", frozenset({"mlp_up_proj_us", "inter_size", "tp_size"}), _layers_of_vidur),
    Layout("Vidur", frozenset({"network", "gpus_per_node", "message_bytes"}), _all_reduce_of_vidur),
)
"""Known layouts; the first whose columns are all there is taken."""
