"""A run small enough for a test: its config and its corpus."""

import numpy as np

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import CheckpointConfig, DataConfig, EvaluateConfig, TrainConfig
from anisoscope.data.corpus import Corpus

QUICK = ("spectrum", "dimension", "attention")  # compiled in seconds


def config(**train) -> Config:
    return Config(
        data=DataConfig(source="pydoc"),
        model=ModelConfig(layers=2, width=16, heads=2, context=8, dtype="float32"),
        train=TrainConfig(
            **{"steps": 6, "batch_size": 8, "steps_per_call": 4, "log_every": 1} | train
        ),
        evaluate=EvaluateConfig(every=3, windows=8),
        checkpoint=CheckpointConfig(every=5),
        measure=MeasureConfig(
            points=16, batches=2, folds=2, families=QUICK, nulls=("shuffled", "untrained")
        ),
    )


def corpus(characters: int = 400, letters: int = 7, seed: int = 0) -> Corpus:
    """A text in which the next character is mostly the one after in the alphabet."""
    steps = np.random.default_rng(seed).choice([1, 1, 1, 2], size=characters)
    tokens = (np.cumsum(steps) % letters).astype(np.uint8)
    cut = characters // 4
    return Corpus(
        name="letters",
        vocabulary=bytes(range(97, 97 + letters)),
        train=tokens[: 2 * cut],
        valid=tokens[2 * cut : 3 * cut],
        test=tokens[3 * cut :],
        sha256=f"digest of seed {seed}",
        origin="tests/tiny.py",
    )
