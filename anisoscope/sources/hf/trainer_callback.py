"""A callback for the Trainer of transformers: a table of hook points at every so many steps."""

import contextlib
import pathlib
import warnings
from typing import Any

import transformers

from anisoscope.sources.recording import measure_step
from anisoscope.sources.recording.recorder import Recorder

WHEN = ("step", "evaluate")


class Tables(transformers.TrainerCallback):
    """`anisoscope.trainer_callback`."""

    def __init__(
        self,
        hook_points: Any,
        folder: Any,
        every: int,
        on: str,
        points: int,
        options: dict[str, Any],
    ):
        if on not in WHEN:
            raise ValueError(f"on is {on!r}; choose one of {', '.join(WHEN)}")
        if not isinstance(every, int) or isinstance(every, bool) or every < 1:
            raise ValueError(f"every is {every!r}; it must be a whole number, at least 1")
        self.hook_points, self.folder, self.every, self.on, self.points = (
            hook_points,
            folder,
            every,
            on,
            points,
        )
        self.options, self.stack, self.recorder = options, contextlib.ExitStack(), None
        self.step = 0

    def on_train_begin(
        self, args: Any, state: Any, control: Any, model: Any = None, **_: Any
    ) -> None:
        if not state.is_world_process_zero:
            return
        with measure_step.lock_folder(pathlib.Path(self.folder)):
            tables = measure_step.read_tables(pathlib.Path(self.folder), state.global_step)
        if later := [step for step in tables if step > state.global_step]:
            raise ValueError(
                f"folder: {self.folder} has a table of step {min(later)}, and training begins at {state.global_step}: "
                "name another folder"
            )
        self.stack.close()  # of a training that broke off
        self.recorder = Recorder(model, self.hook_points, None, self.points, self.options["seed"])
        self._listen(self.on == "evaluate")  # which may come before the first step

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.step = state.global_step
        self._listen(self.on == "step" and self.step % self.every == 0)

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.recorder is not None and self.on == "step" and self.step % self.every == 0:
            self._write(self.step)  # which no update of this step had changed
        self._listen(self.on == "evaluate")

    def on_evaluate(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if self.recorder is not None and self.on == "evaluate":
            self._write(state.global_step)

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self.stack.close()
        self.recorder = None

    def _listen(self, wanted: bool) -> None:
        """Hooks are in place only while passes are recorded: nobody tells of a training that breaks
        off.
        """
        self.stack.close()
        if wanted and self.recorder is not None:
            self.stack.enter_context(self.recorder)

    def _write(self, step: int) -> None:
        """A training is not stopped by what cannot be measured."""
        self._listen(False)
        try:
            measure_step.write_table(self.recorder, step, self.folder, None, None, **self.options)
        except Exception as error:
            why = (str(error).splitlines() or [repr(error)])[0]
            warnings.warn(f"step {step} was not measured: {why}", stacklevel=2)
            self.recorder.start_over()
