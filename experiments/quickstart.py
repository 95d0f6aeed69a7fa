"""A matched encoder–decoder pair on Python's language reference: minutes, without network."""

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.recipes import RECIPES
from anisoscope.config.run_config import CheckpointConfig, DataConfig, EvaluateConfig, TrainConfig
from anisoscope.experiments.matched_pair_small import MATCHED_PAIR
from anisoscope.utils.settings import replace

FAMILIES = ("spectrum", "outliers", "leading", "dimension", "similarity", "attention")


def get_config() -> Config:
    config = Config(
        data=DataConfig(source="pydoc"),
        model=ModelConfig(layers=4, width=128, heads=4, context=128),
        train=TrainConfig(steps=256, batch_size=16),
        evaluate=EvaluateConfig(every=64, windows=64, draws=2),
        checkpoint=CheckpointConfig(every=256),
        measure=MeasureConfig(points=2048, batches=2, families=FAMILIES),
        variants=MATCHED_PAIR,
    )
    return replace(config, RECIPES["muon"])  # of the recipes what learns most in so few steps
