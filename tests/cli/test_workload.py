"""`batchlab workload` and `batchlab cost`."""

import json
from pathlib import Path

import pytest
import yaml

from simulator import RunSpec
from simulator.commands.workload import inspect
from tests.cli.process import Command
from workloads import Streams, get_preset, write_trace

PLAIN = "arrivals: 5\nprompt_tokens: 10\noutput_tokens: 4\n"
SHARED = Path(__file__).resolve().parents[3] / "shared"


def test_a_preset_is_described_in_text_in_json_and_in_a_figure(
    quick: Command, tmp_path: Path
) -> None:
    text = quick("workload", "inspect", "azure-conv-2023", "--figure", "f.png")
    data = quick("workload", "inspect", "azure-conv-2023", "--json")
    assert (text.code, data.code) == (0, 0), text.err + data.err
    assert "gap CV" in text.out
    assert json.loads(data.out)["arrivals"]["requests"] == 19_366
    assert (tmp_path / "f.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.shared
@pytest.mark.parametrize("name", ["azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz"])
def test_a_generator_is_fitted_and_runs(quick: Command, tmp_path: Path, name: str) -> None:
    done = quick("workload", "fit", SHARED / "traces" / name, "-o", "w.yaml", "--seeds", 2)
    assert done.code == 0, done.err
    assert "p99 wait of the trace" in done.out
    spec = RunSpec.from_dict({"workload": yaml.safe_load((tmp_path / "w.yaml").read_text())})
    assert spec.workload.kind == "synthetic"


FORMATS = ("csv", "jsonl", "mooncake", "aiperf", "vllm", "guidellm", "azure", "vidur", "burstgpt")


@pytest.mark.parametrize("form", FORMATS)
def test_a_generated_workload_is_read_again(quick: Command, tmp_path: Path, form: str) -> None:
    words = ("workload", "generate", "azure-conv-2023", "-o", "t", "--num-requests", 50)
    done = quick(*words, "--format", form)
    assert done.code == 0, done.err
    first = (tmp_path / "t").read_bytes()
    seconds = ("--time-unit", "s") if form == "guidellm" else ()
    seen = json.loads(quick("workload", "inspect", "t", "--json", *seconds).out)
    assert (seen["arrivals"]["requests"], seen["account"]["warnings"]) == (50, [])
    assert quick(*words, "--format", form).code == 0
    assert (tmp_path / "t").read_bytes() == first


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["inspect", "none.csv"], "none.csv: no such file"),
        (["inspect", "azure-conv"], "azure-conv: no such file or preset; nearest: azure-co"),
        (["inspect", "azure-conv-2023", "--summary"], "azure-conv-2023: a summary needs a file"),
        (["inspect", "none.csv", "--summary"], "none.csv: no such file or preset"),
        (["fit", "demo-chat", "-o", "no/x.yaml"], "no/x.yaml: cannot be written"),
        (["fit", "demo-chat", "-o", "x.yaml", "--seeds", "0"], "got 0, expected at least 1"),
        (["generate", "coding-assistant", "-o", "x"], "coding-assistant: turns wait for answers"),
        (["generate", "typo.yaml", "-o", "x"], "typo.yaml: workload.num_request: no such param"),
        (["generate", "cap.yaml", "-o", "x"], "cap.yaml: max_concurrency is kept by the client"),
        (["generate", "azure-conv", "-o", "x"], "azure-conv: no such file or preset; nearest"),
        (["inspect", "azure-conv-2023", "--detick"], "azure-conv-2023: is a preset"),
        (["fit", "none.csv", "-o", "x"], "none.csv: no such file"),
        (["generate", "none.yaml", "-o", "x"], "none.yaml: no such file or preset"),
        (["generate", "demo-chat", "-o", "x", "--format", "csw"], "got 'csw'"),
        (["generate", "demo-chat", "-o", "no/such/folder"], "no/such/folder"),
        (
            ["generate", "demo-chat", "-o", "x", "--request-rate", "0"],
            "demo-chat: workload.request_rate: 0",
        ),
    ],
)
def test_wrong_words_are_told_in_one_line(
    quick: Command, tmp_path: Path, words: list[str], message: str
) -> None:
    (tmp_path / "typo.yaml").write_text(PLAIN + "num_request: 7\n")
    (tmp_path / "cap.yaml").write_text(PLAIN + "max_concurrency: 2\n")
    done = quick("workload", *words)
    assert done.code == 2
    assert done.message().startswith(message)
    assert not (tmp_path / "x").exists()


def test_conversations_are_written_with_delays(quick: Command, tmp_path: Path) -> None:
    words = ("generate", "coding-assistant", "-o", "t", "--num-requests", 40)
    done = quick("workload", *words, "--format", "aiperf")
    assert done.code == 0, done.err
    rows = [json.loads(line) for line in (tmp_path / "t").read_text().splitlines()]
    assert len(rows) == 40
    assert all(("delay" in row) != ("timestamp" in row) for row in rows)
    assert any("delay" in row for row in rows)


def test_a_large_file_is_summarised(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = str(write_trace(get_preset("demo-chat").trace(40, streams=Streams(0)), tmp_path / "t"))
    monkeypatch.setattr("simulator.commands.workload._LARGE", 100)
    figure = tmp_path / "f.png"
    seen = []
    for options in ({}, {"max_rows": 30}, {"summary": True, "figure": figure}):
        assert inspect(path, json=True, **options) == 0
        seen.append(json.loads(capsys.readouterr().out))
    whole, cut, asked = seen
    assert whole == asked
    assert "queueing" not in whole
    assert cut["queueing"]["load"] == 0.7
    assert figure.read_bytes()[:4] == b"\x89PNG"


def test_a_step_is_taken_apart(quick: Command) -> None:
    words = ("cost", "--decodes", 128, "--context", 1024, "--chunk", 512)
    text, data = quick(*words), quick(*words, "--json")
    assert (text.code, data.code) == (0, 0), text.err
    assert "Bound by" in text.out
    parts = json.loads(data.out)
    assert parts["ms"] == pytest.approx(sum(term["ms"] for term in parts["terms"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--gpu", "h10", "--decodes", "1"], "gpu: unknown gpu 'h10'"),
        (["--chunk", "many"], "'many'"),
        (["--model-config", "none.json", "--chunk", "5"], "none.json"),
    ],
)
def test_a_wrong_step_is_told_in_one_line(quick: Command, words: list[str], message: str) -> None:
    done = quick("cost", *words)
    assert done.code == 2
    assert message in done.message()


@pytest.mark.shared
def test_clients_are_drawn_from(quick: Command) -> None:
    folder = SHARED / "traces" / "servegen" / "data" / "reason" / "deepseek-r1"
    seen = quick("workload", "inspect", folder, "--max-rows", 300)
    assert seen.code == 0, seen.err
    assert "300" in seen.out
    made = quick("workload", "generate", folder, "-o", "t.csv", "--num-requests", 40)
    assert made.out.startswith("40 requests")
