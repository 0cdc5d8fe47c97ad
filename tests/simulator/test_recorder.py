import numpy as np
import pytest

from policies.base import Decision, Mode, Plan, Trigger
from simulator import DecisionLog, Result
from simulator.clock import TICKS_PER_SECOND
from simulator.observer import StepRecord
from simulator.recorder import GAP_COLUMNS, REQUEST_COLUMNS, STEP_COLUMNS, TableRecorder
from tests.simulator.harness import column, run

TABLES = {"requests": REQUEST_COLUMNS, "steps": STEP_COLUMNS, "gaps": GAP_COLUMNS}


@pytest.fixture(scope="module")
def result() -> Result:
    """Two requests served at once, two cut off while they run."""
    rows = [(0, 4, 5), (0.5, 2, 1), (5.5, 3, 9), (5.75, 3, 1)]
    policy = {"kind": "vllm-v1", "max_num_seqs": 2}
    columns = {"tenant": list("abab"), "priority": [3, 2, 1, 0], "max_tokens": [5, 8, 9, 1]}
    limits = {"block_size": 2, "num_blocks": 6}
    return run(rows, policy, measure={"horizon_s": 7.5}, columns=columns, engine=limits)


def test_every_table_has_its_columns_and_types(result: Result) -> None:
    for name, columns in TABLES.items():
        table = result.tables[name]
        assert list(table) == list(columns)
        assert len({len(values) for values in table.values()}) == 1
        for key, dtype in columns.items():
            assert np.issubdtype(table[key].dtype, dtype), key


def test_a_recorder_that_saw_nothing_gives_empty_tables_of_the_same_types() -> None:
    tables = TableRecorder({}).tables()
    for name, columns in TABLES.items():
        for key, dtype in columns.items():
            assert tables[name][key].shape == (0,)
            assert np.issubdtype(tables[name][key].dtype, dtype), key


def test_requests_stand_in_order_of_arrival_whoever_leaves_first(result: Result) -> None:
    assert column(result, "request_id") == [0, 1, 2, 3]
    assert column(result, "finish_s")[:2] == [5.0, 2.0]
    assert column(result, "tenant") == list("abab")
    assert column(result, "priority") == [3, 2, 1, 0]
    assert column(result, "max_tokens") == [5, 8, 9, 1]


def test_the_tenth_request_comes_after_the_second() -> None:
    outputs = [3, 1, 2] * 4
    result = run([(0, 1, output) for output in outputs], {"kind": "vllm-v1"})
    assert column(result, "request_id") == list(range(12))
    assert column(result, "finish_s") == [float(output) for output in outputs]


def test_times_not_reached_are_nan(result: Result) -> None:
    missing = {
        name: np.isnan(result.tables["requests"][name]).tolist()
        for name in ("first_scheduled_s", "first_token_s", "last_token_s", "finish_s")
    }
    assert missing == {
        "first_scheduled_s": [False, False, False, False],
        "first_token_s": [False, False, False, True],
        "last_token_s": [False, False, False, True],
        "finish_s": [False, False, True, True],
    }


def test_unfinished_requests_are_rows_with_what_they_got(result: Result) -> None:
    assert column(result, "state") == ["finished", "finished", "unfinished", "unfinished"]
    assert column(result, "output_tokens") == [5, 1, 1, 0]
    assert column(result, "target_output_tokens") == [5, 1, 9, 1]


def test_steps_add_up(result: Result) -> None:
    sums = {
        name: int(result.tables["steps"][name].sum()) for name in STEP_COLUMNS if "_s" not in name
    }
    # [0,1) 4; [1,2) 1 2; [2,5) 1; [5.5,6.5) 3; [6.5,7.5) 1 3
    assert int(result.tables["steps"]["num_steps"].sum()) == 7
    assert sums["prefill_tokens"] == 4 + 2 + 3 + 3
    assert sums["useful_tokens"] == sums["charged_tokens"] == 12 + 4 + 1
    assert sums["context_tokens"] == 5 + 6 + 7 + 8 + 4
    durations = result.tables["steps"]["end_s"] - result.tables["steps"]["start_s"]
    assert durations.sum() == 7.0
    assert column(result, "first_step_s", "steps") == column(result, "last_step_s", "steps")


def test_the_blocks_of_a_step_are_those_held_while_it_runs(result: Result) -> None:
    first, second = column(result, "kv_blocks_used", "steps")[:2]
    assert (first, second) == (2, 3 + 1)
    assert column(result, "num_waiting", "steps")[:2] == [0, 0]
    assert column(result, "num_running", "steps")[:2] == [1, 2]


