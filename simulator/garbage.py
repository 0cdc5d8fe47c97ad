"""How often Python looks for cyclic garbage in a process that loads the simulator and runs it."""

import gc

COLLECT_AFTER = 50_000
"""New objects after which the youngest are looked through."""


def collect_less() -> None:
    """Look through new objects less often than Python does by itself, every 700.

    What is loaded and what a run records stays, and nearly everything else is freed when its last
    use ends, so looking more often finds nothing and takes a tenth of the time of a short run.
    """
    gc.set_threshold(COLLECT_AFTER, *gc.get_threshold()[1:])


def end_without_collecting() -> None:
    """Let the end of the process find nothing to look through: all of its memory goes anyway."""
    gc.freeze()
