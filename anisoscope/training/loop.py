"""Run the training loop, the same for every experiment; it resumes exactly where it stopped.

Seeds that train together have a run each, in a folder of its own.

Letters: S steps of a dispatch.
"""

import contextlib
import dataclasses
import itertools
import math
import os
import pathlib
import statistics
import time

import jax
import numpy as np

from anisoscope.config.run_config import RunConfig, checkpoint_steps
from anisoscope.config.variants import single_runs
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.training import evaluate, log, optimizer
from anisoscope.training.checkpoint import DELETE, Checkpoints
from anisoscope.training.log import Log
from anisoscope.training.step import State, StepMetrics
from anisoscope.training.train_program import Program, check_step_memory, make_train_program
from anisoscope.utils import processes
from anisoscope.utils.errors import RunError
from anisoscope.utils.files import write_json
from anisoscope.utils.folder import digest_run
from anisoscope.utils.processes import Stop
from anisoscope.utils.progress import progress_bar

# Steps of about this duration are dispatched together, so that the bar moves and a stop is noticed.
DISPATCH_SECONDS = 1.0


@dataclasses.dataclass
class SeedRun:
    """The run of one seed while it trains."""

    name: str
    folder: pathlib.Path
    store: Checkpoints
    log: Log
    loss: float = math.nan  # the last finite loss, nats
    valid_bits: float = math.nan


def train(
    config: RunConfig, corpus: Corpus, folders: dict[str, pathlib.Path], name: str, stop: Stop
) -> None:
    """Train all seeds of a config in one program, and score them on the test split.

    Args:
        config: Settings of the run, with one seed or several.
        corpus: The text.
        folders: {name: folder} of each seed's run, in the order of the seeds.
        name: Common name of the runs in messages.
        stop: Checked between two dispatches.

    Raises:
        Stopped: A stop was requested; everything is saved.
        RunError: A loss or a gradient is not finite.
    """
    last, place = config.train.steps, os.path.commonpath(folders.values()) or "."
    if all(log.read_score(folder) for folder in folders.values()):
        print(f"{name}: trained already, {last} steps, in {place}")
        return
    with contextlib.ExitStack() as stack:
        # the runs, in the order in which their states are stacked
        runs = [
            open_seed_run(run, folders[run], single, corpus, stack)
            for run, single in zip(folders, single_runs(config).values(), strict=True)
        ]
        program = make_train_program(config, corpus)
        state = resume(runs, program)
        now = int(state.step[0])
        size = f"{transformer.count_parameters(program.abstract.params):,} parameters"
        size = f"{len(runs)} × {size}" if len(runs) > 1 else size
        device = f"{program.devices} × {jax.devices()[0].device_kind}"
        print(f"{name}: {size}, on {device}, from step {now} in {place}")
        check_step_memory(program, state)
        state = train_steps(config, corpus, program, runs, state, name, stop)
        stop.check(f"{name}: stopped at step {int(state.step[0])}, saved in {place}")
        where = f"{name}: stopped while scoring the test split; trained to its last step, saved in {place}"
        windows, protocol = evaluate.test_windows(config, corpus.test.size)
        scores = program.score(
            state.params, corpus.test, windows, f"{name}: test", lambda: stop.check(where)
        )
        for run, score in zip(runs, scores, strict=True):
            if processes.is_first():
                record = score.as_record() | {"protocol": protocol, "step": last}
                write_json(run.folder / log.SCORE_NAME, record)
            print(
                f"{run.name}: test {format_score(score)} ({protocol}, {score.characters:,} scored)"
            )


def open_seed_run(
    name: str,
    folder: pathlib.Path,
    config: RunConfig,
    corpus: Corpus,
    stack: contextlib.ExitStack,
) -> SeedRun:
    """Open the run of a seed, its log at its newest checkpoint, until the stack closes."""
    kept, identity = checkpoint_steps(config), digest_run(config, corpus.sha256)
    store = stack.enter_context(Checkpoints(folder / "checkpoints", kept, identity))
    saved = max(store.steps(), default=-1)
    if saved < 0:
        later = any(line["step"] > 0 for line in log.read_log(folder))
        former = [folder / log.LOG_NAME] * later
        former += [*folder.rglob("*.nc"), *folder.glob("*/checkpoints")]
        if former:  # new checkpoints would be joined with its tables
            what = f"{former[0]} is of a training whose checkpoints are gone"
            raise RunError(f"{what}; move {folder} elsewhere to train from step 0")
    run = SeedRun(name, folder, store, Log(folder, saved))
    stack.callback(run.log.flush)
    return run


def common_steps(runs: list[SeedRun]) -> list[int]:
    """List the steps that all seeds have saved: a kill between saves leaves some seeds ahead."""
    return sorted(set.intersection(*(set(run.store.steps()) for run in runs)))


def resume(runs: list[SeedRun], program: Program) -> State:
    """Restore the newest step that all seeds have; raise RunError where it is damaged."""
    steps = common_steps(runs)
    newest = max((step for run in runs for step in run.store.steps()), default=None)
    behind = [run.name for run in runs if newest not in run.store.steps()]
    if newest is not None and behind:
        now = max(steps, default=0)
        names = ", ".join(behind)
        print(f"{names}: no checkpoint of step {newest}; all seeds resume from step {now}")
    if not steps:
        return program.create()
    try:
        return program.stack([run.store.restore(steps[-1], program.abstract) for run in runs])
    except RunError as error:
        raise RunError(f"{error}; {DELETE}") from error


