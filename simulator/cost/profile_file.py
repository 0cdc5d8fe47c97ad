"""The file format of an operator profile: arrays and metadata with a checksum.

A profile is an uncompressed ZIP archive: one `NAME.npy` per array, `metadata.json`, and
`checksum.txt`, the SHA-256 over names and contents of all other members. Members are stored in
alphabetical order with a fixed time, so equal contents give equal bytes everywhere.
"""

import hashlib
import io
import json
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from simulator.errors import UserError

FORMAT_VERSION = 1
"""Version of the layout; a reader accepts exactly its own."""

_METADATA = "metadata.json"
_CHECKSUM = "checksum.txt"
_FIXED_TIME = (1980, 1, 1, 0, 0, 0)


def encode_profile(arrays: Mapping[str, NDArray[Any]], metadata: Mapping[str, Any]) -> bytes:
    """Return the bytes of a profile file.

    Parameters
    ----------
    arrays : mapping of str to array
        Tables by name; no object arrays.
    metadata : mapping of str to JSON value
        Anything that JSON can hold; `format_version` is added.

    Returns
    -------
    bytes
        The file, a function of the arguments alone.

    See Also
    --------
    decode_profile : The inverse.

    Examples
    --------
    >>> data = encode_profile({"m": np.arange(3)}, {"gpu": "x"})
    >>> arrays, metadata = decode_profile(data, "x.npz")
    >>> arrays["m"].tolist(), metadata["gpu"]
    ([0, 1, 2], 'x')
    """
    members = {f"{name}.npy": _npy_bytes(array) for name, array in arrays.items()}
    header = {**metadata, "format_version": FORMAT_VERSION}
    members[_METADATA] = json.dumps(header, indent=1, sort_keys=True).encode()
    members[_CHECKSUM] = _checksum(members).encode()
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_STORED) as archive:
        for name in sorted(members):
            info = zipfile.ZipInfo(name, _FIXED_TIME)
            info.create_system = 3  # the same on every platform
            archive.writestr(info, members[name])
    return buffer.getvalue()


def decode_profile(data: bytes, where: str) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return the arrays and the metadata of a profile file.

    Parameters
    ----------
    data : bytes
        The file.
    where : str
        Its name, for messages.

    Returns
    -------
    arrays : dict of str to array
        Tables by name.
    metadata : dict
        The metadata.

    Raises
    ------
    UserError
        If the file is not a profile, truncated, changed after it was built, or of another
        format version.

    Examples
    --------
    >>> decode_profile(b"PK", "x.npz")
    Traceback (most recent call last):
    simulator.errors.UserError: x.npz: not a cost profile, or truncated: build it again
    """
    members = _read_members(data, where)
    metadata = _read_metadata(members, where)
    if members.pop(_CHECKSUM, b"").decode(errors="replace") != _checksum(members):
        raise UserError(f"{where}: contents do not match their checksum: build it again")
    arrays = {
        name.removesuffix(".npy"): np.lib.format.read_array(io.BytesIO(content), allow_pickle=False)
        for name, content in members.items()
        if name.endswith(".npy")
    }
    return arrays, metadata


def _read_members(data: bytes, where: str) -> dict[str, bytes]:
    """Read every member of the archive."""
    if data[:1] == b"{":
        raise UserError(f"{where}: a step profile: it belongs to cost kind step-linear")
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    except (zipfile.BadZipFile, EOFError, ValueError, NotImplementedError) as error:
        message = f"{where}: not a cost profile, or truncated: build it again"
        raise UserError(message) from error


def _read_metadata(members: Mapping[str, bytes], where: str) -> dict[str, Any]:
    """Parse the metadata and check the format version."""
    try:
        metadata = json.loads(members[_METADATA])
        version = metadata["format_version"]
    except (KeyError, TypeError, ValueError) as error:
        message = f"{where}: no readable metadata, so not a cost profile: build it again"
        raise UserError(message) from error
    if version != FORMAT_VERSION:
        raise UserError(f"{where}: format version {version}, expected {FORMAT_VERSION}")
    return dict(metadata)


def _npy_bytes(array: NDArray[Any]) -> bytes:
    """Return an array in NumPy's own format, little-endian."""
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, little, version=(1, 0), allow_pickle=False)
    return buffer.getvalue()


def _checksum(members: Mapping[str, bytes]) -> str:
    """Return the SHA-256 over names, lengths and contents, in alphabetical order."""
    digest = hashlib.sha256()
    for name in sorted(members):
        digest.update(f"{name}:{len(members[name])}:".encode())
        digest.update(members[name])
    return digest.hexdigest()
