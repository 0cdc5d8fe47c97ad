"""The command line: parses, calls, prints, exits. Heavy imports happen inside the commands."""

import os
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import App, CycloptsError, Parameter, UnknownOptionError

from simulator.errors import RunError, UserError
from simulator.garbage import collect_less, end_without_collecting
from simulator.settings import (
    Nested,
    combine,
    dotted,
    merge,
    read_text,
    shorthands,
    split_options,
)
from simulator.wall_limit import HELP

if TYPE_CHECKING:
    from simulator.observer import Observer
    from simulator.result import Result

OK, GATE_FAILED, WRONG_INPUT, RUN_FAILED, INTERRUPTED, BROKEN_PIPE = 0, 1, 2, 3, 130, 141
"""Exit codes."""

app = App(
    name="batchlab",
    help="Simulate batching policies of LLM inference servers.",
    help_format="plaintext",
    help_formatter="plain",
    version=lambda: _version(),
    result_action="return_value",
    default_parameter=Parameter(negative=""),
    help_epilogue=(
        "Exit codes: 0 done, 1 a gate failed, 2 wrong input, 3 a run failed, 130 interrupted.\n"
        "--debug after any command shows the traceback of an error."
    ),
)

LOADED_ON_DEMAND = {
    "sweep": "Run a specification at every point of a grid, for several seeds.",
    "report": "Make an HTML page of the results of a run, a comparison or a sweep.",
    "capacity": "Find the highest request rate, or the fewest replicas, that meets the SLOs.",
    "compare": "Say which metric moved between specifications, on the same seeds.",
    "advise": "Say whether batching is worth it for a workload, and with which settings.",
    "check-vllm": "Replay recordings of the real vLLM: decisions, token times, latencies.",
    "calibrate": "Turn timings into a cost profile, and say how well it predicts.",
    "profile-gpu": "Time the operators of a model on the GPU at hand, for calibrate.",
    "cost": "Take one step apart: the time of every term, and what bounds it.",
    "validate": "Replay published measurements of serving engines and compare.",
    "theory": "Compare simulated means with the formulas of queueing theory.",
    "workload": "Look at a workload, fit a generator to it, or write one to a file.",
    "regress": "Record metrics of a suite of runs, and check that they do not become worse.",
}
"""Commands in files of their own, and what the list of commands says of them."""

GROUPS = ("workload", "regress")
"""Those of them that have commands of their own."""

Out = Annotated[Path | None, Parameter(name=["--out", "-o"])]
Flag = Annotated[bool, Parameter(negative="")]
Settings = Annotated[Nested | None, Parameter(parse=False)]
"""The dotted options; `main` hands them over."""


