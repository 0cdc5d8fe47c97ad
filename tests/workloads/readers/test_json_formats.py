import gzip
import json

import numpy as np
import pytest

from workloads import WorkloadError, read_trace
from workloads.readers import detect_format


def lines(*rows) -> str:
    return "\n".join(json.dumps(row) for row in rows)


def moon(time, prompt=512, output=4, ids=None):
    row = {"timestamp": time, "input_length": prompt, "output_length": output}
    return row if ids is None else row | {"hash_ids": ids}


def refused(path, told, **options):
    with pytest.raises(WorkloadError, match=told) as error:
        read_trace(path, **options)
    assert "\n" not in str(error.value)


def test_mooncake_has_milliseconds_and_blocks(write):
    trace = read_trace(write(lines(moon(500, 600, ids=[0, 1]), moon(2000.5, 300, ids=[0]))))
    assert trace.arrival_s.tolist() == pytest.approx([0.0, 1.5005])
    assert (trace.chains[0], trace.chains[1], trace.chains.block_size) == ((0, 1), (0,), 512)
    request = next(trace.requests())
    assert (request.block_ids, request.id_block_size) == ((0, 1), 512)
    assert trace.provenance["notes"]["format"] == "mooncake"


def test_dialects_name_their_unit_and_block_size(write):
    path = write(lines(moon(0, 32, ids=[0, 1]), moon(3, 16, ids=[0])))
    trace = read_trace(path, time_unit="s", block_size=16)
    assert trace.arrival_s.tolist() == [0.0, 3.0]
    assert trace.chains.block_size == 16


def test_milliseconds_read_as_seconds_are_remarked(write):
    path = write(lines(*(moon(300 * i) for i in range(1200))))
    assert read_trace(path).provenance["warnings"] == []
    (warning,) = read_trace(path, time_unit="s").provenance["warnings"]
    assert "is the unit of time right? It may be ms" in warning


def test_seconds_read_as_milliseconds_are_remarked(write):
    path = write(lines(*(moon(0.3 * i, 4000) for i in range(1200))))
    assert "It may be s" in read_trace(path).provenance["warnings"][0]


@pytest.mark.parametrize(
    ("row", "told", "reason"),
    [
        (
            '{"timestamp": 1',
            r"line 2: got '\{\"timestamp\": 1', expected a JSON object",
            "not JSON",
        ),
        ("7", "expected a JSON object", "not an object"),
        ('{"timestamp": 1, "timestamp": 2}', "column timestamp: .* each key once", "duplicate key"),
        (lines(moon("3000")), "column timestamp: got '3000'", "not a number"),
        ('{"timestamp": NaN}', "finite", "not a number"),
        (lines(moon(-1)), "column timestamp: got '-1'", "negative"),
        (lines({"timestamp": 1, "input_length": 5}), "column output_length", "missing"),
        (lines({"input_length": 5, "output_length": 5}), "column timestamp", "missing"),
        (lines(moon(1, 12.5)), "column input_length: got '12.5'", "not a whole number"),
        (lines(moon(1, True)), "column input_length: got 'true'", "not a number"),
        (lines(moon(1, "12")), "column input_length", "not a number"),
        (lines(moon(1, 0)), "column input_length: got '0'", "zero"),
        (lines(moon(1, 5, 0)), "column output_length: got '0'", "zero"),
        (lines(moon(1, 600, ids=[5])), "2 blocks of 512 for 600 tokens, not 1", "too few blocks"),
        (lines(moon(1, ids=[-5])), "column hash_ids", "not block ids"),
        (lines(moon(1, 600, ids=[5, 5])), "each block once", "repeated block"),
        (lines(moon(1, ids=[8])), "block 8 at depth 1, where it stood", "block at another depth"),
        (
            lines({"timestamp": 1, "text_input": "hi", "output_length": 5}),
            "column text_input: got 'hi', expected input_length",
            "text instead of a length",
        ),
    ],
)
def test_bad_row_is_an_error_or_dropped_by_reason(write, row, told, reason):
    path = write("\n".join((lines(moon(0, 1024, ids=[7, 8])), row, lines(moon(9)))))
    refused(path, told)
    account = read_trace(path, strict=False).provenance
    ((counted, number),) = account["dropped"].items()
    assert counted.endswith(reason)
    assert (number, account["rows_read"], account["rows_kept"]) == (1, 3, 2)


