"""Runs that go wrong: what is said, which code, and that nothing is left behind."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.cli.process import FAST, PROGRAM, Command, environment

POLICIES = '''
from policies import ALL_RUNNING, Decision, Limits, Plan, Policy, PolicySpec, Trigger, View, Work


class _Raises(Policy):
    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if view.now > 2:
            raise ZeroDivisionError("no\\nidea")
        return Decision()


class _Greedy(Policy):
    """Admits everybody, whatever fits."""

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        new = list(view.waiting)
        if not new and not len(view.running):
            return Decision()
        chunks = tuple(Work(r.id, r.remaining) for r in new)
        return Decision(Plan(ALL_RUNNING, chunks), tuple(r.id for r in new))


class _Overdraws(_Greedy):
    limits = Limits(max_num_batched_tokens=64)


class _Sleeps(Policy):
    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        return Decision()


class _SaysNothing(Policy):
    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        pass


class _Revives(_Greedy):
    """Plans a request again that is done."""

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        if view.now > 1 and len(view.running) == 0 and len(view.waiting) == 0:
            return Decision(Plan(decodes=(0,)))
        return super().decide(view, trigger)


class _Loops(Policy):
    """Never comes back."""

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        while True:
            pass


class _Halves(_Greedy):
    """Plans half a token."""

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        first = view.waiting.head
        if first is None:
            return Decision()
        return Decision(Plan(chunks=(Work(first.id, 0.5),)), (first.id,))


class Loops(PolicySpec):
    def build(self):
        return _Loops()


class Halves(PolicySpec):
    def build(self):
        return _Halves()


class _Peeks(_Greedy):
    """Looks at what it must not know."""

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        sorted(view.waiting, key=lambda request: request.output_tokens)
        return super().decide(view, trigger)


class _Doubles(_Greedy):
    """Gives a request more tokens than it lacks."""

    def decide(self, view: View, trigger: Trigger = Trigger.START) -> Decision:
        first = view.waiting.head
        if first is None:
            return super().decide(view, trigger)
        return Decision(Plan(chunks=(Work(first.id, 2 * first.remaining),)), (first.id,))


class Revives(PolicySpec):
    def build(self):
        return _Revives()


class Peeks(PolicySpec):
    def build(self):
        return _Peeks()


class Doubles(PolicySpec):
    def build(self):
        return _Doubles()


class Raises(PolicySpec):
    def build(self):
        return _Raises()


class Greedy(PolicySpec):
    def build(self):
        return _Greedy()


class Overdraws(PolicySpec):
    def build(self):
        return _Overdraws()


class Sleeps(PolicySpec):
    def build(self):
        return _Sleeps()


class SaysNothing(PolicySpec):
    def build(self):
        return _SaysNothing()


class CannotBuild(PolicySpec):
    pass
'''

WRONG = {
    "Raises": [" s (", "waiting", "running", "ZeroDivisionError", "no"],
    "Greedy": [" s (", "waiting", "running", "block"],
    "Overdraws": [" s (", "waiting", "running", "64"],
    "Sleeps": [" s (", "40 waiting, 0 running"],
    "SaysNothing": [" s (", "returned None"],
    "Revives": [" s (STEP_DONE", "0 waiting, 0 running", "request 0", "does not run"],
    "Peeks": [" s (ARRIVAL", "waiting", "output_tokens is hidden from policies", "needs_oracle"],
    "Doubles": [" s (ARRIVAL", "request 0 is planned", "tokens but lacks"],
    "Loops": ["no end after 0.3 s of wall-clock time", "at 0.000000 s of simulated time"],
    "Halves": [" s (1 waiting, 0 running)", "chunks (Work(rid=0, tokens=0.5),)"],
    "CannotBuild": ["CannotBuild has to define build()"],
}
"""Policy, and what the message has to name: the simulated time above all."""


@pytest.fixture
def module(tmp_path: Path) -> Path:
    """Return a folder with the module `wrong` of policies that misbehave."""
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "wrong.py").write_text(POLICIES)
    return folder


@pytest.mark.parametrize("policy", WRONG)
def test_a_policy_that_misbehaves(
    quick: Command, tmp_path: Path, module: Path, policy: str
) -> None:
    words = [*FAST, "--engine.num-blocks", "300", "--policy.kind", f"wrong:{policy}"]
    words += ["--timeout", "0.3"] if policy == "Loops" else []
    outcome = quick("run", *words, "-o", "out", path=module)
    message = outcome.message()
    assert outcome.code == 3
    assert [part for part in WRONG[policy] if part not in message] == [], message
    assert [path.name for path in tmp_path.iterdir()] == ["modules"]


def test_a_module_with_a_mistake_in_it(quick: Command, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text("def f(:\n")
    outcome = quick("run", "--policy.kind", "broken:Mine", path=tmp_path)
    assert "broken.py, line 1" in outcome.message()
    assert outcome.code in (2, 3)


def test_a_failed_run_leaves_an_existing_folder_alone(
    quick: Command, tmp_path: Path, module: Path
) -> None:
    assert quick("run", *FAST, "-o", "out").code == 0
    before = {path: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    words = ["run", *FAST, "--policy.kind", "wrong:Raises", "-o", "out", "--force"]
    assert quick(*words, path=module).code == 3
    assert {path: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before
    assert {path.name for path in tmp_path.iterdir()} == {"modules", "out"}


def heed_interrupts() -> None:
    """Undo what a shell does to jobs in the background: they are told to ignore the signal."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupted_run_exits_with_130_and_leaves_nothing(tmp_path: Path) -> None:
    """The run would take minutes; the signal comes when its temporary folder appears."""
    command = [PROGRAM, "run", "--policy.kind", "none", "--num-requests", "20000", "-o", "out"]
    with subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment(),
        preexec_fn=heed_interrupts,
    ) as process:
        deadline = time.monotonic() + 60
        while not list(tmp_path.iterdir()):
            assert process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.05)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert (out, err.splitlines()[-1]) == ("", "batchlab: interrupted")
    assert "Traceback" not in err
    assert list(tmp_path.iterdir()) == []
