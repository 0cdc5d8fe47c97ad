"""Wrong input of every kind: one line that says where, which value, what was expected; code 2."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.cli.process import FAST, PROGRAM, Command, environment

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
ROW = "2023-11-16 18:15:46.6805900,374,44\r\n"
TIME = "2023-11-16 18:15:47.0000000"

COLUMNS = "ctx_len,d_num,chunk_size,cost"
"""Of a table of step times."""

FILES: dict[str, str | bytes] = {
    "good.csv": HEADER + ROW,
    "no-column.csv": "TIMESTAMP,GeneratedTokens\r\n2023-11-16 18:15:46.6805900,44\r\n",
    "misspelt.csv": HEADER.replace("ContextTokens", "ContextToken") + ROW,
    "empty.csv": "",
    "no-rows.csv": HEADER,
    "time-negative.csv": f"{HEADER}{ROW}-5,374,44\r\n",
    "time-word.csv": f"{HEADER}{ROW}yesterday,374,44\r\n",
    "time-back.csv": HEADER + ROW + ROW.replace("46.68", "45.68"),
    "seconds-negative.csv": "arrived_at,num_prefill_tokens,num_decode_tokens\n-1.5,10,5\n",
    "zero-prompt.csv": f"{HEADER}{ROW}{TIME},0,44\r\n",
    "zero-output.csv": f"{HEADER}{ROW}{TIME},374,0\r\n",
    "fraction.csv": f"{HEADER}{ROW}{TIME},374.5,44\r\n",
    "long.csv": f"{HEADER}{ROW}{TIME},140000,44\r\n",
    "plain.csv.gz": HEADER + ROW,
    "policy.yaml": "policy: {kind: vllm-v2}",
    "parameter.yaml": "policy: {kind: vllm-v1, max_num_sqs: 4}",
    "section.yaml": "polcy: {kind: vllm-v1}",
    "value.yaml": "policy: {kind: static, max_batch_size: many}",
    "syntax.yaml": "policy: {kind: static\nseed: 1",
    "list.yaml": "- policy",
    "number.yaml": "workload: 3",
    "latin.yaml": b"policy: caf\xe9",
    "results/notes.txt": "mine",
    "gap.csv": f"{COLUMNS}\n128,2,256,22\n128,2,512,34\n128,4,256,25\n",
    "unsorted.csv": f"{COLUMNS}\n128,2,512,34\n128,2,256,22\n",
    "negative.csv": f"{COLUMNS}\n128,2,256,-1\n",
    "no-cost.csv": "ctx_len,d_num,chunk_size\n128,2,256\n",
}

TRACES = {
    "no-column.csv": ["line 1", "ContextTokens", "missing"],
    "misspelt.csv": ["line 1", "ContextTokens", "did you mean 'ContextToken'?"],
    "empty.csv": ["no rows"],
    "no-rows.csv": ["no rows"],
    "time-negative.csv": ["line 3", "TIMESTAMP", "'-5'", "expected a time such as"],
    "time-word.csv": ["line 3", "TIMESTAMP", "'yesterday'", "expected a time such as"],
    "time-back.csv": ["line 3", "TIMESTAMP", "18:15:45.6805900", "not before"],
    "seconds-negative.csv": ["line 2", "arrived_at", "'-1.5'", "at least 0"],
    "zero-prompt.csv": ["line 3", "ContextTokens", "'0'", "a whole number of at least 1"],
    "zero-output.csv": ["line 3", "GeneratedTokens", "'0'", "a whole number of at least 1"],
    "fraction.csv": ["line 3", "ContextTokens", "'374.5'", "a whole number of at least 1"],
    "long.csv": ["line 3", "140000", "131072"],
    "no-such.csv": ["no such file"],
    "results": ["expected a file"],
}
"""Name of a trace file, and what its message has to name besides the file."""

SPECIFICATIONS = {
    "policy.yaml": ["policy", "'vllm-v2'", "nearest: vllm-v1"],
    "parameter.yaml": ["policy.max_num_sqs", "no such parameter of vllm-v1", "max_num_seqs"],
    "section.yaml": ["polcy", "nearest: policy"],
    "value.yaml": ["policy.max_batch_size", "'many'", "integer"],
    "syntax.yaml": ["line 2", "not valid YAML"],
    "list.yaml": ["expected a mapping"],
    "number.yaml": ["workload", "3"],
    "latin.yaml": ["not UTF-8 text"],
    "no-such.yaml": ["No such file"],
}

OPTIONS = {
    "--rate 0": ["request_rate", "'0'", "greater than 0"],
    "--rate -1": ["request_rate", "'-1'", "greater than 0"],
    "--rate fast": ["request_rate", "'fast'", "number"],
    "--rate nan": ["request_rate", "'nan'", "finite"],
    "--num-requests 0": ["num_requests", "'0'", "greater than or equal to 1"],
    "--seed -1": ["seed", "'-1'", "greater than or equal to 0"],
    "--gpu h1000": ["cost", "unknown gpu 'h1000'", "h100"],
    "--model llama-3.1-8": ["cost", "unknown model 'llama-3.1-8'", "llama-3.1-8b"],
    "--cost.tp 3": ["tp", "3", "1, 2, 4, 8"],
    "--goodput": ["--goodput"],
    "--goodput ttfb:500": ["--goodput", "ttfb:500", "expected ttft:MS"],
    "--goodput ttft:soon": ["ttft_ms", "'soon'", "number"],
    "--policy.kind statik": ["policy", "'statik'", "nearest: static"],
    "--policy.max-wait 5": ["policy.max_wait", "no such parameter of vllm-v1"],
    "--policy.max-num-seqs 0": ["policy.max_num_seqs", "'0'", "greater than or equal to 1"],
    "--policy.max-num-seqs 2.5": ["policy.max_num_seqs", "'2.5'", "integer"],
    "--policy.kind": ["--policy.kind", "expected a value"],
    "--policy.kind no_module:Mine": ["'no_module:Mine'", "No module named"],
    "--policy.kind os:path": ["'os:path'", "not a subclass of policies.PolicySpec"],
    "--polcy.kind static": ["--polcy.kind", "unknown section", "policy"],
    "--policy static": ["--policy", "Did you mean --policy.kind?"],
    "--max-wait-ms 5": ["--max-wait-ms", "Did you mean --policy.max-wait-ms?"],
    "--measure.percentiles 50,101": ["measure.percentiles", "101", "between 0 and 100"],
    "--measure.warmup-s -1": ["measure.warmup_s", "'-1'", "greater than or equal to 0"],
    "--workload.name azure-conf-2023": ["'azure-conf-2023'", "azure-conv-2023"],
    "--engine.num-blocks 5": ["request 0", "5 blocks of 16 tokens", "can never fit"],
    "--engine.max-model-len 100": ["request 0", "91 prompt", "max_model_len 100"],
    "--engine.max-model-len 200000": ["engine.max_model_len", "200000", "131072"],
    "--cost.kind fixed": ["cost.step_ms", "missing"],
    "--trace good.csv --workload.kind preset": ["workload.kind", "twice", "preset", "trace"],
    "--gpu a100 --cost.gpu h100": ["cost.gpu", "twice", "a100", "h100"],
    "--trace good.csv --workload.num-request 1": ["workload.num_request", "num_requests"],
    "--trace good.csv --workload.format azur": ["'azur'", "azure"],
    "--no-such-option": ["--no-such-option"],
    "-o good.csv": ["good.csv", "--force"],
    "-o good.csv --force": ["good.csv", "not a results folder"],
    "-o good.csv/below": ["good.csv/below", "cannot be written"],
    "-o results": ["results", "exists already", "--force"],
    "-o results --force": ["results", "not a results folder"],
    "-o /proc/results": ["/proc/results", "cannot be written"],
}
"""Options of `batchlab run`, and what the message has to name."""

_TRITON = "--policy.kind triton --policy."
_V0, _V1, _SARATHI, _ORCA, _CLIPPER = (
    f"--policy.kind {kind} --policy."
    for kind in ("vllm-v0", "vllm-v1", "sarathi", "orca", "clipper-aimd")
)
_TABLE = "--policy.budget.kind ascend-table --policy.budget."
_SYNTHETIC = (
    "--workload.kind synthetic --workload.prompt-tokens 9 --workload.output-tokens 9 --workload."
)

POLICIES = {
    f"{_TRITON}preferred-batch-size [16]": ["preferred_batch_size 16", "1 to max_batch_size 8"],
    f"{_TRITON}priority-levels 2": ["default_priority_level 0", "expected 1 to 2"],
    f"{_TRITON}preserve-ordering true --policy.priority-levels 2 "
    "--policy.default-priority-level 1": ["preserve_ordering does not go with priority_levels 2"],
    f"{_TRITON}timeout-action LATER": ["policy.timeout_action", "'LATER'", "'REJECT' or 'DELAY'"],
    f"{_TRITON}max-queue-delay-microseconds -1": ["max_queue_delay_microseconds", "'-1'"],
    f"{_V1}max-num-batched-tokens 8": ["max_num_batched_tokens 8", "one KV block of 16 tokens"],
    f"{_V0}max-num-batched-tokens 8": ["max_num_batched_tokens 8", "context limit of 131072"],
    f"{_SARATHI}chunk-size 15": ["chunk_size 15", "one KV block of 16 tokens"],
    f"{_SARATHI}decreasing {{high_chunk_size:64,low_chunk_size:128}}": ["decreasing"],
    f"{_V1}watermark 2": ["policy.watermark", "'2'", "less than 1"],
    f"{_V0}watermark -0.1": ["policy.watermark", "'-0.1'", "greater than or equal to 0"],
    f"{_V1}enable-chunked-prefill false": ["8192", "context limit of 131072", "not cut"],
    f"{_V1}enable-chunked-prefill false --policy.budget ascend-table": [
        "budget ascend-table cuts prompts",
        "enable_chunked_prefill is false",
    ],
    f"{_V0}preemption-mode swap --engine.async-scheduling true": [
        "preemption_mode swap",
        "asynchronous scheduling",
    ],
    f"{_ORCA}reserve max_seq_len": ["max_seq_len None with reserve max_seq_len"],
    f"{_ORCA}n-slots 0": ["policy.n_slots", "'0'", "greater than or equal to 1"],
    f"{_CLIPPER}multiplicative-decrease 1": ["multiplicative_decrease", "'1'", "less than 1"],
    f"{_V1}order edg": ["policy.order", "unknown kind 'edg'", "nearest: edf"],
    f"{_V1}order.kind sjf --policy.order.predictor orakel": ["'orakel'", "nearest: oracle"],
    f"{_V1}preset vllm-v1-2025": ["policy.preset", "'vllm-v1-2025'", "'vllm-v1-2026'"],
    f"{_TABLE}slo-ms -0.5": ["slo_ms -0.5", "-1 (off), 0 (baseline) or above 0"],
    f"{_TABLE}path nowhere.csv": ["policy.budget.path: nowhere.csv", "No such file"],
    f"{_TABLE}path gap.csv": [
        "policy.budget.path: gap.csv",
        "no row for",
        "d_num 4, chunk_size 512",
    ],
    f"{_TABLE}path unsorted.csv": ["unsorted.csv, line 3", "(128, 2, 256)", "ascending order"],
    f"{_TABLE}path negative.csv": ["negative.csv, line 2", "all above 0"],
    f"{_TABLE}path no-cost.csv": ["no-cost.csv, line 2", "cost"],
    f"{_TABLE}path empty.csv": ["empty.csv", "ctx_len, d_num, chunk_size, cost"],
    f"{_TABLE}chunk-sizes [64,32]": ["policy.budget.chunk_sizes", "[64, 32]", "ascending"],
    "--policy.budget.kind model-predictive --policy.budget.tpot-slo-ms 0": [
        "policy.budget.tpot_slo_ms",
        "greater than 0",
    ],
    "--engine.router.kind robin": ["engine.router", "'robin'", "nearest: round-robin"],
    "--engine.num-replicas 0": ["engine.num_replicas", "'0'", "greater than or equal to 1"],
    f"{_SYNTHETIC}arrivals five": ["workload.arrivals", "'five'"],
    f"{_SYNTHETIC}arrivals -5": ["workload.arrivals.request_rate", "'-5'", "greater than 0"],
}
"""Parameters of policies, orders, budgets and routers that are out of range or contradictory."""

COMMANDS = {
    "rum": ['"rum"', 'Did you mean "run"?'],
    "list gpu": ['"gpu"', "gpus"],
    "list": ["WHAT"],
    "demo --policy.kind none": ["--policy", "batchlab run"],
    "run good.yaml more.yaml": ["more.yaml"],
}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Path:
    """Fill the working folder with all the files."""
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return tmp_path


def check(call: Command, folder: Path, words: list[str], parts: list[str]) -> None:
    """Check that a command says all parts in one line, exits with 2 and leaves nothing."""
    before = sorted(folder.rglob("*"))
    outcome = call(*words)
    message = outcome.message()
    assert outcome.code == 2
    assert [part for part in parts if part not in message] == [], message
    assert "Traceback" not in message
    assert sorted(folder.rglob("*")) == before


@pytest.mark.parametrize("name", TRACES)
def test_a_trace_that_cannot_be_used(quick: Command, folder: Path, name: str) -> None:
    check(quick, folder, ["run", "--trace", name, "-o", "out"], [name, *TRACES[name]])


@pytest.mark.parametrize("name", SPECIFICATIONS)
def test_a_specification_that_cannot_be_used(quick: Command, folder: Path, name: str) -> None:
    check(quick, folder, ["run", name, "-o", "out"], [name, *SPECIFICATIONS[name]])


@pytest.mark.parametrize("options", OPTIONS | POLICIES)
def test_an_option_that_cannot_be_used(quick: Command, folder: Path, options: str) -> None:
    check(quick, folder, ["run", *options.split()], (OPTIONS | POLICIES)[options])


def test_a_bare_number_on_the_command_line_is_a_rate(quick: Command) -> None:
    words = f"{_SYNTHETIC}arrivals 5 --workload.num-requests 3".split()
    outcome = quick("run", *words, "--cost.kind", "fixed", "--cost.step-ms", "10")
    assert outcome.code == 0
    assert "configured / realised (req/s):" in outcome.out


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_that_cannot_be_used(quick: Command, folder: Path, command: str) -> None:
    check(quick, folder, command.split(), COMMANDS[command])


def test_the_installed_program_says_the_same_as_a_fork_of_a_warm_one(
    batchlab: Command, quick: Command, folder: Path
) -> None:
    words = ["run", "--trace", "fraction.csv"]
    check(batchlab, folder, words, TRACES["fraction.csv"])
    check(quick, folder, words, TRACES["fraction.csv"])


def test_a_message_stays_one_line_whatever_the_value(quick: Command) -> None:
    outcome = quick("run", "--policy.kind", "two\nlines")
    assert outcome.message()
    assert outcome.code == 2


def test_debug_shows_the_traceback_and_keeps_the_code(quick: Command) -> None:
    outcome = quick("run", "--rate", "0", "--debug")
    first, *_, last = outcome.err.splitlines()
    assert first == "Traceback (most recent call last):"
    assert last.startswith("batchlab: error: ")
    assert outcome.code == 2


def test_a_package_that_hides_ours_is_named(batchlab: Command, tmp_path: Path) -> None:
    (tmp_path / "policies").mkdir()
    (tmp_path / "policies" / "__init__.py").touch()
    outcome = batchlab("list", "policies", path=tmp_path)
    assert "hides batchlab's package policies" in outcome.message()
    assert outcome.code == 2


def test_an_existing_results_folder_is_replaced_only_by_force(
    quick: Command, tmp_path: Path
) -> None:
    assert quick("run", *FAST, "-o", "out").code == 0
    before = (tmp_path / "out" / "summary.json").read_bytes()
    refused = quick("run", *FAST, "--seed", "1", "-o", "out")
    assert refused.code == 2
    assert "out: exists already" in refused.message()
    assert (tmp_path / "out" / "summary.json").read_bytes() == before
    assert quick("run", *FAST, "--seed", "1", "-o", "out", "--force").code == 0
    assert (tmp_path / "out" / "summary.json").read_bytes() != before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_output_that_cannot_be_written_is_an_error() -> None:
    with open("/dev/full", "w") as full:  # there every write fails for want of space
        command = [PROGRAM, "list", "gpus"]
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
    assert done.returncode == 2
    assert done.stderr == "batchlab: error: standard output: No space left on device\n"


def test_a_reader_who_has_seen_enough_is_no_error() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as pipe:
        command = [PROGRAM, "list", "gpus"]
        done = subprocess.run(
            command, stdout=pipe, stderr=subprocess.PIPE, text=True, env=environment(), check=False
        )
    assert (done.returncode, done.stderr) == (141, "")
