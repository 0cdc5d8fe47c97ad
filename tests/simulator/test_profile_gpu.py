import importlib.util
import sys
from pathlib import Path
from unittest.mock import MagicMock

import numpy as np
import pandas as pd
import pytest

from simulator.calibrate.rows import KEYS, read_timings
from simulator.cost import GPUS, MODELS
from simulator.errors import UserError
from simulator.profile_gpu import profile_gpu
from simulator.profile_gpu.backend import NumpyBackend, PointFailed, Sample, summarise
from simulator.profile_gpu.file import COLUMNS
from simulator.profile_gpu.grid import GRIDS, Point, points, shrunk

MODEL = "llama-3.1-8b"
NUM_POINTS = 31


class Scripted:
    """A machine whose times are the number of the point; some points fail or interrupt."""

    device, software, dtype, num_gpus = "scripted", "nothing 1.0", "bfloat16", 2

    def __init__(self, fails: str = "", interrupted_at: int | None = None) -> None:
        self.asked: list[Point] = []
        self._fails = fails
        self._interrupted_at = interrupted_at

    def measure(self, point: Point) -> Sample:
        if len(self.asked) == self._interrupted_at:
            raise KeyboardInterrupt
        self.asked.append(point)
        if self._fails and self._fails in str(point):
            raise PointFailed("out of memory")
        return Sample(float(len(self.asked)), 0.1, 20)


def take(path: Path, machine: Scripted) -> pd.DataFrame:
    profile_gpu(MODEL, path, grid="small", backend=machine)
    return pd.read_csv(path)


def test_a_rehearsal_on_the_cpu_writes_what_calibration_reads(tmp_path: Path) -> None:
    path = tmp_path / "cpu.csv"
    seen: list[tuple[int, int, str]] = []
    done = profile_gpu(MODEL, path, device="cpu", on_progress=lambda *news: seen.append(news))
    assert (done.num_new, done.num_kept, done.failed) == (NUM_POINTS, 0, ())
    assert seen[0] == (0, NUM_POINTS, "linear 256 256 1")
    assert seen[-1] == (NUM_POINTS, NUM_POINTS, "")
    assert "31 points measured" in done.text()
    table = pd.read_csv(path)
    assert tuple(table.columns) == COLUMNS
    assert (table["time_us"] > 0).all()
    assert (table["samples"] == 5).all()
    assert set(table["device"]) == {"cpu"}
    assert table["software"][0] == f"numpy {np.__version__}"
    timings = read_timings([path], GPUS["h100"], "float32")  # type: ignore[arg-type]
    assert set(timings.frames) == {"linear", "decode", "prefill", "elementwise"}
    assert sum(map(len, timings.frames.values())) == NUM_POINTS


def test_every_operator_of_the_rehearsal_computes_what_it_says() -> None:
    backend = NumpyBackend(num_samples=1)
    queries = backend._normal(2, 1, 4, 8)
    keys, values = backend._normal(2, 1, 6, 8), backend._normal(2, 1, 6, 8)
    from simulator.profile_gpu.backend import _attend

    later = np.triu(np.ones((4, 6), dtype=bool), 3)
    result = _attend(queries, keys, values, later)
    scores = np.einsum("hgqd,hgkd->hgqk", queries, keys) / np.sqrt(8)
    weights = np.exp(scores) * ~later
    expected = np.einsum("hgqk,hgkd->hgqd", weights / weights.sum(-1, keepdims=True), values)
    assert np.allclose(result, expected, atol=1e-5)


def test_a_file_is_sorted_whatever_the_order_of_measurement(tmp_path: Path) -> None:
    table = take(tmp_path / "t.csv", Scripted())
    for operator, rows in table.groupby("operator"):
        keys = rows[list(KEYS[str(operator)])].apply(tuple, axis=1).tolist()
        assert keys == sorted(keys)


def test_an_interrupted_measurement_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    with pytest.raises(KeyboardInterrupt):
        take(path, Scripted(interrupted_at=9))
    assert len(pd.read_csv(path)) == 9
    second = Scripted()
    done = profile_gpu(MODEL, path, grid="small", backend=second)
    assert (done.num_kept, done.num_new) == (9, len(second.asked))
    assert done.num_kept + done.num_new == len(pd.read_csv(path))
    whole = take(tmp_path / "whole.csv", Scripted())
    sizes = [name for name in COLUMNS if name not in ("time_us", "spread", "samples")]
    assert pd.read_csv(path)[sizes].equals(whole[sizes])
    third = Scripted()
    take(path, third)
    assert third.asked == []


def test_a_row_that_was_cut_off_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    take(path, Scripted())
    text = path.read_text(encoding="utf-8")
    path.write_text(text[:-7], encoding="utf-8")
    again = Scripted()
    assert len(take(path, again)) == text.count("\n") - 1
    assert len(again.asked) == 1


