"""`batchlab validate`: rows of one's own, and the published ones that lie beside the checkout."""

import json
from pathlib import Path

import pandas as pd
import pytest

from tests.cli.process import Command

HEAD = (
    "record_id,source_id,quality,model,gpu,engine,engine_version,arrival_kind,regime,"
    "request_rate_rps,num_requests,isl_mean_tok,osl_mean_tok,tpot_mean_ms\n"
)
ROW = "{},own,A,Llama-3.1-8B,{},vLLM V1,0.11.0,constant,open_loop_stable,2,20,100,20,{}\n"


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    path = tmp_path / "m.csv"
    lines = [("near", "H100-80GB", 7.1), ("far", "H100-80GB", 4.0), ("other", "MI300X", 7.0)]
    path.write_text(HEAD + "".join(ROW.format(*line) for line in lines), encoding="utf-8")
    return path


def test_a_missed_level_ends_with_code_1_and_is_named(quick: Command, rows: Path) -> None:
    done = quick("validate", "--measurements", rows)
    assert done.code == 1, done.err
    assert "missed: far TPOT" in done.out
    assert "GPU MI300X has no tables" in done.out
    assert "levels met 1, missed 1, none holds 1" in done.out


def test_met_levels_end_with_code_0_and_leave_tables_and_a_figure(
    quick: Command, rows: Path, tmp_path: Path
) -> None:
    words = ("--only", "near", "other", "-o", "out", "--figure", "s.png", "--json")
    done = quick("validate", "--measurements", rows, *words)
    assert done.code == 0, done.err
    found = json.loads(done.out)
    assert found["passed"]
    assert [row["verdict"] for row in found["rows"]] == ["PASS", "-"]
    assert found["rows"][0]["engine_profile"] == "vllm-0.11"
    assert list(pd.read_csv(tmp_path / "out" / "rows.csv")["record_id"]) == ["near", "other"]
    assert (tmp_path / "s.png").stat().st_size > 5000


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "measurements"),
        (("--measurements", "none.csv"), "none.csv: cannot be read"),
        (("--measurements", "m.csv", "--only", "x"), "--only x: no such row"),
        (("--measurements", "m.csv", "--engine-profile", "vllm-0.10"), "did you mean vllm-0.1"),
        (("--measurements", "m.csv", "--orderings", "m.csv"), "m.csv: no column ordering_id"),
        (("--measurements", "m.csv", "--requests", "m.csv"), "m.csv: no column tp_size"),
        (("--measurements", "m.csv", "--jobs", "0"), "--jobs: expected at least 1"),
    ],
)
def test_wrong_input_is_one_line_with_code_2(
    quick: Command, rows: Path, words: tuple[str, ...], message: str
) -> None:
    done = quick("validate", *words)
    assert (done.code, done.out) == (2, "")
    assert message in done.err
    assert done.err.count("\n") == 1


def published(shared: Path, *words: str) -> tuple[object, ...]:
    """Return the options that name the published files."""
    return (
        *("validate", "--measurements", shared / "validation" / "measurements.csv"),
        *("--orderings", shared / "validation" / "orderings.csv"),
        *("--requests", shared / "kernels" / "llmservingsim" / "vllm_serving_requests.csv.gz"),
        *words,
    )


@pytest.mark.shared
def test_published_rows_that_were_not_fitted_on_meet_their_levels(
    quick: Command, shared: Path
) -> None:
    chosen = (
        *("ipk-1-0", "ipk-1-1", "ipk-1-2", "ipk-1-6", "ipk-0-6"),
        *("lss-rtxpro6000-llama", "aic-llama-3.1-70b-instruct-h100-vllm-tp4-1024"),
    )
    done = quick(*published(shared, "--only", *chosen, "--json"))
    found = json.loads(done.out)
    assert done.code == 0, [check for check in found["levels"] if not check["passed"]]
    assert len(found["levels"]) == 4 + 3 + 1 + 1 + 3 + 5
    assert [pair["verdict"] for pair in found["orderings"]] == ["PASS"] * 3
    fitted = {row["record_id"]: row["no_level"] for row in found["rows"]}
    assert fitted["ipk-0-6"] == "profile vllm-0.11 was fitted on it"


@pytest.mark.slow
@pytest.mark.shared
def test_all_published_rows(quick: Command, shared: Path) -> None:
    done = quick(*published(shared, "--jobs", "2", "--json"))
    assert done.code == 1, done.err
    found = json.loads(done.out)
    assert len(found["rows"]) == 276
    missed = {check["record"] for check in found["levels"] if not check["passed"]}
    assert all(name.startswith("gps-") or name == "ipk-1-3" for name in missed)
    assert all(pair["verdict"] != "FAIL" for pair in found["orderings"])
    assert sum(row["tpot_mean_ms_predicted"] is not None for row in found["rows"]) >= 250
