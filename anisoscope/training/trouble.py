"""Detect skipped updates and spikes of the loss; both follow from the log alone."""

import statistics
from collections.abc import Iterable
from typing import Any

from anisoscope.config.run_config import TrainConfig

SKIPPED, SPIKE = "skipped", "spike"  # kinds of lines
LOSSES = 20  # logged losses that a loss is compared with
DEVIATIONS = 8.0  # threshold above their median; a deviation is 1.4826 × their median distance
LEAST = 0.01  # smallest deviation, as a share of the median


class Troubles:
    """The troubles of one run, read from its log, so that a restart continues with the same."""

    def __init__(self, train: TrainConfig, lines: Iterable[dict[str, Any]]):
        self.every, self.losses = train.log_every, []
        self.skipped = self.in_a_row = 0
        # steps: of the last spike, and of the last update that was left out
        self.spiked = self._last = -1
        for line in lines:
            if line["kind"] == "train":
                self.take(line["loss"])
            elif line["kind"] == SKIPPED:
                self.skip(line["step"])
            elif line["kind"] == SPIKE:
                self.spiked = line["step"]

    def skip(self, now: int) -> None:
        """Record an update that was skipped as not finite."""
        self.in_a_row = self.in_a_row + 1 if self._last == now - 1 else 1
        self.skipped, self._last = self.skipped + 1, now

    def take(self, loss: float) -> None:
        """Record a logged loss."""
        self.losses = [*self.losses, loss][-LOSSES:]

    def spike(self, now: int, loss: float) -> dict[str, float] | None:
        """Describe the loss of a step if it is a spike, the first between two lines of the log."""
        if len(self.losses) < LOSSES or (self.spiked - 1) // self.every == (now - 1) // self.every:
            return None
        usual = statistics.median(self.losses)
        deviation = max(
            1.4826 * statistics.median(abs(known - usual) for known in self.losses), LEAST * usual
        )
        if loss <= usual + DEVIATIONS * deviation:
            return None
        self.spiked = now
        return {"loss": loss, "median": usual, "deviations": (loss - usual) / deviation}


def format_troubles(lines: Iterable[dict[str, Any]]) -> str:
    """Describe the troubles for the status; empty where there were none."""
    lines, phrases = [*lines], []
    for kind, what in (
        (SKIPPED, "updates were left out as not finite"),
        (SPIKE, "spikes of the loss"),
    ):
        steps = [line["step"] for line in lines if line["kind"] == kind]
        phrases += [f"{what}: {len(steps):,}, the last at step {steps[-1]:,}"] if steps else []
    return "; ".join(phrases)