def test_row_out_of_order_names_its_time(write):
    path = write(lines(moon(5), moon(3)))
    refused(path, "line 2, column timestamp: got '3', expected a time that is not before")
    assert read_trace(path, strict=False).columns["line"].tolist() == [2, 1]


def test_longer_chains_are_trimmed_and_empty_ones_stay_empty(write):
    trace = read_trace(write(lines(moon(0, ids=[1, 2, 3]), moon(1, ids=[]), moon(2))))
    assert [trace.chains[row] for row in range(3)] == [(1,), (), ()]
    assert trace.provenance["warnings"] == ["more blocks than the prompt needs; trimmed"]


def test_sessions_with_delays(write):
    rows = [
        moon(0) | {"session_id": "a"},
        {"session_id": "a", "delay": 1500, "input_length": 9, "output_length": 1},
        moon(1000) | {"session_id": "b"},
        {"session_id": "a", "delay": 500, "input_length": 8, "output_length": 1},
        moon(1200),
    ]
    trace = read_trace(write(lines(*rows)))
    assert trace.arrival_s.tolist() == [0.0, 1.0, 1.2, 1.5, 2.0]
    assert trace.columns["conversation"].tolist() == [0, 1, -1, 0, 0]
    assert trace.columns["turn"].tolist() == [0, 0, 0, 1, 2]
    np.testing.assert_array_equal(trace.columns["think_s"], [np.nan, np.nan, np.nan, 1.5, 0.5])
    assert trace.provenance["warnings"] == []
    assert list(trace.requests())[3].conversation == 0


def test_missing_outputs_may_be_given(write):
    path = write(lines({"timestamp": 0, "input_length": 5}, moon(1)))
    assert read_trace(path, default_output=64).output_tokens.tolist() == [64, 4]


def test_failures_are_bad_rows_unless_said_otherwise(write):
    path = write(lines(moon(0, 5, 0), moon(1, 5, 7), moon(2, 5, 7)))
    refused(path, "column output_length: got '0'")
    assert read_trace(path, failures="drop").provenance["dropped"] == {"failure": 1}
    assert read_trace(path, failures="prefill").output_tokens.tolist() == [1, 7, 7]
    imputed = read_trace(path, failures="impute")
    assert imputed.output_tokens.tolist() == [7, 7, 7]
    assert "1 failures kept" in imputed.provenance["warnings"][0]
    refused(write(lines(moon(0, 5, 0)), "x"), "no rows with output", failures="impute")


def chat(number, parent, time=0.0, prompt=16, ids=(1,)):
    return {
        "chat_id": number,
        "parent_chat_id": parent,
        "timestamp": time,
        "input_length": prompt,
        "output_length": 1,
        "type": "text",
        "turn": 1,
        "hash_ids": list(ids),
    }


def test_qwen_chats_form_trees(write):
    rows = [chat(1, -1), chat(2, 1), chat(3, 77), chat(4, 5), chat(5, -1), chat(6, 2, 9.0)]
    trace = read_trace(write(lines(*rows)))
    assert trace.provenance["notes"]["format"] == "qwen-bailian"
    assert trace.columns["conversation"].tolist() == [0, 0, 1, 2, 2, 0]
    assert trace.columns["turn"].tolist() == [0, 1, 0, 0, 1, 2]
    assert trace.provenance["warnings"] == [
        "the parent of a chat is not in the file; a new root",
        "a chat stands before its parent",
    ]


def test_qwen_cycle_is_an_error(write):
    path = write(lines(chat(1, 2), chat(2, 3), chat(3, 1)))
    refused(path, "expected no chat among its own ancestors")
    refused(path, "expected no chat among its own ancestors", strict=False)


