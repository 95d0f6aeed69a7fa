"""An experiment: how a run is trained, what is measured of it, and which variants of it are run.

An experiment file defines `get_config()` and returns a `Config`. An experiment of several runs
names them in `variants`: name -> {dotted field: value}, applied over the shared settings
(`config/variants.py`). In `primary` it names the contrasts between its runs that are asked for
before any number is seen (`analysis/primary.py`).
"""

from dataclasses import dataclass, field
from typing import Any

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.run_config import RunConfig
from anisoscope.config.tangents_config import TangentsConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Config(RunConfig):
    measure: MeasureConfig = field(default_factory=MeasureConfig)
    tangents: TangentsConfig = field(default_factory=TangentsConfig)
    variants: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)
    primary: dict[str, dict[str, Any]] = field(default_factory=dict, hash=False)
