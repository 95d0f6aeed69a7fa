"""A model that others trained, measured as our own: `:EleutherAI/pythia-160m`, a local folder, or a .gguf file."""

from pretrained.config import PretrainedConfig, WeightsConfig


def get_config(name: str = "") -> PretrainedConfig:
    return PretrainedConfig(pretrained=WeightsConfig(name=name))
