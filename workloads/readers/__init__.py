"""Readers of trace files: one file a format, one table of them.

A new format is an object with `name`, `about`, `failures`, `fits` and `read` (`CsvFormat` and
`JsonlFormat` make one of a few names) and one more entry in `READERS`. The table and all formats
are loaded when the first file is read.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from workloads.readers.formats import READERS, TraceReader, detect_format, read_trace
    from workloads.readers.options import ReadOptions

__all__ = ["READERS", "ReadOptions", "TraceReader", "detect_format", "read_trace"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = "options" if name == "ReadOptions" else "formats"
    return getattr(import_module(f"workloads.readers.{home}"), name)