def test_a_larger_plan_completes_the_file(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    before = len(take(path, Scripted()))
    more = Scripted()
    profile_gpu(MODEL, path, grid="small", tp_sizes=(1, 2), backend=more)
    table = pd.read_csv(path)
    assert len(table) == before + len(more.asked)
    assert set(table["kv_heads"].dropna()) == {4, 8}


def test_a_point_that_fails_is_reported_and_left_out(tmp_path: Path) -> None:
    done = profile_gpu(
        MODEL, tmp_path / "t.csv", grid="small", backend=Scripted(fails="decode 32 8 128 4")
    )
    assert done.failed == tuple(
        f"decode 32 8 128 4 {context}: out of memory" for context in (16, 64, 256)
    )
    assert "failed: decode" in done.text()
    assert len(pd.read_csv(done.path)) == done.num_new


def test_the_timings_of_two_machines_are_not_mixed(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    take(path, Scripted())
    with pytest.raises(UserError, match="row 2 was measured with device scripted, here it is cpu"):
        profile_gpu(MODEL, path, device="cpu")


@pytest.mark.parametrize(
    "text",
    ["a,b\n1,2\n", ",".join(COLUMNS) + "\n" + "linear,bfloat16,x" + "," * 14 + "scripted,n\n"],
)
def test_another_file_is_not_touched(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=r"not a timing file of ours|sizes of linear are no whole"):
        take(path, Scripted())
    assert path.read_text(encoding="utf-8") == text


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot write timings: No such file"):
        take(tmp_path / "none" / "t.csv", Scripted())
    with pytest.raises(UserError, match="cannot read timings"):
        take(tmp_path, Scripted())


def test_experts_are_not_measured(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="mixtral-8x7b is a mixture of experts"):
        profile_gpu("mixtral-8x7b", tmp_path / "t.csv", device="cpu")


def test_the_full_grid_covers_the_shapes_of_the_model() -> None:
    plan = points(MODELS[MODEL], (1, 2), GRIDS["full"], num_gpus=4)
    assert len(plan) == len(set(plan))
    shapes = {point.size[:2] for point in plan if point.operator == "linear"}
    assert len(shapes) == 10
    head = [dict(p.size) for p in plan if dict(p.size).get("out_features") == 128256]
    assert max(size["tokens"] for size in head) == 1024
    assert {dict(p.size)["num_gpus"] for p in plan if p.operator == "all_reduce"} == {2, 4}
    assert all(
        dict(p.size)["past"] + dict(p.size)["tokens"] <= 32768
        for p in plan
        if p.operator == "prefill"
    )
    assert len(plan) < 1500


def test_the_rehearsal_keeps_the_heads() -> None:
    small = shrunk(MODELS["qwen3-32b"])
    assert (small.num_heads, small.num_kv_heads, small.head_size) == (64, 8, 8)


def test_several_gpus_are_needed_for_an_all_reduce() -> None:
    with pytest.raises(PointFailed, match="needs several GPUs"):
        NumpyBackend().measure(Point("all_reduce", (("num_gpus", 2), ("num_bytes", 8))))


def test_median_and_spread() -> None:
    sample = summarise([1.0, 2.0, 3.0, 4.0, 100.0])
    assert sample.median_us == 3.0
    assert sample.spread == pytest.approx((61.6 - 1.4) / 3)


def test_without_pytorch_a_gpu_is_refused_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(UserError, match=r"PyTorch is not installed: install batchlab\[gpu\]"):
        profile_gpu(MODEL, tmp_path / "t.csv")


def test_on_a_gpu_a_graph_is_replayed_between_events_after_a_flush(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = MagicMock()
    torch.__version__ = "0"
    torch.cuda.get_device_name.return_value = "Mock GPU"
    torch.cuda.device_count.return_value = 1
    torch.cuda.Event.return_value.elapsed_time.return_value = 0.6
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch.nn.attention.bias", MagicMock())
    done = profile_gpu(MODEL, tmp_path / "t.csv", grid="small")
    assert (done.device, done.num_new, done.failed) == ("Mock GPU", NUM_POINTS, ())
    table = pd.read_csv(done.path)
    assert (table["time_us"] == 100.0).all()  # 0.6 ms for six calls
    assert (table["samples"] == 20).all()
    assert torch.cuda.CUDAGraph.return_value.replay.call_count == 23 * NUM_POINTS
    assert torch.empty.return_value.zero_.call_count == 23 * NUM_POINTS


def test_a_point_that_a_gpu_cannot_take_fails_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = MagicMock()
    torch.__version__ = "0"
    torch.cuda.get_device_name.return_value = "Mock GPU"
    torch.cuda.device_count.return_value = 1
    torch.randn.side_effect = RuntimeError("CUDA out of memory\nlong story")
    monkeypatch.setitem(sys.modules, "torch", torch)
    done = profile_gpu(MODEL, tmp_path / "t.csv", grid="small")
    assert len(done.failed) == NUM_POINTS
    assert done.failed[0] == "linear 4096 4096 1: CUDA out of memory"


def test_the_all_reduce_of_all_sizes_is_measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    import simulator.profile_gpu.torch as module

    calls = []

    def times(num_gpus: int, sizes: tuple[int, ...]) -> dict[int, list[float]]:
        calls.append(num_gpus)
        return {size: [5.0, 6.0, 7.0] for size in sizes}

    monkeypatch.setitem(sys.modules, "torch", MagicMock(__version__="0"))
    monkeypatch.setattr(module, "all_reduce_times", times)
    backend = module.TorchBackend()
    for size in (1024, 2048):
        sample = backend.measure(Point("all_reduce", (("num_gpus", 2), ("num_bytes", size))))
        assert sample.median_us == 6.0
    assert calls == [2]


needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="PyTorch is not installed"
)


@needs_torch
def test_pytorch_computes_every_operator(tmp_path: Path) -> None:
    from simulator.profile_gpu.torch import TorchBackend

    small = shrunk(MODELS[MODEL])
    done = profile_gpu(small, tmp_path / "t.csv", grid="small", backend=TorchBackend("cpu"))
    assert (done.num_new, done.failed) == (NUM_POINTS, ())
    assert done.software.startswith("torch ")


@needs_torch
def test_pytorch_without_a_gpu_is_refused(tmp_path: Path) -> None:
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match="PyTorch sees no GPU"):
        profile_gpu(MODEL, tmp_path / "t.csv")
