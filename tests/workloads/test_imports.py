import pytest

from workloads import ConversationWorkload, Streams, WorkloadError, from_aiperf, from_guidellm


def test_guidellm_text_and_mapping_agree():
    text = "prompt_tokens=256,prompt_tokens_stdev=40, prompt_tokens_max=300,output_tokens=128"
    data = {"prompt_tokens": 256, "prompt_tokens_stdev": 40, "prompt_tokens_max": 300}
    one, two = from_guidellm(text, 2.0), from_guidellm(data | {"output_tokens": 128}, 2.0)
    assert one == two
    trace = one.build(Streams(1))
    assert trace.prompt_tokens.max() == 300
    assert set(trace.output_tokens) == {128}


def test_turns_and_prefixes_become_conversations():
    data = {"prompt_tokens": 50, "output_tokens": 10, "turns": 3, "samples": 4}
    workload = from_guidellm(data | {"prefix_tokens": 128, "prefix_count": 2}, 1.0)
    assert isinstance(workload, ConversationWorkload)
    table = workload.source(Streams(1)).table
    assert len(table) == 12
    assert table.prompt_tokens.min() == 178


def test_aiperf_options():
    options = {
        "synthetic-input-tokens-mean": 550,
        "synthetic-input-tokens-stddev": 50,
        "output-tokens-mean": 150,
        "request-count": 40,
    }
    trace = from_aiperf(options, 3.0).build(Streams(1))
    assert len(trace) == 40
    assert trace.prompt_tokens.mean() == pytest.approx(550, rel=0.1)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        ("prompt_tokens", "key=number"),
        ("output_tokens=5", "expected prompt_tokens"),
        ("prompt_tokens=5,output_tokens=5,colour=3", "got 'colour', not an option of guidellm"),
    ],
)
def test_what_is_not_known_is_told(config, told):
    with pytest.raises(WorkloadError, match=told):
        from_guidellm(config, 1.0)
