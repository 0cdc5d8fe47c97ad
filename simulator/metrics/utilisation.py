"""How busy arithmetic and memory of the GPU are in a run: MFU and memory-bandwidth utilisation."""

from simulator.blocks import blocks
from simulator.columns import Columns
from simulator.cost import StepColumns, TableSpec, utilisation
from simulator.metrics import Metrics, Window, floats
from simulator.spec import RunSpec
from simulator.stats import Floats, overlap
from simulator.stats.exact_sum import Total

_HELD = (
    "decode_rows",
    "context_tokens",
    "prefill_tokens",
    "prefill_chunks",
    "num_steps",
    "prefill_pairs",
    "prefill_context_tokens",
)
"""The fields of `StepColumns`, in their order, as columns of a steps table."""


def use_of_steps(spec: RunSpec, steps: Columns) -> tuple[Floats, Floats] | None:
    """Return the share of the peaks that each row of a steps table reaches while it lasts.

    Parameters
    ----------
    spec : RunSpec
        What was simulated.
    steps : dict
        The steps table.

    Returns
    -------
    mfu, bandwidth : array
        Useful arithmetic (padding does not count) and memory traffic of one GPU, as fractions of
        its dense peak and of its memory bandwidth. None for a machine that has no GPU.

    Examples
    --------
    >>> from simulator import simulate
    >>> spec = RunSpec(workload={"name": "demo-chat", "num_requests": 20})
    >>> mfu, bandwidth = use_of_steps(spec, simulate(spec).tables["steps"])
    >>> bool((mfu < 1).all() and (bandwidth < 1).all())
    True
    """
    if not isinstance(spec.cost, TableSpec):
        return None
    columns = StepColumns(*(steps[name] for name in _HELD))
    return utilisation(spec.cost, columns, floats(steps, "end_s") - floats(steps, "start_s"))


def mean_use(spec: RunSpec, steps: Columns, window: Window) -> Metrics:
    """Return MFU and bandwidth utilisation over the measured window, idle time included."""
    names = ("mfu", "bandwidth_utilisation")
    if not isinstance(spec.cost, TableSpec) or not window.length:
        return dict.fromkeys(names)
    totals = {name: Total() for name in names}
    for block in blocks(steps, ("start_s", "end_s", *_HELD)):
        shares = use_of_steps(spec, block)
        assert shares is not None, "there is a GPU"
        start, end = floats(block, "start_s"), floats(block, "end_s")
        weight = overlap(start, end, window.start, window.end)
        for total, share in zip(totals.values(), shares, strict=True):
            total.add(weight * share)
    length = window.length * spec.engine.num_replicas
    return {name: total.value / length for name, total in totals.items()}
