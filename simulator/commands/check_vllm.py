"""`batchlab check-vllm`: recordings of the real vLLM, replayed through our engine and policy."""

from pathlib import Path

from simulator.errors import UserError
from simulator.vllm_recording import check_recording


def check_vllm(*files: Path) -> int:
    """Replay decisions recorded from the vLLM scheduler; compare every field.

    Prints `equal`, or the first step and field that differ. Exit code 1 if any
    file differs.

    For example:

      batchlab check-vllm recordings/*.jsonl.gz

    Parameters
    ----------
    files
        Recordings in the format vllm-sched-golden/1, plain or gzip.
    """
    if not files:
        raise UserError("check-vllm: expected at least one recording")
    differences = [(path, check_recording(path)) for path in files]
    for path, difference in differences:
        print(f"{path}: {difference or 'equal'}")
    return 1 if any(difference for _, difference in differences) else 0
