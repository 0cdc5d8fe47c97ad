import numpy as np
import pytest
from pydantic import ValidationError

from workloads import ConversationWorkload, Streams, WorkloadError, parse_workload
from workloads.chains import reusable_tokens

TALK = {
    "arrivals": 0.5,
    "turns": {"kind": "geometric", "mean": 4},
    "first_prompt": {"mean": 300, "cv": 1},
    "new_tokens": {"mean": 50, "cv": 1},
    "output_tokens": {"mean": 100, "cv": 1},
    "think_s": {"mean_s": 20},
    "system": {"count": 3, "tokens": {"low": 200, "high": 900}, "popularity": 1.0},
    "num_conversations": 60,
    "block_size": 16,
}


def table(seed=1, **change):
    return parse_workload(TALK | change).source(Streams(seed)).table


def turns_of(trace, conversation):
    rows = np.flatnonzero(trace.columns["conversation"] == conversation)
    return rows[np.argsort(trace.columns["turn"][rows])]


def test_prompts_grow_by_answers_and_new_tokens():
    trace = table(new_tokens=10, system=None)
    for conversation in range(60):
        rows = turns_of(trace, conversation)
        grown = np.diff(trace.prompt_tokens[rows])
        assert grown.tolist() == (trace.output_tokens[rows][:-1] + 10).tolist()
    forgetful = table(new_tokens=10, keeps_output=False)
    assert set(np.diff(forgetful.prompt_tokens[turns_of(forgetful, 0)]).tolist()) <= {10}


def test_earliest_arrivals_are_think_times_after_each_other():
    trace = table()
    for conversation in range(60):
        rows = turns_of(trace, conversation)
        assert trace.columns["turn"][rows].tolist() == list(range(rows.size))
        steps = np.diff(trace.arrival_s[rows])
        np.testing.assert_allclose(steps, trace.columns["think_s"][rows][1:], rtol=1e-9, atol=1e-9)


def test_turns_follow_the_answers_of_a_run():
    source = parse_workload(TALK).source(Streams(1))
    (first,) = [request for request in source.start() if request.conversation == 0]
    rows = turns_of(source.table, 0)
    if rows.size > 1:
        (second,) = source.on_finish(first.id, 100.0)
        assert second.arrival == 100.0 + source.table.columns["think_s"][rows[1]]
        assert second.id == rows[1]


def test_each_turn_finds_all_that_was_said_before():
    trace = table(system=None)
    order = np.lexsort((trace.columns["turn"], trace.columns["conversation"]))
    hits = reusable_tokens(trace.chains.take(order), trace.prompt_tokens[order])
    turn = trace.columns["turn"][order]
    before = np.concatenate(([0], trace.prompt_tokens[order][:-1]))
    expected = np.where(turn > 0, before // 16 * 16, 0)
    assert hits.tolist() == expected.tolist()


def test_conversations_share_the_whole_blocks_of_their_system_prompt():
    trace = table(turns=1, num_conversations=200)
    hits = reusable_tokens(trace.chains, trace.prompt_tokens)
    prefixes = {}
    for row in range(200):
        prefixes.setdefault(trace.chains[row][0], []).append(row)
    assert len(prefixes) == 3
    for rows in prefixes.values():
        assert hits[rows[0]] == 0
        later = hits[rows[1:]]
        assert len(set(later.tolist())) == 1
        assert later[0] % 16 == 0
        assert 176 <= later[0] <= 896
    sizes = sorted(len(rows) for rows in prefixes.values())
    assert sizes[2] > 1.3 * sizes[0]


def test_groups_live_inside_system_prompts():
    group = {"count": 2, "tokens": 160}
    trace = table(turns=1, num_conversations=100, group=group, system={"count": 1, "tokens": 64})
    chains = [trace.chains[row] for row in range(100)]
    assert len({chain[:4] for chain in chains}) == 1
    assert len({chain[:14] for chain in chains}) == 2
    assert len({chain[:15] for chain in chains if len(chain) > 14}) == len(
        [chain for chain in chains if len(chain) > 14]
    )


def test_compacted_contexts_share_only_the_prefix():
    shrink = {"probability": 1.0, "keep": 0.5}
    trace = table(turns=3, shrink=shrink, num_conversations=5, new_tokens=200, first_prompt=400)
    rows = turns_of(trace, 0)
    chains = [trace.chains[row] for row in rows]
    common = sum(a == b for a, b in zip(chains[0], chains[1], strict=False))
    alone = [trace.chains[row] for row in turns_of(trace, 1)]
    assert 0 < common <= 900 // 16
    assert not set(chains[1][common:]) & set(chains[0])
    assert not set(chains[1][57:]) & set(alone[1])


@pytest.mark.parametrize("at_limit", ["end", "compact"])
def test_context_limit_ends_or_compacts(at_limit):
    laws = {"turns": 20, "first_prompt": 300, "new_tokens": 300, "output_tokens": 100}
    trace = table(**laws, max_context=1500, at_limit=at_limit, system=None)
    assert (trace.prompt_tokens + trace.output_tokens).max() <= 1500
    rows = turns_of(trace, 0)
    if at_limit == "end":
        assert trace.prompt_tokens[rows].tolist() == [300, 700, 1100]
    else:
        assert rows.size == 20
        assert trace.prompt_tokens[rows][:5].tolist() == [300, 700, 1100, 300, 700]
        assert not set(trace.chains[rows[3]]) & set(trace.chains[rows[2]])


def test_draws_belong_to_conversation_and_turn():
    def lengths(trace):
        keys = zip(
            trace.columns["conversation"].tolist(), trace.columns["turn"].tolist(), strict=True
        )
        return dict(
            zip(
                keys,
                zip(trace.output_tokens.tolist(), trace.columns["think_s"].tolist(), strict=True),
                strict=True,
            )
        )

    base = lengths(table())
    for change in ({"num_conversations": 90}, {"arrivals": 3}, {"turns": 9}, {"new_tokens": 5}):
        other = lengths(table(**change))
        common = set(base) & set(other)
        assert len(common) >= 60
        assert all(repr(base[key]) == repr(other[key]) for key in common)


def test_conversations_cannot_be_built_beforehand():
    workload = parse_workload(TALK)
    assert isinstance(workload, ConversationWorkload)
    with pytest.raises(WorkloadError, match="depend on completions"):
        workload.build(Streams(1))
    assert parse_workload(workload.model_dump(mode="json")) == workload


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"turns": 0}, "turns"),
        ({"shrink": {"probability": 2}}, "probability"),
        ({"at_limit": "compact"}, "max_context"),
        ({"system": {"count": 0, "tokens": 5}}, "count"),
        ({"block_size": 0}, "block_size"),
    ],
)
def test_nonsense_is_refused_by_name(change, told):
    with pytest.raises(ValidationError, match=told):
        parse_workload(TALK | change)
