"""The file of a step-level profile: what each part of an engine's step costs, as JSON.

A profile is a JSON object with `format`, `about` (source, licence, how it was made),
`coefficients_us`, `largest` (the range it was fitted on) and `sha256`, the hash of the rest.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any

from simulator.cost.names import look_up
from simulator.errors import UserError

FORMAT = "batchlab-step-profile/1"
"""Name and version of the format; a reader accepts exactly its own."""

TERMS = {
    "step": "every step",
    "prefill_token": "a prompt token",
    "prefill_pair": "a pair of query and key of a prompt chunk, which attends causally",
    "prefill_chunk": "a prompt chunk",
    "decode": "a row that computes one token",
    "context_token": "a token that such a row attends to, the new one included",
    "any_decode": "a step that holds at least one such row",
}
"""What a step consists of, and what that is."""

PAUSES = {
    "between_steps": "the pause of the engine after every step",
    "new_request": "the hand-over of a request before its first step",
}
"""What an engine does between two steps; it is no part of a step's own time."""

RANGES = ("prefill_token", "prefill_pair", "decode", "context_token")
"""Terms whose greatest number in a step bounds the range of a profile."""

DATA_DIRECTORY = Path(__file__).parent / "data"


@dataclass(frozen=True)
class StepProfile:
    """What the parts of a step cost, fitted to whole steps.

    Attributes
    ----------
    coefficients_us : mapping of str to float
        Entries of `TERMS` and `PAUSES` to microseconds, at least 0.
    largest : mapping of str to float
        Entries of `RANGES` to their greatest number in a step of the fit.
    about : mapping
        Source, licence, files, rows.
    """

    coefficients_us: Mapping[str, float]
    largest: Mapping[str, float]
    about: Mapping[str, Any]

    def encode(self) -> bytes:
        """Return the bytes of the file."""
        body = {
            "format": FORMAT,
            "about": dict(self.about),
            "coefficients_us": dict(self.coefficients_us),
            "largest": dict(self.largest),
        }
        return (json.dumps(body | {"sha256": _checksum(body)}, indent=1) + "\n").encode()


def read_step_profile(name: str) -> StepProfile:
    """Return a shipped profile, or one from a file.

    Parameters
    ----------
    name : str
        `cpu`, or the path of a file that `batchlab calibrate --steps` wrote.

    Returns
    -------
    StepProfile
        The checked profile.

    Raises
    ------
    UserError
        If the name is unknown, or the file cannot be read, is truncated, was changed by hand, or
        has another version.

    Examples
    --------
    >>> read_step_profile("cpu").about["licence"]
    'Apache-2.0'
    """
    path = Path(name)
    if path.suffix == "" and not path.exists():
        path = look_up("step profile", name, _shipped())
    try:
        data = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path}: cannot read step profile: {error.strerror}") from error
    return decode_step_profile(data, path.name)


@lru_cache(maxsize=8)
def decode_step_profile(data: bytes, where: str) -> StepProfile:
    """Return the profile in the bytes of a file.

    Parameters
    ----------
    data : bytes
        The file.
    where : str
        Its name, for messages.

    Raises
    ------
    UserError
        As `read_step_profile`.

    Examples
    --------
    >>> decode_step_profile(b"PK", "x.npz")
    Traceback (most recent call last):
    simulator.errors.UserError: x.npz: a profile of GPU kernels: it belongs to cost kind table
    """
    if data[:2] == b"PK":
        raise UserError(f"{where}: a profile of GPU kernels: it belongs to cost kind table")
    try:
        body = json.loads(data)
    except ValueError as error:
        raise UserError(f"{where}: not a step profile, or truncated: {error}") from None
    version = body.get("format") if isinstance(body, dict) else None
    if version != FORMAT:
        raise UserError(f"{where}: format {version}: expected a step profile, {FORMAT}")
    if body.pop("sha256", None) != _checksum(body):
        raise UserError(f"{where}: contents do not match their checksum: build it again")
    coefficients, largest = body.get("coefficients_us"), body.get("largest")
    for found, names in ((coefficients, (*TERMS, *PAUSES)), (largest, RANGES)):
        if not isinstance(found, dict) or set(found) != set(names):
            raise UserError(f"{where}: expected numbers for {', '.join(names)}")
        for name, value in found.items():
            if not isinstance(value, int | float) or not 0 <= value < inf:
                raise UserError(f"{where}: {name} is {value!r}: expected at least 0")
    if not coefficients["step"]:
        raise UserError(f"{where}: step is 0: an empty step has to take time")
    return StepProfile(coefficients, largest, body.get("about", {}))


def _shipped() -> dict[str, Path]:
    return {path.stem: path for path in sorted(DATA_DIRECTORY.glob("*.json"))}


def _checksum(body: Mapping[str, Any]) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()
