"""Rows without output that are kept all the same."""

from pathlib import Path

from workloads.base import IntArray
from workloads.errors import WorkloadError
from workloads.readers.options import Failures
from workloads.streams import Streams


def with_outputs(outputs: IntArray, failures: Failures, path: Path) -> tuple[IntArray, list[str]]:
    """Give failures an output.

    Parameters
    ----------
    outputs : array of int
        Output tokens; 0 is a failure.
    failures : {'prefill', 'impute'}
        One token, or the output of another row, drawn with a fixed seed.
    path : Path
        The file, for the error.

    Returns
    -------
    outputs : array of int
        Output tokens, 1 or more.
    remarks : list of str
        What was done, if anything.

    Raises
    ------
    WorkloadError
        There is no other row.
    """
    failed = outputs == 0
    if not failed.any():
        return outputs, []
    number = int(failed.sum())
    result = outputs.copy()
    result[failed] = 1
    if failures == "impute":
        if failed.all():
            raise WorkloadError("no rows with output to impute from", path=path)
        result[failed] = Streams(0)("impute").choice(outputs[~failed], number)
    return result, [f"{number} failures kept with an output of their own ({failures})"]
