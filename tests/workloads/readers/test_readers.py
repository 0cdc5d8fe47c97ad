import gzip
import json
import time

import numpy as np
import pytest

from workloads import READERS, WorkloadError, read_trace

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
FIRST = "2023-11-16 18:15:46.6805900,374,44\n"
VIDUR = "arrived_at,num_prefill_tokens,num_decode_tokens\n0.0,374,44\n4.3,396,109\n"


def refused(path, told, **options):
    """Read a file that has to be refused, in one line that names it."""
    with pytest.raises(WorkloadError, match=told) as error:
        read_trace(path, **options)
    assert "\n" not in str(error.value)
    assert path.name in str(error.value)


def test_azure_file_as_published(write):
    content = (HEADER + FIRST + "2023-11-16 18:15:50.9951690,396,109").replace("\n", "\r\n")
    trace = read_trace(write(gzip.compress(content.encode()), "a.csv.gz"))
    assert trace.arrival_s.tolist() == [0.0, 4.314579]
    assert trace.prompt_tokens.tolist() == [374, 396]
    assert trace.output_tokens.tolist() == [44, 109]
    assert trace.columns["line"].tolist() == [2, 3]
    notes = trace.provenance["notes"]
    assert notes == {"format": "azure", "first_time_s": "1700158546.680590000"}


def test_columns_may_be_reordered_quoted_spaced_and_more(write):
    content = 'note,GeneratedTokens , TIMESTAMP,ContextTokens\n"a,b",44.0,2023-11-16 18:15:46,374\n'
    trace = read_trace(write(content))
    assert (trace.prompt_tokens[0], trace.output_tokens[0]) == (374, 44)


def test_image_counts_are_kept(write):
    content = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens\n2024-10-15T12:00:00.269Z,0,7,4\n"
    assert read_trace(write(content)).columns["num_images"].tolist() == [0]


def test_vidur_file(write):
    trace = read_trace(write(VIDUR))
    assert trace.provenance["notes"]["format"] == "vidur"
    assert trace.arrival_s.tolist() == [0.0, 4.3]


def test_first_arrival_moves_to_zero_and_its_time_is_kept(write):
    trace = read_trace(write(VIDUR.replace("0.0,", "1.5,")))
    assert trace.arrival_s.tolist() == [0.0, 4.3 - 1.5]
    assert trace.provenance["notes"]["first_time_s"] == "1.5"


def test_blank_lines_count_as_lines_but_not_as_rows(write):
    trace = read_trace(write(HEADER + "\n" + FIRST + "  \n" + FIRST))
    assert trace.columns["line"].tolist() == [3, 5]
    assert trace.provenance["rows_read"] == 2


def test_equal_times_keep_the_order_of_the_file(write):
    rows = "".join(f"2023-11-16 18:15:46,{i},1\n" for i in (5, 3, 9))
    assert read_trace(write(HEADER + rows)).prompt_tokens.tolist() == [5, 3, 9]


@pytest.mark.parametrize(
    ("row", "told", "reason"),
    [
        ("never,1,1", r"line 3, column TIMESTAMP: got 'never', expected a time", "not a time"),
        (",1,1", r"line 3, column TIMESTAMP: got ''", "empty"),
        ("2023-11-16 18:15:47Z,1,1", "no offset from UTC", "mixed time zones"),
        ("2023-11-16 18:15:47,0,1", r"column ContextTokens: got '0', .* at least 1", "zero"),
        ("2023-11-16 18:15:47,1,0", r"column GeneratedTokens: got '0'", "zero"),
        ("2023-11-16 18:15:47,-3,1", r"column ContextTokens: got '-3'", "negative"),
        ("2023-11-16 18:15:47,12.5,1", r"got '12.5', expected a whole", "not a whole number"),
        ("2023-11-16 18:15:47,nan,1", r"got 'nan', expected a whole", "not a number"),
        ("2023-11-16 18:15:47,,1", r"column ContextTokens: got ''", "empty"),
        ("2023-11-16 18:15:47,7", r"line 3: .*expected 3 cells, not 2", "short row"),
        ("2023-11-16 18:15:47,7,1,1", r"line 3: .*expected 3 cells, not 4", "long row"),
    ],
)
def test_bad_row_is_an_error_or_dropped_by_reason(write, row, told, reason):
    path = write(HEADER + FIRST + row + "\n" + FIRST)
    refused(path, told)
    account = read_trace(path, strict=False).provenance
    ((counted, number),) = account["dropped"].items()
    assert counted.endswith(reason)
    assert (number, account["rows_read"], account["rows_kept"]) == (1, 3, 2)


