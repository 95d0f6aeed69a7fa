"""The training loop: one for every experiment. Resumes where it stopped, exactly.

Letters: S steps of a dispatch.
"""

import contextlib
import math
import pathlib
import statistics
import time

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.config.run_config import RunConfig, checkpoint_steps
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.training import evaluate, finished, log, optimizer, step, trouble
from anisoscope.training.seed_runs import SeedRuns
from anisoscope.training.train_program import Program, check_memory, make_program
from anisoscope.utils import processes
from anisoscope.utils.errors import RunError
from anisoscope.utils.progress import bar
from anisoscope.utils.stop import Stop

# steps are run together up to about this long, so that the bar moves and a stop is heard
DISPATCH_SECONDS = 1.0


def train(
    config: RunConfig, corpus: Corpus, folders: dict[str, pathlib.Path], name: str, stop: Stop
) -> None:
    """Train all seeds, {name: folder} in the order of their seeds, in one program, and score them;
    or Stopped.
    """
    kept = checkpoint_steps(config)
    with contextlib.closing(SeedRuns(folders, kept)) as runs:
        # its checkpoints may be deleted
        if all(finished.is_finished(path) for path in folders.values()):
            for path in folders.values():
                finished.read_score(path)  # refused where it is damaged
            there = runs.steps()
            where = f"the newest, step {there[-1]}" if there else "step 0, as none is left"
            advice = (
                f"; its last checkpoint is gone: move test.json elsewhere to train from {where}"
            )
            gone = "" if config.train.steps in there else advice
            print(f"{name}: trained already, {config.train.steps} steps, in {runs.place}{gone}")
            return
        program = make_program(config, corpus)
        state = runs.resume(program)
        now = int(state.step[0])
        count, device = (
            transformer.count_parameters(program.abstract.params),
            jax.devices()[0].device_kind,
        )
        size = (
            f"{count:,} parameters"
            if len(folders) == 1
            else f"{len(folders)} × {count:,} parameters"
        )
        print(f"{name}: {size}, on {program.devices} × {device}, from step {now} in {runs.place}")
        check_memory(program, state)
        runs.open_logs()
        state = _Session(config, corpus, program, runs, stop, name).run(state)
        stop.check(f"{name}: stopped at step {int(state.step[0])}, saved in {runs.place}")
        _test(config, corpus, program, state, runs, name, stop)


