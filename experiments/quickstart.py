"""A matched pair with rotary positions on Python's language reference: minutes, no network."""

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import CheckpointConfig, DataConfig, EvaluateConfig, TrainConfig
from anisoscope.config.variants import RECIPES
from anisoscope.experiments.matched_pair_small import MATCHED_PAIR
from anisoscope.utils.settings import replace

FAMILIES = ("spectrum", "dimension", "similarity", "attention")


def get_config() -> Config:
    config = Config(
        data=DataConfig(source="pydoc"),
        model=ModelConfig(layers=4, width=96, heads=4, context=64),
        train=TrainConfig(steps=512, batch_size=16),
        evaluate=EvaluateConfig(every=512, windows=64, draws=2),
        checkpoint=CheckpointConfig(every=512),
        measure=MeasureConfig(points=1024, batches=2, families=FAMILIES, nulls=("gaussian",)),
        variants=MATCHED_PAIR,
    )
    # The recipe that learns most in so few steps: the papers' effects need a model that reads context.
    return replace(config, RECIPES["muon"])