@app.command
def run(
    spec: Path | None = None,
    /,
    *,
    trace: Path | None = None,
    gpu: str | None = None,
    model: str | None = None,
    model_config: Path | None = None,
    request_rate: Annotated[str | None, Parameter(name=["--request-rate", "--rate"])] = None,
    num_requests: Annotated[str | None, Parameter(name=["--num-requests", "--num-prompts"])] = None,
    goodput: Annotated[list[str] | None, Parameter(consume_multiple=(1, None), negative="")] = None,
    seed: str | None = None,
    out: Out = None,
    figures: Path | None = None,
    format: Literal["svg", "pdf", "png"] = "svg",
    chrome_trace: Path | None = None,
    force: Flag = False,
    stream: Flag = False,
    timeout: Annotated[float | None, Parameter(help=HELP)] = None,
    json: Flag = False,
    settings: Settings = None,
) -> int:
    """Simulate one run and print its report.

    Without arguments: 400 requests of azure-conv-2023 under vllm-v1 on one H100.
    Any key of the specification can be set as --section.key VALUE (sections:
    workload, policy, engine, cost, measure); a flag wins over the file.
    `batchlab list policies` and `batchlab schema` show the keys.

    For example:

      batchlab run
      batchlab run --trace FILE.csv --policy.max-num-seqs 128 -o results/a
      batchlab run --policy.kind window-pull --policy.max-wait-ms 20
      batchlab run run.yaml --request-rate 4 --goodput ttft:500 tpot:50
      batchlab run --policy.kind my_module:MyPolicy
      batchlab run --figures figures --format pdf --chrome-trace run.json.gz

    Parameters
    ----------
    spec
        YAML file with the specification.
    trace
        Request trace to replay (short for --workload.path).
    gpu
        GPU type (short for --cost.gpu).
    model
        Model (short for --cost.model).
    model_config
        A config.json in Hugging Face's form (short for --cost.architecture).
    request_rate
        Mean requests per second; time is stretched to it.
    num_requests
        Number of requests.
    goodput
        Objectives in ms, such as ttft:500 tpot:50 e2el:5000.
    seed
        Root of all random streams.
    out
        Folder for the tables, summary.json and spec.yaml.
    figures
        Folder for figures of the run: latencies, steps, KV cache, requests.
    format
        Format of the figures.
    chrome_trace
        File (.json or .json.gz) for ui.perfetto.dev: steps, requests, counters.
    force
        Replace what exists in the places named.
    stream
        Write the tables while the run goes on, for millions of requests; requests
        stand in the order in which they left. Figures and a Chrome trace still keep
        every request in memory.
    json
        Print one JSON object instead of the report.
    """
    from simulator.outputs import Outputs
    from simulator.run import simulate
    from simulator.spec import RunSpec, parse_yaml

    name = str(spec) if spec is not None else ""
    data = parse_yaml(read_text(spec), name) if spec is not None else {}
    data, options = {**RunSpec().to_dict(), **data}, settings or {}
    short = shorthands(
        trace=trace,
        gpu=gpu,
        model=model,
        model_config=model_config,
        request_rate=request_rate,
        num_requests=num_requests,
        goodput=goodput or (),
        seed=seed,
        workload=merge(data, options)["workload"],
    )
    run_spec = RunSpec.from_dict(merge(data, combine(options, short)), name)
    if stream and out is None:
        raise UserError("--stream: needs --out, the folder that the tables are written to")
    with Outputs(out, figures, format, chrome_trace, force=force) as outputs:
        watchers = outputs.observers(run_spec)
        with _progress("run") as watch:
            spill = outputs.folder if stream else None
            observers = (*watch, *watchers)
            result = simulate(run_spec, observers=observers, spill=spill, timeout_s=timeout)
        outputs.write(result)
    _print_run(result, as_json=json)
    return OK


@app.command
def demo(*, out: Out = Path("results/demo"), force: Flag = False, seed: int = 0) -> int:
    """Compare four ways to batch one trace at three loads, with tables and figures.

    No batching, static batches, batches that wait for company, and continuous
    batching serve the preset azure-conv-2023 on Llama-3.1-8B and one H100.

    For example:

      batchlab demo
      batchlab demo --out results/second --seed 1

    Parameters
    ----------
    out
        Folder for the results.
    force
        Replace an existing results folder.
    seed
        Root of all random streams.
    """
    from simulator import demo as main_job
    from simulator.report import comparison_text
    from simulator.result import new_folder

    assert out is not None
    runs = main_job.specs(seed)
    print(main_job.describe())
    with new_folder(out, force=force) as folder:
        with _progress("demo", main_job.num_requests(runs)) as watch:
            results = main_job.run_all(runs, watch)
        main_job.write(results, folder)
    print(comparison_text(main_job.frame(results)))
    print(main_job.FOOTNOTE)
    print(f"Results in {out}")
    return OK


@app.command(name="list")
def list_(
    what: Literal["policies", "routers", "workloads", "gpus", "models", "costs"],
    /,
    *,
    json: Flag = False,
) -> int:
    """List what can be chosen, with parameters, defaults and sources.

    For example:

      batchlab list policies
      batchlab list gpus --json

    Parameters
    ----------
    what
        Which list.
    json
        Print JSON instead of text.
    """
    from simulator.catalogue import CATALOGUES, as_text

    rows = CATALOGUES[what]()
    print(_as_json(rows) if json else as_text(rows))
    return OK


