"""Traces of LLM inference that Microsoft Azure publishes, of 2023, 2024 and 2025.

The files of 2023 have naive times with seven fractional digits, CRLF line ends and no newline
at the end; those of 2024 an offset from UTC, six digits or none; those of 2025 a ``T``, a
``Z`` and a column of image counts.

References
----------
Azure/AzurePublicDataset (CC-BY-4.0). Patel et al., Splitwise: Efficient Generative LLM
Inference Using Phase Splitting, ISCA 2024.
"""

from workloads.readers.cells import timestamps
from workloads.readers.csv_format import CsvFormat

AZURE = CsvFormat(
    name="azure",
    about="Azure LLM inference traces 2023 to 2025 (AzurePublicDataset)",
    time="TIMESTAMP",
    prompt_tokens="ContextTokens",
    output_tokens="GeneratedTokens",
    make_time_reader=timestamps,
    ticks_per_s=1_000_000_000,
    numbers={"NumImages": "num_images"},
)
