"""Make the files of `workloads/data` from the original traces.

Usage: python scripts/build_presets.py TRACES_DIR
"""

import sys
from pathlib import Path

from workloads import read_trace
from workloads.blocks import block_table, pack

DATA = Path(__file__).parents[1] / "workloads" / "data"

PRESETS = {
    "azure-conv-2023": (
        "azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz",
        12.0,
        {
            "source": "Azure LLM inference trace 2023, conversation (Azure/AzurePublicDataset);"
            " Patel et al., Splitwise, ISCA 2024",
            "licence": "CC-BY-4.0",
            "made": "reduced to blocks of 12 s: counts and pairs of lengths without their order",
        },
    ),
}
"""Name of the preset: path of the trace, seconds of a block, attribution."""


def build(name: str, traces: Path) -> bytes:
    """Return the bytes of one preset's file."""
    path, block_s, about = PRESETS[name]
    trace = read_trace(traces / path)
    digest = trace.provenance["sha256"] or ""
    return pack(block_table(trace, block_s, {"name": name, **about, "source_sha256": digest}))


def main() -> None:
    """Write all files and say how large they are."""
    if len(sys.argv) != 2:
        sys.exit("usage: build_presets.py TRACES_DIR")
    for name in PRESETS:
        data = build(name, Path(sys.argv[1]))
        path = DATA / f"{name}.json.bz2"
        path.write_bytes(data)
        print(f"{path.name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
