"""A stepper put together by hand, with clients that go away: no specification can say that."""

from collections.abc import Iterable, Sequence
from typing import Any

from policies import PolicySpec
from simulator import Observer
from simulator.clock import ARRIVAL, CANCEL, At, Clock
from simulator.engine import Engine
from simulator.request import Request
from workloads.request import RequestSpec


def serve(
    kind: type[Engine],
    rows: Sequence[RequestSpec],
    policy: PolicySpec,
    cost: Any,
    leaving: Iterable[tuple[float, int]],
    num_blocks: int | None = None,
    block_size: int = 16,
    max_model_len: int | None = None,
    observers: Sequence[Observer] = (),
) -> tuple[list[Request], float]:
    """Serve rows, some of whose clients leave at times; return the requests and the last time."""
    outputs = {row.id: row.output_tokens for row in rows}
    env, kv = Clock(), kind.ledger_type(num_blocks, block_size)
    engine = kind(env, policy.build(), cost, kv, outputs, max_model_len, observers)
    engine.start()
    requests = [kind.request_type(row) for row in rows]
    for request in requests:
        arrival = At(env, request.arrival, ARRIVAL)
        arrival.callbacks.append(lambda _, request=request: engine.submit(request))
    for time, rid in leaving:
        At(env, time, CANCEL).callbacks.append(lambda _, rid=rid: engine.cancel(rid))
    env.run()
    engine.check_done()
    assert kv.used == 0
    return requests, env.now