def train_steps(
    config: RunConfig,
    corpus: Corpus,
    program: Program,
    runs: list[SeedRun],
    state: State,
    name: str,
    stop: Stop,
) -> State:
    """Train to the last step, or until a stop is requested; log, validate and save."""
    last, now, kept = config.train.steps, int(state.step[0]), checkpoint_steps(config)
    windows = evaluate.valid_windows(config, corpus.valid.size)
    every, constant = config.evaluate.every, optimizer.constant_part(config.train)
    # the end of the constant learning rate is validated too
    validated = {*kept, last if constant is None else constant[1]}
    seconds, stopping = math.inf, False  # seconds: of a step of all seeds
    with progress_bar(None, name, "step", total=last, initial=now) as shown:
        while True:
            if now not in common_steps(runs):
                if now % every == 0 or now in validated:
                    validate(runs, now, program.score(state.params, corpus.valid, windows))
                if now in kept or stopping:
                    save_checkpoints(runs, now, state, program)
            if now == last or stopping:
                break
            boundary = min((now // every + 1) * every, *(step for step in validated if step > now))
            most = max(1, min(config.train.steps_per_call, int(DISPATCH_SECONDS / seconds)))
            count = min(most, boundary - now)
            began = time.perf_counter()
            state, metrics = program.run(state, count)
            metrics = jax.tree.map(np.asarray, metrics)
            seconds, stopping = processes.largest_over_processes(
                (time.perf_counter() - began) / count, stop.requested
            )
            speed = config.train.batch_size * config.model.context / seconds  # for each seed
            log_steps(config, runs, now, count, metrics, speed)
            now += count
            shown.set_postfix_str(format_progress(runs, speed), refresh=False)
            shown.update(count)
    runs[-1].store.wait()
    return state


def save_checkpoints(runs: list[SeedRun], now: int, states: State, program: Program) -> None:
    """Write the log of every seed, then its checkpoint of step `now` unless it has one.

    Training goes on while the last seed's checkpoint is written from a copy of its state. Only for
    its first checkpoint does training wait, since a run resumes from a log and a checkpoint.
    """
    for run in runs:
        run.log.flush()
        run.store.wait()
    for index, run in enumerate(runs):
        wait = run is not runs[-1] or not run.store.steps()
        run.store.save(now, program.select_seed(states, index), wait=wait)


def validate(runs: list[SeedRun], now: int, scores: list[evaluate.Score]) -> None:
    """Log the validation of each seed, or raise RunError where a loss is not finite."""
    for run, score in zip(runs, scores, strict=True):
        if not math.isfinite(score.loss):
            raise not_finite(run, now, f"validation loss {score.loss}", now - 1)
        run.valid_bits = score.bits_per_character
        run.log.write(now, "valid", **score.as_record())
        run.log.flush()


def log_steps(
    config: RunConfig,
    runs: list[SeedRun],
    first: int,
    count: int,
    metrics: StepMetrics,
    speed: float,
) -> None:
    """Log the `count` steps after `first`, or raise RunError where one is not finite."""
    for s, r in itertools.product(range(count), range(len(runs))):
        run, now = runs[r], first + s + 1
        done = jax.tree.map(lambda x_RS, at=(r, s): x_RS[at].tolist(), metrics)
        if not (math.isfinite(done.loss) and math.isfinite(done.gradient_norm)):
            # the loss of an update is that of the parameters before it
            good = now - 1 - (not math.isfinite(done.loss))
            what = f"loss {done.loss}, gradient norm {done.gradient_norm}"
            raise not_finite(run, now, what, good)
        if done.scored:
            run.loss = done.loss
        if now % config.train.log_every == 0 or now == 1:
            log_step(config, run, now, done, speed)
        if config.watch.every and (now - 1) % config.watch.every == 0:
            run.log.write(now, "watch", **done.watch)


def log_step(config: RunConfig, run: SeedRun, now: int, done: StepMetrics, speed: float) -> None:
    """Log a step of a seed; a batch without a character to predict has no loss."""
    line = {}
    if done.scored:
        line = {"loss": done.loss, "bits_per_character": done.loss / math.log(2)}
    rate = optimizer.schedule(config.train)(now - 1)
    line |= {"learning_rate": float(rate), "gradient_norm": done.gradient_norm}
    if config.train.penalty:
        line["penalty"] = done.penalty
    kind = "train" if done.scored else "unscored"
    run.log.write(now, kind, **line, characters_per_second=speed)


def not_finite(run: SeedRun, now: int, what: str, good: int) -> RunError:
    """Make the error of a run whose parameters up to step `good` give a finite loss."""
    last = max((step for step in run.store.steps() if step <= good), default="none")
    return RunError(
        f"{run.name}: not finite at step {now} ({what}); last finite loss {run.loss:.4f}, last good "
        f"checkpoint: {last}; in a new --workdir, try a lower --config.train.learning_rate"
    )


def format_progress(runs: list[SeedRun], speed: float) -> str:
    """Format the loss, averaged over the seeds, and the characters per second of all seeds."""
    loss = statistics.fmean(run.loss for run in runs)
    bits = statistics.fmean(run.valid_bits for run in runs)
    valid = "" if math.isnan(bits) else f"valid {bits:.3f}, "
    speed = speed * len(runs)
    return f"loss {loss:.3f}, {loss / math.log(2):.3f} bits/char, {valid}{speed:,.0f} chars/s"


def format_score(score: evaluate.Score) -> str:
    """Format the score of a model, and its gain over the best prediction without context."""
    masked = "" if score.mask_bits is None else f", {score.mask_bits:.4f} under [MASK]"
    gain = f"gain over unigram {score.gain_over_unigram:.4f} over {score.context_free_bits:.4f}"
    return f"{score.bits_per_character:.4f} bits per character{masked}, {gain} without context"