def test_gaps_name_the_moment_the_gap_and_how_often() -> None:
    result = run([(0, 4, 3), (0, 4, 3), (0.5, 4, 2)], {"kind": "vllm-v1"})
    gaps = [column(result, name, "gaps") for name in GAP_COLUMNS]
    assert list(zip(*gaps, strict=True)) == [(2.0, 1.0, 2), (3.0, 1.0, 3)]


def test_a_batch_that_was_cut_has_delivered_nothing() -> None:
    result = run([(0, 4, 1), (0, 4, 9)], {"kind": "static"}, measure={"horizon_s": 5.0})
    assert column(result, "output_tokens") == [0, 0]
    assert column(result, "state") == ["unfinished", "unfinished"]
    assert len(column(result, "gap_s", "gaps")) == 0


def step(start: float, end: float, **values: int) -> StepRecord:
    """Return a decode step of three requests that hold two blocks each."""
    duration = end - start
    record = {
        "num_steps": 1,
        "num_decodes": 3,
        "num_chunks": 0,
        "chunk_tokens": 0,
        "chunk_pairs": 0,
        "chunk_context": 0,
        "context_tokens": 30,
        "charged_tokens": 3,
        "kv_used": 6,
        "kv_block_ticks": 6 * int(duration * TICKS_PER_SECOND),
        "num_waiting": 0,
        "num_running": 3,
    }
    return StepRecord(
        start=start, end=end, first_step=duration, last_step=duration, **record | values
    )


def test_decode_steps_that_follow_each_other_share_a_row() -> None:
    recorder = TableRecorder({}, replica=3)
    recorder.on_step(step(1.0, 1.5))
    recorder.on_step(step(1.5, 2.25, context_tokens=33, kv_used=7))
    table = {name: values.tolist() for name, values in recorder.tables()["steps"].items()}
    expected = {
        "replica": [3],
        "start_s": [1.0],
        "end_s": [2.25],
        "num_steps": [2],
        "first_step_s": [0.5],
        "last_step_s": [0.75],
        "decode_rows": [3],
        "prefill_chunks": [0],
        "prefill_tokens": [0],
        "prefill_pairs": [0.0],
        "prefill_context_tokens": [0],
        "context_tokens": [63],
        "useful_tokens": [6],
        "charged_tokens": [6],
        "kv_blocks_used": [7],
        "kv_block_s": [6 * 1.25],
        "num_waiting": [0],
        "num_running": [3],
    }
    assert table == expected


@pytest.mark.parametrize(
    "later",
    [
        step(1.75, 2.0),  # after a pause
        step(1.5, 2.0, num_decodes=2),
        step(1.5, 2.0, num_chunks=1, chunk_tokens=5),
        step(1.5, 2.0, num_waiting=1),
        step(1.5, 2.0, num_running=4),
        step(1.5, 2.0, charged_tokens=8),
    ],
    ids=["pause", "decodes", "chunks", "waiting", "running", "charged"],
)
def test_steps_that_differ_have_rows_of_their_own(later: StepRecord) -> None:
    recorder = TableRecorder({})
    recorder.on_step(step(1.0, 1.5))
    recorder.on_step(later)
    assert recorder.tables()["steps"]["num_steps"].tolist() == [1, 1]


def test_the_decision_log_tells_who_moved_and_who_worked() -> None:
    log = DecisionLog()
    trigger = Trigger.STEP_DONE
    log.on_decision(0.5, trigger, Decision(admit=(2, 1)), [(2, 7), (1, 1)])
    log.on_decision(0.5, trigger, Decision(), [])
    log.on_decision(0.75, trigger, Decision(wake_at=1.0), [])
    log.on_decision(1.0, trigger, Decision(preempt=((1, Mode.RECOMPUTE),)), [])
    log.on_decision(1.0, trigger, Decision(Plan(), reject=((4, "full"),)), [(2, 1)])
    assert log.lines == [
        "0.500000000 admit 2 admit 1 | 2:7 1:1",
        "1.000000000 preempt 1",
        "1.000000000 reject 4 | 2:1",
    ]


def test_the_decision_log_names_a_plan_once_however_often_it_is_asked_for() -> None:
    log = DecisionLog()
    for now, work in ((1.0, [(0, 1)]), (2.0, [(0, 1)]), (3.0, [(0, 1), (1, 1)]), (4.0, [(0, 1)])):
        log.on_decision(now, Trigger.STEP_DONE, Decision(Plan()), work)
    assert log.lines == ["1.000000000 | 0:1", "3.000000000 | 0:1 1:1", "4.000000000 | 0:1"]
