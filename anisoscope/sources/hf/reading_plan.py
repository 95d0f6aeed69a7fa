"""Plan what to measure of every revision of a model, and loop over batches of windows.

Letters: G batches of windows, Z inputs of a batch: its windows, and shuffled ones.
"""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from anisoscope.config.measure_config import FAMILIES, MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.sources import extracted
from anisoscope.sources.activations import Measured, input_names
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.adapters import Adapter, has_scores
from anisoscope.sources.hf.pretrained_weights import Place
from anisoscope.sources.hf.reading import guards, logits
from anisoscope.sources.hf.reading.token_windows import Windows
from anisoscope.utils.progress import bar

# families that read queries and keys
HEAD_FAMILIES = tuple(name for name, kind in FAMILIES.items() if kind in ("heads", "vectors"))


class Plan(NamedTuple):
    """Windows and settings of every revision; without a name nothing is printed."""

    config: PretrainedConfig  # with the families and null models to measure
    windows: Windows  # of a text, or of pictures or sound (sources/hf/media/media_inputs.py)
    name: str
    bar: str = ""  # label of a progress bar; none without it

    @property
    def heads(self) -> bool:
        return any(family in self.config.measure.families for family in HEAD_FAMILIES)

    @property
    def unembedding(self) -> bool:
        return logits.FAMILY in self.config.measure.families

    @property
    def reported(self) -> bool:
        return self.config.hidden_states == "reported"

    def settings(self, again: bool) -> MeasureConfig:
        """Return the settings of a batch; `again`, for the noise floor, drops null models."""
        return dataclasses.replace(self.config.measure, nulls=()) if again else self.config.measure

    def inputs(self, g: int, again: bool = False) -> np.ndarray:
        """Return the windows of a batch, and shuffled ones as a null model, (Z, W, T)."""
        probe, names = self.windows.probe, input_names(self.settings(again))
        return np.stack([probe.tokens_GWT[g], probe.shuffled_GWT[g]][: len(names)])


def find_revision(config: PretrainedConfig, step: int) -> Place:
    return load_model.find_weights(config.pretrained.name, revision_steps(config.pretrained)[step])


def unmeasurable(adapter: Adapter, kind: str, name: str) -> dict[str, str]:
    """Return the families that cannot be measured for a model type and class, and why."""
    reasons = {}
    if not has_scores(adapter):
        unknown = f"models of type {kind!r} have no entry in sources/hf/adapters.py"
        mixed = f"in models of type {kind!r} {adapter.mixed}"
        reasons |= dict.fromkeys(HEAD_FAMILIES, mixed if adapter.mixed else unknown)
    if reason := logits.missing_head(adapter, name):
        reasons[logits.FAMILY] = reason
    return reasons


def measure_batches(
    plan: Plan, last: bool, measure: Callable[[int, int, bool], Measured]
) -> tuple[Measured, dict[str, float]]:
    """Measure every batch, and for the last revision the noise floor.

    Args:
        plan: the batches.
        last: whether this is the last revision.
        measure: called with (batch, windows in a pass, again); `again` measures all positions
            without null models, and computes attention without a fused kernel.

    Returns:
        The values of all batches, and how far each quantity of the first batch moves when it is
        read again with another number of windows in a pass.
    """
    size, measured, noise = plan.config.pretrained.batch_size, [], {}
    batches = plan.config.measure.batches
    with bar(None, plan.bar, "batch", total=batches + last) as progress:
        for g in range(batches):
            measured.append(measure(g, size, False))
            progress.update()
            if last and g == 0:
                again = measure(g, 1 if size > 1 else 2, True)
                noise = guards.noise_floor(measured[0].values, again.values)
                progress.update()
    return extracted.join_batches(measured), noise
