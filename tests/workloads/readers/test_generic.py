import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from workloads import Trace, WorkloadError, read_trace, write_trace

MAP = {"arrival": "when", "prompt_tokens": "in", "output_tokens": "out"}


def test_csv_with_a_map_and_a_unit(write):
    path = write("out,when,in,who\n5,1000,10,a\n6,1500,20,b\n")
    trace = read_trace(path, "csv", columns=MAP | {"tenant": "who"}, time_unit="ms")
    assert trace.arrival_s.tolist() == [0.0, 0.5]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([10, 20], [5, 6])
    assert trace.columns["tenant"].tolist() == ["a", "b"]


def test_csv_with_timestamps(write):
    path = write("in,out,when\n1,1,2024-05-12T00:00:00Z\n1,1,2024-05-12T00:00:00.25Z\n")
    assert read_trace(path, "csv", columns=MAP).arrival_s.tolist() == [0.0, 0.25]


def test_own_names_need_no_map(write):
    rows = "0,10,5,8,a,1,x\n1,10,5,9,b,0,\n2,10,5,9,b,0,x\n"
    head = "arrival_s,prompt_tokens,output_tokens,max_tokens,tenant,priority,conversation\n"
    trace = read_trace(write(head + rows))
    assert trace.max_tokens.tolist() == [8, 9, 9]
    assert trace.columns["conversation"].tolist() == [0, -1, 0]
    assert trace.columns["turn"].tolist() == [0, 0, 1]


def test_csv_without_times_is_a_table_of_lengths(write):
    trace = read_trace(write("prompt_tokens,output_tokens\n3,4\n5,6\n"))
    assert trace.provenance["notes"]["clock"] == "none"


def test_jsonl_with_a_map_into_inner_objects(write):
    rows = (
        '{"t": 1, "use": {"in": 40, "out": 2}, "ids": [1, 2, 3], "s": "x"}\n'
        '{"t": 2, "use": {"in": 16, "out": 2}, "ids": [1]}\n'
    )
    names = {
        "arrival": "t",
        "prompt_tokens": "use.in",
        "output_tokens": "use.out",
        "hash_ids": "ids",
        "conversation": "s",
    }
    trace = read_trace(write(rows), "jsonl", columns=names)
    assert trace.prompt_tokens.tolist() == [40, 16]
    assert trace.chains[0] == (1, 2, 3)
    assert trace.columns["conversation"].tolist() == [0, -1]
    with pytest.raises(WorkloadError, match="line 2, column t: got '0'"):
        read_trace(write(rows.replace('"t": 2', '"t": 0')), "jsonl", columns=names)


def test_parquet_is_read_in_batches(tmp_path):
    path = tmp_path / "a.parquet"
    n = 70_000
    table = {"when": [i / 10 for i in range(n)], "in": [7] * n, "out": [3] * n}
    pq.write_table(pa.table(table), path)
    trace = read_trace(path, columns=MAP)
    assert (len(trace), trace.span_s) == (n, pytest.approx(6999.9))
    with pytest.raises(WorkloadError, match="column prompt_tokens: missing; found"):
        read_trace(path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(WorkloadError, match="damaged data"):
        read_trace(path, columns=MAP)


def test_bad_row_of_parquet_is_told_or_dropped(tmp_path):
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"when": [0.0, 1.0, 2.0], "in": [7, None, 7], "out": [3, 3, 3]}), path)
    with pytest.raises(WorkloadError, match="line 2, column in"):
        read_trace(path, columns=MAP)
    assert len(read_trace(path, columns=MAP, strict=False)) == 2
    assert len(read_trace(path, columns=MAP, max_rows=1)) == 1


def test_unknown_column_of_a_map_is_refused(write):
    with pytest.raises(WorkloadError, match="got 'when', expected columns out of arrival"):
        read_trace(write("a,b\n1,2\n"), "csv", columns={"when": "a"})


def test_zstd_is_read_like_anything_else(write):
    content = "arrival_s,prompt_tokens,output_tokens\n0,10,5\n1,10,5\n"
    plain = read_trace(write(content))
    packed = read_trace(write(zstandard.compress(content.encode())))
    assert packed.content_hash() == plain.content_hash()
    assert packed.provenance["sha256"] == plain.provenance["sha256"]


@pytest.mark.parametrize("cut", [5, 12])
def test_damaged_zstd_is_told(write, cut):
    whole = zstandard.compress(b"a,b\n" * 10_000)
    with pytest.raises(WorkloadError, match="damaged data"):
        read_trace(write(whole[:-cut]), "csv", columns=MAP | {"arrival": "a", "prompt_tokens": "b"})


