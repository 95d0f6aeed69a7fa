"""The folders of the seeds that are trained together, written and read as one run's folder would
be.
"""

import contextlib
import os
import pathlib
import sys

from anisoscope.training import checkpoint, step
from anisoscope.training.log import NAME, Log, read_log, set_aside, validated
from anisoscope.training.train_program import Program
from anisoscope.utils.errors import RunError


class SeedRuns:
    """Checkpoints and logs of the seeds, {name: folder}, in the order in which their states are
    stacked.
    """

    def __init__(self, folders: dict[str, pathlib.Path], kept: list[int]):
        self.folders, self.kept = folders, kept
        # the folder of a single run, the one around several
        self.place = os.path.commonpath(folders.values()) or "."
        self.stores = {
            name: checkpoint.Checkpoints(path / "checkpoints", kept)
            for name, path in folders.items()
        }
        self.logs: dict[str, Log] = {}

    def steps(self) -> list[int]:
        """Steps that all seeds have saved: a kill between two of them leaves some ahead."""
        return sorted(set.intersection(*(set(store.steps()) for store in self.stores.values())))

    def resume(self, program: Program) -> step.State:
        """The newest step of all; or the one before where that can be read, and then what is
        damaged is set aside.
        """
        steps = self.steps()
        self._tell_who_is_behind(max(steps, default=0))
        if not steps:
            return program.create()
        states, damaged = self._read(program, steps[-1])
        if damaged:
            first = next(iter(damaged.values()))
            if len(steps) == 1:
                raise RunError(f"{first}; move it elsewhere to begin anew") from first
            states, older = self._read(program, steps[-2])
            if older:
                raise RunError(
                    f"{first}, and the one before cannot be read either; nothing was moved"
                ) from first
            for name, error in damaged.items():
                print(
                    f"{name}: {error}; moved to {self.stores[name].set_aside(steps[-1])}",
                    file=sys.stderr,
                )
        return program.stack(states)

    def _tell_who_is_behind(self, now: int) -> None:
        """A seed that has lost checkpoints, or saved fewer before a kill, holds the others up."""
        saved = {name: store.steps() for name, store in self.stores.items()}
        newest = max((step for steps in saved.values() for step in steps), default=None)
        behind = [
            name for name, steps in saved.items() if newest is not None and newest not in steps
        ]
        if behind:
            print(
                f"{', '.join(behind)}: no checkpoint of step {newest}; all seeds resume from step {now}"
            )

    def _read(self, program: Program, at: int) -> tuple[list[step.State], dict[str, RunError]]:
        states, damaged = [], {}
        for name, store in self.stores.items():
            try:
                params, train = store.restore(at, *items(program.abstract))
                states.append(step.State(params, train["opt_state"], train["step"]))
            except RunError as error:
                damaged[name] = error
        return states, damaged

    def save(self, now: int, states: step.State, program: Program) -> None:
        """Begin to write what is not there yet, logs first; of a seed ahead, what differs now is
        set aside.
        """
        self.flush()
        for i, (name, store) in enumerate(self.stores.items()):
            saved = items(program.of_seed(states, i))
            if now in store.steps():
                if store.holds(now, *saved):
                    continue
                print(
                    f"{name}: step {now} now comes out otherwise; moved to {store.set_aside(now)}",
                    file=sys.stderr,
                )
            store.begin(now, *saved)

    def settle(self) -> None:
        for store in self.stores.values():
            store.settle()

    def wait(self) -> None:
        for store in self.stores.values():
            store.wait()

    def open_logs(self) -> None:
        """Each resumes from its own newest step, which a seed that is ahead of the others has not
        to do again.
        """
        for name, path in self.folders.items():
            saved = max(self.stores[name].steps(), default=-1)
            if saved < 0 and (aside := set_aside(path)):
                print(
                    f"{name}: no checkpoint is left, and all is trained anew; the log of before is {aside}"
                )
            self._tell_what_is_lost(name, path, saved)
            self.logs[name] = Log(path, saved)

    def _tell_what_is_lost(self, name: str, folder: pathlib.Path, saved: int) -> None:
        """A log reaches the disk before the checkpoint does: one that ends before it has been cut
        since, or is gone.
        """
        scored = max((step for step in self.kept if step <= saved), default=None)
        if scored is None:
            return
        if not (folder / NAME).exists():
            print(
                f"{name}: {folder / NAME} is gone, and with it the scores up to step {saved}; a new one is begun"
            )
        elif scored not in (steps := validated(read_log(folder))):
            since = f"after step {max(steps)}" if steps else f"up to step {saved}"
            lost = f"scores {since} are lost; training resumes"
            print(f"{name}: {folder / NAME} lacks step {scored}, which is saved: {lost}")

    def flush(self) -> None:
        for log in self.logs.values():
            log.flush()

    def close(self) -> None:
        with contextlib.ExitStack() as all_of_them:
            for one in (*self.stores.values(), *self.logs.values()):
                all_of_them.callback(one.close)


def items(state: step.State) -> tuple[dict, dict]:
    """What a checkpoint holds of a state: parameters, and the rest."""
    return state.params, {"opt_state": state.opt_state, "step": state.step}
