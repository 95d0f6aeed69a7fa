"""A run replayed from its last checkpoint below a context gain, up to the step where it reaches it:
exactly.

What is made so lies apart from the run's own checkpoints, in `loss_matched/`, beside a record of
each context gain.
"""

import contextlib
import json
import pathlib
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run_config import RunConfig, checkpoint_steps, seeds
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.training import checkpoint, evaluate, finished, optimizer, step
from anisoscope.training.seed_runs import items
from anisoscope.training.train_program import Program, make_program
from anisoscope.utils import processes
from anisoscope.utils.errors import RunError, UserError
from anisoscope.utils.files import read_json, write_json
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

REPLAYED = "replayed"  # the folder in a run's of steps that it never saved
LOSS_MATCHED = "loss_matched"  # of steps where it reaches a context gain


class Bracket(NamedTuple):
    """Two validations of a run, one after the other: the first one that has gained so much, and the
    one before.
    """

    below: int
    reached: int


class Crossing(NamedTuple):
    # the first one, between those of the bracket, at which bisection finds so much gained
    step: int
    context_gain: float
    # {step: digest} of the run's checkpoint before it, if there is one
    after: dict[str, str | None] | None = None


def crossings(
    config: RunConfig,
    corpus: Corpus,
    run: pathlib.Path,
    brackets: dict[float, Bracket],
    name: str,
    stop: Stop,
) -> dict[float, Crossing]:
    """Of each context gain, where a finished run reaches it; its checkpoint is there, on the
    schedule or made now.
    """
    place = run / LOSS_MATCHED
    path, kept = place / "crossings.json", checkpoint_steps(config)
    known = read_json(path, "move it elsewhere") if path.exists() else {}
    reached_at = {float(gain): Crossing(**one) for gain, one in known.items()}
    with contextlib.ExitStack() as stack:
        scheduled = stack.enter_context(
            contextlib.closing(checkpoint.Checkpoints(run / "checkpoints", kept, True))
        )
        others = stack.enter_context(
            contextlib.closing(checkpoint.Checkpoints(place / "checkpoints", None))
        )
        # Those that another run has made in this place, before this one was trained anew, are no
        # part of it.
        reached_at = {gain: one for gain, one in reached_at.items() if _stands(scheduled, one)}
        for at in set(others.steps()) - {one.step for one in reached_at.values()}:
            others.set_aside(at)
        there, both = {*kept, *others.steps()}, checkpoint.Beside(scheduled, others)
        todo = [
            gain
            for gain in sorted(brackets)
            if gain not in reached_at or reached_at[gain].step not in there
        ]
        if not todo:
            return {gain: reached_at[gain] for gain in brackets}
        program = make_program(config, corpus)
        replayed = _Replay(config, corpus, program, name, stop)
        for gain in bar(todo, f"{name}: loss-matched", "level", leave=False):
            below = brackets[gain].below
            start = max(
                (at for at in {*scheduled.steps(), *others.steps()} if at <= below), default=None
            )
            if start is None:
                raise UserError(
                    f"{run / 'checkpoints'} has no checkpoint up to step {below} to replay from"
                )
            params, train = both.restore(start, *items(program.abstract))
            state = program.stack([step.State(params, train["opt_state"], train["step"])])
            at, state, reached = replayed.until(state, start, gain, brackets[gain])
            if at not in {*kept, *others.steps()}:
                others.save(at, *items(program.of_seed(state, 0)))
            base = max((step for step in scheduled.steps() if step <= at), default=None)
            reached_at[gain] = Crossing(
                at, reached, None if base is None else {str(base): scheduled.digest(base)}
            )
            if processes.is_first():
                write_json(
                    path, {json.dumps(key): one._asdict() for key, one in reached_at.items()}
                )
    return {gain: reached_at[gain] for gain in brackets}


def states(
    config: RunConfig,
    corpus: Corpus,
    run: pathlib.Path,
    steps: Iterable[int],
    name: str,
    stop: Stop,
) -> Iterator[tuple[int, tuple[dict, dict]]]:
    """What a checkpoint of each of these steps holds, trained again from the nearest sound one
    before, or from step 0.

    On a CPU that is bitwise what a run has that saves it.
    """
    program = make_program(config, corpus)
    replayed, now, state = _Replay(config, corpus, program, name, stop), -1, None
    with contextlib.closing(stored(run)) as store:
        for wanted in sorted(steps):
            for start in [one for one in reversed(store.readable()) if now < one <= wanted]:
                with contextlib.suppress(RunError):  # a damaged one is no start
                    params, train = store.restore(start, *items(program.abstract))
                    now, state = (
                        start,
                        program.stack([step.State(params, train["opt_state"], train["step"])]),
                    )
                    break
            if state is None:
                now, state = 0, program.create()
            print(f"{name}: step {wanted:,} is trained again from step {now:,}")
            now, state = wanted, replayed.advance(state, wanted - now)
            yield wanted, items(program.of_seed(state, 0))


def make(
    config: RunConfig,
    corpus: Corpus,
    run: pathlib.Path,
    steps: Iterable[int],
    name: str,
    stop: Stop,
) -> None:
    """Checkpoints of these steps, in replayed/ where the run has none of its own; UserError beyond
    its newest one.
    """
    with contextlib.closing(stored(run)) as store:
        check_reached(config, run, store, steps)
        missing = {*steps} - {*store.readable()}
    if missing:
        with contextlib.closing(
            checkpoint.Checkpoints(run / REPLAYED / "checkpoints", None)
        ) as store:
            for at, state in states(config, corpus, run, missing, name, stop):
                store.save(at, *state)
    for at in sorted(steps):
        where = run / REPLAYED / "checkpoints" / str(at)
        print(f"{name}: step {at:,}: {where if where.exists() else run / 'checkpoints' / str(at)}")