class _Session:
    """One stretch of training, from the seeds' states to the last step or to a request to stop."""

    def __init__(
        self,
        config: RunConfig,
        corpus: Corpus,
        program: Program,
        runs: SeedRuns,
        stop: Stop,
        name: str,
    ):
        self.config, self.program, self.runs, self.stop, self.name = (
            config,
            program,
            runs,
            stop,
            name,
        )
        self.tokens_N, self.windows = (
            corpus.valid,
            evaluate.valid_windows(config, corpus.valid.size),
        )
        self.rate = optimizer.schedule(config.train)
        part = optimizer.constant_part(config.train)
        # so much is gained at a constant rate
        self.peak_ends = config.train.steps if part is None else part[1]
        self.losses, self.valid_bits = (
            [math.nan] * len(runs.folders),
            [math.nan] * len(runs.folders),
        )
        self.seconds = math.inf  # per step of all seeds
        self.stopping = False
        self.troubles: list[trouble.Troubles] = []  # of each seed

    def run(self, state: step.State) -> step.State:
        last, now = self.config.train.steps, int(state.step[0])
        logs = [
            log.read_log(path) if (path / log.NAME).exists() else []
            for path in self.runs.folders.values()
        ]
        lines = [[line for line in whole if line["step"] <= now] for whole in logs]
        self.troubles = [trouble.Troubles(self.config.train, one) for one in lines]
        with bar(None, self.name, "step", total=last, initial=now) as shown:
            self.arrive(state, now)
            while now < last and not self.stopping:
                count = self.next_count(now)
                began = time.perf_counter()
                state, metrics = self.program.steps(
                    state, self.program.tokens_N, self.program.data_R, jnp.int32(count)
                )
                metrics = jax.tree.map(np.asarray, metrics)
                self.seconds, self.stopping = processes.largest(
                    (time.perf_counter() - began) / count, self.stop.asked
                )
                self.log_steps(now, count, metrics)
                now += count
                self.arrive(state, now)
                shown.set_postfix_str(self.summary(), refresh=False)
                shown.update(count)
                self.runs.settle()
        self.runs.wait()
        return state

    def next_count(self, now: int) -> int:
        """How many steps to run together: never past a checkpoint or a validation, nor for much
        over a second.
        """
        every, fixed = self.config.evaluate.every, (*self.runs.kept, self.peak_ends)
        boundary = min((now // every + 1) * every, *(step for step in fixed if step > now))
        most = max(1, min(self.config.train.dispatch, int(DISPATCH_SECONDS / self.seconds)))
        return min(most, boundary - now)

    def arrive(self, state: step.State, now: int) -> None:
        if now in self.runs.steps():
            return
        if now % self.config.evaluate.every == 0 or now in (*self.runs.kept, self.peak_ends):
            results = self.program.score(state.params, self.tokens_N, self.windows)
            for i, result in enumerate(results):
                if not math.isfinite(result.loss):
                    self.fail(i, now, f"validation loss {result.loss}", now - 1)
            self.valid_bits = [result.bits_per_character for result in results]
            for one, result in zip(self.runs.logs.values(), results, strict=True):
                one.write(now, "valid", **result.numbers())
        if now in self.runs.kept or self.stopping:
            self.runs.save(now, state, self.program)

    def log_steps(self, first: int, count: int, metrics: step.StepMetrics) -> None:
        """Log the steps just done, or raise at the first one that is not finite and may not be left
        out.
        """
        for now in range(first + 1, first + count + 1):
            done = [self.at(metrics, i, now - first - 1) for i in range(len(self.losses))]
            for i, one in enumerate(done):
                if math.isfinite(one.loss) and math.isfinite(one.gradient_norm):
                    self.log_step(i, now, one)
                else:
                    self.skip(i, now, one)
            if self.config.watch.every and (now - 1) % self.config.watch.every == 0:
                for into, one in zip(self.runs.logs.values(), done, strict=True):
                    into.write(now, "watch", **one.watch)

    def log_step(self, index: int, now: int, done: step.StepMetrics) -> None:
        """Of one seed, a step whose numbers are finite."""
        into, troubles = [*self.runs.logs.values()][index], self.troubles[index]
        if done.scored:
            self.losses[index] = done.loss
            if spike := troubles.spike(now, done.loss):
                into.write(now, trouble.SPIKE, **spike)
        if now % self.config.train.log_every == 0 or now == 1:
            into.write(
                now,
                "train" if done.scored else "unscored",
                **self.line(now, done, troubles.skipped),
            )
            if done.scored:
                troubles.take(done.loss)

    def skip(self, index: int, now: int, done: step.StepMetrics) -> None:
        """Of one seed, a step whose numbers are not finite: nothing has changed by it, or the run
        ends.
        """
        troubles, most = self.troubles[index], self.config.train.skip_nonfinite
        troubles.skip(now)
        if troubles.in_a_row > most:
            # The loss of an update is that of the parameters before it; none of the row has changed
            # them.
            good = now - troubles.in_a_row - (not math.isfinite(done.loss))
            row = f", {troubles.in_a_row} updates in a row" if most else ""
            self.fail(
                index, now, f"loss {done.loss}, gradient norm {done.gradient_norm}{row}", good
            )
        [*self.runs.logs.values()][index].write(now, trouble.SKIPPED, updates=troubles.skipped)

    @staticmethod
    def at(metrics: step.StepMetrics, index: int, at: int) -> step.StepMetrics:
        return jax.tree.map(lambda part_RS: part_RS[index, at].tolist(), metrics)

    def line(self, now: int, metrics: step.StepMetrics, skipped: int) -> dict[str, float]:
        """What the log says of a step; a batch without a character to predict has no loss.

        The schedule of the learning rate counts updates that were made.
        """
        loss = {"loss": metrics.loss, "bits_per_character": metrics.loss / math.log(2)}
        return {
            **(loss if metrics.scored else {}),
            "learning_rate": float(self.rate(now - 1 - skipped)),
            "gradient_norm": metrics.gradient_norm,
            **({"penalty": metrics.penalty} if self.config.train.penalty else {}),
            "characters_per_second": self.characters_per_second(),
        }

    def fail(self, index: int, now: int, what: str, good: int) -> None:
        """Raise RunError; the parameters of that seed up to step `good` are known to give a finite
        loss.
        """
        self.runs.flush()
        name, store = list(self.runs.stores.items())[index]
        last = max((step for step in store.steps() if step <= good), default="none")
        raise RunError(
            f"{name}: not finite at step {now} ({what}); last finite loss {self.losses[index]:.4f}, last good "
            f"checkpoint: {last}; in a new --workdir, try a lower --config.train.learning_rate or "
            "--config.train.skip_nonfinite=16"
        )

    def summary(self) -> str:
        """What the bar says: means over the seeds, characters of them all."""
        loss, bits = statistics.fmean(self.losses), statistics.fmean(self.valid_bits)
        valid = "" if math.isnan(bits) else f"valid {bits:.3f}, "
        speed = self.characters_per_second() * len(self.losses)
        return f"loss {loss:.3f}, {loss / math.log(2):.3f} bits/char, {valid}{speed:,.0f} chars/s"

    def characters_per_second(self) -> float:
        """Of one seed, while all are trained."""
        return self.config.train.batch_size * self.config.model.context / self.seconds


def _test(
    config: RunConfig,
    corpus: Corpus,
    program: Program,
    state: step.State,
    runs: SeedRuns,
    name: str,
    stop: Stop,
) -> None:
    windows, protocol = evaluate.test_windows(config, corpus.test.size)
    where = f"{name}: stopped while scoring the test split; trained to its last step, saved in {runs.place}"
    results = program.score(
        state.params, corpus.test, windows, f"{name}: test", lambda: stop.check(where)
    )
    for (run, folder), result in zip(runs.folders.items(), results, strict=True):
        record = {**result.numbers(), "protocol": protocol, "step": config.train.steps}
        if processes.is_first():
            finished.write(folder, record)
        masked = "" if result.mask_bits is None else f", {result.mask_bits:.4f} under [MASK]"
        gain = f"context gain {result.context_gain:.4f} over {result.context_free_bits:.4f} without context"
        scored = f"{protocol}, {result.characters:,} scored"
        print(
            f"{run}: test {result.bits_per_character:.4f} bits per character{masked}, {gain} ({scored})"
        )
