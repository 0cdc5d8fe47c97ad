import errno
import json
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from pyarrow import parquet

from simulator import Result, RunSpec, UserError, simulate
from simulator.result import MANIFEST, check_target, new_folder
from tests.simulator.harness import run

FILES = {
    "spec.yaml",
    "summary.json",
    MANIFEST,
    "requests.parquet",
    "steps.parquet",
    "gaps.parquet",
}
SPEC = RunSpec.from_dict(
    {
        "workload": {
            "arrivals": 4,
            "num_requests": 60,
            "prompt_tokens": {"mean": 40, "cv": 1},
            "output_tokens": {"kind": "uniform", "low": 1, "high": 9},
        },
        "policy": {"kind": "vllm-v1", "max_num_batched_tokens": 64},
        "engine": {"num_blocks": 40, "max_model_len": 500},
        "cost": {"kind": "linear", "fixed_ms": 9, "per_decode_us": 20, "per_prefill_token_us": 40},
        "measure": {"goodput": {"ttft_ms": 100}},
    }
)


@pytest.fixture(scope="module")
def result() -> Result:
    return simulate(SPEC)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_a_saved_run_holds_everything_and_can_be_read_back(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "deep" / "run")
    assert {path.name for path in folder.iterdir()} == FILES
    assert RunSpec.from_yaml((folder / "spec.yaml").read_text()) == SPEC
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["metrics"] == result.metrics
    assert summary["spec_sha256"] == SPEC.content_hash()
    for name in ("requests", "steps", "gaps"):
        pd.testing.assert_frame_equal(
            pd.read_parquet(folder / f"{name}.parquet"), getattr(result, name), check_dtype=False
        )


def test_two_runs_of_a_specification_leave_the_same_bytes(result: Result, tmp_path: Path) -> None:
    first = contents(result.save(tmp_path / "a"))
    second = contents(simulate(SPEC).save(tmp_path / "b"))
    assert first.keys() == second.keys() == FILES
    for name in FILES:
        assert first[name] == second[name], name


def test_other_seeds_and_replications_leave_other_bytes(result: Result, tmp_path: Path) -> None:
    others = simulate(SPEC, replication=1), simulate(SPEC.model_copy(update={"seed": 1}))
    first = contents(result.save(tmp_path / "0"))
    for number, other in enumerate(others, start=1):
        found = contents(other.save(tmp_path / str(number)))
        assert found["requests.parquet"] != first["requests.parquet"]
        assert found[MANIFEST] != first[MANIFEST]


def test_the_manifest_tells_where_the_numbers_come_from(result: Result) -> None:
    manifest = result.manifest()
    assert manifest["kind"] == "run"
    assert manifest["spec_sha256"] == SPEC.content_hash()
    assert (manifest["seed"], manifest["replication"]) == (0, 0)
    assert manifest["workload_sha256"] == result.trace.content_hash()
    assert manifest["kv_blocks"] == 40
    assert {"python", "batchlab", "simpy", "numpy", "scipy"} <= manifest["versions"].keys()


def test_an_existing_folder_is_refused_without_force(result: Result, tmp_path: Path) -> None:
    folder = result.save(tmp_path / "run")
    before = contents(folder)
    with pytest.raises(UserError, match=r"run: exists already; .*--force"):
        simulate(SPEC, replication=1).save(folder)
    assert contents(folder) == before


def test_force_replaces_a_results_folder_as_a_whole(result: Result, tmp_path: Path) -> None:
    folder = simulate(SPEC, replication=1).save(tmp_path / "run")
    (folder / "note.txt").write_text("of the old run")
    result.save(folder, force=True)
    assert {path.name for path in folder.iterdir()} == FILES
    assert json.loads((folder / MANIFEST).read_text())["replication"] == 0
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_force_may_use_an_empty_folder(result: Result, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    assert {path.name for path in result.save(tmp_path / "run", force=True).iterdir()} == FILES


@pytest.mark.parametrize(
    "manifest", [None, "", "{}", '{"kind": "web app"}', '{"versions": 3}', "[1]", "\xff"]
)
def test_force_never_replaces_what_is_not_ours(
    result: Result, tmp_path: Path, manifest: str | None
) -> None:
    folder = tmp_path / "thesis"
    folder.mkdir()
    (folder / "chapter.tex").write_text("ten years of work")
    if manifest is not None:
        (folder / MANIFEST).write_text(manifest, encoding="latin-1")
    with pytest.raises(UserError, match="is not a results folder"):
        result.save(folder, force=True)
    assert (folder / "chapter.tex").read_text() == "ten years of work"
    assert [path.name for path in tmp_path.iterdir()] == ["thesis"]


def test_force_never_replaces_a_file(result: Result, tmp_path: Path) -> None:
    path = tmp_path / "run"
    path.write_text("mine")
    with pytest.raises(UserError, match="is not a results folder"):
        check_target(path, force=True)
    with pytest.raises(UserError, match="is not a results folder"):
        result.save(path, force=True)
    assert path.read_text() == "mine"


def test_a_place_that_cannot_be_written_is_the_users_error(result: Result, tmp_path: Path) -> None:
    parent = tmp_path / "file"
    parent.write_text("not a folder")
    with pytest.raises(UserError, match=r"run: cannot be written: ") as caught:
        result.save(parent / "run")
    assert "\n" not in str(caught.value)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert parent.read_text() == "not a folder"


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="root writes anywhere")
def test_a_protected_parent_is_the_users_error(result: Result, tmp_path: Path) -> None:
    (tmp_path / "locked").mkdir(mode=0o500)
    with pytest.raises(UserError, match="cannot be written: Permission denied"):
        result.save(tmp_path / "locked" / "run")
    assert list((tmp_path / "locked").iterdir()) == []


