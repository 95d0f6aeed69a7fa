"""Time the measurement of a checkpoint and its peak memory, by family.

It is a single compiled program, as in a sweep.

python -m benchmarks.panel_time [--layers 12 --width 256 --heads 8 --context 256 --batches 8 --points
4096]
"""

import argparse
import dataclasses
import os
import resource
import statistics
import time

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # as in main.py

import jax

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import DEFAULT, NULLS, OPTIONAL, MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.data.corpus import Corpus
from anisoscope.models import transformer
from anisoscope.sources.run_program import OTHERS, Reference, make_program
from anisoscope.utils import mesh
from benchmarks.rounds import processor
from benchmarks.train_step import random_corpus

SHAPES = {
    "cpu": {"layers": 12, "width": 256, "heads": 8, "context": 256, "batches": 8, "points": 4096},
    "gpu": {"layers": 12, "width": 768, "heads": 12, "context": 512, "batches": 8, "points": 4096},
}
QUICK = ("spectrum", "dimension", "similarity", "attention")
PANELS = {
    "spectrum alone": (("spectrum",), ()),
    f"quick look ({', '.join(QUICK)})": (QUICK, ()),
    "the same with its null models": (QUICK, NULLS),
    "whole panel, without null models": (DEFAULT, ()),
    "whole panel": (DEFAULT, NULLS),
    **{f"{name} alone, without null models": ((name,), ()) for name in OPTIONAL},
}


def config_of(shape: dict[str, int]) -> Config:
    model = ModelConfig(**{name: shape[name] for name in ("layers", "width", "heads", "context")})
    return Config(
        model=model, measure=MeasureConfig(points=shape["points"], batches=shape["batches"])
    )


def time_row(row: str, shape: dict[str, int], rounds: int) -> tuple[float, float]:
    """Seconds of compiling a row of PANELS, and median seconds of a checkpoint."""
    families, nulls = PANELS[row]
    config = config_of(shape)
    settings = dataclasses.replace(config.measure, families=families, nulls=nulls)
    return time_panel(dataclasses.replace(config, measure=settings), random_corpus(), rounds)


def time_panel(config: Config, corpus: Corpus, rounds: int) -> tuple[float, float]:
    """Seconds of compilation, and median seconds of a checkpoint beside it."""
    model = transformer.build(config.model, corpus.vocab_size, "float32")
    init = jax.jit(model.init)
    checkpoints = [init(jax.random.key(seed)) for seed in range(rounds)]
    program, compared = make_program(config, corpus), "comparison" in config.measure.families
    compilation, seconds = [], []

    def listen(event: str, duration: float, **_) -> None:
        if event.startswith("/jax/core/compile/"):
            compilation.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    previous = None
    for params in checkpoints:
        begin, before = time.perf_counter(), sum(compilation)
        checkpoint = Reference(params, program.search(params) if compared else None)
        program.measure(
            checkpoint, dict.fromkeys(OTHERS, previous or checkpoint) if compared else {}
        )
        previous = checkpoint
        seconds.append(time.perf_counter() - begin - (sum(compilation) - before))
    jax.monitoring.unregister_event_duration_listener(listen)
    return sum(compilation), statistics.median(seconds)


def peak_memory() -> str:
    """Of the device where it is counted, else of this process so far."""
    counted = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in counted:
        return f"{counted['peak_bytes_in_use'] / 2**30:.1f} GiB on the device"
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB"


def main() -> None:
    mesh.take_cores_for_devices(os.cpu_count() or 1)
    shape = SHAPES["cpu" if jax.default_backend() == "cpu" else "gpu"]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in shape.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=1, help="checkpoints")
    numbers = range(1, 1 + len(PANELS))
    parser.add_argument(
        "--panels", type=int, nargs="+", choices=numbers, default=numbers, help="only these, by row"
    )
    options = vars(parser.parse_args())
    shape = {name: options[name] for name in shape}
    print(
        ", ".join(f"{name} {value}" for name, value in shape.items()),
        f"float32, jax {jax.__version__}",
        sep=", ",
    )
    print(f"{jax.devices()[0].device_kind} ({processor()})\n")
    print(
        "| measured | s a checkpoint | s of compilation, once | peak memory so far |\n| --- | --- | --- | --- |"
    )
    for row in (list(PANELS)[number - 1] for number in options["panels"]):
        compilation, seconds = time_row(row, shape, options["rounds"])
        print(f"| {row} | {seconds:.1f} | {compilation:.1f} | {peak_memory()} |", flush=True)


if __name__ == "__main__":
    main()
