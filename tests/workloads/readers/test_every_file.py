"""No file of the reference material is forgotten: each is recognised and read, or refused."""

import json
import tarfile
from pathlib import Path

import pytest

from workloads import WorkloadError, read_trace
from workloads.readers import detect_format
from workloads.readers.servegen import _lengths, _windows

pytestmark = pytest.mark.shared

TRACES = Path(__file__).parents[4] / "shared" / "traces"
NAMES = sorted(str(p.relative_to(TRACES)) for p in TRACES.rglob("*") if p.is_file())
ARCHIVES = [name for name in NAMES if name.endswith(".tar.gz")]
CLIENTS = [name for name in NAMES if Path(name).name.startswith("chunk-")]
BAD = [name for name in NAMES if "/bad/" in name and "bom_crlf" not in name]
ABOUT = ["README.md", "summary.json"]
REQUESTS = [name for name in NAMES if name not in {*ARCHIVES, *CLIENTS, *BAD, *ABOUT}]

FORMATS = {
    "aibrix": "aibrix",
    "aiperf_mooncake": "mooncake",
    "azure_llm_2023": "azure",
    "azure_llm_2024": "azure",
    "azure_lmm_2025": "azure",
    "bad": "azure",
    "burstgpt": "burstgpt",
    "etalon_processed": "vidur",
    "llmservingsim": "llmservingsim",
    "mooncake_fast25": "mooncake",
    "qwen_bailian": "qwen-bailian",
    "servegen_offline": "servegen-offline",
    "splitwise_sim": "splitwise-sim",
    "traces": "kv-cache-tester",
    "vidur_processed": "vidur",
    "vtc_arena": "arena",
}
"""Folder to the format of the files in it."""


@pytest.fixture(scope="module")
def published():
    return json.loads((TRACES / "summary.json").read_text())["files"]


def test_the_published_list_is_that_of_the_folder(published):
    assert sorted({*published, *ABOUT}) == NAMES


@pytest.mark.parametrize("name", REQUESTS)
def test_requests_are_recognised_and_their_rows_are_the_published_ones(published, name):
    path = TRACES / name
    assert detect_format(path) == FORMATS[path.parent.name]
    rows = published[name].get("rows")
    if rows is not None and rows > 5000:  # whole files of this size have tests of their own
        assert len(read_trace(path, max_rows=100)) == 100
        return
    trace = read_trace(path, default_output=10)
    account = trace.provenance
    assert account["sha256"] == published[name]["sha256_uncompressed"]
    assert account["rows_read"] == account["rows_kept"] + sum(account["dropped"].values())
    if "requests" in published[name]:
        rows = published[name]["requests"] + published[name]["nested_requests"]
    if "aibrix" not in name and rows is not None:  # its rows are lines with several requests
        assert account["rows_read"] == rows
    if "sum_input" in published[name] and not published[name].get("nested_requests"):
        assert trace.prompt_tokens.sum() == published[name]["sum_input"]


@pytest.mark.parametrize("name", CLIENTS)
def test_a_file_of_a_client_is_read_and_is_not_taken_for_requests(name):
    path = TRACES / name
    read = _windows if name.endswith(".csv") else _lengths
    assert read(name, path.read_text())
    with pytest.raises(WorkloadError, match="one file of a ServeGen client"):
        read_trace(path)


@pytest.mark.parametrize("name", ARCHIVES)
def test_every_file_of_an_archive_is_read(real, published, name):
    with tarfile.open(TRACES / name) as archive:
        members = [Path(member.name).name for member in archive if member.isfile()]
    assert len(members) == published[name]["members"]
    with_lengths = {n.split("-")[1] for n in members if n.endswith("dataset.json")}
    read = {client.name for client in real(name).clients}
    assert read <= with_lengths
    assert len(with_lengths - read) <= 2, "clients that never ask, or without lengths"
    with pytest.raises(WorkloadError, match="read_clients"):
        read_trace(TRACES / name)


@pytest.mark.parametrize("name", [*BAD, *ABOUT])
def test_what_is_malformed_is_refused_in_one_line_that_names_the_file(name):
    with pytest.raises(WorkloadError) as error:
        read_trace(TRACES / name)
    assert str(error.value).startswith(str(TRACES / name))
    assert "\n" not in str(error.value)
