"""A pretrained model, measured as our own: `:EleutherAI/pythia-160m`, a local folder, or a .gguf
file.
"""

from anisoscope.config.pretrained_config import PretrainedConfig, WeightsConfig


def get_config(name: str = "") -> PretrainedConfig:
    return PretrainedConfig(pretrained=WeightsConfig(name=name))
