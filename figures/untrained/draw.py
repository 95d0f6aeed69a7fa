"""Draw every figure that the table of untrained blocks allows."""

import pathlib

import xarray as xr

from figures import style
from figures.untrained import cosine as untrained_cosine
from figures.untrained import norm as untrained_norm
from figures.untrained import sharpness as untrained_sharpness
from figures.untrained import stack as untrained_stack
from figures.untrained import targets as untrained_targets

FIGURES = {
    "untrained_cosine": untrained_cosine.build,
    "untrained_norm": untrained_norm.build,
    "untrained_sharpness": untrained_sharpness.build,
    "untrained_stack": untrained_stack.build,
    "untrained_targets": untrained_targets.build,
}


def draw(results: xr.Dataset, folder: pathlib.Path) -> list[pathlib.Path]:
    """PNG and PDF of each figure under `folder`. Returns the paths written."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    with style.context():
        for name, build in FIGURES.items():
            paths += style.save(build(results), folder, name)
    return paths
