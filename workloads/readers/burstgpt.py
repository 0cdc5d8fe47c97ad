"""Traces of two services with few or many clients: BurstGPT, and the Arena trace of VTC.

BurstGPT's first two files have six columns, the third eight. Times are seconds since the
local midnight of the first day, whole or fractional, and do not start at 0. A row without
response tokens is a failed request. ``Session ID`` is empty on rows that belong to no
conversation; ``Elapsed time`` is measured on the source's own system and not used.

References
----------
HPMLL/BurstGPT (CC-BY-4.0); Wang et al., BurstGPT: A Real-World Workload Dataset to Optimize
LLM Serving Systems, KDD 2025. Ying1123/VTC-artifact (Apache-2.0); Sheng et al., Fairness in
Serving Large Language Models, OSDI 2024.
"""

from workloads.readers.cells import in_units
from workloads.readers.csv_format import CsvFormat

BURSTGPT = CsvFormat(
    name="burstgpt",
    about="BurstGPT, with six or eight columns (HPMLL/BurstGPT)",
    time="Timestamp",
    prompt_tokens="Request tokens",
    output_tokens="Response tokens",
    make_time_reader=in_units(1),
    texts={"Model": "model", "Log Type": "log_type"},
    conversation="Session ID",
    total="Total tokens",
    failures="drop",
)

ARENA = CsvFormat(
    name="arena",
    about="LMSYS Chatbot Arena by client, from the artefact of VTC",
    time="arrival_s",
    prompt_tokens="prompt_len",
    output_tokens="output_len",
    make_time_reader=in_units(1),
    texts={"client": "tenant"},
)
