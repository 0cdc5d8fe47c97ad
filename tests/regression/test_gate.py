"""The command `batchlab regress`: files, verdicts, exit codes, and what it refuses."""

import json
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
import yaml

from simulator.regress.baseline import Acceptance, new_baseline
from simulator.regress.check import sample_all
from simulator.regress.suite import Suite
from tests.regression.command import Gate

SUITE = """\
seeds: 4
max_seeds: 8
metrics: {p50_ttft_ms: , p90_e2el_ms: {tolerance: 0.05}, mean_batch_size: {direction: same}}
base:
  cost: {kind: fixed, step_ms: 10}
  measure: {percentiles: [50, 90]}
  workload: {arrivals: 5, prompt_tokens: 20, output_tokens: {mean: 8, cv: 1}, num_requests: 50}
scenarios:
  continuous: {}
  windows: {spec: {policy: {kind: window-pull, max_wait_ms: 10}}}
  decisions: {exact: true, spec: {policy: static}}
"""

FASTER, SLOWER = "step_ms: 9", "step_ms: 11"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the content of the baseline."""
    path = tmp_path_factory.mktemp("suite") / "suite.yaml"
    path.write_text(SUITE)
    wanted = Suite(path)
    first = Acceptance(reason="recorded", version=version("batchlab"))
    found = new_baseline(wanted, sample_all(wanted), (first,))
    return found.to_yaml()


@pytest.fixture
def suite(tmp_path: Path, recorded: str) -> Path:
    """Return a suite with its baseline."""
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE)
    baseline(path).write_text(recorded)
    return path


def baseline(suite: Path) -> Path:
    return suite.with_name("suite.baseline.yaml")


def change(suite: Path, old: str, new: str) -> None:
    """Change the suite and let the baseline believe that it was always so."""
    text = suite.read_text()
    assert old in text
    suite.write_text(text.replace(old, new))
    data = yaml.safe_load(baseline(suite).read_text())
    for scenario in Suite(suite).scenarios:
        data["scenarios"][scenario.name]["spec_sha256"] = scenario.sha256
    baseline(suite).write_text(yaml.safe_dump(data, sort_keys=False))


def verdicts(out: str) -> dict[tuple[str, str], str]:
    return {(c["scenario"], c["metric"]): c["verdict"] for c in json.loads(out)["cells"]}


def test_a_baseline_is_small_text_with_a_value_for_every_seed(suite: Path, gate: Gate) -> None:
    data = yaml.safe_load(baseline(suite).read_text())
    assert data["format"] == "batchlab-baseline/1"
    assert data["code"]["batchlab"]
    assert [entry["reason"] for entry in data["history"]] == ["recorded"]
    assert {len(v) for v in data["scenarios"]["windows"]["values"].values()} == {8}
    assert len(data["scenarios"]["windows"]["spec_sha256"]) == 64
    assert len(data["scenarios"]["decisions"]["behaviour"]) == 64
    before = baseline(suite).read_bytes()
    again = gate("record", suite)
    assert (again.code, again.out) == (2, "")
    assert "exists already; `batchlab regress accept`" in again.err
    assert gate("record", suite, "--force").code == 0
    assert baseline(suite).read_bytes() == before


def test_the_same_code_gives_no_difference_at_all(suite: Path, gate: Gate) -> None:
    outcome = gate("check", suite, "--strict", "--json")
    assert outcome.code == 0
    assert set(verdicts(outcome.out).values()) == {"identical"}
    found = json.loads(outcome.out)
    assert {cell.get("change", 0.0) for cell in found["cells"]} == {0.0}
    assert found["verdicts"]["identical"] == len(found["cells"]) == 10
    assert found["confidence_per_cell"] == pytest.approx(1 - 0.05 / 6)


@pytest.mark.slow  # starting workers takes seconds
def test_workers_change_nothing(suite: Path, gate: Gate) -> None:
    assert gate("check", suite, "--jobs", 2).out == gate("check", suite).out


def test_a_slower_machine_regresses_and_every_format_says_so(suite: Path, gate: Gate) -> None:
    change(suite, "step_ms: 10", SLOWER)
    junit, table = suite.with_name("junit.xml"), suite.with_name("table.md")
    outcome = gate("check", suite, "--junit", junit, "--markdown", table)
    assert outcome.code == 1
    assert outcome.out == table.read_text()
    rows = [line for line in outcome.out.splitlines() if line.startswith("| **regressed**")]
    assert rows
    assert outcome.out.index(rows[-1]) < outcome.out.index("| identical")  # the worst first
    assert "**failed**: " in outcome.out
    root = ElementTree.fromstring(junit.read_text())
    assert root.tag == "testsuite"
    assert root.get("tests") == "10"
    failures = {(c.get("classname"), c.get("name")) for c in root if c.find("failure") is not None}
    assert root.get("failures") == str(len(failures))
    as_json = gate("check", suite, "--json")
    assert as_json.code == 1
    found = verdicts(as_json.out)
    assert failures == {key for key, verdict in found.items() if verdict == "regressed"}
    assert found["continuous", "p50_ttft_ms"] == "regressed"
    assert found["decisions", "behaviour"] == "regressed"
    assert found["continuous", "workload"] == "identical"


def test_a_faster_machine_improves(suite: Path, gate: Gate) -> None:
    change(suite, "step_ms: 10", FASTER)
    outcome = gate("check", suite, "--json", "--scenario", "continuous")
    found = verdicts(outcome.out)
    assert found["continuous", "p50_ttft_ms"] == "improved"
    assert found["continuous", "p90_e2el_ms"] == "improved"


def test_an_unclear_metric_gets_more_seeds_and_passes_with_a_warning(
    suite: Path, gate: Gate
) -> None:
    change(suite, "p50_ttft_ms: ,", "p50_ttft_ms: {tolerance: 0.1},")
    data = yaml.safe_load(baseline(suite).read_text())
    values = data["scenarios"]["continuous"]["values"]["p50_ttft_ms"]
    data["scenarios"]["continuous"]["values"]["p50_ttft_ms"] = [
        value * factor for value, factor in zip(values, [0.8, 1.0] * 4, strict=True)
    ]
    baseline(suite).write_text(yaml.safe_dump(data))
    words = ["check", suite, "--scenario", "continuous"]
    cells = {c["metric"]: c for c in json.loads(gate(*words, "--json").out)["cells"]}
    assert cells["p50_ttft_ms"]["verdict"] == "inconclusive"
    assert cells["p50_ttft_ms"]["num_seeds"] == 8
    assert cells["p90_e2el_ms"]["num_seeds"] == 4  # what is decided stays
    outcome = gate(*words)
    assert outcome.code == 0
    assert "**passed**: 1 inconclusive" in outcome.out
    assert "Warning: 1 inconclusive, which --strict would fail." in outcome.out
    assert gate(*words, "--strict").code == 1


def test_accept_records_what_changed_and_why(suite: Path, gate: Gate) -> None:
    assert "nothing changed" in gate("accept", suite, "--reason", "none").out
    suite.write_text(suite.read_text().replace("step_ms: 10", SLOWER))
    refused = gate("check", suite)
    assert refused.code == 2
    assert "scenarios.continuous: is of another specification" in refused.err
    assert gate("accept", suite, "--reason", " ").code == 2
    accepted = gate("accept", suite, "--reason", "the machine is slower")
    assert accepted.code == 0
    assert "continuous: p50_ttft_ms " in accepted.out
    history = yaml.safe_load(baseline(suite).read_text())["history"]
    assert [entry["reason"] for entry in history] == ["recorded", "the machine is slower"]
    assert any(line.startswith("windows: p90_e2el_ms ") for line in history[1]["changed"])
    assert gate("check", suite).code == 0


def test_a_metric_that_lost_its_value_has_regressed(suite: Path, gate: Gate) -> None:
    change(suite, "num_requests: 50", "num_requests: 20")
    outcome = gate("check", suite, "--json", "--scenario", "continuous")
    cells = {c["metric"]: c for c in json.loads(outcome.out)["cells"]}
    assert cells["p90_e2el_ms"]["verdict"] == "regressed"
    assert cells["p90_e2el_ms"]["note"].startswith("n/a in seed 0")
    assert cells["workload"]["verdict"] == "regressed"


def test_a_run_that_fails_is_told_and_the_rest_is_finished(
    suite: Path, gate: Gate, monkeypatch: pytest.MonkeyPatch
) -> None:
    (suite.parent / "broken_policy.py").write_text(
        "from policies import Policy, PolicySpec\n"
        "class _P(Policy):\n    def decide(self, view, trigger=None): raise KeyError('x')\n"
        "class Broken(PolicySpec):\n    def build(self): return _P()\n"
    )
    monkeypatch.syspath_prepend(suite.parent)
    change(suite, "kind: window-pull, max_wait_ms: 10", "kind: 'broken_policy:Broken'")
    outcome = gate("check", suite)
    assert outcome.code == 3
    assert "**incomplete**: 4 runs failed" in outcome.out
    assert "Run failed: windows, seed 0: " in outcome.out
    assert "| identical | continuous" in outcome.out.replace("  ", "").replace(" |", " |")
    recorded = gate("record", suite, "--force")
    assert recorded.code == 3
    assert "no baseline was written" in recorded.err


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("seeds: 4", "seeds: 1", "seeds"),
        ("seeds: 4", "seeds: 9", "max_seeds 8: expected at least seeds 9"),
        ("max_seeds: 8", "max_seed: 8", "nearest: max_seeds"),
        ("p50_ttft_ms", "p50_tft_ms", "p50_tft_ms.direction: missing"),
        ("p50_ttft_ms", "p51_ttft_ms", "no such metric 'p51_ttft_ms'; nearest: p50_ttft_ms"),
        ("percentiles: [50, 90]", "percentiles: [50, 99]", "no such metric 'p90_e2el_ms'"),
        ("num_requests: 50", "num_requests: 20", "p90_e2el_ms: n/a in seed 0"),
        ("kind: window-pull", "kind: windowpull", "scenarios.windows.spec: policy"),
        ("continuous: {}", "continuous: {spec: other.yaml}", "other.yaml: cannot be read"),
        ("direction: same", "direction: up", "'lower', 'higher' or 'same'"),
    ],
)
def test_a_suite_that_cannot_be_used(
    tmp_path: Path, gate: Gate, old: str, new: str, expected: str
) -> None:
    path = tmp_path / "suite.yaml"
    path.write_text(SUITE.replace(old, new))
    outcome = gate("record", path)
    assert (outcome.code, outcome.out) == (2, "")
    assert expected in outcome.err.splitlines()[-1]
    assert [file.name for file in tmp_path.iterdir()] == ["suite.yaml"]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("format: batchlab-baseline/1", "format: other", "format"),
        ("spec_sha256: ", "spec_sha256: 0", "is of another specification"),
        ("  windows:", "  window:", "scenarios.window: is not in the suite"),
        ("      p50_ttft_ms: [", "      p50_ttft_ms: [1.0, ", "has 9 values; expected 8"),
        ("      p50_ttft_ms: [", "      p51_ttft_ms: [", "values.p50_ttft_ms: missing"),
        ("    behaviour: ", "    behavior: ", "scenarios.decisions.behavior: no such parameter"),
        ("workload: [", "workload: [[", "not valid YAML"),
    ],
)
def test_a_foreign_or_damaged_baseline_is_wrong_input(
    suite: Path, gate: Gate, old: str, new: str, expected: str
) -> None:
    text = baseline(suite).read_text()
    assert old in text
    baseline(suite).write_text(text.replace(old, new))
    outcome = gate("check", suite)
    assert (outcome.code, outcome.out) == (2, "")
    assert expected in outcome.err
    assert outcome.err.count("\n") == 1


def test_a_run_that_takes_too_long_fails(suite: Path, gate: Gate) -> None:
    outcome = gate("check", suite, "--timeout", "0.0001", "--scenario", "continuous")
    assert outcome.code == 3
    assert "Run failed: continuous, seed 0: no end after 0.0001 s" in outcome.out


def test_other_wrong_input(suite: Path, gate: Gate) -> None:
    assert "nearest: windows" in gate("check", suite, "--scenario", "window").err
    assert "expected at least 1" in gate("check", suite, "--jobs", "0").err
    assert "cannot be written" in gate("check", suite, "--junit", suite.parent / "no" / "x").err
    baseline(suite).unlink()
    outcome = gate("check", suite)
    assert outcome.code == 2
    assert "no such baseline" in outcome.err
