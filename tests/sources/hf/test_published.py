"""The Shape of Learning's own numbers: needs a hub, and enwik8."""

import os

import numpy as np
import pytest

from anisoscope.results import joined_files
from anisoscope.sources.hf import pretrained_weights
from tests.program import here

# Anisotropy of OPT-125m, hidden states 1 to 11, read off the authors' plot to 0.005.
PROFILE = (0.978, 0.987, 0.995, 0.995, 0.995, 0.994, 0.992, 0.989, 0.983, 0.973, 0.959)


def test_opt_125m_has_the_published_profile(tmp_path):
    if not pretrained_weights.hub_answers():
        pytest.skip("no hub answers: facebook/opt-125m cannot be had here")
    text = os.environ.get("ANISOSCOPE_ENWIK8")
    process = here(
        *(
            "--config=experiments/shape_of_learning.py:paper",
            "--config.models=facebook/opt-125m",
            "--stages=measure",
        ),
        *([f"--config.data.path={text}"] if text else []),
        *("--config.measure.families=('spectrum',)", f"--workdir={tmp_path / 'run'}"),
    )
    assert process.returncode == 0, process.stderr
    results = joined_files.read_table(tmp_path / "run" / "opt-125m" / "results.nc").sel(
        positions="all", step=1
    )
    np.testing.assert_allclose(results.anisotropy.sel(statistic="mean")[1:12], PROFILE, atol=0.01)
