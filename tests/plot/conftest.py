"""Two runs that most tests of figures look at: making one takes seconds."""

import pytest

from anisoscope.plot import style
from anisoscope.plot.run_tables import Run
from tests.plot.tables import make_run


@pytest.fixture(scope="session")
def runs() -> dict[str, Run]:
    """Tests leave them as they are."""
    return {"decoder": make_run(heads=4), "encoder": make_run(False, layers=3, heads=4)}


@pytest.fixture(autouse=True)
def _styled():
    with style.context():
        yield
