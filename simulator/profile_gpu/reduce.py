"""Timing an all-reduce: one process per GPU, which PyTorch connects through NCCL."""

import os
import socket
from collections.abc import Sequence
from importlib import import_module
from typing import Any

WARM_UPS = 5
SAMPLES = 20
CALLS = 10
"""Calls per sample, one after the other without waiting for the host."""


def all_reduce_times(num_gpus: int, sizes: Sequence[int]) -> dict[int, list[float]]:
    """Return the times of an all-reduce for messages of several sizes.

    Parameters
    ----------
    num_gpus : int
        Processes, one per GPU, at least 2.
    sizes : sequence of int
        Bytes that every GPU contributes.

    Returns
    -------
    dict of int to list of float
        Size to times on the first GPU, µs, one figure a sample.

    Raises
    ------
    RuntimeError
        If a process fails.
    """
    context = import_module("torch.multiprocessing").get_context("spawn")
    results = context.SimpleQueue()
    with socket.socket() as probe:  # a free port for the processes to find each other
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    arguments = (num_gpus, tuple(sizes), port, results)
    workers = [context.Process(target=_work, args=(rank, *arguments)) for rank in range(num_gpus)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    if any(worker.exitcode for worker in workers):
        raise RuntimeError(f"an all-reduce process of {num_gpus} failed")
    times: dict[int, list[float]] = results.get()
    return times


def _work(rank: int, num_gpus: int, sizes: tuple[int, ...], port: int, results: Any) -> None:
    """Take part in the all-reduce; the first process reports."""
    torch: Any = import_module("torch")
    distributed: Any = import_module("torch.distributed")
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    torch.cuda.set_device(rank)
    distributed.init_process_group("nccl", rank=rank, world_size=num_gpus)
    times = {size: _times(torch, distributed, size) for size in sizes}
    if rank == 0:
        results.put(times)
    distributed.destroy_process_group()


def _times(torch: Any, distributed: Any, num_bytes: int) -> list[float]:
    """Time one size of message, µs per call."""
    message = torch.ones(max(num_bytes // 2, 1), dtype=torch.bfloat16, device="cuda")
    times = []
    for number in range(WARM_UPS + SAMPLES):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        distributed.barrier()
        start.record()
        for _ in range(CALLS):
            distributed.all_reduce(message)
        end.record()
        end.synchronize()
        if number >= WARM_UPS:
            times.append(start.elapsed_time(end) * 1e3 / CALLS)
    return times
