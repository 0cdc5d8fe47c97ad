"""What a number depends on besides its specification: code, files it names, library versions."""

import hashlib
import inspect
import json
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

from policies import POLICIES
from simulator.result import versions
from simulator.spec import RunSpec

PACKAGES = ("simulator", "policies", "workloads")


@cache
def code_hash() -> str:
    """Return the SHA-256 of all code and data that the packages consist of."""
    total = hashlib.sha256()
    for package in PACKAGES:
        folder = Path(import_module(package).__path__[0])
        for path in _files(folder):
            total.update(f"{package}/{path.relative_to(folder).as_posix()}\n".encode())
            total.update(_content(path).encode())
    return total.hexdigest()


def run_key(spec: RunSpec, replication: int) -> str:
    """Return the content hash of everything that determines a run.

    That is the specification, the replication, the content of the files and folders it names, the
    file of a policy of one's own (not what that file imports), the code of batchlab and the
    versions of its libraries.

    Examples
    --------
    >>> run_key(RunSpec(), 0) == run_key(RunSpec(), 0) != run_key(RunSpec(), 1)
    True
    """
    parts = [spec.content_hash(), str(replication), code_hash(), *versions().values()]
    parts += [f"{name} {digest}" for name, digest in sorted(inputs(spec).items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]


def inputs(spec: RunSpec) -> dict[str, str]:
    """Return the files outside the packages that a specification uses, and their SHA-256."""
    found = {text: _tree_hash(text) for text in _texts(spec.to_dict()) if Path(text).exists()}
    if type(spec.policy) not in POLICIES:
        source = inspect.getsourcefile(type(spec.policy))
        if source is not None and Path(source).is_file():
            found[f"policy {spec.policy_kind}"] = _tree_hash(source)
    return found


def _texts(data: Any) -> Iterator[str]:
    """Yield all texts in nested data that may be the name of a file."""
    if isinstance(data, str):
        if data and len(data) < 4096 and "\0" not in data:
            yield data
    elif isinstance(data, dict):
        for value in data.values():
            yield from _texts(value)
    elif isinstance(data, list):
        for value in data:
            yield from _texts(value)


def _tree_hash(name: str) -> str:
    """Return the hash of a file, or of all files in a folder."""
    path = Path(name)
    if path.is_file():
        return _content(path)
    listing = {str(below.relative_to(path)): _content(below) for below in _files(path)}
    return hashlib.sha256(json.dumps(listing, sort_keys=True).encode()).hexdigest()


def _files(folder: Path) -> list[Path]:
    return sorted(
        path for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts
    )


def _content(path: Path) -> str:
    status = path.stat()
    return _content_at(path, status.st_mtime_ns, status.st_size)


@cache
def _content_at(path: Path, _time: int, _size: int) -> str:
    """Return the hash of a file; it is read once while its time and size stay the same."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
