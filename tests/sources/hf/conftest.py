"""These tests need torch: `make test-pretrained` has an environment of its own, and elsewhere none
of them is there.
"""

import importlib.util

import pytest

HERE = all(importlib.util.find_spec(name) for name in ("torch", "transformers"))
collect_ignore_glob = [] if HERE else ["*.py"]


@pytest.fixture(autouse=True, scope="session")
def one_thread():
    """Models are tiny, and tests run side by side."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session")
def training(tmp_path_factory, one_thread):
    """A folder with the checkpoints of one tiny training, and its text."""
    from tests.sources.hf import tiny_models

    folder = tmp_path_factory.mktemp("training")
    tiny_models.train(folder)
    return folder


@pytest.fixture(scope="session")
def swept(training, tmp_path_factory):
    """The three checkpoints measured by the command, with figures: its folder, and its process."""
    from tests.sources.hf import tiny_models

    workdir, names = tmp_path_factory.mktemp("runs") / "swept", ("step0", "step20", "step60")
    process = tiny_models.measure(training, workdir, *names, stages="measure,figures")
    assert process.returncode == 0, process.stderr
    return workdir, process
