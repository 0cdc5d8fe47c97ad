import pickle

from workloads import WorkloadError


def test_message_names_place_value_and_expectation_on_one_line():
    error = WorkloadError("expected\na number", path="a.csv", line=2, column="x", value="1\n2")
    assert str(error) == "a.csv, line 2, column x: got '1\\n2', expected a number"


def test_long_values_are_cut():
    assert len(str(WorkloadError("expected less", value="x" * 10_000))) < 120


def test_error_survives_pickling():
    error = WorkloadError("expected a number", path="a.csv", line=2)
    assert str(pickle.loads(pickle.dumps(error))) == str(error)
