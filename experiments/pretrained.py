"""A pretrained model, measured as our own: `:EleutherAI/pythia-160m`, a local folder, or a .gguf file."""

from anisoscope.config.pretrained import PretrainedConfig, WeightsConfig

COST = {"": "minutes for a model of some 100M parameters on two CPU cores; nothing is estimated beforehand"}


def get_config(name: str = "") -> PretrainedConfig:
    return PretrainedConfig(pretrained=WeightsConfig(name=name))
