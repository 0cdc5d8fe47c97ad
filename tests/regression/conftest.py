import pytest

from tests.regression.command import Gate


@pytest.fixture
def gate(capsys: pytest.CaptureFixture[str]) -> Gate:
    """Return the command `batchlab regress`."""
    return Gate(capsys)
