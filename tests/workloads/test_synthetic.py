import time

import numpy as np
import pytest

from workloads import FixedLength, GammaArrivals, LognormalLength, Streams, UniformLength
from workloads.synthetic import generate

ARRIVALS = GammaArrivals(request_rate=3.0, cv=2.0)
PROMPTS = LognormalLength(mean=500, cv=1.0)
OUTPUTS = LognormalLength(mean=100, cv=1.0)


def test_changing_one_law_leaves_all_else_to_the_last_bit():
    base = generate(ARRIVALS, PROMPTS, OUTPUTS, 500, Streams(5))
    for other_law in (FixedLength(tokens=9), UniformLength(low=1, high=900)):
        other = generate(ARRIVALS, PROMPTS, other_law, 500, Streams(5))
        assert np.array_equal(other.arrival_s, base.arrival_s)
        assert np.array_equal(other.prompt_tokens, base.prompt_tokens)
        other = generate(ARRIVALS, other_law, OUTPUTS, 500, Streams(5))
        assert np.array_equal(other.arrival_s, base.arrival_s)
        assert np.array_equal(other.output_tokens, base.output_tokens)


def test_changing_the_rate_scales_the_same_gaps():
    base = generate(ARRIVALS, PROMPTS, OUTPUTS, 500, Streams(5))
    faster = ARRIVALS.model_copy(update={"request_rate": 6.0})
    other = generate(faster, PROMPTS, OUTPUTS, 500, Streams(5))
    np.testing.assert_allclose(other.arrival_s * 2, base.arrival_s, rtol=1e-12)


def test_same_seed_same_bytes_other_replication_other_bytes():
    hashes = [
        generate(ARRIVALS, PROMPTS, OUTPUTS, 100, Streams(5, replication)).content_hash()
        for replication in (0, 0, 1)
    ]
    assert hashes[0] == hashes[1] != hashes[2]


def test_lengths_are_independent_of_arrivals_and_each_other():
    trace = generate(ARRIVALS, PROMPTS, OUTPUTS, 20_000, Streams(5))
    table = [np.diff(trace.arrival_s), trace.prompt_tokens[1:], trace.output_tokens[1:]]
    correlations = np.corrcoef(np.log(np.maximum(table, 1e-9)))
    assert np.abs(correlations[np.triu_indices(3, 1)]).max() < 4 / np.sqrt(20_000)


def test_provenance_names_the_seed_and_what_was_asked_beside_what_was_drawn():
    trace = generate(ARRIVALS, PROMPTS, OUTPUTS, 5, Streams(5, 2))
    assert trace.provenance["notes"] == {
        "seed": "5",
        "replication": "2",
        "request_rate": f"{5 / trace.arrival_s[-1]:.6g}, asked 3",
        "prompt_tokens": f"mean {trace.prompt_tokens.mean():.6g}, asked 500",
        "output_tokens": f"mean {trace.output_tokens.mean():.6g}, asked 100",
    }


@pytest.mark.slow
def test_a_million_requests_are_drawn_in_a_second():
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        generate(ARRIVALS, PROMPTS, OUTPUTS, 1_000_000, Streams(5))
        seconds.append(time.perf_counter() - start)
    assert min(seconds) < 1.0
