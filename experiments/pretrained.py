"""A pretrained model: `:EleutherAI/pythia-160m`, a local folder, or a .gguf file.

It is measured in the same way as the models trained here.
"""

from anisoscope.config.pretrained_config import PretrainedConfig, WeightsConfig


def get_config(name: str = "") -> PretrainedConfig:
    return PretrainedConfig(pretrained=WeightsConfig(name=name))
