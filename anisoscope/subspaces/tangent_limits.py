"""Whether tangents of a training run can be fitted and tested."""

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import RunConfig
from anisoscope.config.tangents_config import TangentsConfig, check_settings, early_steps
from anisoscope.models.norms import NORMS
from anisoscope.utils.errors import UserError

LEAST_EARLY = 2  # checkpoints of which a proxy is fitted once


def check_tangents(config: RunConfig, tangents: TangentsConfig) -> None:
    """Raise UserError, one line, where proxies cannot be fitted and tested so."""
    if not tangents.enabled:
        return
    check_settings(tangents, width_of(config.model), f"model.width={config.model.width}")
    steps, checkpoints = config.train.steps, early_steps(config, tangents)
    if len(checkpoints) < LEAST_EARLY or checkpoints[-1] == steps:
        last = int(tangents.early_fraction * steps)
        raise UserError(
            f"tangents.early_fraction={tangents.early_fraction:g} of {steps} steps: {len(checkpoints)} checkpoints lie "
            f"in steps 1 to {last}; {LEAST_EARLY} are needed, and a later one: train longer, or set another fraction"
        )


def width_of(model: ModelConfig) -> int:
    """Dimensions in which states and gradients are read: without the vector of ones where every
    norm removes it.
    """
    return model.width - NORMS[model.norm].final
