"""Write tables of hook points while the Trainer of transformers trains a model."""

import contextlib
import warnings
from typing import Any

import transformers

from anisoscope.sources.recording import measure_step
from anisoscope.sources.recording.recorder import Recorder
from anisoscope.utils.files import user_path


class MeasureCallback(transformers.TrainerCallback):
    """The callback that `anisoscope.trainer_callback` returns."""

    def __init__(
        self, hook_points: Any, folder: Any, every: int, on: str, points: int, options: dict
    ):
        if on not in ("step", "evaluate"):
            raise ValueError(f"on is {on!r}; choose step or evaluate")
        self.hook_points, self.folder = hook_points, user_path(folder)
        self.every, self.on, self.points, self.options = every, on, points, options
        self.stack, self.recorder, self.step = contextlib.ExitStack(), None, 0
        self.due = False  # whether this step gets a table
        self.evaluated = -1  # the step of the last evaluation

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if not state.is_world_process_zero:
            return
        with measure_step.lock_folder(self.folder):
            tables = measure_step.read_other_steps(self.folder, state.global_step)
        if later := [step for step in tables if step > state.global_step]:
            what = f"has a table of step {min(later)}, but training begins at {state.global_step}"
            raise ValueError(f"folder: {self.folder} {what}; name another folder")
        self.stack.close()  # hooks of a training run that was aborted
        self.evaluated = -1
        model, seed = kwargs["model"], self.options["seed"]
        self.recorder = Recorder(model, self.hook_points, None, self.points, seed)
        self._listen(self.on == "evaluate")  # an evaluation may precede the first step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step = state.global_step
        due = self.step % self.every == 0 or self.step == state.max_steps - 1
        self.due = self.on == "step" and due
        self._listen(self.due)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.due:
            self._write(self.step)  # recorded before the update of this step
        self._listen(self.on == "evaluate")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.on != "evaluate" or self.recorder is None:
            return
        if state.global_step == self.evaluated:
            what = f"step {self.evaluated} has several evaluations, and the first was measured"
            warnings.warn(f"{what}; put the texts to measure first in eval_dataset", stacklevel=2)
            return
        self.evaluated = state.global_step
        self._write(self.evaluated)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.stack.close()
        self.recorder = None

    def _listen(self, active: bool) -> None:
        """Keep hooks in place only while passes are recorded.

        A training run that is aborted calls no method that could remove them.
        """
        self.stack.close()
        if active and self.recorder is not None:
            self.stack.enter_context(self.recorder)

    def _write(self, step: int) -> None:
        """Write the table of a step; warn, and let the training continue, where that fails."""
        self._listen(False)
        if self.recorder is None:
            return
        try:
            measure_step.measure_step(self.recorder, step, self.folder, **self.options)
        except Exception as error:
            why = (str(error).splitlines() or [repr(error)])[0]
            warnings.warn(f"step {step} was not measured: {why}", stacklevel=2)
            self.recorder.start_over()