def check_reached(
    config: RunConfig, run: pathlib.Path, store: checkpoint.Beside, steps: Iterable[int]
) -> None:
    """Raise UserError where the run has not come to one of these steps."""
    newest = config.train.steps if finished.is_finished(run) else max(store.readable(), default=-1)
    if beyond := [step for step in steps if not 0 <= step <= newest]:
        there = f"is trained to step {newest}" if newest >= 0 else "is not trained yet"
        raise UserError(f"step {beyond[0]} is asked for, and {run} {there}; name one up to there")


def params(config: RunConfig, corpus: Corpus, run: pathlib.Path, wanted: int) -> dict:
    """The parameters of any step that the run has come to, as NumPy arrays: saved ones, or trained
    again.
    """
    with contextlib.closing(stored(run)) as store:
        if wanted in store.readable():
            return store.restore_params(wanted)
        check_reached(config, run, store, [wanted])
    with as_the_command_trains():
        _, (parameters, _) = next(states(config, corpus, run, [wanted], str(run), Stop()))
        return jax.tree.map(np.asarray, parameters)


@contextlib.contextmanager
def as_the_command_trains() -> Iterator[None]:
    """JAX's own settings in this thread, whatever the process that asks has set: numbers depend on
    them.
    """
    if jax.config.jax_random_seed_offset:
        raise UserError(
            "jax_random_seed_offset is set, and other numbers would come out; unset JAX_RANDOM_SEED_OFFSET"
        )
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


def stored(run: pathlib.Path) -> checkpoint.Beside:
    """All that is saved of a run, for reading: on its schedule, and made by a replay."""
    return checkpoint.Beside(
        *(
            checkpoint.Checkpoints(path / "checkpoints", None, True)
            for path in (run, run / REPLAYED)
        )
    )


def _stands(scheduled: checkpoint.Checkpoints, crossing: Crossing) -> bool:
    """Whether the checkpoint before it is still the same, as far as that can be seen: it may be
    gone.
    """
    then = crossing.after or {}
    return all(
        scheduled.digest(int(step)) in (digest, None) for step, digest in then.items() if digest
    )


class _Replay:
    """The steps of a run once more, from a state at hand."""

    def __init__(self, config: RunConfig, corpus: Corpus, program: Program, name: str, stop: Stop):
        self.config, self.program, self.name, self.stop = config, program, name, stop
        self.tokens_N, self.windows = (
            corpus.valid,
            evaluate.valid_windows(config, corpus.valid.size),
        )

    def until(
        self, state: step.State, at: int, gain: float, bracket: Bracket
    ) -> tuple[int, step.State, float]:
        """Step, state and context gain where so much is first gained: the bracket is halved until
        one step is left.
        """
        below, reached = bracket
        state, reached_state = self.advance(state, below - at), None
        while reached - below > 1:
            middle = (below + reached) // 2
            there = self.advance(jax.tree.map(jnp.copy, state), middle - below)
            gained = self.context_gain(there)
            if gained >= gain:
                reached, reached_state = middle, (there, gained)
            else:
                below, state = middle, there
        if reached_state is None:
            state = self.advance(state, reached - below)
            reached_state = state, self.context_gain(state)
        state, gained = reached_state
        if gained < gain:
            raise RunError(
                f"{self.name}: replayed to step {reached}, it gains {gained:.6f} bits, and {gain:.6f} by its log: "
                "training is not exact on this device, or evaluate.draws has changed since"
            )
        return reached, state, gained

    def advance(self, state: step.State, count: int) -> step.State:
        while count > 0:
            self.may_stop()
            now = min(count, self.config.train.dispatch)
            state, _ = self.program.steps(
                state, self.program.tokens_N, self.program.data_R, jnp.int32(now)
            )
            count -= now
        return state

    def context_gain(self, state: step.State) -> float:
        return self.program.score(state.params, self.tokens_N, self.windows, "", self.may_stop)[
            0
        ].context_gain

    def may_stop(self) -> None:
        self.stop.check(f"{self.name}: stopped on the way to a context gain")


class NextStep:
    """The update of a single step: what the optimizer does to a checkpoint with the batch that
    comes next.

    One program for all checkpoints of a run; it computes as the training did.
    """

    def __init__(
        self, config: RunConfig, corpus: Corpus, store: checkpoint.Checkpoints | checkpoint.Beside
    ):
        (weights, data), *_ = seeds(config.train)
        model, update = (
            transformer.build(config.model, corpus.vocab_size),
            optimizer.make_optimizer(config.train),
        )
        one_step = step.make_step(model.apply, update, config, corpus.mask_token)
        self.store, self.data = store, jnp.uint32(data)
        self.tokens_N = jnp.asarray(corpus.train)
        self.abstract = jax.eval_shape(
            lambda: step.init_state(model.init(jax.random.key(weights)), update)
        )

        def moved(state: step.State, seed: jax.Array, tokens_N: jax.Array) -> Any:
            return jax.tree.map(
                jnp.subtract, one_step(state, seed, tokens_N)[0].params, state.params
            )

        self.moved = jax.jit(moved)

    def change(self, at: int) -> Any:
        """What the next update adds to the parameters of this checkpoint, in NumPy."""
        device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
        abstract = jax.tree.map(
            lambda a: jax.ShapeDtypeStruct(a.shape, a.dtype, sharding=device), self.abstract
        )
        params, train = self.store.restore(at, *items(abstract))
        state = step.State(params, train["opt_state"], train["step"])
        return jax.tree.map(np.asarray, self.moved(state, self.data, self.tokens_N))