def test_row_out_of_order_is_an_error_or_sorted(write):
    path = write(HEADER + FIRST + "2023-11-16 18:15:45,1,1\n")
    refused(path, "line 3.* before that of the row above")
    trace = read_trace(path, strict=False)
    assert trace.prompt_tokens.tolist() == [1, 374]
    assert trace.columns["line"].tolist() == [3, 2]
    assert trace.provenance["transforms"] == [{"name": "sort", "steps_back": 1}]
    assert "stepped back 1 times" in trace.provenance["warnings"][0]


def test_negative_seconds_are_refused(write):
    refused(write(VIDUR.replace("4.3", "-4.3")), "column arrived_at: got '-4.3'")


@pytest.mark.parametrize("content", ["", "\n \n", HEADER, HEADER.strip(), "\ufeff" + HEADER])
@pytest.mark.parametrize("strict", [True, False])
def test_file_without_rows_is_an_error(write, content, strict):
    refused(write(content), "no rows", strict=strict)


def test_file_with_nothing_but_bad_rows_says_why(write):
    path = write(HEADER + "never,1,1\n" + "2023-11-16 18:15:47,7\n")
    refused(path, r"no rows left: 2 dropped \(1 TIMESTAMP: not a time, 1 short row\)", strict=False)


@pytest.mark.parametrize(
    ("header", "told"),
    [
        (
            "TIMESTAMP,ContextToken,GeneratedTokens",
            "column ContextTokens: missing; did you mean 'Co",
        ),
        ("TIMESTAMP,GeneratedTokens", "column ContextTokens: missing; found"),
        ("timestamp,contexttokens,generatedtokens", "column TIMESTAMP: missing"),
        (
            "TIMESTAMP,ContextTokens,ContextTokens,GeneratedTokens",
            "ContextTokens: expected the col",
        ),
        ("arrived_at,num_prefill_tokens,tokens", "column num_decode_tokens: missing"),
        ("a,b,c", "expected the first line of a format out of azure, vidur"),
        ('{"time": 0, "length": 10}', "expected the first line of a format"),
        ("\x00\x01\x02", "expected the first line of a format"),
    ],
)
def test_wrong_header_is_explained(write, header, told):
    refused(write(header + "\n" + FIRST), told)


def test_format_may_be_named(write):
    path = write(HEADER + FIRST)
    assert len(read_trace(path, "azure")) == 1
    refused(path, "column num_prefill_tokens: missing", format="vidur")
    refused(write("", "b.csv"), "no rows", format="vidur")
    with pytest.raises(WorkloadError, match="got 'azur', expected a format out of azure, vidur"):
        read_trace(path, "azur")


def test_rows_survive_being_stored_in_pieces(write, monkeypatch):
    monkeypatch.setattr("workloads.readers.rows._FLUSH", 2)
    rows = "".join(f"2023-11-16 18:15:46,{i},1\n" for i in range(1, 8))
    trace = read_trace(write(HEADER + rows))
    assert trace.prompt_tokens.tolist() == list(range(1, 8))
    assert trace.columns["line"].tolist() == list(range(2, 9))


def test_missing_file_and_directory_are_told(tmp_path):
    refused(tmp_path / "none.csv", "no such file")
    refused(tmp_path, "directory")


@pytest.mark.parametrize(("scale", "warned"), [(1e-3, False), (1e-9, True), (1e6, True)])
def test_unlikely_rate_is_remarked(write, scale, warned):
    path = write(VIDUR.replace("4.3", str(4.3 * scale)))
    assert bool(read_trace(path).provenance["warnings"]) == warned