def test_servegen_offline_has_no_clock(write):
    path = write(lines(*({"request_id": i, "input_length": 9, "output_length": 1} for i in (0, 1))))
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [0.0, 0.0]
    assert trace.provenance["notes"]["clock"] == "none"
    assert trace.provenance["warnings"] == []


def test_aibrix_has_several_requests_a_line(write):
    rows = [
        {"timestamp": 0, "requests": [{"Prompt Length": 3, "Output Length": 2}]},
        {"timestamp": 1500, "requests": [{"prompt_length": 4, "output_length": 2}, {}, 5]},
        {"timestamp": 1600, "requests": 7},
    ]
    trace = read_trace(write(lines(*rows)), strict=False)
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.provenance["dropped"] == {
        "Prompt Length: missing": 1,
        "requests: not an object": 1,
        "requests: not a list": 1,
    }


def test_llmservingsim_has_nanoseconds(write):
    rows = [{"input_toks": 5, "output_toks": 6, "arrival_time_ns": t} for t in (0, 2_500_000_000)]
    path = write(lines(*rows, {"input_toks": 5, "output_toks": 6, "arrival_time_ns": 1}))
    refused(path, "column arrival_time_ns: got '1', expected a time that is not before")
    assert read_trace(path, strict=False).arrival_s[-1] == 2.5


def entry(time, prompt=130, output=5, ids=(1, 2), **more):
    return {"t": time, "in": prompt, "out": output, "hash_ids": list(ids)} | more


def conversation(*entries, block_size=64):
    return {"id": "x", "block_size": block_size, "hash_id_scope": "local", "requests": entries}


def test_conversations_of_a_folder_keep_their_ids_apart(write, tmp_path):
    nested = {"type": "subagent", "t": 4, "requests": [entry(5.0, ids=(1, 9))]}
    first = conversation(entry(0.0, think_time=2.0), nested, entry(7.0, 200, ids=(1, 2, 3)))
    write(json.dumps(first, indent=1), "a.json")
    second = json.dumps(conversation(entry(0.0), entry(2, 5, 0, ())))
    write(gzip.compress(second.encode()), "b.json.gz")
    write("not one", "README.md")
    trace = read_trace(tmp_path)
    assert trace.columns["conversation"].tolist() == [0, 2, 1, 0]
    assert trace.columns["turn"].tolist() == [0, 0, 0, 1]
    assert [trace.chains[row] for row in range(4)] == [(1, 2), (11, 12), (1, 9), (1, 2, 3)]
    assert trace.provenance["dropped"] == {"failure": 1}
    one = read_trace(tmp_path / "a.json")
    assert one.provenance["notes"]["format"] == "kv-cache-tester"
    assert one.provenance["sha256"]


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ('{"requests": 5, "block_size": 64, "hash_id_scope": "local"}', "column requests"),
        ('{"requests": [], "block_size": 64, "hash_id_scope": "local"', "expected a JSON object"),
        (json.dumps(conversation(entry(0, ids=(1,)))), "line 1, column hash_ids"),
        (json.dumps(conversation(entry("x"))), "line 1, column t"),
    ],
)
def test_broken_conversations_are_told(write, content, told):
    refused(write(content, "a.json"), told)


def test_folders_are_refused_where_they_hold_nothing(write, tmp_path):
    refused(tmp_path, "without conversations")
    write(json.dumps(conversation(entry(0.0))), "a.json")
    write(json.dumps(conversation(entry(0.0, ids=(1,) * 9), block_size=16)), "b.json")
    refused(tmp_path, "column block_size: got 16, expected 64")
    write("", "chunk-0-trace.csv")
    refused(tmp_path, "read_clients")


def test_vllm_result(write):
    result = {
        "backend": "vllm",
        "input_lens": [5, 6, 0],
        "output_lens": [2, 3, 0],
        "start_times": [100.5, 100.25, 101.0],
        "ttfts": [0.1, 0.1, 0.1],
    }
    trace = read_trace(write(json.dumps(result)))
    assert trace.arrival_s.tolist() == [0.0, 0.25]
    assert trace.prompt_tokens.tolist() == [6, 5]
    assert trace.provenance["dropped"] == {"failure": 1}
    without = read_trace(write(json.dumps({k: v for k, v in result.items() if k != "start_times"})))
    assert without.provenance["notes"]["clock"] == "none"
    refused(write(json.dumps(result | {"output_lens": [1]})), "column output_lens.*save-detailed")


