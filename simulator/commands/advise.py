"""`batchlab advise`: whether batching is worth it here, and with which settings."""

import json as js
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter

from simulator.advise import Enquiry, Study, study
from simulator.advise.text import advice_dict, advice_text, settings_table
from simulator.advise.workload import prepare
from simulator.commands.base import (
    HERE,
    NOTHING,
    Bar,
    Flag,
    Settings,
    Short,
    Where,
    base_of,
    read_file,
)
from simulator.experiments.sweep import run_sweep
from simulator.experiments.task import Row, Task
from simulator.result import MANIFEST, check_target, dump_json, new_folder, versions


def advise(
    spec: Path | None = None,
    /,
    *,
    attainment: float = 0.9,
    seeds: int = 6,
    search_seeds: int = 2,
    load_change: float = 0.3,
    cost_change: float = 0.15,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    force: Flag = False,
    json: Flag = False,
    where: Where = HERE,
    short: Short = NOTHING,
    settings: Settings = None,
) -> int:
    """Say whether batching is worth it for a workload, and with which settings.

    Serves the workload one request at a time and under static batches, batches
    that wait, vllm-v1 and sarathi, with limits searched from coarse to fine.
    Answers the questions to ask before batching is turned on, each with the
    numbers that were simulated; then verdict, policy, wait time, batch and chunk
    limits, gains and costs, and what other loads and step times would change.
    A policy in the specification is not used; about 250 runs of 600 requests.

    For example:

      batchlab advise --goodput ttft:500 tpot:50 --request-rate 4 --jobs 2
      batchlab advise --trace FILE.csv --gpu a100 --goodput ttft:1000 -o results/a
      batchlab advise --workload.name azure-code-2023 --goodput e2el:3000

    Parameters
    ----------
    spec
        YAML file with the specification.
    attainment
        Fraction of the requests that have to meet --goodput.
    seeds
        Replications on which the advice rests.
    search_seeds
        Other replications, on which the settings are chosen.
    load_change
        How far the load is moved up and down, as a fraction.
    cost_change
        How far the time of every step is moved up and down, as a fraction.
    out
        Folder for advice.txt, advice.json, settings.csv and recommended.yaml.
    force
        Replace an existing results folder.
    json
        Print one JSON object instead of the text.
    """
    executor = where.executor()
    data, _ = read_file(spec)
    base = base_of(data, settings, short)
    enquiry = Enquiry(
        base, attainment, seeds, search_seeds, load_change, cost_change, executor.timeout_s
    )
    given = (data.get("workload"), (settings or {}).get("workload"))
    is_sized = short.num_requests is not None or any(map(_names_size, given))
    prepared = prepare(base, attainment, is_sized=is_sized)
    enquiry = replace(enquiry, base=prepared.base)
    if out is not None:
        check_target(out, force)

    def run(stage: str, tasks: list[Task]) -> list[Row]:
        bar = Bar(f"advise, {stage}", executor)
        try:
            return run_sweep(tasks, executor=executor, watch=bar)
        finally:
            bar.close()

    found = study(enquiry, run)
    answer, text = advice_dict(found, prepared.about), advice_text(found, prepared.about)
    if out is not None:
        with new_folder(out, force=force) as folder:
            _write(folder, found, answer, text)
    print(js.dumps(answer, indent=2, allow_nan=False) if json else text)
    return 0


def _names_size(workload: object) -> bool:
    return isinstance(workload, Mapping) and workload.get("num_requests") is not None


def _write(folder: Path, found: Study, answer: dict[str, Any], text: str) -> None:
    dump_json(folder / MANIFEST, {"kind": "advice", "versions": versions()})
    dump_json(folder / "advice.json", answer)
    (folder / "advice.txt").write_text(text + "\n", encoding="utf-8")
    (folder / "recommended.yaml").write_text(found.spec.to_yaml(), encoding="utf-8")
    settings_table(found).to_csv(folder / "settings.csv", index=False)