@app.command
def schema() -> int:
    """Print the JSON Schema of a run specification, for editors.

    For example:

      batchlab schema > batchlab.schema.json
    """
    from simulator.spec import RunSpec

    print(_as_json(RunSpec.model_json_schema()))
    return OK


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit with its code."""
    collect_less()
    words = list(sys.argv[1:] if arguments is None else arguments)
    debug = "--debug" in words
    try:
        code = _dispatch([word for word in words if word != "--debug"])
        sys.stdout.flush()
    except KeyboardInterrupt:
        code = INTERRUPTED
        print("batchlab: interrupted", file=sys.stderr)
    except BrokenPipeError:  # whoever reads has seen enough, as in `batchlab schema | head`
        code = BROKEN_PIPE
        _silence()
    except Exception as error:
        if debug:
            traceback.print_exception(error)
        code, text = _explain(error)
        print(f"batchlab: error: {' '.join(text.split())}", file=sys.stderr)
    end_without_collecting()
    sys.exit(code)


def _dispatch(words: Sequence[str]) -> int:
    """Parse a command line and run its command."""
    _check_packages()
    _add_commands(words)
    rest, settings = split_options(words)
    try:
        command, bound, ignored = app.parse_args(rest, print_error=False, exit_on_error=False)
    except UnknownOptionError as error:
        meant = dotted(error.token.keyword or error.token.value)
        if not meant:
            raise
        raise UserError(f"{error} Did you mean {' or '.join(meant)}?") from None
    if "settings" in ignored:
        bound.arguments["settings"] = settings
    elif settings:
        section = next(iter(settings))
        raise UserError(f"--{section}...: is an option of `batchlab run` only")
    code = command(*bound.args, **bound.kwargs)
    return code if isinstance(code, int) else OK


def _add_commands(words: Sequence[str]) -> None:
    """Register the commands of other files; a file is loaded when its command is named."""
    for name, summary in LOADED_ON_DEMAND.items():
        module = name.replace("-", "_")
        target = f"simulator.commands.{module}:{'app' if name in GROUPS else module}"
        if name in app:  # from an earlier call in this process
            del app[name]
        if name in words[:1]:
            app.command(target, name=name)  # its own help, whole
        else:
            app.command(target, name=name, help=summary)


def _check_packages() -> None:
    """Stop where another package of the same name hides one of ours."""
    home = Path(__file__).parent.parent
    for name in ("policies", "workloads"):
        found = find_spec(name)
        origin = found.origin if found else None
        if origin is None or Path(origin).parent.parent != home:
            raise UserError(f"{origin}: hides batchlab's package {name}; rename or move it")


def _explain(error: Exception) -> tuple[int, str]:
    """Return the exit code that an error leads to, and what to say about it."""
    if isinstance(error, CycloptsError | UserError):
        return WRONG_INPUT, str(error)
    if isinstance(error, RunError):
        return RUN_FAILED, f"{error} (--debug shows where)" if error.__cause__ else str(error)
    if isinstance(error, OSError):
        if error.filename is None:  # then nothing more can be written there
            _silence()
        return WRONG_INPUT, f"{error.filename or 'standard output'}: {error.strerror or error}"
    return RUN_FAILED, f"unexpected {type(error).__name__}: {error} (--debug shows where)"


def _silence() -> None:
    """Let what is left of the output go nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version() -> str:
    from importlib.metadata import version

    return version("batchlab")


@contextmanager
def _progress(what: str, total: int | None = None) -> "Iterator[tuple[Observer, ...]]":
    """Show on a terminal how many requests are done, and afterwards how long it took."""
    started = time.perf_counter()
    if sys.stderr.isatty():
        from tqdm import tqdm

        from simulator.progress import Progress

        with tqdm(total=total, desc=what, unit="req", leave=False) as bar:
            yield (Progress(bar.update),)
    else:
        yield ()
    print(f"Simulated in {time.perf_counter() - started:.1f} s", file=sys.stderr)


def _print_run(result: "Result", *, as_json: bool) -> None:
    from simulator.report import reproduce, run_text

    if as_json:
        print(_as_json(result.to_dict()))
    else:
        print(run_text(result))
        print(f"Reproduce: {reproduce(result.spec)}")


def _as_json(data: object) -> str:
    import json

    return json.dumps(data, indent=2, allow_nan=False)