def test_summary_of_vllm_says_what_is_missing(write):
    summary = {"backend": "vllm", "num_prompts": 3, "completed": 3, "duration": 5.0}
    refused(write(json.dumps(summary)), "column input_lens.*save-detailed")


def test_guidellm_report(write):
    new = {"info": {"timings": {"request_start": 7.0}}, "prompt_tokens": 5, "output_tokens": 6}
    old = {"start_time": 9.5, "prompt_tokens": 7, "output_tokens": 8}
    requests = {"successful": [new, old], "incomplete": [old], "errored": []}
    path = write(json.dumps({"benchmarks": [{"requests": requests}]}, indent=2))
    trace = read_trace(path)
    assert trace.arrival_s.tolist() == [0.0, 2.5]
    assert trace.provenance["dropped"] == {"failure": 1}
    refused(write(json.dumps({"benchmarks": [{}, {}]})), "expected one benchmark, got 2")
    refused(write(json.dumps({"benchmarks": []})), "expected a list")


def test_aiperf_records(write):
    def record(ns, prompt=5, output=6, error=None, **metadata):
        sizes = {"input_sequence_length": prompt, "output_sequence_length": output}
        metrics = {name: {"value": value, "unit": "tokens"} for name, value in sizes.items()}
        about = {"request_start_ns": ns, "turn_index": 0} | metadata
        return {"metadata": about, "metrics": {} if error else metrics, "error": error}

    start = 1_763_066_701_865_462_123
    rows = [
        record(start - 5, benchmark_phase="warmup"),
        record(start + 1_500_000_000),
        record(start, 7),
        record(start + 9, error={"code": 408}),
        record(start + 9, was_cancelled=True),
    ]
    trace = read_trace(write(lines(*rows)))
    assert trace.arrival_s.tolist() == [0.0, 1.5]
    assert trace.prompt_tokens.tolist() == [7, 5]
    assert trace.provenance["dropped"] == {"warm-up": 1, "failure": 2}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (lines({"arrival_s": 0, "prompt_tokens": 1, "output_tokens": 1}), "jsonl"),
        ("arrival_s,prompt_tokens,output_tokens\n", "csv"),
        ("request_id,request_type,arrival_timestamp,prompt_size,token_size\n", "splitwise-sim"),
        ("arrival_s,client,prompt_len,output_len\n", "arena"),
        ("num_prefill_tokens,num_decode_tokens\n", "vidur"),
        ("Timestamp,Model,Request tokens,Response tokens\n", "burstgpt"),
    ],
)
def test_format_is_found_by_content(write, content, name):
    assert detect_format(write(content)) == name


def test_bad_requests_of_results_are_told_or_dropped(write):
    lists = {"input_lens": [5, 0, 6], "output_lens": [2, 3, -1], "start_times": [1.0, 2.0, 3.0]}
    path = write(json.dumps(lists))
    refused(path, r"line 2, column request 2 \(prompt\): got '0'")
    account = read_trace(path, strict=False).provenance
    assert sum(account["dropped"].values()) == 2
    refused(write('{"input_lens": [1'), "expected a JSON object")
    assert len(read_trace(write(json.dumps(lists | {"input_lens": [5, 1, 6]})), max_rows=2)) == 2
    errored = {"requests": {"successful": [{"start_time": "x"}]}}
    refused(write(json.dumps({"benchmarks": [errored]})), r"successful request 1 \(time\)")


def test_aiperf_times_may_be_floats(write):
    sizes = {"input_sequence_length": {"value": 5}, "output_sequence_length": {"value": 6}}
    rows = [{"metadata": {"request_start_ns": t}, "metrics": sizes} for t in (0.0, 2.5e9)]
    assert read_trace(write(lines(*rows))).arrival_s.tolist() == [0.0, 2.5]
