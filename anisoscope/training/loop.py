"""Run the training loop, the same for every experiment; it resumes exactly where it stopped.

Letters: S steps of a dispatch.
"""

import math
import os
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run_config import RunConfig, checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.training import evaluate, log, optimizer, seed_runs
from anisoscope.training.seed_runs import SeedRun
from anisoscope.training.step import State, StepMetrics
from anisoscope.training.train_program import Program, check_memory, make_program
from anisoscope.utils import processes
from anisoscope.utils.errors import RunError
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

# Steps of about this duration are dispatched together, so that the bar moves and a stop is noticed.
DISPATCH_SECONDS = 1.0


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
    kept, last = checkpoint_steps(config), config.train.steps
    place = os.path.commonpath(folders.values()) or "."
    with seed_runs.open_runs(folders, kept) as runs:
        if all(log.is_finished(run.folder) for run in runs):
            for run in runs:
                log.read_score(run.folder)  # raises where it is damaged
            print(f"{name}: trained already, {last} steps, in {place}")
            return
        program = make_program(config, corpus)
        state = seed_runs.resume(runs, program)
        now = int(state.step[0])
        size = f"{transformer.count_parameters(program.abstract.params):,} parameters"
        size = f"{len(runs)} × {size}" if len(runs) > 1 else size
        device = f"{program.devices} × {jax.devices()[0].device_kind}"
        print(f"{name}: {size}, on {device}, from step {now} in {place}")
        check_memory(program, state)
        seed_runs.open_logs(runs, config.train, now)
        state = train_steps(config, corpus, program, runs, state, name, stop)
        now = int(state.step[0])
        stop.check(f"{name}: stopped at step {now}, saved in {place}")
        where = f"{name}: stopped while scoring the test split; trained to its last step, saved in {place}"
        windows, protocol = evaluate.test_windows(config, corpus.test.size)
        scores = program.score(
            state.params, corpus.test, windows, f"{name}: test", lambda: stop.check(where)
        )
        for run, score in zip(runs, scores, strict=True):
            if processes.is_first():
                log.write_score(run.folder, score.numbers() | {"protocol": protocol, "step": last})
            print(
                f"{run.name}: test {format_score(score)} ({protocol}, {score.characters:,} scored)"
            )


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
    with bar(None, name, "step", total=last, initial=now) as shown:
        while True:
            if now not in seed_runs.common_steps(runs):
                if now % every == 0 or now in validated:
                    validate(runs, now, program.score(state.params, corpus.valid, windows))
                if now in kept or stopping:
                    seed_runs.save(runs, now, state, program)
            if now == last or stopping:
                break
            boundary = min((now // every + 1) * every, *(step for step in validated if step > now))
            most = max(1, min(config.train.steps_per_call, int(DISPATCH_SECONDS / seconds)))
            count = min(most, boundary - now)
            began = time.perf_counter()
            state, metrics = program.steps(
                state, program.tokens_N, program.data_R, jnp.int32(count)
            )
            metrics = jax.tree.map(np.asarray, metrics)
            seconds, stopping = processes.largest(
                (time.perf_counter() - began) / count, stop.requested
            )
            speed = config.train.batch_size * config.model.context / seconds  # of each seed
            log_steps(config, runs, now, count, metrics, speed)
            now += count
            shown.set_postfix_str(format_progress(runs, speed), refresh=False)
            shown.update(count)
    return state


def validate(runs: list[SeedRun], now: int, scores: list[evaluate.Score]) -> None:
    """Log the validation of each seed, or raise RunError where a loss is not finite."""
    for run, score in zip(runs, scores, strict=True):
        if not math.isfinite(score.loss):
            fail(runs, run, now, f"validation loss {score.loss}", now - 1)
    for run, score in zip(runs, scores, strict=True):
        run.valid_bits = score.bits_per_character
        run.log.write(now, "valid", **score.numbers())


def log_steps(
    config: RunConfig,
    runs: list[SeedRun],
    first: int,
    count: int,
    metrics: StepMetrics,
    speed: float,
) -> None:
    """Log the `count` steps after `first`, or raise where too many updates are not finite."""
    for at in range(count):
        now = first + at + 1
        for index, run in enumerate(runs):
            done = jax.tree.map(lambda part_RS, r=index, s=at: part_RS[r, s].tolist(), metrics)
            if math.isfinite(done.loss) and math.isfinite(done.gradient_norm):
                log_step(config, run, now, done, speed)
            else:
                skip_step(config, runs, run, now, done)
            if config.watch.every and (now - 1) % config.watch.every == 0:
                run.log.write(now, "watch", **done.watch)


def log_step(config: RunConfig, run: SeedRun, now: int, done: StepMetrics, speed: float) -> None:
    """Log a step of a seed whose loss and gradient are finite."""
    if done.scored:
        run.loss = done.loss
        if spike := run.troubles.spike(now, done.loss):
            run.log.write(now, log.SPIKE, **spike)
    if now % config.train.log_every and now != 1:
        return
    line = {}
    if done.scored:  # a batch without a character to predict has no loss
        line = {"loss": done.loss, "bits_per_character": done.loss / math.log(2)}
        run.troubles.take(done.loss)
    # the schedule counts updates that were not skipped
    rate = optimizer.schedule(config.train)(now - 1 - run.troubles.skipped)
    line |= {"learning_rate": float(rate), "gradient_norm": done.gradient_norm}
    if config.train.penalty:
        line["penalty"] = done.penalty
    kind = "train" if done.scored else "unscored"
    run.log.write(now, kind, **line, characters_per_second=speed)


def skip_step(
    config: RunConfig, runs: list[SeedRun], run: SeedRun, now: int, done: StepMetrics
) -> None:
    """Log an update that was skipped as not finite, or raise where too many were."""
    most = config.train.skip_nonfinite
    run.troubles.skip(now)
    if (count := run.troubles.in_a_row) > most:
        # The loss of an update is that of the parameters before it; skipped ones leave them as is.
        good = now - count - (not math.isfinite(done.loss))
        row = f", {count} updates in a row" if most else ""
        what = f"loss {done.loss}, gradient norm {done.gradient_norm}{row}"
        fail(runs, run, now, what, good)
    run.log.write(now, log.SKIPPED, updates=run.troubles.skipped)


def fail(runs: list[SeedRun], run: SeedRun, now: int, what: str, good: int) -> None:
    """Raise RunError; the parameters of this run up to step `good` give a finite loss."""
    for each in runs:
        each.log.flush()
    last = max((step for step in run.store.steps() if step <= good), default="none")
    raise RunError(
        f"{run.name}: not finite at step {now} ({what}); last finite loss {run.loss:.4f}, last good "
        f"checkpoint: {last}; in a new --workdir, try a lower --config.train.learning_rate or "
        "--config.train.skip_nonfinite=16"
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
