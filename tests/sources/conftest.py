import shutil

import pytest

from anisoscope.training import loop
from anisoscope.utils import folder
from anisoscope.utils.processes import Stop
from tests import tiny
from tests.sources.swept import measured


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """A run trained to its end, to be copied: [folder, config]."""
    root, config = tmp_path_factory.mktemp("trained") / "run", tiny.config()
    folder.claim_folder(root, config, new=True)
    folder.record_environment(root, tiny.corpus().record())
    with Stop() as stop:
        loop.train(config, tiny.corpus(), {"run": root}, "run", stop)
    return root, config


@pytest.fixture
def run(trained, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(trained[0], folder)
    return folder, trained[1]


@pytest.fixture(scope="session")
def measured_once(trained, tmp_path_factory):
    folder = shutil.copytree(trained[0], tmp_path_factory.mktemp("measured") / "run")
    measured(trained[1], folder)
    return folder


@pytest.fixture
def tables(measured_once, trained, tmp_path):
    """The run with the tables of all its checkpoints: [folder, config]."""
    return shutil.copytree(measured_once, tmp_path / "run"), trained[1]
