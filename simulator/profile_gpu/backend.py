"""The seam between what is measured and the machine that measures it."""

from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from simulator.profile_gpu.grid import Point

Floats = NDArray[np.float32]


class Sample(NamedTuple):
    """Times of one point.

    Attributes
    ----------
    median_us : float
        Median over the samples, µs.
    spread : float
        Distance of the 10th and 90th percentile, divided by the median.
    num_samples : int
        Samples taken.
    """

    median_us: float
    spread: float
    num_samples: int


class PointFailed(Exception):
    """A point that this machine cannot measure, such as one that does not fit its memory."""


class Backend(Protocol):
    """A machine that can time operators."""

    @property
    def device(self) -> str:
        """Name of the device."""
        ...

    @property
    def software(self) -> str:
        """Name and version of what computes."""
        ...

    @property
    def dtype(self) -> str:
        """Number format of operands."""
        ...

    @property
    def num_gpus(self) -> int:
        """Devices that can take part in an all-reduce."""
        ...

    def measure(self, point: Point) -> Sample:
        """Time a point.

        Raises
        ------
        PointFailed
            If it cannot be measured here.
        """
        ...


def summarise(microseconds: list[float]) -> Sample:
    """Return median and spread of times.

    Examples
    --------
    >>> summarise([4.0, 5.0, 6.0]).median_us
    5.0
    """
    low, middle, high = np.quantile(microseconds, [0.1, 0.5, 0.9])
    return Sample(float(middle), float((high - low) / middle), len(microseconds))


class NumpyBackend:
    """Operators in NumPy on the CPU: a rehearsal of a measurement, in float32.

    Parameters
    ----------
    num_samples : int
        Samples per point, at least 1.

    Examples
    --------
    >>> backend = NumpyBackend(num_samples=3)
    >>> backend.measure(Point("elementwise", (("num_bytes", 4096),))).num_samples
    3
    """

    device = "cpu"
    dtype = "float32"
    num_gpus = 0

    def __init__(self, num_samples: int = 5) -> None:
        self.software = f"numpy {np.__version__}"
        self._num_samples = num_samples
        self._rng = np.random.default_rng(0)

    def measure(self, point: Point) -> Sample:
        """Time a point after one warm-up."""
        kernels: dict[str, Callable[..., Callable[[], object]]] = {
            "linear": self._linear,
            "decode": self._decode,
            "prefill": self._prefill,
            "elementwise": self._elementwise,
        }
        if point.operator not in kernels:
            raise PointFailed(f"{point.operator} needs several GPUs")
        run = kernels[point.operator](**dict(point.size))
        times = []
        for _ in range(self._num_samples + 1):
            started = perf_counter()
            run()
            times.append(max(perf_counter() - started, 1e-9) * 1e6)
        return summarise(times[1:])

    def _linear(self, out_features: int, in_features: int, tokens: int) -> Callable[[], object]:
        inputs, weights = self._normal(tokens, in_features), self._normal(in_features, out_features)
        outputs = np.empty((tokens, out_features), dtype=np.float32)
        return lambda: np.matmul(inputs, weights, out=outputs)

    def _decode(
        self, q_heads: int, kv_heads: int, head_size: int, batch: int, context: int
    ) -> Callable[[], object]:
        queries = self._normal(batch, kv_heads, q_heads // kv_heads, head_size)
        keys = self._normal(batch, kv_heads, context, head_size)
        values = self._normal(batch, kv_heads, context, head_size)
        return lambda: _attend(queries, keys, values)

    def _prefill(
        self, q_heads: int, kv_heads: int, head_size: int, past: int, tokens: int
    ) -> Callable[[], object]:
        queries = self._normal(kv_heads, q_heads // kv_heads, tokens, head_size)
        keys = self._normal(kv_heads, 1, past + tokens, head_size)
        values = self._normal(kv_heads, 1, past + tokens, head_size)
        later = np.triu(np.ones((tokens, past + tokens), dtype=bool), past + 1)
        return lambda: _attend(queries, keys, values, later)

    def _elementwise(self, num_bytes: int) -> Callable[[], object]:
        count = max(num_bytes // 12, 1)  # two inputs and one output of 4 bytes
        first, second = self._normal(count), self._normal(count)
        total = np.empty_like(first)
        return lambda: np.add(first, second, out=total)

    def _normal(self, *shape: int) -> Floats:
        return self._rng.standard_normal(shape, dtype=np.float32)


def _attend(
    queries: Floats, keys: Floats, values: Floats, masked: NDArray[np.bool_] | None = None
) -> Floats:
    """Return softmax attention over the last two axes."""
    scores = queries @ keys.swapaxes(-1, -2) / np.float32(queries.shape[-1] ** 0.5)
    if masked is not None:
        scores[..., masked] = -np.inf
    weights = np.exp(scores - scores.max(axis=-1, keepdims=True))
    result: Floats = (weights / weights.sum(axis=-1, keepdims=True)) @ values
    return result
