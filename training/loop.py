"""The training loop: one for every experiment. Resumes where it stopped, exactly."""

import contextlib
import json
import math
import pathlib
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
from tqdm import tqdm

import models
import processes
from data.corpus import Corpus
from errors import RunError
from experiments.base import Config
from stop import Stop
from training import checkpoint, evaluate, optimizer, step
from training.folder import write_atomically
from training.log import Log
from training.program import Program, make_program

DISPATCH_SECONDS = 1.0  # steps are run together up to about this long, so that the bar moves and a stop is heard


def train(config: Config, corpus: Corpus, folder: pathlib.Path, name: str, stop: Stop) -> None:
    """Train the run in `folder` to its last step and score the test split; raises Stopped once a stop is saved."""
    kept = checkpoint.schedule(config.train.steps, config.checkpoint.every)
    store = checkpoint.Checkpoints(folder / "checkpoints", kept)
    try:
        if config.train.steps in store.steps() and (folder / "test.json").exists():
            print(f"{name}: trained already, {config.train.steps} steps, in {folder}")
            return
        program = make_program(config, corpus)
        state = _resume(program, store, name)
        now = int(state.step)
        count, device = models.count_parameters(state.params), jax.devices()[0].device_kind
        print(f"{name}: {count:,} parameters, on {program.devices} × {device}, from step {now} in {folder}")
        with contextlib.closing(Log(folder, now)) as log:
            state = _Session(config, corpus, program, store, kept, log, stop, name).run(state)
        stop.check(f"{name}: stopped at step {int(state.step)}, saved in {folder}")
        _test(config, corpus, program, state, folder, name, stop)
    finally:
        store.close()


def _resume(program: Program, store: checkpoint.Checkpoints, name: str) -> step.State:
    """The newest checkpoint, or the one before where that one is damaged and this one is not.

    The damaged one is then set aside. If two cannot be read, the cause is likely another: nothing is moved.
    """
    steps = store.steps()
    if not steps:
        return program.create()
    try:
        return _restore(program, store, steps[-1])
    except RunError as error:
        if len(steps) == 1:
            raise RunError(f"{error}; move it elsewhere to begin anew") from error
        try:
            state = _restore(program, store, steps[-2])
        except RunError as older:
            raise RunError(f"{error}, and the one before cannot be read either; nothing was moved") from older
        print(f"{name}: {error}; moved to {store.set_aside(steps[-1])}", file=sys.stderr)
        return state


def _restore(program: Program, store: checkpoint.Checkpoints, at: int) -> step.State:
    params, rest = store.restore(at, program.abstract.params, _train_item(program.abstract))
    return step.State(params, rest["opt_state"], rest["step"])


def _train_item(state: step.State) -> dict:
    return {"opt_state": state.opt_state, "step": state.step}


