"""Updates left out as not finite, and spikes of the loss; both follow from the log alone."""

import statistics
from collections.abc import Iterable
from typing import Any

from anisoscope.config.run_config import TrainConfig

SKIPPED, SPIKE = "skipped", "spike"  # kinds of lines
LOSSES = 20  # logged ones, that a loss is compared with
DEVIATIONS = 8.0  # above their median, of 1.4826 × the median distance from it
LEAST = 0.01  # of the median: the smallest such deviation


class Troubles:
    """The troubles of one run, from the lines of its log, so that a restart has the same."""

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
        self.in_a_row = self.in_a_row + 1 if self._last == now - 1 else 1
        self.skipped, self._last = self.skipped + 1, now

    def take(self, loss: float) -> None:
        self.losses = [*self.losses, loss][-LOSSES:]

    def spike(self, now: int, loss: float) -> dict[str, float] | None:
        """Describe the loss of a step that is a spike, the first between two lines of the log."""
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
    """Say for a status what troubles there were; empty where there were none."""
    lines, phrases = [*lines], []
    for kind, what in (
        (SKIPPED, "updates were left out as not finite"),
        (SPIKE, "spikes of the loss"),
    ):
        steps = [line["step"] for line in lines if line["kind"] == kind]
        phrases += [f"{what}: {len(steps):,}, the last at step {steps[-1]:,}"] if steps else []
    return "; ".join(phrases)
