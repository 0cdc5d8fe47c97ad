import subprocess
import sys

import workloads

FORBIDDEN = ("simpy", "pandas", "matplotlib", "scipy", "simulator", "policies", "joblib")


def test_all_public_names_exist_in_order():
    assert all(hasattr(workloads, name) for name in workloads.__all__)


def test_importing_the_package_does_not_pull_in_heavy_ones():
    code = f"import sys, workloads; print([m for m in {FORBIDDEN} if m in sys.modules])"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "[]"