HEAD = "arrival_s,prompt_tokens,output_tokens\n"
ROWS = HEAD + "".join(f"{i},{i + 1},1\n" for i in range(10, 20))


def test_window_is_cut_while_reading(write):
    trace = read_trace(write(ROWS), start_s=2, end_s=5)
    assert trace.prompt_tokens.tolist() == [13, 14, 15]
    account = trace.provenance
    assert account["dropped"] == {"outside the window": 2}
    assert account["sha256"] == read_trace(write(ROWS)).provenance["sha256"]
    lenient = read_trace(write(ROWS), start_s=2, end_s=5, strict=False).provenance
    assert lenient["dropped"] == {"outside the window": 7}


def test_reading_stops_after_enough_rows(write):
    assert read_trace(write(ROWS), max_rows=4).prompt_tokens.tolist() == [11, 12, 13, 14]
    path = write(ROWS + "x,y,z\n")
    assert len(read_trace(path, max_rows=4)) == 4


@pytest.mark.parametrize(
    "options",
    [
        {"max_rows": 0},
        {"block_size": 0},
        {"default_output": 0},
        {"time_unit": "h"},
        {"failures": "ignore"},
        {"start_s": 5, "end_s": 5},
    ],
)
def test_nonsense_options_are_refused_by_name(write, options):
    with pytest.raises(WorkloadError, match=next(iter(options))):
        read_trace(write(ROWS), **options)


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_sizes_and_objectives_reach_the_requests(tmp_path, form):
    columns = {"size": [1, 2], "ttft_slo": [np.nan, 0.5], "tpot_slo": [0.05, np.nan]}
    trace = Trace([0.0, 1.0], [10, 20], [5, 6], columns=columns)
    again = read_trace(write_trace(trace, tmp_path / "a", form))
    first, second = again.requests()
    assert (first.size, first.ttft_slo, first.tpot_slo) == (1, None, 0.05)
    assert (second.size, second.ttft_slo, second.tpot_slo) == (2, 0.5, None)


def test_objectives_that_nobody_states_are_no_columns(tmp_path):
    path = write_trace(Trace([0.0], [10], [5]), tmp_path / "a", "jsonl")
    assert not {"size", "ttft_slo", "tpot_slo"} & set(read_trace(path).columns)


def test_objective_that_is_no_number_is_a_bad_cell(write):
    rows = "arrival_s,prompt_tokens,output_tokens,ttft_slo_s\n0,1,1,soon\n"
    with pytest.raises(WorkloadError, match="line 2, column ttft_slo_s: got 'soon'"):
        read_trace(write(rows))


CAPS = "0,5,5,9,-2\n1,5,5,,0\n2,5,8,6,0\n"
CAPPED = '{"arrival_s": 0, "prompt_tokens": 5, "output_tokens": 8, "max_tokens": 6}\n'


def test_a_cap_below_the_output_is_a_bad_row_and_none_is_the_output(write):
    path = write("arrival_s,prompt_tokens,output_tokens,max_tokens,priority\n" + CAPS)
    with pytest.raises(WorkloadError, match=r"line 4, column max_tokens: got '6', .* at least 8"):
        read_trace(path)
    trace = read_trace(path, strict=False)
    assert trace.max_tokens.tolist() == [9, 5]
    assert trace.columns["priority"].tolist() == [-2, 0]
    assert trace.provenance["dropped"] == {"max_tokens: too small": 1}
    with pytest.raises(WorkloadError, match=r"line 1, column max_tokens: got '6', .* at least 8"):
        read_trace(write(CAPPED, "a.jsonl"))


def test_a_conversation_that_changes_its_client_is_remarked(write):
    rows = [
        {"arrival_s": t, "prompt_tokens": 5, "output_tokens": 5, "tenant": c, "conversation": n}
        for t, (c, n) in enumerate([("a", 0), ("b", 0), ("a", 1), ("a", 1)])
    ]
    table = "".join(",".join(str(value) for value in row.values()) + "\n" for row in rows)
    for content, name in (
        ("\n".join(json.dumps(row) for row in rows), "a.jsonl"),
        (",".join(rows[0]) + "\n" + table, "a.csv"),
    ):
        trace = read_trace(write(content, name))
        assert trace.columns["conversation"].tolist() == [0, 0, 1, 1]
        assert trace.provenance["warnings"] == ["a conversation changes its client"]


def test_totals_that_do_not_add_up_are_remarked(write):
    head = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    trace = read_trace(write(head + "5,GPT-4,10,5,16,API log\n6,GPT-4,10,5,15,API log\n"))
    assert len(trace) == 2
    assert trace.provenance["warnings"] == ["Total tokens is not prompt plus output"]
