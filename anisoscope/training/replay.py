"""Train a run again from a checkpoint: to a step, or until it reaches a gain over unigram.

On a CPU the result is bitwise that of the run. Replayed checkpoints have folders of their own.
"""

import contextlib
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run_config import RunConfig, checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.training import evaluate, log
from anisoscope.training.checkpoint import CheckpointReader, Checkpoints
from anisoscope.training.step import State
from anisoscope.training.train_program import make_train_program
from anisoscope.utils import mesh, processes
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.files import read_json, write_json
from anisoscope.utils.processes import Stop
from anisoscope.utils.progress import progress_bar

REPLAYED = "replayed"  # subfolder of a run: steps that the run did not save
LOSS_MATCHED = "loss_matched"  # subfolder of a run: steps that reach a gain over unigram


class Bracket(NamedTuple):
    """Two consecutive validations: the last below a gain over unigram, the first at or above it."""

    below: int
    reached: int


class Crossing(NamedTuple):
    """The step at which a run reaches a gain over unigram."""

    step: int  # the first step of the bracket that bisection finds to reach the gain
    gain_over_unigram: float
    # {step: digest} of the run's previous checkpoint, if any
    after: dict[str, str | None] | None = None


def crossings(
    config: RunConfig,
    corpus: Corpus,
    run: pathlib.Path,
    brackets: dict[float, Bracket],
    name: str,
    stop: Stop,
) -> dict[float, Crossing]:
    """Find where a finished run reaches each gain over unigram, and save it in `loss_matched/`."""
    path, scheduled = run / LOSS_MATCHED / "crossings.json", CheckpointReader(run / "checkpoints")
    kept = {*checkpoint_steps(config)}
    with Checkpoints(run / LOSS_MATCHED / "checkpoints", None) as others:
        record = read_json(path, "move it elsewhere") if path.exists() else {}
        found = {float(gain): Crossing(**crossing) for gain, crossing in record.items()}
        # crossings of an earlier training in this folder do not count
        found = {gain: crossing for gain, crossing in found.items() if _holds(scheduled, crossing)}
        known = {crossing.step for crossing in found.values()}.intersection(others.steps())
        saved = {gain for gain in found if found[gain].step in kept | known}
        missing = sorted(brackets.keys() - saved)
        replay = _Replay(config, corpus, name, stop) if missing else None
        for gain in progress_bar(missing, f"{name}: loss-matched", "level", leave=False):
            below = brackets[gain].below
            stores = {at: others for at in known if at <= below}
            stores |= {at: scheduled for at in scheduled.steps() if at <= below}
            if not stores:
                what = f"no checkpoint up to step {below} to replay from"
                raise UserError(f"{run / 'checkpoints'} has {what}")
            start = max(stores)
            state = replay.restore(stores[start], start)
            at, state, reached = replay.bisect(state, start, gain, brackets[gain])
            if at not in kept | known:
                others.save(at, replay.program.select_seed(state, 0))
                known.add(at)
            base = max((step for step in scheduled.steps() if step <= at), default=None)
            after = None if base is None else {str(base): scheduled.digest(base)}
            found[gain] = Crossing(at, reached, after)
            if processes.is_first():
                write_json(path, {json.dumps(gain): found[gain]._asdict() for gain in found})
    return {gain: found[gain] for gain in brackets}


def _holds(scheduled: CheckpointReader, crossing: Crossing) -> bool:
    """Return whether the previous checkpoint is unchanged, as far as digests are known."""
    then = crossing.after or {}
    return all(scheduled.digest(int(at)) in (digest, None) for at, digest in then.items() if digest)


def replay_states(
    config: RunConfig,
    corpus: Corpus,
    run: pathlib.Path,
    steps: Iterable[int],
    name: str,
    stop: Stop,
) -> Iterator[tuple[int, State]]:
    """Yield (step, state), trained from the nearest readable checkpoint."""
    replay = _Replay(config, corpus, name, stop)
    store, now, state = open_checkpoints(run), -1, None
    for target in sorted(steps):
        for start in [at for at in reversed(store.all_steps()) if now < at <= target]:
            with contextlib.suppress(RunError):  # skip damaged checkpoints
                now, state = start, replay.restore(store, start)
                break
        if state is None:
            now, state = 0, replay.program.create()
        print(f"{name}: step {target:,} is trained again from step {now:,}")
        now, state = target, replay.advance(state, target - now)
        yield target, replay.program.select_seed(state, 0)


def make_checkpoints(
    config: RunConfig,
    corpus: Corpus,
    run: pathlib.Path,
    steps: Iterable[int],
    name: str,
    stop: Stop,
) -> None:
    """Save these steps in `replayed/` where the run has no checkpoint of them.

    Raises:
        UserError: The run has not reached a step.
    """
    folder, store = run / REPLAYED / "checkpoints", open_checkpoints(run)
    check_reached(config, run, store, steps)
    if missing := {*steps} - {*store.all_steps()}:
        with Checkpoints(folder, None) as replayed:
            for at, state in replay_states(config, corpus, run, missing, name, stop):
                replayed.save(at, state)
    for at in sorted(steps):
        path = folder / str(at)
        print(f"{name}: step {at:,}: {path if path.exists() else run / 'checkpoints' / str(at)}")


