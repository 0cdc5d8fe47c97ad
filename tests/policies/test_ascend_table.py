from pathlib import Path

import pytest
from pydantic import ValidationError

from policies import Sarathi, VllmV1
from policies.ascend_table import LookupTable, Row, read_table
from policies.budgets import AscendTable
from policies.testing import ScriptedRequest, ScriptedView
from simulator import RunSpec, UserError

GOOD = [(128, 2, 8, 1.5), (128, 2, 16, 2), (128, 12, 16, 3), (512, 2, 8, 2), (512, 2, 16, 4)]
"""Sizes below the number of decodes are no gap."""
LAST = (512, 12, 16, 5)


def write(folder: Path, rows: list[tuple], header: str = "ctx_len,d_num,chunk_size,cost") -> str:
    path = folder / "table.csv"
    path.write_text("\n".join([header, *(",".join(map(str, row)) for row in rows)]) + "\n")
    return str(path)


def test_rows_are_read_as_they_stand(tmp_path):
    rows = read_table(write(tmp_path, [*GOOD, LAST]))
    assert rows == [Row(*row) for row in (*GOOD, LAST)]


def test_columns_may_stand_in_any_order_and_beside_others(tmp_path):
    rows = [(n, "x", size, cost, ctx) for ctx, n, size, cost in [*GOOD, LAST]]
    assert read_table(write(tmp_path, rows, "d_num,note,chunk_size,cost,ctx_len"))[0].cost == 1.5


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "table.csv: expected rows with columns ctx_len, d_num, chunk_size, cost"),
        (GOOD, "table.csv: there is no row for ctx_len 512, d_num 12, chunk_size 16"),
        (
            [GOOD[1], GOOD[0]],
            r"table.csv, line 3: \(128, 2, 8\) follows \(128, 2, 16\), expected rows in ascending",
        ),
        ([GOOD[0], GOOD[0]], "line 3: .* expected rows in ascending order"),
        ([*GOOD, (512, 12, 16)], "line 7: expected ctx_len, d_num, chunk_size"),
        ([*GOOD, (512, 12, 16, "fast")], "line 7: expected ctx_len, d_num, chunk_size"),
        ([*GOOD, (512, 12, 16.5, 5)], "line 7: expected"),
        ([*GOOD, (512, 12, 16, -5)], "line 7: expected .* above 0"),
        ([*GOOD, (512, 12, 16, "nan")], "line 7: expected"),
        ([*GOOD, (512, 12, 16, "inf")], "line 7: expected"),
    ],
)
def test_faulty_tables_are_refused_in_one_line(tmp_path, rows, message):
    path = write(tmp_path, rows)
    with pytest.raises(ValueError, match=message):
        read_table(path)
    policy = {"kind": "vllm-v1", "budget": {"kind": "ascend-table", "path": path}}
    with pytest.raises(UserError) as error:
        RunSpec.from_dict({"policy": policy})
    assert "\n" not in str(error.value)
    assert "policy.budget" in str(error.value)
    assert "table.csv" in str(error.value)


def test_missing_file_and_missing_column_are_refused(tmp_path):
    with pytest.raises(ValidationError, match=r"absent\.csv: cannot be read: No such file"):
        AscendTable(path=str(tmp_path / "absent.csv"))
    with pytest.raises(ValidationError, match="line 2: expected ctx_len, d_num"):
        AscendTable(path=write(tmp_path, GOOD, "ctx,d_num,chunk_size,cost"))
    binary = tmp_path / "table.bin"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ValidationError, match="cannot be read"):
        AscendTable(path=str(binary))


def table(keys: list[int], in_set_order: bool) -> LookupTable:
    return LookupTable([Row(key, 1, key, 1.0) for key in keys], 1.0, in_set_order)


def test_keys_are_searched_in_ascending_order_or_as_a_set_of_cpython_has_them():
    keys = [128, 256, 512, 1024, 2048, 4096]
    assert table(keys, in_set_order=False).find(300, 1) == 512
    # CPython iterates over this set as 128, 256, 2048, 512, 1024, 4096.
    assert table(keys, in_set_order=True).find(300, 1) == 2048
    assert table(keys, in_set_order=True).find(200, 1) == 256


def test_keys_that_nothing_meets_are_not_searched():
    rows = [Row(128, 2, 8, 5.0), Row(256, 2, 8, 9.0), Row(512, 2, 8, 5.0)]
    assert LookupTable(rows, 5.0).find(200, 2) == 8  # as for 512, the next one that is there


