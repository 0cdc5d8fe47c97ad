"""ServeGen's client decomposition: not requests, but clients from which they are made.

For each client a table of windows (``chunk-<client>-trace.csv``: start in seconds, rate, CV,
family and two parameters) and, for most, histograms of lengths by windows of six hours
(``chunk-<client>-dataset.json``), Python dictionaries written as strings. The recorded scale of
a gamma window is not 1/rate where the client was idle for a part of it, so rate and CV are used.
An output of 0 tokens counts as 1.

References
----------
alibaba/ServeGen (Apache-2.0); Xiang et al., ServeGen, arXiv 2505.09999.
"""

import io
import json
import tarfile
from collections.abc import Iterator, Mapping
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from workloads.clients import Client, ClientsWorkload
from workloads.empirical import EmpiricalLength
from workloads.errors import WorkloadError
from workloads.joint import ReasoningShare
from workloads.readers.cells import BadCell, decimal
from workloads.readers.sample import CLIENT_FILE
from workloads.windows import Family, WindowedArrivals

_COLUMNS: Final = 6
_SLACK: Final = 1e-3
_LEAST_CV: Final = 0.01
_MOST_CV: Final = 100.0

Histogram = tuple[tuple[float, ...], tuple[float, ...]]


def read_clients(path: str | PathLike[str], num_requests: int = 1000) -> ClientsWorkload:
    """Read a folder of ServeGen clients, or a tar archive of one.

    Parameters
    ----------
    path : path-like
        The folder or archive.
    num_requests : int, default 1000
        Requests that the workload makes.

    Returns
    -------
    ClientsWorkload
        All clients that have both rates and lengths; it starts at the first window.

    Raises
    ------
    WorkloadError
        No such clients, or a file that is not what it should be: names the file and line.
    """
    traces: dict[int, WindowedArrivals] = {}
    lengths: dict[int, dict[str, Any]] = {}
    for name, text in _texts(Path(path)):
        match = CLIENT_FILE.fullmatch(Path(name).name)
        if match is None:
            continue
        client = int(match[1])
        if match[2] == "trace.csv":
            arrivals = _windows(name, text)
            if arrivals is not None:
                traces[client] = arrivals
        else:
            lengths[client] = _lengths(name, text)
    clients = [
        Client(name=str(client), arrivals=traces[client], **lengths[client])
        for client in sorted(traces)
        if lengths.get(client)
    ]
    if not clients:
        raise WorkloadError("no clients with rates and lengths (chunk-*-trace.csv)", path=path)
    return ClientsWorkload(clients=tuple(clients), num_requests=num_requests)


def _texts(path: Path) -> Iterator[tuple[str, str]]:
    """Yield name and text of each file; nothing of an archive is written anywhere."""
    try:
        if path.is_dir():
            for file in sorted(path.iterdir()):
                if CLIENT_FILE.fullmatch(file.name):
                    yield str(file), file.read_text("utf-8")
            return
        with tarfile.open(path) as archive:
            for member in archive:
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None and CLIENT_FILE.fullmatch(Path(member.name).name):
                    yield f"{path}:{member.name}", io.TextIOWrapper(stream, "utf-8").read()
    except FileNotFoundError:
        raise WorkloadError("no such file", path=path) from None
    except (tarfile.TarError, OSError, EOFError, UnicodeDecodeError) as error:
        raise WorkloadError(f"expected a tar archive of clients: {error}", path=path) from None


def _windows(name: str, text: str) -> WindowedArrivals | None:
    """Read a client's windows; None if it never asks for anything."""
    starts, rates, cvs = [], [], []
    families: list[Family] = []
    for line, row in enumerate(text.splitlines(), start=1):
        cells = row.split(",")
        if len(cells) != _COLUMNS:
            raise WorkloadError(f"expected {_COLUMNS} cells", path=name, line=line, value=row)
        try:
            start, rate, cv = (decimal(cell) for cell in cells[:3])
        except BadCell as bad:
            raise WorkloadError(
                f"expected {bad.expected}", path=name, line=line, value=row
            ) from None
        starts.append(start)
        rates.append(rate)
        cvs.append(min(max(cv, _LEAST_CV), _MOST_CV) if cv else 1.0)
        families.append("weibull" if cells[3] == "Weibull" else "gamma")
    if not any(rates):
        return None
    widths = np.diff(starts)
    if widths.size and (widths[0] <= 0 or np.any(widths != widths[0])):
        raise WorkloadError("expected windows of one width", path=name)
    width = float(widths[0]) if widths.size else 600.0
    return WindowedArrivals(
        width_s=width, rates=tuple(rates), cvs=tuple(cvs), families=tuple(families)
    )


def _lengths(name: str, text: str) -> dict[str, Any]:
    """Read a client's histograms; empty if all of them are."""
    try:
        table = json.loads(text)
    except ValueError as error:
        raise WorkloadError(f"expected JSON: {error}", path=name) from None
    if not isinstance(table, Mapping) or not table:
        raise WorkloadError("expected an object of windows", path=name)
    windows = {int(start): entry for start, entry in table.items() if start.isdecimal()}
    starts = sorted(windows)
    prompts, outputs, shares = (
        _filled([_histogram(name, windows[start], key) for start in starts])
        for key in ("input_tokens", "output_tokens", "reason_ratio")
    )
    if not prompts or not outputs:
        return {}
    found: dict[str, Any] = {
        "prompt_tokens": tuple(_law(table) for table in prompts),
        "output_tokens": tuple(_law(table) for table in outputs),
        "reasoning": tuple(ReasoningShare(values=v, probs=p) for v, p in shares),
    }
    if len(starts) > 1:
        found["length_window_s"] = float(starts[1] - starts[0])
    return found


def _histogram(name: str, entry: Mapping[str, Any], key: str) -> Histogram | None:
    text = entry.get(key, "{}")
    pairs = text.strip().removeprefix("{").removesuffix("}") if isinstance(text, str) else "?"
    try:
        numbers = [float(cell) for pair in pairs.split(",") if pair for cell in pair.split(":")]
        values, probs = tuple(numbers[::2]), tuple(numbers[1::2])
        good = len(values) == pairs.count(":") and abs(sum(probs) - bool(values)) < _SLACK
    except ValueError:
        good = False
    if not good:
        told = "expected a dictionary of probabilities that add up to 1"
        raise WorkloadError(told, path=name, column=key, value=text)
    return (values, probs) if values else None


def _filled(tables: list[Histogram | None]) -> list[Histogram]:
    """Give windows without data the histogram of the window before, or the first there is."""
    known = [table for table in tables if table is not None]
    if not known:
        return []
    result: list[Histogram] = []
    for table in tables:
        result.append(table or (result[-1] if result else known[0]))
    return result


def _law(table: Histogram) -> EmpiricalLength:
    values, probs = table
    total = sum(probs)
    return EmpiricalLength(
        values=tuple(max(int(value), 1) for value in values),
        probs=tuple(prob / total for prob in probs),
    )