def check_reached(
    config: RunConfig, run: pathlib.Path, store: CheckpointReader, steps: Iterable[int]
) -> None:
    """Raise UserError where the run has not reached one of these steps."""
    newest = max([*store.all_steps(), config.train.steps if log.read_score(run) else -1])
    if beyond := [at for at in steps if not 0 <= at <= newest]:
        state = f"is trained to step {newest}" if newest >= 0 else "is not trained yet"
        raise UserError(f"{run} {state}, so step {beyond[0]} does not exist; pass an earlier step")


def read_params(config: RunConfig, corpus: Corpus, run: pathlib.Path, at: int) -> dict:
    """Read the parameters of a step as NumPy arrays, or train to the step again."""
    store = open_checkpoints(run)
    if at in store.all_steps():
        return store.restore_params(at)
    check_reached(config, run, store, [at])
    with jax_as_in_training():
        _, state = next(replay_states(config, corpus, run, [at], str(run), Stop()))
        return jax.tree.map(np.asarray, state.params)


@contextlib.contextmanager
def jax_as_in_training() -> Iterator[None]:
    """Use JAX's default settings in this thread, whatever is set: numbers depend on them."""
    if jax.config.jax_random_seed_offset:
        why = "jax_random_seed_offset is set and would change random numbers"
        raise UserError(f"{why}; unset JAX_RANDOM_SEED_OFFSET")
    with (
        jax.enable_x64(False),
        jax.default_prng_impl("threefry2x32"),
        jax.threefry_partitionable(True),
        jax.default_matmul_precision(None),
        jax.numpy_dtype_promotion("standard"),
        jax.numpy_rank_promotion("allow"),
        jax.disable_jit(False),
    ):
        yield


def open_checkpoints(run: pathlib.Path) -> CheckpointReader:
    """Open all checkpoints of a run for reading: scheduled and replayed."""
    return CheckpointReader(run / "checkpoints", run / REPLAYED / "checkpoints")


class _Replay:
    """Repeats steps of a run from a state."""

    def __init__(self, config: RunConfig, corpus: Corpus, name: str, stop: Stop):
        self.program, self.name, self.stop = make_train_program(config, corpus), name, stop
        self.most, self.tokens_N = config.train.steps_per_call, corpus.valid
        self.windows = evaluate.valid_windows(config, corpus.valid.size)

    def restore(self, store: CheckpointReader, at: int) -> State:
        return self.program.stack([store.restore(at, self.program.abstract)])

    def bisect(
        self, state: State, at: int, gain: float, bracket: Bracket
    ) -> tuple[int, State, float]:
        """Halve the bracket until one step is left; return that step, its state and its gain."""
        below, reached = bracket
        state, found = self.advance(state, below - at), None
        while reached - below > 1:
            middle = (below + reached) // 2
            later = self.advance(jax.tree.map(jnp.copy, state), middle - below)
            gained = self.gain_over_unigram(later)
            if gained >= gain:
                reached, found = middle, (later, gained)
            else:
                below, state = middle, later
        if found is None:
            state = self.advance(state, reached - below)
            found = state, self.gain_over_unigram(state)
        state, gained = found
        if gained < gain:
            why = "training is not exact on this device, or evaluate.draws has changed since"
            raise RunError(
                f"{self.name}: replayed to step {reached}, it gains {gained:.6f} bits, and "
                f"{gain:.6f} by its log: {why}"
            )
        return reached, state, gained

    def advance(self, state: State, count: int) -> State:
        while count > 0:
            self.check_stop()
            now = min(count, self.most)
            state, _ = self.program.run(state, now)
            count -= now
        return state

    def gain_over_unigram(self, state: State) -> float:
        args = state.params, self.tokens_N, self.windows, "", self.check_stop
        return self.program.score(*args)[0].gain_over_unigram

    def check_stop(self) -> None:
        self.stop.check(f"{self.name}: stopped while replaying to a gain over unigram")


class NextStep:
    """The next update of any checkpoint, by the program that trains, on one device."""

    def __init__(self, config: RunConfig, corpus: Corpus, store: CheckpointReader):
        self.program, self.store = (
            make_train_program(config, corpus, mesh.first_device_mesh()),
            store,
        )

    def change(self, at: int) -> Any:
        """Compute what the next update adds to the parameters of this checkpoint, in NumPy."""
        state = self.store.restore(at, self.program.abstract)
        before = jax.tree.map(np.asarray, state.params)
        after, _ = self.program.run(self.program.stack([state]), 1)
        return jax.tree.map(lambda new, old: np.asarray(new)[0] - old, after.params, before)
