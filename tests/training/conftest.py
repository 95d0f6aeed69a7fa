import pytest


@pytest.fixture(autouse=True)
def shared(programs_are_shared):
    """By all tests of training."""
