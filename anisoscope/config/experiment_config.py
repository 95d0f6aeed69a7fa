"""The config of an experiment: training, measurement, and the variants to run.

An experiment file defines `get_config()` and returns a `Config`. `variants` maps each run's name
to its changes, {dotted field: value}, on top of the shared settings (`config/variants.py`).
`primary` declares, before any result is known, the contrasts between runs that the experiment
tests (`analysis/primary.py`).
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
