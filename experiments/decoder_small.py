"""A causal Transformer that predicts the next character, 6 layers of width 512."""

from experiments.base import Config


def get_config() -> Config:
    return Config()
