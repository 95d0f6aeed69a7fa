"""What tests of the stage share: settings and text of a tiny run."""

import dataclasses

from anisoscope.config.tangents_config import TangentsConfig
from tests import tiny

SETTINGS = TangentsConfig(
    enabled=True,
    windows=16,
    points=32,
    folds=4,
    ranks=(2,),
    early_fraction=0.5,
    rounds=5,
    restarts=2,
    controls=4,
    neighbors=4,
    local_points=8,
    families=("similarity",),
)


def config():
    return dataclasses.replace(tiny.config(), tangents=SETTINGS)


def corpus():
    return tiny.corpus(2000)
