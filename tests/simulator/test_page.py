"""The HTML report: a page that stands alone, says what it has to, and is drawn by a browser."""

import os
import re
import shutil
import subprocess
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from simulator import Result, RunSpec, UserError, simulate
from simulator.figures import drawings
from simulator.lifelines import Lifelines, spans_of
from simulator.page import fragment, page
from simulator.result import MANIFEST, dump_json, versions
from simulator.saved import load, of_result
from tests.simulator.harness import run

SECTIONS = ["inputs", "warnings", "results", "differences", "figures", "definitions", "reproduce"]
VOID = {"meta", "link", "br", "img", "hr", "input"}


class Reader(HTMLParser):
    """Collects the elements of a page and checks that they nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: Counter[str] = Counter()
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text: list[str] = []
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags[tag] += 1
        self.ids += [value or "" for name, value in attrs if name == "id"]
        self.links += [v or "" for name, v in attrs if name in ("href", "src", "xlink:href")]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def spec(policy: object, rate: float, number: int = 40) -> RunSpec:
    workload = {"name": "azure-conv-2023", "num_requests": number, "request_rate": rate}
    measure = {"goodput": {"ttft_ms": 500}}
    return RunSpec.from_dict({"workload": workload, "policy": policy, "measure": measure})


@pytest.fixture(scope="module")
def single() -> tuple[Result, Lifelines]:
    watch = Lifelines()
    return simulate(spec("vllm-v1", 8), observers=[watch]), watch


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two policies at two rates, as `demo` leaves them."""
    folder = tmp_path_factory.mktemp("results") / "two <policies>"
    results = {
        f"{policy}@{rate}": simulate(spec(policy, rate))
        for rate in (2, 8)
        for policy in ("static", "vllm-v1")
    }
    for name, result in results.items():
        (folder / "runs" / name).mkdir(parents=True)
        result.write(folder / "runs" / name)
    dump_json(folder / MANIFEST, {"kind": "comparison", "versions": versions()})
    dump_json(folder / "summary.json", {name: r.metrics for name, r in results.items()})
    return folder


@pytest.fixture(scope="module")
def text(comparison: Path) -> str:
    saved = load(comparison)
    rows = saved.frame[saved.frame["workload.request_rate"] == 8]
    runs = {name: saved.runs[name] for name in rows["run"]}
    return page(replace(saved, frame=rows, runs=runs), asked="Which <one> & why?")


def test_a_saved_run_reads_back_as_it_was(single: tuple[Result, Lifelines], tmp_path: Path) -> None:
    result, _ = single
    saved = load(result.save(tmp_path / "run"))
    again = saved.runs["run"]
    assert again.metrics == result.metrics
    assert again.warnings == result.warnings
    assert again.spec == result.spec
    for name, table in result.tables.items():
        for column, values in table.items():
            assert values.astype(str).tolist() == again.tables[name][column].astype(str).tolist()
    recomputed = Result(
        again.spec, 0, again.tables, again.trace, again.num_blocks, again.extrapolated_steps
    )
    assert recomputed.metrics == result.metrics


def test_the_page_of_a_run(single: tuple[Result, Lifelines]) -> None:
    result, watch = single
    saved = of_result(result, spans_of(result.tables, watch))
    reader = Reader(page(saved))
    assert [name for name in reader.ids if name in SECTIONS] == [
        name for name in SECTIONS if name != "differences"
    ]
    keys = {drawing.key for drawing in drawings(saved)}
    assert keys == {"F4", "F6", "F7", "F8", "F9", "F10", "F11"}
    assert reader.tags["svg"] == reader.tags["figcaption"] == len(drawings(saved)) == 9
    words = "".join(reader.text)
    assert "What latency and throughput does vllm-v1 (defaults) give for azure-conv-2023" in words
    assert "batchlab run --workload.request-rate 8" in words
    assert result.spec.content_hash() in words
    assert "one seed" in words


