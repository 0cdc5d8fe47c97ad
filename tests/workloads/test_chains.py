import pickle

import numpy as np
import pytest

from workloads import Trace, WorkloadError
from workloads.chains import Chains, lru_hit_blocks, reusable_tokens

CHAINS = Chains.of([(1, 2, 3), (), (1, 2), (1, 5, 6, 7)], block_size=32)


def every(chains):
    return [chains[row] for row in range(len(chains))]


def test_chains_are_taken_by_slice_mask_and_number():
    assert every(CHAINS.take(slice(1, 3))) == [(), (1, 2)]
    assert every(CHAINS.take(np.array([True, False, False, True]))) == [(1, 2, 3), (1, 5, 6, 7)]
    assert every(CHAINS.take([3, 0, 0])) == [(1, 5, 6, 7), (1, 2, 3), (1, 2, 3)]
    assert every(pickle.loads(pickle.dumps(CHAINS))) == every(CHAINS)


def test_smaller_blocks_give_each_id_its_parts():
    small = CHAINS.reblock(16)
    assert small[2] == (2, 3, 4, 5)
    assert every(small.reblock(16)) == every(small)
    prompts = np.array([96, 10, 64, 128])
    assert reusable_tokens(small, prompts).tolist() == reusable_tokens(CHAINS, prompts).tolist()


def test_larger_blocks_tell_runs_apart_by_all_before_them():
    large = Chains.of([(1, 2, 3, 4), (9, 2, 3, 4), (1, 2, 3)], block_size=16).reblock(32)
    assert [len(chain) for chain in every(large)] == [2, 2, 1]
    assert large[0][0] == large[2][0]
    assert set(large[0]).isdisjoint(large[1])


@pytest.mark.parametrize("size", [0, 24, 48, -32])
def test_other_block_sizes_are_refused(size):
    with pytest.raises(WorkloadError, match="divisor or a multiple of 32"):
        CHAINS.reblock(size)


def test_only_whole_blocks_of_a_leading_run_are_reused():
    chains = Chains.of([(1, 2), (1, 2), (3, 2), ()], block_size=10)
    assert reusable_tokens(chains, np.array([20, 19, 20, 7])).tolist() == [0, 10, 0, 0]


def test_a_cache_that_holds_everything_finds_what_an_infinite_one_does():
    chains = Chains.of([(1, 2, 3), (1, 2), (1, 4), (1, 2, 3)], block_size=1)
    infinite = reusable_tokens(chains, chains.lengths).sum()
    assert lru_hit_blocks(chains, 100) == infinite
    assert lru_hit_blocks(chains, 1) == 0
    with pytest.raises(WorkloadError, match="capacity"):
        lru_hit_blocks(chains, 0)


@pytest.mark.parametrize(
    ("ids", "ends", "size", "told"),
    [([1], [1], 0, "block_size"), ([1], [2], 4, "ascend"), ([-1], [1], 4, "at least 0")],
)
def test_broken_chains_are_refused(ids, ends, size, told):
    with pytest.raises(WorkloadError, match=told):
        Chains(ids, ends, size)


def test_a_trace_keeps_its_chains_with_its_rows():
    trace = Trace([0.0, 1.0, 2.0, 3.0], [96, 5, 40, 128], [1] * 4, chains=CHAINS)
    part = trace.select(start_s=0.5)
    assert every(part.chains) == [(), (1, 2), (1, 5, 6, 7)]
    assert [request.block_ids for request in part.requests()] == every(part.chains)
    bare = Trace(trace.arrival_s, trace.prompt_tokens, trace.output_tokens)
    assert trace.content_hash() != bare.content_hash()
    short = trace.limit_context(64, "clip")
    assert every(short.chains) == [(1, 2), (), (1, 2), (1, 5)]
    with pytest.raises(WorkloadError, match="expected 1 chains"):
        Trace([0.0], [1], [1], chains=CHAINS)