def test_pair_that_nothing_meets_is_a_miss():
    rows = [Row(128, 2, 8, 5.0), Row(128, 4, 8, 9.0), Row(256, 4, 8, 5.0)]
    lookup = LookupTable(rows, 5.0)
    assert (lookup.find(100, 4), lookup.find(200, 4), lookup.find(200, 2)) == (None, 8, None)


def linear(decodes: int, context: int, chunks) -> float:
    return 0.010 + 0.001 * decodes + 0.0005 * sum(tokens for tokens, _ in chunks)


GRID = {"ctx_lens": (16, 64), "d_nums": (1, 4), "chunk_sizes": (2, 8, 16)}


def test_generated_table_times_decodes_and_the_rest_of_the_step():
    spec = AscendTable(**GRID)
    rows = spec.rows(ScriptedView(step_time=linear))
    assert rows[:3] == [(16, 1, 2, 11.5), (16, 1, 8, 14.5), (16, 1, 16, 18.5)]
    assert rows[3:5] == [(16, 4, 8, 16.0), (16, 4, 16, 20.0)]  # no step of 2 holds 4 decodes


def test_generated_table_asks_for_contexts_and_prefix():
    asked = []

    def step_time(*step) -> float:
        asked.append(step)
        return 1.0

    grid = {"ctx_lens": (16,), "d_nums": (2,), "chunk_sizes": (2, 8)}
    AscendTable(prefix_tokens=100, **grid).rows(ScriptedView(step_time=step_time))
    assert asked == [(2, 32, ()), (2, 32, ((6, 100),))]


def budget_of(running: list[ScriptedRequest], cap: int = 64, **switches) -> int:
    view = ScriptedView(running=running, step_time=linear)
    return AscendTable(**(GRID | {"slo_ms": 20} | switches)).build(cap).tokens(view)


def decodes(number: int, known: int) -> list[ScriptedRequest]:
    return [ScriptedRequest(i, known - 1, computed=known - 1, generated=1) for i in range(number)]


def test_table_value_is_cut_to_the_maximum():
    assert budget_of(decodes(2, 16)) == 16
    assert budget_of(decodes(2, 16), cap=12) == 12


def test_mean_context_counts_the_newest_tokens():
    switches = {"on_miss": "default"}
    assert budget_of(decodes(2, 64), **switches) == 16
    assert budget_of(decodes(2, 65), **switches) == 64
    assert budget_of([*decodes(1, 60), *decodes(1, 68)], **switches) == 16


def test_miss_leaves_a_token_for_each_decode():
    assert budget_of(decodes(5, 16)) == 5
    assert budget_of(decodes(2, 100)) == 2
    assert budget_of(decodes(9, 16), cap=6) == 6
    assert budget_of(decodes(5, 16), on_miss="default") == 64


def test_recomputed_output_counts_as_a_decode():
    # Its prompt of 10 is computed again, six of its own tokens are not.
    redone = ScriptedRequest(9, 10, computed=12, generated=8)
    assert budget_of([redone]) == 16
    assert budget_of([redone, *decodes(4, 16)], on_miss="default") == 64


def test_prompts_under_way_do_not_count():
    prompt = ScriptedRequest(9, 900, computed=500)
    assert budget_of([prompt]) == 64
    assert budget_of([prompt, *decodes(2, 16)]) == 16


def test_table_that_nothing_meets_misses_always():
    assert budget_of(decodes(2, 16), slo_ms=5) == 2
    assert budget_of(decodes(2, 16), slo_ms=5, on_miss="default") == 64


def test_victim_of_decodes_first_is_a_prompt_and_then_the_decode_whose_prompt_was_done_last():
    policy = VllmV1(
        decodes_first=True, max_num_batched_tokens=8, long_prefill_token_threshold=4
    ).build()
    long, short, other = ScriptedRequest(0, 8), ScriptedRequest(1, 4), ScriptedRequest(2, 4)
    policy.decide(ScriptedView(waiting=[long, short]))
    long.computed = short.computed = 4
    short.generated = 1
    policy.decide(ScriptedView(running=[long, short]))
    long.computed, long.generated = 8, 1
    other.computed = 3
    # Of the decodes, the prompt of 0 was done last, although it was admitted first.
    full = ScriptedView(running=[other, long, short], num_blocks=4, block_size=4)
    assert [rid for rid, _ in policy.decide(full).preempt] == [2, 0]


def test_host_loop_of_sarathi_takes_the_table_too():
    budget = {"kind": "ascend-table", "slo_ms": 20, **GRID}
    policy = Sarathi(chunk_size=64, budget=budget).build()
    view = ScriptedView(running=[ScriptedRequest(9, 99), *decodes(2, 16)], step_time=linear)
    assert [work.tokens for work in policy.decide(view).plan.chunks] == [14]
