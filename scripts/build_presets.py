"""Make the files of `workloads/data` from the original traces.

Usage: python scripts/build_presets.py TRACES_DIR [NAME ...]
"""

import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import preset_tables

from workloads import Streams, read_trace
from workloads.blocks import block_table
from workloads.bursts import burst_table
from workloads.pairs import pair_table
from workloads.shipped import pack
from workloads.ticks import detick

DATA = Path(__file__).parents[1] / "workloads" / "data"

AZURE = "(Azure/AzurePublicDataset); Patel et al., Splitwise, ISCA 2024"
SERVEGEN = "(alibaba/ServeGen); Xiang et al., ServeGen, arXiv 2505.09999"
PARTIAL = "hourly profile and quantile tables of lengths, from the {} % of requests with lengths"

ABOUT = {
    "azure-conv-2023": (
        f"Azure LLM inference trace 2023, conversation {AZURE}",
        "CC-BY-4.0",
        "reduced to blocks of 12 s: counts and pairs of lengths without their order",
    ),
    "azure-code-2023": (
        f"Azure LLM inference trace 2023, code {AZURE}",
        "CC-BY-4.0",
        "reduced to bursts (a silence of 5 s ends one) and their parts (a pause of 0.5 s ends"
        " one): times, counts, and the bursts' pairs of lengths without their order",
    ),
    "mooncake-conversation": (
        "Mooncake FAST'25 conversation trace (kvcache-ai/Mooncake); Qin et al., Mooncake,"
        " FAST 2025",
        "Apache-2.0",
        "its 3 s clock undone, then reduced to blocks of 10 s: counts and pairs of lengths"
        " without their order; no prefixes",
    ),
    "arena-27-clients": (
        "LMSYS Chatbot Arena trace of the VTC artefact (Ying1123/VTC-artifact); Sheng et al.,"
        " Fairness in Serving Large Language Models, OSDI 2024",
        "Apache-2.0",
        "reduced to blocks of 6 s: counts and pairs of lengths with their client, without order",
    ),
    "sharegpt-8k": (
        "ShareGPT lengths, Llama-2 tokenizer, at most 8,192 tokens (project-etalon/etalon)",
        "Apache-2.0",
        "reduced to pairs of lengths with their counts",
    ),
    "arxiv-4k": (
        "arXiv summarisation lengths, Llama-2 tokenizer, at most 4,096 tokens (microsoft/vidur);"
        " Agrawal et al., Vidur, MLSys 2024",
        "MIT",
        "reduced to pairs of lengths with their counts",
    ),
    "reasoning-r1": (
        f"ServeGen deepseek-r1 {SERVEGEN}",
        "Apache-2.0",
        "one stationary law a client: mean rate, rate-weighted CV, quantiles of lengths,"
        " histogram of the reasoning share",
    ),
    "coding-assistant": (
        "Coding-assistant conversations (callanjfox/kv-cache-tester)",
        "Apache-2.0",
        "quantiles of turns, first prompts and outputs, mixtures of growth and think times, from"
        " 710 conversations; the size of a shrunk context is unknown and set to 10 %",
    ),
    "chat-small": (f"ServeGen m-small {SERVEGEN}", "Apache-2.0", PARTIAL.format(43)),
    "chat-mid": (f"ServeGen m-mid {SERVEGEN}", "Apache-2.0", PARTIAL.format(71)),
    "chat-large": (f"ServeGen m-large {SERVEGEN}", "Apache-2.0", PARTIAL.format(63)),
}
"""Name of the preset: source with citation, licence, and what was done."""

FILES = {
    "azure-conv-2023": "azure_llm_2023/AzureLLMInferenceTrace_conv.csv.gz",
    "azure-code-2023": "azure_llm_2023/AzureLLMInferenceTrace_code.csv.gz",
    "mooncake-conversation": "mooncake_fast25/conversation_trace.jsonl.gz",
    "arena-27-clients": "vtc_arena/arena_27clients_600s.csv",
    "sharegpt-8k": "etalon_processed/sharegpt_8k_filtered_stats_llama2_tokenizer.csv.gz",
    "arxiv-4k": "vidur_processed/arxiv_summarization_stats_llama2_tokenizer_filtered_v2.csv.gz",
}
"""Trace file of the presets that are made of one."""


def original(name: str, traces: Path) -> Any:
    """Return the trace behind a preset, its clock undone where it is coarse."""
    trace = read_trace(traces / FILES[name])
    if name == "mooncake-conversation":
        trace = detick(trace, Streams(0)("detick")).rebase()
    return trace


def build(name: str, traces: Path) -> bytes:
    """Return the bytes of one preset's file."""
    source, licence, made = ABOUT[name]
    about = {"name": name, "source": source, "licence": licence, "made": made}
    if name not in FILES:
        return pack(OTHERS[name](traces, about))
    trace = original(name, traces)
    about["source_sha256"] = trace.provenance["sha256"] or ""
    return pack(REDUCED[name](trace, about))


REDUCED: Mapping[str, Callable[[Any, dict[str, str]], dict[str, Any]]] = {
    "azure-conv-2023": lambda trace, about: block_table(trace, 12.0, about),
    "azure-code-2023": lambda trace, about: burst_table(trace, 5.0, 0.5, about),
    "mooncake-conversation": lambda trace, about: block_table(trace, 10.0, about),
    "arena-27-clients": lambda trace, about: block_table(trace, 6.0, about, tenants=True),
    "sharegpt-8k": pair_table,
    "arxiv-4k": pair_table,
}

OTHERS: Mapping[str, Callable[[Path, dict[str, str]], dict[str, Any]]] = {
    "reasoning-r1": preset_tables.reasoning_clients,
    "coding-assistant": preset_tables.coding_assistant,
    "chat-small": lambda t, about: preset_tables.chat(t, about, "servegen_m_small", 1.2, 8),
    "chat-mid": lambda t, about: preset_tables.chat(t, about, "servegen_m_mid", 1.3, 0),
    "chat-large": lambda t, about: preset_tables.chat(t, about, "servegen_m_large", 1.2, 0),
}

PRESETS = tuple(ABOUT)


def main() -> None:
    """Write all files, or those named, and say how large they are."""
    if len(sys.argv) < 2:
        sys.exit("usage: build_presets.py TRACES_DIR [NAME ...]")
    for name in sys.argv[2:] or PRESETS:
        data = build(name, Path(sys.argv[1]))
        path = DATA / f"{name}.json.bz2"
        path.write_bytes(data)
        print(f"{path.name}: {len(data)} bytes")


if __name__ == "__main__":
    main()
