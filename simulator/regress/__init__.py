"""The regression gate: suites, baselines, verdicts and their reports."""
