"""An experiment: how a run is trained, what is measured of it, and which variants of it are run.

An experiment file defines `get_config()` and returns a `Config`. An experiment of several runs names them in
`variants`: name -> {dotted field: value}, applied over the shared settings (`experiments/variants.py`). In `primary` it
names the contrasts between its runs that are asked for before any number is seen (`studies/primary.py`).
"""

from dataclasses import dataclass, field
from typing import Any

from panel import config as panel_config
from panel.config import MeasureConfig
from tangents import config as tangents_config
from tangents.config import TangentsConfig
from training import limits as training_limits
from training.config import RunConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RunConfig):
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    tangents: TangentsConfig = field(default_factory=TangentsConfig)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)
    primary: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)


def check(config: Config) -> None:
    """Raise UserError, one line, where a single run cannot be trained, measured or read for tangents."""
    training_limits.check(config)
    panel_config.check(config.measure, config.model.heads)
    tangents_config.check(config, config.tangents)
