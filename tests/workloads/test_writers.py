import json

import numpy as np
import pytest

from workloads import Streams, Trace, WorkloadError, get_preset, read_trace, write_trace
from workloads.chains import Chains, reusable_tokens
from workloads.writers import WRITERS


@pytest.fixture
def trace() -> Trace:
    return Trace(
        [0.0, 1.25, 1.25, 7.5],
        [100, 700, 30, 1500],
        [10, 20, 30, 40],
        [10, 20, 35, 40],
        columns={
            "tenant": ["a", "b,c", "a", '"d"'],
            "priority": [0, 1, 0, 2],
            "conversation": [5, -1, 5, 6],
            "turn": [0, 0, 1, 0],
        },
        chains=Chains.of([(1,), (1, 2), (), (1, 2)], block_size=512),
    )


@pytest.mark.parametrize("format", WRITERS)
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_what_is_written_is_read_back(trace, tmp_path, format, suffix):
    path = write_trace(trace, tmp_path / f"a{suffix}", format)
    unit = {"time_unit": "s"} if format == "guidellm" else {}
    again = read_trace(path, **unit)
    np.testing.assert_allclose(again.arrival_s, trace.arrival_s, atol=1e-6)
    assert again.prompt_tokens.tolist() == trace.prompt_tokens.tolist()
    assert again.output_tokens.tolist() == trace.output_tokens.tolist()
    assert again.provenance["warnings"] == []
    assert write_trace(trace, tmp_path / f"b{suffix}", format).read_bytes() == path.read_bytes()


def test_own_formats_keep_all_that_reaches_the_requests(trace, tmp_path):
    for format in ("csv", "jsonl"):
        again = read_trace(write_trace(trace, tmp_path / "a", format))
        assert again.max_tokens.tolist() == trace.max_tokens.tolist()
        assert again.columns["tenant"].tolist() == trace.columns["tenant"].tolist()
        assert again.columns["priority"].tolist() == trace.columns["priority"].tolist()
        assert again.columns["conversation"].tolist() == [0, -1, 0, 1]
        assert again.columns["turn"].tolist() == [0, 0, 1, 0]


def test_mooncake_has_as_many_blocks_as_its_readers_want(trace, tmp_path):
    path = write_trace(trace, tmp_path / "a.jsonl", "mooncake")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert [len(row["hash_ids"]) for row in rows] == [1, 2, 1, 3]
    assert rows[2]["hash_ids"] == [3]
    assert rows[3]["hash_ids"] == [1, 2, 4]
    assert rows[0]["session_id"] == "5"


def test_later_turns_have_a_delay():
    columns = {"conversation": [0, 0], "turn": [0, 1], "think_s": [np.nan, 2.5]}
    trace = Trace([0.0, 3.0], [10, 20], [1, 1], columns=columns)
    rows = [json.loads(line) for line in WRITERS["aiperf"](trace)]
    assert rows[1]["delay"] == 2500
    assert "timestamp" not in rows[1]
    for format, time in (("guidellm", 3.0), ("vllm", 3000.0)):
        assert json.loads(list(WRITERS[format](trace))[1])["timestamp"] == time


def test_prompts_without_chains_share_nothing_in_vllm(tmp_path):
    trace = Trace([0.0, 1.0], [600, 512], [1, 1])
    rows = [json.loads(line) for line in WRITERS["vllm"](trace)]
    assert [row["hash_ids"] for row in rows] == [[0, 1], [2]]
    again = read_trace(write_trace(trace, tmp_path / "a", "vllm"))
    assert reusable_tokens(again.chains, again.prompt_tokens).sum() == 0


def test_a_preset_can_be_sent_to_a_server(tmp_path):
    trace = get_preset("azure-conv-2023").trace(500, 2.0, streams=Streams(1))
    again = read_trace(write_trace(trace, tmp_path / "a.jsonl", "vllm"))
    assert again.rate == pytest.approx(trace.rate, rel=1e-4)


def test_trouble_is_told(trace, tmp_path):
    with pytest.raises(WorkloadError, match="expected a format out of csv"):
        write_trace(trace, tmp_path / "a", "xml")
    with pytest.raises(WorkloadError, match="cannot be written"):
        write_trace(trace, tmp_path / "none" / "a")
