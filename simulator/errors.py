"""Errors that a person can act on, and the exit codes they lead to."""


class UserError(ValueError):
    """Wrong input: one line that says where, which value, and what was expected (exit code 2)."""


class RunError(RuntimeError):
    """A run that cannot go on: the policy broke a rule, stalled or raised (exit code 3)."""


class TimeUp(RunError):
    """A run took longer than it may: no fact about the run, but about the machine and the limit."""


class PolicyStalled(RunError):
    """Work waits, but nothing is planned, in flight or scheduled to wake the policy."""


class RuleBroken(RunError):
    """A decision or a record broke a rule that every policy has to keep."""