@pytest.mark.parametrize("name", READERS)
def test_readers_say_what_they_read(name):
    assert READERS[name].name == name
    assert READERS[name].about


FULL = [
    "azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz",
    "azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz",
    "vidur_processed/splitwise_conv.csv.gz",
    "vidur_processed/splitwise_code.csv.gz",
]


@pytest.mark.shared
@pytest.mark.parametrize("name", FULL)
def test_published_file_matches_its_published_figures(traces, name):
    expected = json.loads((traces / "summary.json").read_text())["files"][name]
    trace = read_trace(traces / name)
    assert trace.provenance["sha256"] == expected["sha256_uncompressed"]
    assert len(trace) == trace.provenance["rows_read"] == expected["rows"]
    assert trace.prompt_tokens.sum() == expected["sum_input"]
    assert trace.output_tokens.sum() == expected["sum_output"]


@pytest.mark.shared
def test_azure_statistics_match_the_published_ones(real):
    conv, code = (real(name) for name in FULL[:2])
    assert (round(conv.rate, 2), round(conv.cv, 2)) == (5.53, 1.09)
    assert (round(code.rate, 2), round(code.cv, 1)) == (2.57, 13.2)
    assert round(conv.span_s, 2) == 3501.72


@pytest.mark.shared
@pytest.mark.parametrize("kind", ["conv", "code"])
def test_two_publications_of_one_trace_agree(real, kind):
    azure = real(f"azure_llm_2023/AzureLLMInferenceTrace_{kind}.csv.gz")
    vidur = real(f"vidur_processed/splitwise_{kind}.csv.gz")
    np.testing.assert_allclose(azure.arrival_s, vidur.arrival_s, atol=1e-6)
    assert azure.prompt_tokens.tolist() == vidur.prompt_tokens.tolist()
    assert azure.output_tokens.tolist() == vidur.output_tokens.tolist()


@pytest.mark.shared
@pytest.mark.parametrize(
    ("name", "rows", "span_s"),
    [
        ("azure_llm_2024/code_1week.head5.csv", 5, 0.07396),
        ("azure_llm_2024/conv_1week.head5.csv", 5, 0.247116),
        ("azure_llm_2024/conv_1week.tail5.csv", 5, 0.235657),
        ("azure_llm_2024/authored_whole_second.csv", 3, 0.998838),
        ("azure_lmm_2025/multimodal.head5.csv", 5, 7.297),
        ("bad/bom_crlf_azure.csv", 2, 4.314579),
    ],
)
def test_samples_of_other_years_are_read(traces, name, rows, span_s):
    trace = read_trace(traces / "format_samples" / name)
    assert len(trace) == rows
    assert trace.span_s == pytest.approx(span_s, abs=1e-9)


@pytest.mark.shared
def test_bad_azure_sample(traces):
    path = traces / "format_samples/bad/azure_bad.csv"
    refused(path, r"line 3, .*got '2023-11-16 18:15:45.0000000', expected .* before")
    trace = read_trace(path, strict=False)
    account = trace.provenance
    assert trace.prompt_tokens.tolist() == [10, 374]
    assert (account["rows_read"], account["rows_kept"]) == (7, 2)
    assert account["dropped"] == {
        "GeneratedTokens: zero": 1,
        "TIMESTAMP: not a time": 1,
        "ContextTokens: negative": 1,
        "short row": 1,
        "ContextTokens: not a whole number": 1,
    }


@pytest.mark.shared
@pytest.mark.parametrize("strict", [True, False])
def test_samples_without_rows_are_refused(traces, strict):
    refused(traces / "format_samples/bad/header_only.csv", "no rows", strict=strict)
    refused(traces / "format_samples/bad/empty.jsonl", "no rows", strict=strict)


@pytest.mark.shared
@pytest.mark.slow
def test_an_hour_of_azure_is_read_in_a_fifth_of_a_second(traces):
    seconds = []
    for _ in range(5):
        start = time.perf_counter()
        read_trace(traces / FULL[0])
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 0.2
