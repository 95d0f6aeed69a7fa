"""Open, resume and save the runs of seeds that train together, each in a folder of its own."""

import contextlib
import math
import pathlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from anisoscope.config.run_config import TrainConfig
from anisoscope.training.checkpoint import DELETE, CheckpointReader, Checkpoints
from anisoscope.training.log import NAME, Log, Troubles, read_log
from anisoscope.training.step import State
from anisoscope.training.train_program import Program
from anisoscope.utils.errors import RunError


@dataclass
class SeedRun:
    """The run of one seed while it trains."""

    name: str
    folder: pathlib.Path
    store: Checkpoints
    log: Log | None = None  # set by `open_logs`, as are the troubles
    troubles: Troubles | None = None
    loss: float = math.nan  # the last finite loss, nats
    valid_bits: float = math.nan


@contextlib.contextmanager
def open_runs(folders: Mapping[str, pathlib.Path], kept: list[int]) -> Iterator[list[SeedRun]]:
    """Open the runs {name: folder} in the order in which their states are stacked."""
    with contextlib.ExitStack() as stack:
        runs = []
        for name, folder in folders.items():
            run = SeedRun(name, folder, Checkpoints(folder / "checkpoints", kept))
            stack.callback(run.store.close)
            stack.callback(lambda run: run.log and run.log.close(), run)
            runs.append(run)
        yield runs


def common_steps(runs: list[SeedRun]) -> list[int]:
    """List the steps that all seeds have saved: a kill between saves leaves some seeds ahead."""
    return sorted(set.intersection(*(set(run.store.steps()) for run in runs)))


def resume(runs: list[SeedRun], program: Program) -> State:
    """Restore the newest step that all seeds have; raise RunError where it is damaged."""
    steps = common_steps(runs)
    saved = [run.store.steps() for run in runs]
    newest = max((step for steps in saved for step in steps), default=None)
    behind = [run.name for run, steps in zip(runs, saved, strict=True) if newest not in steps]
    if newest is not None and behind:
        now = max(steps, default=0)
        names = ", ".join(behind)
        print(f"{names}: no checkpoint of step {newest}; all seeds resume from step {now}")
    if not steps:
        return program.create()
    try:
        states = [restore_state(run.store, steps[-1], program.abstract) for run in runs]
    except RunError as error:
        raise RunError(f"{error}; {DELETE}") from error
    return program.stack(states)


def open_logs(runs: list[SeedRun], train: TrainConfig, now: int) -> None:
    """Open each seed's log at its newest checkpoint, and collect its troubles up to step `now`."""
    for run in runs:
        saved = max(run.store.steps(), default=-1)
        lines = read_log(run.folder)
        if saved < 0 and any(line["step"] > 0 for line in lines):
            what = f"{run.folder / NAME} goes beyond step 0, and no checkpoint is left"
            raise RunError(f"{what}; move it elsewhere to train from step 0")
        run.log = Log(run.folder, saved)
        run.troubles = Troubles(train, (line for line in lines if line["step"] <= now))


def save(runs: list[SeedRun], now: int, states: State, program: Program) -> None:
    """Write the checkpoints of step `now`, logs first; a seed that was ahead has its own already."""
    for run in runs:
        run.log.flush()
    for index, run in enumerate(runs):
        run.store.save(now, *checkpoint_items(program.select_seed(states, index)))


def checkpoint_items(state: State) -> tuple[dict, dict]:
    """Split a state into the two items of a checkpoint: parameters, and the rest."""
    return state.params, {"opt_state": state.opt_state, "step": state.step}


def restore_state(store: CheckpointReader, step: int, abstract: State) -> State:
    """Restore a checkpoint as a state of these shapes, types and shardings."""
    params, rest = store.restore(step, *checkpoint_items(abstract))
    return State(params, rest["opt_state"], rest["step"])
