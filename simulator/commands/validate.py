"""`batchlab validate`: published measurements of serving engines, replayed and compared."""

import json as js
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from simulator.cost.engine_profiles import find_engine_profile
from simulator.errors import UserError
from simulator.result import MANIFEST, dump_json, new_folder, versions
from simulator.validation.levels import Outcome, judge
from simulator.validation.loads import Unrunnable
from simulator.validation.orderings import judge_ordering, read_orderings
from simulator.validation.predict import predict_all
from simulator.validation.report import Validation, write_tables
from simulator.validation.request_log import RequestLog, read_request_logs
from simulator.validation.rows import Measurement, read_measurements
from simulator.validation.scenario import Scenario, make_scenario

Words = Annotated[list[str] | None, Parameter(consume_multiple=True)]
Flag = Annotated[bool, Parameter(negative="")]


def validate(
    *,
    measurements: Path,
    orderings: Path | None = None,
    requests: Path | None = None,
    only: Words = None,
    engine_profile: str | None = None,
    seed: int = 0,
    jobs: int = 1,
    figure: Path | None = None,
    out: Annotated[Path | None, Parameter(name=["--out", "-o"])] = None,
    force: Flag = False,
    json: Flag = False,
    summary: Flag = False,
) -> int:
    """Replay published measurements of serving engines and compare.

    Every row is simulated as it was measured: arrivals, client cap, lengths,
    engine, limits, GPU, KV capacity. Exit code 1 if a level that holds for a row
    is missed, see docs/validation.md.

    For example:

      batchlab validate --measurements m.csv --orderings o.csv --jobs 2
      batchlab validate --measurements m.csv --only ipk-1 lss --figure scatter.png

    Parameters
    ----------
    measurements
        CSV file, one operating point a row.
    orderings
        CSV file of pairs of rows that must, or must not, differ.
    requests
        CSV file with the times of single requests, to replay rows that have them.
    only
        Rows whose record or sweep begins so, or whose source is so called.
    engine_profile
        Use this engine profile for all rows, not the nearest one.
    seed
        Root of the random draws of lengths and Poisson arrivals.
    jobs
        Worker processes. The results do not depend on it.
    figure
        Draw predicted over measured to this file (png, pdf or svg).
    out
        Folder for the tables as CSV files.
    force
        Replace an existing results folder.
    json
        Print one JSON object instead of the report.
    summary
        Leave out the table of all rows.
    """
    if jobs < 1:
        raise UserError("--jobs: expected at least 1")
    if engine_profile is not None:
        find_engine_profile(engine_profile)
    rows = _chosen(read_measurements(measurements), only)
    pairs = read_orderings(orderings) if orderings is not None else []
    logs = read_request_logs(requests) if requests is not None else []
    with nullcontext() if out is None else new_folder(out, force=force) as folder:
        outcomes = _outcomes(rows, logs, engine_profile, seed, jobs)
        known = {outcome.row.record_id: outcome for outcome in outcomes}
        if only:
            pairs = [pair for pair in pairs if {pair.greater, pair.lesser} <= known.keys()]
        validation = Validation.of(outcomes, [judge_ordering(pair, known) for pair in pairs])
        if figure is not None:
            _draw(outcomes, figure)
        if folder is not None:
            write_tables(folder, validation)
            dump_json(folder / MANIFEST, {"kind": "validation", "versions": versions()})
    if json:
        print(js.dumps(validation.to_dict(), indent=2, allow_nan=False))
    else:
        print(validation.text(all_rows=not summary))
    return 0 if validation.passed else 1


def _chosen(rows: list[Measurement], only: list[str] | None) -> list[Measurement]:
    if not only:
        return rows
    names = tuple(only)
    kept = [
        row
        for row in rows
        if row.source_id in names or row.record_id.startswith(names) or row.sweep_id in names
    ]
    if not kept:
        raise UserError(f"--only {' '.join(only)}: no such row")
    return kept


def _outcomes(
    rows: list[Measurement], logs: list[RequestLog], profile: str | None, seed: int, jobs: int
) -> list[Outcome]:
    from tqdm import tqdm

    made = [_scenario(row, logs, profile, seed) for row in rows]
    runs = [one for one in made if isinstance(one, Scenario)]
    with tqdm(total=len(runs), desc="validate", unit="row", disable=None, leave=False) as bar:
        predictions = iter(predict_all(runs, jobs=jobs, progress=bar.update))
    return [
        judge(row, one, next(predictions) if isinstance(one, Scenario) else None)
        for row, one in zip(rows, made, strict=True)
    ]


def _scenario(
    row: Measurement, logs: list[RequestLog], profile: str | None, seed: int
) -> Scenario | str:
    log = next((log for log in logs if log.belongs_to(row)), None)
    try:
        return make_scenario(row, log, profile, seed)
    except Unrunnable as reason:
        return str(reason)


def _draw(outcomes: list[Outcome], path: Path) -> None:
    from simulator.plots import save
    from simulator.plots.validation import panels

    save(panels(outcomes), path)
