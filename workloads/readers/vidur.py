"""Traces in the layouts of two simulators, Vidur (with Sarathi-Serve and Etalon) and Splitwise.

Vidur's times are seconds. Files of the same project that hold lengths only have no
``arrived_at``: all their rows stand at 0 s, and their order carries no time. In Splitwise's
layout times are seconds, too, and a request may be a batch of several rows.

References
----------
microsoft/vidur (MIT), ``data/processed_traces``; project-etalon/etalon (Apache-2.0);
Mutinifni/splitwise-sim (MIT).
"""

from workloads.readers.cells import in_units
from workloads.readers.csv_format import CsvFormat

VIDUR = CsvFormat(
    name="vidur",
    about="processed traces of Vidur, Sarathi-Serve and Etalon, with times in seconds or none",
    time="arrived_at",
    prompt_tokens="num_prefill_tokens",
    output_tokens="num_decode_tokens",
    make_time_reader=in_units(1),
    time_optional=True,
    total="num_total_tokens",
)

SPLITWISE = CsvFormat(
    name="splitwise-sim",
    about="traces of the simulator of Splitwise, times in seconds",
    time="arrival_timestamp",
    prompt_tokens="prompt_size",
    output_tokens="token_size",
    make_time_reader=in_units(1),
    numbers={
        "batch_size": "size",
        "request_type": "request_type",
        "application_id": "application_id",
    },
)
