"""What all revisions of a model have in common, and how its batches are measured, whatever they are
of.

Letters: G probe batches.
"""

import dataclasses
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from anisoscope.config.measure_config import FAMILIES, MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, revision_steps
from anisoscope.sources import extracted
from anisoscope.sources.activations import Measured, input_names
from anisoscope.sources.hf import load_model
from anisoscope.sources.hf.pretrained_weights import Place
from anisoscope.sources.hf.reading import guards, logits
from anisoscope.sources.hf.reading.token_windows import Windows
from anisoscope.utils.progress import bar

# that read queries and keys
OF_HEADS = tuple(name for name, of in FAMILIES.items() if of in ("heads", "vectors"))


class Plan(NamedTuple):
    """Without a name nothing is printed."""

    config: PretrainedConfig  # with the families and null models to be measured
    windows: Windows  # of a text, or of pictures or sound (sources/hf/media/media_inputs.py)
    name: str
    bar: str = ""  # what a progress bar is called; none without it

    @property
    def heads(self) -> bool:
        return any(family in self.config.measure.families for family in OF_HEADS)

    @property
    def readout(self) -> bool:
        return logits.FAMILY in self.config.measure.families

    @property
    def reported(self) -> bool:
        return self.config.hidden_states == "reported"

    def settings(self, again: bool) -> MeasureConfig:
        """What is measured of a batch; read `again`, for the noise floor, without null models."""
        return dataclasses.replace(self.config.measure, nulls=()) if again else self.config.measure

    def inputs(self, g: int, again: bool = False) -> np.ndarray:
        """The windows of a batch, and shuffled ones where they are a null model, (Z, W, T)."""
        probe = self.windows.probe
        return np.stack(
            [probe.tokens_GWT[g], probe.shuffled_GWT[g]][: len(input_names(self.settings(again)))]
        )


def place_of(config: PretrainedConfig, step: int) -> Place:
    return load_model.find_weights(config.pretrained.name, revision_steps(config.pretrained)[step])


def measure_batches(
    plan: Plan,
    last: bool,
    read: Callable[[int, int, bool], Any],
    compute: Callable[[int, Any, bool], Measured],
) -> tuple[Measured, dict[str, float]]:
    """compute(g, read(g, windows at a time, again), again) of every batch; of the `last` revision
    also the noise floor.

    That is how far values move when the first batch is read again, a window at a time and without a
    fused kernel: those of all positions, without null models.
    """
    size, measured, noise = plan.config.pretrained.batch_size, [], {}
    with bar(None, plan.bar, "part", total=2 * (plan.config.measure.batches + last)) as parts:

        def one(g: int, size: int, again: bool) -> Measured:
            inputs = read(g, size, again)
            parts.update()
            result = compute(g, inputs, again)
            parts.update()
            return result

        for g in range(plan.config.measure.batches):
            measured.append(one(g, size, False))
            if last and g == 0:
                noise = guards.noise_floor(
                    measured[0].values, one(g, 1 if size > 1 else 2, True).values
                )
    return extracted.joined(measured), noise
