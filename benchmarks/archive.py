"""What digests and the manifest cost beside training, and how long the verification of a gigabyte takes.

    python -m benchmarks.archive [--config=decoder_small] [--saves 4] [--rounds 3]

A state of the experiment's size is saved as a run saves it. Of a busy machine, processor time tells what an idle one
takes; of a step, that of all its cores together. A step has few windows here, and its cost for each is extrapolated.
"""

import argparse
import contextlib
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import jax
import jax.numpy as jnp

from anisoscope.cli import archive, flags
from anisoscope.config.experiment import Config
from anisoscope.config.run import schedule
from anisoscope.training import checkpoint, program
from anisoscope.training.seed_runs import items
from anisoscope.utils import files, folder, keeping
from anisoscope.utils.settings import replace, to_dict
from benchmarks.rounds import hardware
from benchmarks.train_step import random_corpus


@contextlib.contextmanager
def counted(seconds: dict[str, list[float]], name: str, module: Any, function: str):
    """Seconds of processor and of the clock that every call takes."""
    whole = getattr(module, function)

    def timed(*given: Any, **named: Any) -> Any:
        began, wall = time.process_time(), time.perf_counter()
        try:
            return whole(*given, **named)
        finally:
            seconds[name].append(time.process_time() - began)
            seconds[f"{name}, by the clock"].append(time.perf_counter() - wall)

    with mock.patch.object(module, function, timed):
        yield


def as_trained(leaf: jax.Array) -> jax.Array:
    """Random numbers, as zeros of a new optimizer would be compressed to nothing."""
    kind = jnp.issubdtype(leaf.dtype, jnp.floating)
    return jax.random.normal(jax.random.key(0), leaf.shape, leaf.dtype) if kind else leaf


def saved(config: Config, run: pathlib.Path, count: int) -> tuple[dict[str, list[float]], int]:
    """Seconds of parts of a save, and the bytes of a state."""
    parts = ("digests", "manifest", "what training waits for", "all of a save")
    seconds = {f"{part}{clock}": [] for part in parts for clock in ("", ", by the clock")}
    state = program.make_program(config, random_corpus()).create()
    state = jax.block_until_ready(jax.tree.map(lambda leaf: as_trained(leaf[0]), state))
    with folder.locked(run), contextlib.ExitStack() as stack:
        files.write_json(run / "config.json", to_dict(config))
        store = stack.enter_context(contextlib.closing(checkpoint.Checkpoints(run / "checkpoints", None)))
        for name, module, function in (
            ("digests", checkpoint, "digests"),
            ("manifest", keeping, "note"),
            ("what training waits for", store, "begin"),
            ("all of a save", store, "save"),
        ):
            stack.enter_context(counted(seconds, name, module, function))
        for step in range(count):
            store.save(step, *items(state._replace(step=jnp.int32(step))))
    return seconds, sum(leaf.nbytes for leaf in jax.tree.leaves(state))


def step_seconds(config: Config, windows: int, rounds: int) -> float:
    """Of all cores together."""
    config = replace(config, {"train.batch_size": windows, "train.dispatch": 1, "train.accumulate": 1})
    made = program.make_program(config, random_corpus())
    state, taken = made.create(), []
    for _ in range(rounds + 1):
        began = time.process_time()
        state, metrics = made.steps(state, made.tokens_N, made.data_R, jnp.int32(1))
        jax.block_until_ready((state, metrics))
        taken.append(time.process_time() - began)
    return statistics.median(taken[1:])


def verified(run: pathlib.Path) -> tuple[float, float, int]:
    """Seconds of processor, by the clock, and bytes."""
    with folder.locked(run):
        began, wall = time.process_time(), time.perf_counter()
        report = archive.examine(run, None)
        assert not report.wrong, report.wrong
        return time.process_time() - began, time.perf_counter() - wall, report.bytes


def main(arguments: list[str] | None = None, say: Callable[[str], None] = print) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", default="decoder_small")
    parser.add_argument("--saves", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args(arguments)
    config = replace(flags.load(given.config), {"model.dtype": "float32"})
    train, kept = config.train, schedule(config.train.steps, config.checkpoint.every)
    with tempfile.TemporaryDirectory() as place:
        seconds, size = saved(config, pathlib.Path(place), given.saves)
        took, wall, read = verified(pathlib.Path(place))
    say(
        f"{hardware('cpu')}; {given.config}: a state of {size / 1e6:.0f} MB, {len(kept)} saves in {train.steps:,} steps"
    )
    for part, times in seconds.items():
        say(f"{part}: {statistics.median(times):.2f} s a save")
    say(f"verification: {took:.2f} s of processor, {wall:.2f} s by the clock, for {read / 1e9:.2f} GB")
    few, more = (step_seconds(config, windows, given.rounds) for windows in (1, 2))
    step = few + (more - few) * (train.batch_size - 1)
    cost = sum(statistics.median(seconds[part]) for part in ("digests", "manifest")) * len(kept)
    say(f"a step of {train.batch_size} windows: {step:.1f} s of processor (1 window: {few:.2f} s, 2: {more:.2f} s)")
    say(f"digests and manifest: {100 * cost / (step * train.steps):.4f} % of training")
    say(f"3 % where a step takes {cost / (0.03 * train.steps):.4f} s")


if __name__ == "__main__":
    main()
