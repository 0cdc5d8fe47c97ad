"""The bits of results under the libraries that are installed, and under those of digests.json."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simulator import simulate
from tests.golden.digests import (
    FILE,
    PARTS,
    RUNS,
    all_digests,
    differences,
    digests,
    libraries,
    spec,
)
from workloads.arrival_spec import ARRIVALS
from workloads.length_spec import LENGTHS


def test_runs_have_the_bits_that_are_kept() -> None:
    """After a change that is meant: python tests/golden/digests.py --accept."""
    lines = differences(all_digests(), json.loads(FILE.read_text())["runs"])
    assert not lines, "\n".join([f"results have other bits ({libraries()}):", *lines])


def test_every_law_of_arrivals_and_lengths_has_a_run(tmp_path: Path) -> None:
    found = {kind for name in RUNS["runs"] for kind in kinds(spec(name, tmp_path).to_dict())}
    laws = {law.model_fields["kind"].default for law in (*ARRIVALS, *LENGTHS)}
    assert laws <= found, laws - found


def kinds(data: Any) -> Iterator[str]:
    """Yield all kinds in nested data."""
    if isinstance(data, dict):
        yield from [data["kind"]] if "kind" in data else []
        data = list(data.values())
    if isinstance(data, list):
        for value in data:
            yield from kinds(value)


def test_a_digest_hears_the_last_bit(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of a request, a time and a statistic, and the first part that differs is the one named."""
    run = spec("poisson", tmp_path)
    before = digests(simulate(run))
    assert digests(simulate(run)) == before
    result = simulate(run)
    result.metrics["mean_ttft_ms"] = np.nextafter(result.metrics["mean_ttft_ms"], 1e9)
    assert [part for part in PARTS if digests(result)[part] != before[part]] == ["summary"]
    result.tables["steps"]["end_s"][-1] = np.nextafter(result.tables["steps"]["end_s"][-1], 1e9)
    changed = digests(result)
    assert [part for part in PARTS if changed[part] != before[part]] == ["tables", "summary"]
    assert differences({"poisson": changed}, {"poisson": before}) == [
        f"poisson: tables ({PARTS['tables']})"
    ]