@pytest.mark.slow
def test_the_page_of_a_comparison(text: str) -> None:
    reader = Reader(text)
    assert "<h1>Comparison two &lt;policies&gt;</h1>" in text
    assert '<p id="question">Which &lt;one&gt; &amp; why?</p>' in text
    assert [name for name in reader.ids if name in SECTIONS] == SECTIONS
    assert reader.tags["figure"] == 8
    assert len(reader.ids) == len(set(reader.ids))
    assert text.count("<pre>batchlab run") == 1


def test_a_comparison_is_drawn_over_its_loads_and_at_each(comparison: Path) -> None:
    keys = Counter(drawing.key for drawing in drawings(load(comparison)))
    # 40 requests bear no P99 of theirs, so F1 has the P50 of the TTFT and the P99 of the gaps
    assert keys == {"F1": 2, "F2": 1, "F3": 2, "F4": 6, "F6": 2, "F8": 2, "F9": 2, "F11": 2}


def test_a_page_loads_nothing(text: str) -> None:
    assert all(link.startswith("#") for link in Reader(text).links)
    assert not re.search(r"<(script|link|img|iframe|object|embed)\b", text)
    assert "@import" not in text
    assert set(re.findall(r"url\((.)", text)) <= {"#"}
    named = set(re.findall(r'\bid="([^"]+)"', text))
    assert set(re.findall(r'(?:href="|url\()#([^")]+)', text)) <= named


BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


@pytest.mark.skipif(BROWSER is None, reason=f"no browser found ({', '.join(BROWSERS)})")
def test_a_browser_draws_the_page(text: str, tmp_path: Path) -> None:
    html, picture = tmp_path / "report.html", tmp_path / "page.png"
    html.write_text(text, encoding="utf-8")
    command = [
        BROWSER, "--headless=new", "--disable-gpu", "--hide-scrollbars", "--window-size=1200,3000",
        "--host-resolver-rules=MAP * ~NOTFOUND", "--enable-logging=stderr", "--log-level=0",
        f"--user-data-dir={tmp_path / 'profile'}", f"--screenshot={picture}",
        *(["--no-sandbox"] if os.geteuid() == 0 else []), html.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    assert "CONSOLE" not in done.stderr  # no message of the page itself
    from matplotlib.image import imread

    pixels = imread(picture)
    assert pixels.shape[:2] == (3000, 1200)
    below = pixels[1500:, :, :3]  # figures: curves in the colours of the first two policies
    for colour in ((0x00, 0x72, 0xB2), (0xD5, 0x5E, 0x00)):
        near = abs(below * 255 - colour).sum(axis=2) < 30
        assert near.sum() > 500


def test_a_large_run_has_no_row_for_every_request() -> None:
    result = run([(0, 1, 1)] * 61, {"kind": "static"})
    assert "F10" not in {drawing.key for drawing in drawings(of_result(result))}
    assert "F10" in {d.key for d in drawings(of_result(run([(0, 1, 1)] * 60, {"kind": "static"})))}


def test_a_run_shows_in_a_notebook(single: tuple[Result, Lifelines]) -> None:
    assert Reader(fragment(single[0])).tags["tr"] == 2


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "manifest.json: cannot be read: No such file or directory; not a results folder"),
        ({"manifest.json": "{"}, "manifest.json: not valid JSON"),
        ({"manifest.json": "[]"}, "manifest.json: expected an object"),
        ({"manifest.json": '{"kind": "figures"}'}, "expected the results of a run, a comparison"),
        ({"manifest.json": '{"kind": "sweep"}'}, "the sweep is not finished"),
        ({"manifest.json": '{"kind": "run"}'}, "spec.yaml: No such file or directory"),
        (
            {"manifest.json": '{"kind": "run"}', "spec.yaml": "{}", "summary.json": "{}"},
            "requests.parquet: No such file or directory",
        ),
    ],
)
def test_what_is_no_results_folder_is_refused(
    tmp_path: Path, files: dict[str, str], message: str
) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    with pytest.raises(UserError, match=re.escape(message)):
        load(tmp_path)
    with pytest.raises(UserError, match="there is no such folder"):
        load(tmp_path / "none")
