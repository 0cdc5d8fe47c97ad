import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest

from simulator.cost import GPUS, load_profile, read_profile
from simulator.cost.profile import DATA_DIRECTORY
from simulator.cost.profile_file import FORMAT_VERSION, encode_profile
from simulator.errors import UserError


def edited(data: bytes, member: str, content: bytes) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(buffer, "w") as new:
        for name in old.namelist():
            new.writestr(name, content if name == member else old.read(name))
    return buffer.getvalue()


@pytest.fixture
def shipped() -> bytes:
    return (DATA_DIRECTORY / "a100.npz").read_bytes()


@pytest.mark.parametrize("gpu", GPUS)
def test_every_gpu_has_a_profile_that_says_where_it_comes_from(gpu: str) -> None:
    profile = load_profile(gpu)
    assert profile.metadata["gpu"] == profile.gpu.key == gpu
    assert profile.metadata["source"]
    assert profile.metadata["licence"].startswith(("Apache-2.0", "MIT"))
    assert profile.peak_flops == GPUS[gpu].bf16_tflops * 1e12
    assert profile.hbm_bytes_per_s == GPUS[gpu].hbm_gb_per_s * 1e9
    tables = profile.metadata["tables"]
    assert all(table["rows"] > 0 for name, table in tables.items() if name != "expert layers")
    assert (profile.gemm_efficiency > 0).all()
    assert profile.gemm_efficiency.max() < 5  # small weights come from L2
    assert list(profile.all_reduce_gpus) == [2, 4, 8]


def test_all_profiles_together_are_small() -> None:
    assert sum(path.stat().st_size for path in DATA_DIRECTORY.glob("*.npz")) < 3_000_000


@pytest.mark.parametrize("kept", [0, 100, 5000, -1])
def test_a_truncated_file_is_refused(tmp_path: Path, shipped: bytes, kept: int) -> None:
    path = tmp_path / "cut.npz"
    path.write_bytes(shipped[:kept])
    with pytest.raises(UserError, match=r"^cut\.npz: not a cost profile, or truncated"):
        read_profile(path)


def test_an_edited_table_is_refused(tmp_path: Path, shipped: bytes) -> None:
    with np.load(io.BytesIO(shipped)) as arrays:
        times = arrays["prefill_us"] * 0.5
    buffer = io.BytesIO()
    np.save(buffer, times)
    path = tmp_path / "fast.npz"
    path.write_bytes(edited(shipped, "prefill_us.npy", buffer.getvalue()))
    with pytest.raises(UserError, match=r"^fast\.npz: contents do not match their checksum"):
        read_profile(path)


def test_edited_metadata_is_refused(tmp_path: Path, shipped: bytes) -> None:
    metadata = json.dumps({"format_version": FORMAT_VERSION, "gpu": "h100"}).encode()
    path = tmp_path / "x.npz"
    path.write_bytes(edited(shipped, "metadata.json", metadata))
    with pytest.raises(UserError, match="checksum"):
        read_profile(path)


def test_a_flipped_bit_is_refused(tmp_path: Path, shipped: bytes) -> None:
    data = bytearray(shipped)
    data[len(data) // 2] ^= 1
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(UserError, match="build it again"):
        read_profile(path)


def test_another_format_version_is_refused(tmp_path: Path, shipped: bytes) -> None:
    metadata = json.dumps({"format_version": 99}).encode()
    path = tmp_path / "x.npz"
    path.write_bytes(edited(shipped, "metadata.json", metadata))
    with pytest.raises(UserError, match=rf"^x\.npz: format version 99, expected {FORMAT_VERSION}$"):
        read_profile(path)


def test_an_archive_of_something_else_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    np.savez(path, m=np.arange(3))
    with pytest.raises(UserError, match="no readable metadata"):
        read_profile(path)


def test_a_profile_that_lacks_a_table_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.npz"
    path.write_bytes(encode_profile({"gemm_tokens": np.arange(3)}, {}))
    with pytest.raises(UserError, match="table gemm_shapes missing"):
        read_profile(path)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^none\.npz: cannot read"):
        read_profile(tmp_path / "none.npz")


def test_a_profile_is_known_by_its_content_not_by_its_name(tmp_path: Path, shipped: bytes) -> None:
    path = tmp_path / "a100.npz"
    path.write_bytes(shipped)
    first = read_profile(path)
    assert first == load_profile("a100")
    assert hash(first) == hash(load_profile("a100"))
    path.write_bytes((DATA_DIRECTORY / "h100.npz").read_bytes())
    assert read_profile(path) != first
    assert read_profile(path) == load_profile("h100")


def test_equal_content_gives_equal_bytes() -> None:
    tables = {"b": np.arange(4), "a": np.ones(2, dtype=np.float32)}
    reversed_tables = dict(reversed(tables.items()))
    assert encode_profile(tables, {"x": 1, "y": 2}) == encode_profile(
        reversed_tables, {"y": 2, "x": 1}
    )
