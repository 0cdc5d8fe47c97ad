"""Timing operators on a GPU with PyTorch: CUDA graphs, events, and operands that no cache holds."""

from collections.abc import Callable, Sequence
from importlib import import_module
from time import perf_counter
from typing import Any

from simulator.errors import UserError
from simulator.profile_gpu.backend import PointFailed, Sample, summarise
from simulator.profile_gpu.grid import GRIDS, Point
from simulator.profile_gpu.reduce import all_reduce_times

Kernel = Callable[[], object]

WARM_UPS = 3
SAMPLES = 20
FLUSH_BYTES = 512 * 2**20
"""Written between samples, so that nothing of the last one is left in the L2 cache."""
COPIES = 6
"""Operand sets that one sample cycles through, as a model cycles through its layers."""


class TorchBackend:
    """Operators as PyTorch computes them, in bfloat16.

    Parameters
    ----------
    device : {"cuda", "cpu"}
        `cpu` is there to test the operators themselves.

    Raises
    ------
    UserError
        If PyTorch is not installed, or sees no GPU.

    Notes
    -----
    A sample replays a CUDA graph of `COPIES` calls on different operands between two events, and
    is divided by their number. The L2 cache is overwritten before every sample. Median and spread
    are over `SAMPLES` samples after `WARM_UPS` that do not count. Attention is
    `scaled_dot_product_attention`; the key-value cache is contiguous, not paged.
    """

    dtype = "bfloat16"

    def __init__(self, device: str = "cuda") -> None:
        try:
            self._torch: Any = import_module("torch")
        except ImportError:
            raise UserError(
                "PyTorch is not installed: install batchlab[gpu], or use --device cpu"
            ) from None
        torch = self._torch
        self._kind = device
        self._reduced: dict[int, dict[int, list[float]]] = {}
        self.software = f"torch {torch.__version__}"
        self.device, self.num_gpus = "cpu", 0
        if device == "cuda":
            if not torch.cuda.is_available():
                raise UserError("PyTorch sees no GPU: use --device cpu for a rehearsal")
            self.device = str(torch.cuda.get_device_name())
            self.num_gpus = int(torch.cuda.device_count())
            self._flush = torch.empty(FLUSH_BYTES, dtype=torch.int8, device="cuda")

    def measure(self, point: Point) -> Sample:
        """Time a point; one that does not fit the memory, or has no kernel, fails."""
        size = dict(point.size)
        try:
            if point.operator == "all_reduce":
                return summarise(self._all_reduce(**size))
            build: dict[str, Callable[..., Kernel]] = {
                "linear": self._linear,
                "decode": self._decode,
                "prefill": self._prefill,
                "elementwise": self._elementwise,
            }
            with self._torch.inference_mode():
                kernels = [build[point.operator](**size) for _ in range(COPIES)]
                return summarise(self._times(kernels))
        except (RuntimeError, MemoryError) as error:
            reason = str(error).strip().splitlines() or ["out of memory"]
            raise PointFailed(reason[0]) from error
        finally:
            if self._kind == "cuda":
                self._torch.cuda.empty_cache()

    def _times(self, kernels: Sequence[Kernel]) -> list[float]:
        """Return microseconds per kernel, one figure a sample."""
        if self._kind != "cuda":
            return [_seconds_of(kernels) * 1e6 / len(kernels) for _ in range(3)]
        torch = self._torch
        replay = self._recorded(kernels)
        times = []
        for number in range(WARM_UPS + SAMPLES):
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            self._flush.zero_()
            start.record()
            replay()
            end.record()
            end.synchronize()
            if number >= WARM_UPS:
                times.append(start.elapsed_time(end) * 1e3 / len(kernels))
        return times

    def _recorded(self, kernels: Sequence[Kernel]) -> Kernel:
        """Return a replay of the kernels as one CUDA graph."""
        torch = self._torch
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # libraries allocate workspaces in the first call
            for kernel in kernels:
                kernel()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for kernel in kernels:
                kernel()
        replay: Kernel = graph.replay
        return replay

    def _all_reduce(self, num_gpus: int, num_bytes: int) -> list[float]:
        """Return the times of an all-reduce; all sizes are measured by the same processes."""
        if num_gpus not in self._reduced:
            sizes = GRIDS["full"].message_bytes
            self._reduced[num_gpus] = all_reduce_times(num_gpus, sizes)
        return self._reduced[num_gpus][num_bytes]

    def _linear(self, out_features: int, in_features: int, tokens: int) -> Kernel:
        inputs = self._normal(tokens, in_features)
        weights = self._normal(out_features, in_features)
        linear = self._torch.nn.functional.linear
        return lambda: linear(inputs, weights)

    def _decode(
        self, q_heads: int, kv_heads: int, head_size: int, batch: int, context: int
    ) -> Kernel:
        queries = self._normal(batch, q_heads, 1, head_size)
        keys = self._normal(batch, kv_heads, context, head_size)
        values = self._normal(batch, kv_heads, context, head_size)
        attend = self._torch.nn.functional.scaled_dot_product_attention
        return lambda: attend(queries, keys, values, enable_gqa=True)

    def _prefill(
        self, q_heads: int, kv_heads: int, head_size: int, past: int, tokens: int
    ) -> Kernel:
        group = q_heads // kv_heads
        queries = self._normal(1, q_heads, tokens, head_size)
        keys = self._normal(1, kv_heads, past + tokens, head_size)
        values = self._normal(1, kv_heads, past + tokens, head_size)
        attend = self._torch.nn.functional.scaled_dot_product_attention
        if past == 0:
            return lambda: attend(queries, keys, values, is_causal=True, enable_gqa=True)
        causal = import_module("torch.nn.attention.bias").causal_lower_right(tokens, past + tokens)
        keys, values = (part.repeat_interleave(group, dim=1) for part in (keys, values))
        return lambda: attend(queries, keys, values, attn_mask=causal)

    def _elementwise(self, num_bytes: int) -> Kernel:
        count = max(num_bytes // 6, 1)  # two inputs and one output of 2 bytes
        first, second = self._normal(count), self._normal(count)
        total = self._torch.empty_like(first)
        add = self._torch.add
        return lambda: add(first, second, out=total)

    def _normal(self, *shape: int) -> Any:
        return self._torch.randn(shape, dtype=self._torch.bfloat16, device=self._kind)


def _seconds_of(kernels: Sequence[Kernel]) -> float:
    """Return the wall-clock time of some calls."""
    started = perf_counter()
    for kernel in kernels:
        kernel()
    return max(perf_counter() - started, 1e-9)