def fail_late(error: BaseException) -> Any:
    def write(table: object, path: Path, **options: object) -> None:
        path.write_bytes(b"half a file")
        raise error

    return write


def test_a_full_disk_leaves_nothing_behind(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(parquet, "write_table", fail_late(error))
    with pytest.raises(UserError, match="run: cannot be written: No space left on device"):
        result.save(tmp_path / "run")
    assert list(tmp_path.iterdir()) == []


def test_an_interrupted_save_keeps_the_old_results(
    result: Result, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = simulate(SPEC, replication=1).save(tmp_path / "run")
    before = contents(folder)
    monkeypatch.setattr(parquet, "write_table", fail_late(KeyboardInterrupt()))
    with pytest.raises(KeyboardInterrupt):
        result.save(folder, force=True)
    assert contents(folder) == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_final_name_appears_only_when_everything_is_written(tmp_path: Path) -> None:
    with new_folder(tmp_path / "run") as temporary:
        assert not (tmp_path / "run").exists()
        (temporary / "file").write_text("whole")
    assert (tmp_path / "run" / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_frames_have_latencies_in_seconds() -> None:
    rows = [(0, 4, 1), (0, 4, 3), (0.5, 4, 9)]
    frame = run(rows, {"kind": "none"}, measure={"horizon_s": 5.5}).requests
    assert frame["queue_s"].tolist() == [0.0, 1.0, 3.5]
    assert frame["ttft_s"].tolist() == [1.0, 2.0, 4.5]
    assert frame["e2e_s"].tolist()[:2] == [1.0, 4.0]
    assert frame["tpot_s"].tolist()[1] == 1.0
    assert frame["tpot_s"].isna().tolist() == [True, False, True]
    assert frame["e2e_s"].isna().tolist() == [False, False, True]


def test_a_run_cut_before_the_first_arrival_can_be_saved(tmp_path: Path) -> None:
    spec = RunSpec.from_dict(SPEC.to_dict() | {"measure": {"horizon_s": 1e-6}})
    folder = simulate(spec).save(tmp_path / "run")
    assert len(pd.read_parquet(folder / "requests.parquet")) == 0


def test_warnings_tell_what_changes_the_reading() -> None:
    rows = [(0, 4, 1), (0, 90, 30), (0.5, 4, 9)]
    policy = {"kind": "static", "max_batch_size": 1, "max_seq_len": 100}
    cut = run(rows, policy, measure={"horizon_s": 5.5})
    assert [text.split(";")[0] for text in cut.warnings] == [
        "1 of 3 requests were not finished when the run was cut",
        "1 requests were rejected",
    ]
    assert run(rows[:1], policy).warnings == []


def test_a_result_tells_itself_in_five_lines(result: Result) -> None:
    text = repr(result)
    assert len(text.splitlines()) == 5
    assert "60 completed, 0 rejected, 0 unfinished" in text
    assert "p50 / p99" in text
    assert "/ n/a ms of 60" in text


def test_the_summary_holds_all_metrics(result: Result) -> None:
    assert result.summary().to_dict() == result.metrics
    assert result.summary().name == "vllm-v1"


def test_tables_in_files_are_the_tables_in_memory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("simulator.columns.BLOCK", 16)
    kept = simulate(SPEC)
    streamed = simulate(SPEC, spill=tmp_path)
    for name, columns in kept.tables.items():
        for column, values in columns.items():
            assert streamed.tables[name][column].tobytes() == values.tobytes(), (name, column)
    assert streamed.metrics == kept.metrics
    assert streamed.warnings == kept.warnings
    again = streamed.save(tmp_path / "run")
    assert {path.name for path in again.iterdir()} == FILES
    columns = ["request_id", "ttft_s", "state"]
    by_number = pd.read_parquet(again / "requests.parquet").sort_values("request_id")
    expected = kept.requests[columns].reset_index(drop=True)
    pd.testing.assert_frame_equal(
        by_number[columns].reset_index(drop=True), expected, check_dtype=False
    )


def test_tables_of_several_replicas_are_not_streamed(tmp_path: Path) -> None:
    spec = SPEC.model_copy(update={"engine": SPEC.engine.model_copy(update={"num_replicas": 2})})
    with pytest.raises(UserError, match=r"engine.num_replicas: .*one replica only"):
        simulate(spec, spill=tmp_path)