class _Session:
    """One stretch of training, from a state to the last step or to a request to stop."""

    def __init__(
        self,
        config: Config,
        corpus: Corpus,
        program: Program,
        store: checkpoint.Checkpoints,
        kept: list[int],
        log: Log,
        stop: Stop,
        name: str,
    ):
        self.config, self.program, self.store, self.kept = config, program, store, kept
        self.log, self.stop, self.name = log, stop, name
        self.tokens_N, self.windows = corpus.valid, evaluate.valid_windows(config, corpus.valid.size)
        self.rate = optimizer.schedule(config.train)
        self.loss = self.valid_bits = math.nan
        self.seconds = math.inf  # per step
        self.stopping = False

    def run(self, state: step.State) -> step.State:
        last, now = self.config.train.steps, int(state.step)
        interval = 0.1 if sys.stderr.isatty() else 10.0
        quiet = not processes.is_first()
        with tqdm(total=last, initial=now, desc=self.name, unit="step", mininterval=interval, disable=quiet) as bar:
            self.arrive(state, now)
            while now < last and not self.stopping:
                count = self.next_count(now)
                began = time.perf_counter()
                state, metrics = self.program.steps(state, self.program.tokens_N, jnp.int32(count))
                metrics = jax.tree.map(np.asarray, metrics)
                self.seconds, self.stopping = processes.largest((time.perf_counter() - began) / count, self.stop.asked)
                self.log_steps(now, count, metrics)
                now += count
                self.arrive(state, now)
                valid = "" if math.isnan(self.valid_bits) else f"valid {self.valid_bits:.3f}, "
                bits = f"loss {self.loss:.3f}, {self.loss / math.log(2):.3f} bits/char, {valid}"
                bar.set_postfix_str(f"{bits}{self.characters_per_second():,.0f} chars/s", refresh=False)
                bar.update(count)
        return state

    def next_count(self, now: int) -> int:
        """How many steps to run together: never past a checkpoint or a validation, nor for much over a second."""
        every = self.config.evaluate.every
        boundary = min(min(k for k in self.kept if k > now), (now // every + 1) * every)
        most = max(1, min(self.config.train.dispatch, int(DISPATCH_SECONDS / self.seconds)))
        return min(most, boundary - now)

    def arrive(self, state: step.State, now: int) -> None:
        """Validate and save where the schedule says so; the log reaches the disk before its checkpoint does."""
        if now in self.store.steps():
            return
        if now % self.config.evaluate.every == 0 or now == self.config.train.steps:
            result = self.program.score(state.params, self.tokens_N, self.windows)
            if not math.isfinite(result.loss):
                self.fail(now, f"validation loss {result.loss}", now - 1)
            self.valid_bits = result.bits_per_character
            self.log.write(now, "valid", loss=result.loss, bits_per_character=self.valid_bits)
        if now in self.kept or self.stopping:
            self.log.flush()
            self.store.save(now, state.params, _train_item(state))

    def log_steps(self, first: int, count: int, metrics: step.StepMetrics) -> None:
        """Log the steps just done, or raise at the first one that is not finite."""
        for i in range(count):
            now, loss, norm = first + i + 1, float(metrics.loss[i]), float(metrics.gradient_norm[i])
            if not (math.isfinite(loss) and math.isfinite(norm)):
                # The loss of update `now` is that of the parameters at step now - 1.
                self.fail(now, f"loss {loss}, gradient norm {norm}", now - 1 if math.isfinite(loss) else now - 2)
            self.loss = loss
            if now % self.config.train.log_every == 0 or now == 1:
                self.log.write(
                    now,
                    "train",
                    loss=loss,
                    bits_per_character=loss / math.log(2),
                    learning_rate=float(self.rate(now - 1)),
                    gradient_norm=norm,
                    **({"penalty": float(metrics.penalty[i])} if self.config.train.penalty else {}),
                    characters_per_second=self.characters_per_second(),
                )

    def fail(self, now: int, what: str, good: int) -> None:
        """Raise RunError; the parameters up to step `good` are known to give a finite loss."""
        self.log.flush()
        last = max((step for step in self.store.steps() if step <= good), default="none")
        raise RunError(
            f"{self.name}: not finite at step {now} ({what}); last finite loss {self.loss:.4f}, last good checkpoint: "
            f"{last}; try a lower --config.train.learning_rate in a new --workdir"
        )

    def characters_per_second(self) -> float:
        return self.config.train.batch_size * self.config.model.context / self.seconds


def _test(
    config: Config, corpus: Corpus, program: Program, state: step.State, folder: pathlib.Path, name: str, stop: Stop
) -> None:
    windows, protocol = evaluate.test_windows(config, corpus.test.size)
    where = f"{name}: stopped while scoring the test split; trained to its last step, saved in {folder}"
    result = program.score(state.params, corpus.test, windows, f"{name}: test", lambda: stop.check(where))
    record = {
        "bits_per_character": result.bits_per_character,
        "loss": result.loss,
        "characters": result.characters,
        "protocol": protocol,
        "step": int(state.step),
    }
    if processes.is_first():
        write_atomically(folder / "test.json", json.dumps(record, indent=2) + "\n")
    print(f"{name}: test {result.bits_per_character:.4f} bits per character ({protocol}, {result.characters:,} scored)")
