import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from policies.testing import ScriptedRequest
from simulator.errors import RuleBroken
from simulator.kv_cache import UNLIMITED_BLOCKS, BlockManager


def test_blocks_grow_only_when_a_boundary_is_crossed() -> None:
    kv = BlockManager(num_blocks=4, block_size=16)
    used = []
    for tokens in (1, 16, 17, 32, 33):
        kv.hold(7, tokens)
        used.append(kv.used)
    assert used == [1, 1, 2, 2, 3]


def test_holding_for_fewer_tokens_gives_nothing_back() -> None:
    kv = BlockManager(num_blocks=4, block_size=4)
    kv.hold(0, 13)
    kv.hold(0, 1)
    assert (kv.used, kv.free) == (4, 0)


def test_need_counts_only_what_is_missing() -> None:
    kv = BlockManager(num_blocks=8, block_size=4)
    request = ScriptedRequest(0, prompt_tokens=9, computed=4)
    assert kv.need(request, 1) == 2  # nothing is held yet
    kv.hold(0, 4)
    assert [kv.need(request, tokens) for tokens in (0, 1, 4, 5)] == [0, 1, 1, 2]
    kv.hold(0, 32)
    assert kv.need(request, 5) == 0


def test_too_many_blocks_are_refused_and_nothing_is_taken() -> None:
    kv = BlockManager(num_blocks=3, block_size=2)
    kv.hold(0, 4)
    with pytest.raises(RuleBroken, match="request 1 needs 2 more KV blocks, 1 are free"):
        kv.hold(1, 3)
    assert (kv.used, kv.free, kv.num_allocated) == (2, 1, 2)
    assert kv.held(ScriptedRequest(1)) == 0


def test_the_last_block_can_be_taken() -> None:
    kv = BlockManager(num_blocks=3, block_size=2)
    kv.hold(0, 6)
    assert kv.free == 0


def test_no_block_is_freed_twice() -> None:
    kv = BlockManager(num_blocks=3, block_size=2)
    kv.hold(0, 6)
    kv.release(0)
    with pytest.raises(RuleBroken, match="request 0 holds no KV blocks"):
        kv.release(0)
    assert kv.free == 3


def test_a_cache_without_a_limit_never_fills_up() -> None:
    kv = BlockManager(num_blocks=None, block_size=1)
    assert not kv.is_limited
    assert BlockManager(1, 1).is_limited
    kv.hold(0, 2**40)
    assert (kv.used, kv.total) == (2**40, UNLIMITED_BLOCKS)


@settings(deadline=None, derandomize=True)
@given(
    st.integers(1, 5),
    st.integers(0, 12),
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12))),
)
def test_every_block_is_free_or_held_by_one_request(
    block_size: int, num_blocks: int, calls: list[tuple[int, int]]
) -> None:
    kv = BlockManager(num_blocks, block_size)
    model: dict[int, int] = {}  # request to blocks; 0 tokens stands for a release
    for rid, tokens in calls:
        blocks = max(-(-tokens // block_size), model.get(rid, 0))
        others = sum(model.values()) - model.get(rid, 0)
        allowed = rid in model if tokens == 0 else blocks + others <= num_blocks
        if not allowed:
            with pytest.raises(RuleBroken):
                kv.release(rid) if tokens == 0 else kv.hold(rid, tokens)
        elif tokens == 0:
            kv.release(rid)
            del model[rid]
        else:
            kv.hold(rid, tokens)
            model[rid] = blocks
        assert kv.used == sum(model.values()) == kv.num_allocated - kv.num_freed
        assert kv.free + kv.used == num_blocks
        assert all(kv.held(ScriptedRequest(r)) == model.get(r, 0) for r in range(4))
