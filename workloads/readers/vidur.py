"""Traces in the layout of the simulator Vidur, which Sarathi-Serve shares.

Times are seconds. Files of the same project that hold lengths only have no ``arrived_at``
and are not traces.

References
----------
microsoft/vidur (MIT), ``data/processed_traces``.
"""

from collections.abc import Callable

from workloads.readers.cells import decimal
from workloads.readers.csv_format import CsvFormat


def _seconds() -> Callable[[str], float]:
    return decimal


VIDUR = CsvFormat(
    name="vidur",
    about="processed traces of Vidur and Sarathi-Serve, times in seconds",
    time="arrived_at",
    prompt_tokens="num_prefill_tokens",
    output_tokens="num_decode_tokens",
    make_time_reader=_seconds,
)
