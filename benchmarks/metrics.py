"""Compare time and memory of the neighbor search, TwoNN and the spectrum with other libraries.

    python -m benchmarks.metrics [--points 4096 --width 512] [--rounds 7]
    python -m benchmarks.metrics --panel [--layers 12 --width 256 --batches 8 …]

Every library has a process of its own that sleeps while another one works; ratios are taken round
by round. The plain product of the cloud with itself, P x P x D, is what an exact search cannot do
without. `--panel` times the measurement of a checkpoint, a single compiled program as in a sweep,
and its peak memory, by family.
"""

import argparse
import dataclasses
import os
import resource
import statistics
import sys
import time
from collections.abc import Iterable

# our programs: as in main.py, and the others as they are
if {"--serve", "--panel"} & set(sys.argv):
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd

from anisoscope.config.experiment_config import Config
from anisoscope.config.measure_config import (
    DEFAULT_FAMILIES,
    NULLS,
    OPTIONAL_FAMILIES,
    MeasureConfig,
)
from anisoscope.config.model_config import ModelConfig
from anisoscope.data.corpus import Corpus
from anisoscope.metrics.decomposition import spectrum as compute_spectrum
from anisoscope.metrics.dimension import read_twonn
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.quantity import read_all
from anisoscope.metrics.spectrum import SPECTRUM_QUANTITIES
from anisoscope.models import transformer
from anisoscope.sources.run_program import OTHERS, make_measure_program
from anisoscope.utils.compiled import CACHE, keep
from benchmarks.peers import peer
from benchmarks.peers.peer import alternate, hardware, processor, ratio, serve, spread
from benchmarks.train_step import random_corpus

CLOUDS = {"cpu": [(4096, 512)], "gpu": [(20_000, 1024), (10_000, 768)]}  # by kind of device


def search(cloud_PD: jax.Array) -> jax.Array:
    return read_twonn(nearest_neighbors(cloud_PD))


def spectrum(cloud_PD: jax.Array) -> dict[str, jax.Array]:
    """Compute the family spectrum of a cloud as the package does, without resamples."""
    spectra = compute_spectrum(cloud_PD)
    return jax.vmap(lambda single: read_all(SPECTRUM_QUANTITIES, single))(spectra)


def product(cloud_PD: jax.Array) -> jax.Array:
    return cloud_PD @ cloud_PD.T


def eigenvalues(cloud_PD: jax.Array) -> jax.Array:
    return jnp.linalg.eigvalsh(jnp.cov(cloud_PD, rowvar=False))


def eigenvalues_in_float64(cloud_PD: jax.Array) -> jax.Array:
    with jax.enable_x64(True):
        return jnp.linalg.eigvalsh(jnp.cov(cloud_PD.astype(jnp.float64), rowvar=False))


def window_eigenvalues(cloud_PD: jax.Array) -> jax.Array:
    """Compute the eigenvalues of 16 windows' own covariances in one batch."""
    windows_WPD = cloud_PD[: len(cloud_PD) // 16 * 16].reshape(16, -1, cloud_PD.shape[1])
    return jax.vmap(eigenvalues)(windows_WPD)


FUNCTIONS = {
    "TwoNN": search,
    "spectrum": spectrum,
    "steep": spectrum,  # of a cloud whose eigenvalues fall as 1/i^2
    "product": product,
    "eigvalsh": eigenvalues,
    "eigvalsh float64": eigenvalues_in_float64,
    "windows": window_eigenvalues,
}


def task(function, cloud_PD: np.ndarray):
    compiled = jax.jit(jax.default_matmul_precision("highest")(function))
    cloud_PD = jnp.asarray(cloud_PD)
    return lambda: jax.block_until_ready(compiled(cloud_PD))


def serve_jax(shapes: list[tuple[int, int]], names: list[str]) -> None:
    """Tasks 'NAME POINTS WIDTH' for every shape."""
    tasks = {}
    for points, width in shapes:
        cloud_PD = peer.normal(points, width)
        # small eigenvalues cost more
        steep_PD = cloud_PD * np.arange(1, width + 1, dtype=np.float32)[None] ** -1.0
        tasks |= {
            f"{name} {points} {width}": task(
                FUNCTIONS[name], steep_PD if name == "steep" else cloud_PD
            )
            for name in names
        }
    serve({"version": f"jax {jax.__version__}", "kind": jax.default_backend()}, tasks)


def jax_command(shapes: list[tuple[int, int]], names: list[str]) -> list[str]:
    numbers = [f"{points}x{width}" for points, width in shapes]
    return [sys.executable, "-m", "benchmarks.metrics", "--serve", ",".join(names), *numbers]


def side_by_side(points: int, width: int, peers: Iterable[str], rounds: int) -> None:
    size = [str(points), str(width)]
    commands = {"ours": jax_command([(points, width)], ["TwoNN", "spectrum", "steep", "product"])}
    commands |= {name: peer.library_command(name, "tasks", *size) for name in peers}
    facts, seconds = alternate(commands, rounds)
    print(f"\n## {points} points of width {width}, float32\n")
    print("; ".join(f"{fact['version']} on {fact['kind']}" for fact in facts.values()), end="\n\n")
    ours = {name.split()[0]: times for name, times in seconds.pop("ours").items()}
    seconds["JAX"], facts["JAX"] = {"product": ours["product"]}, facts["ours"]
    rows = []
    for mine in ("TwoNN", "spectrum", "steep"):  # steep: eigenvalues as 1/i^2
        rows.append((mine, "ours", spread(ours[mine]), ""))
        for other in ("TwoNN", "product") if mine == "TwoNN" else ("svdvals", "SVD"):
            for name in (name for name, times in seconds.items() if other in times):
                words = f"no ratio: it ran on {facts[name]['kind']}"
                if facts[name]["kind"] == facts["ours"]["kind"]:
                    words = ratio(ours[mine], seconds[name][other])
                rows.append((other, name, spread(seconds[name][other]), words))
    columns = ["task", "who", "ms: median (least-most)", "ours / theirs, by round"]
    print(pd.DataFrame(rows, columns=columns).to_string(index=False))


SHAPES = {
    "cpu": {"layers": 12, "width": 256, "heads": 8, "context": 256, "batches": 8, "points": 4096},
    "gpu": {"layers": 12, "width": 768, "heads": 12, "context": 512, "batches": 8, "points": 4096},
}
QUICK = ("spectrum", "dimension", "similarity", "attention")
PANELS = {
    "spectrum alone": (("spectrum",), ()),
    f"quick look ({', '.join(QUICK)})": (QUICK, ()),
    "the same with its null models": (QUICK, NULLS),
    "whole panel, without null models": (DEFAULT_FAMILIES, ()),
    "whole panel": (DEFAULT_FAMILIES, NULLS),
    **{f"{name} alone, without null models": ((name,), ()) for name in OPTIONAL_FAMILIES},
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
    program, compared = (
        make_measure_program(config, corpus),
        "comparison" in config.measure.families,
    )
    compilation, seconds = [], []

    def listen(event: str, duration: float, **_) -> None:
        if event.startswith("/jax/core/compile/"):
            compilation.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    previous = None
    for params in checkpoints:
        begin, before = time.perf_counter(), sum(compilation)
        program.measure(params, dict.fromkeys(OTHERS, previous or params) if compared else {})
        previous = params
        seconds.append(time.perf_counter() - begin - (sum(compilation) - before))
    jax.monitoring.unregister_event_duration_listener(listen)
    return sum(compilation), statistics.median(seconds)


def peak_memory() -> str:
    """Of the device where it is counted, else of this process so far."""
    counted = jax.devices()[0].memory_stats() or {}
    if "peak_bytes_in_use" in counted:
        return f"{counted['peak_bytes_in_use'] / 2**30:.1f} GiB on the device"
    return f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB"


def time_panels(arguments: list[str]) -> None:
    shape = SHAPES["cpu" if jax.default_backend() == "cpu" else "gpu"]
    parser = argparse.ArgumentParser(description="Time the measurement of a checkpoint.")
    for name, value in shape.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--rounds", type=int, default=1, help="checkpoints")
    numbers = range(1, 1 + len(PANELS))
    parser.add_argument("--panels", type=int, nargs="+", choices=numbers, default=numbers)
    options = vars(parser.parse_args(arguments))
    shape = {name: options[name] for name in shape}
    print(shape, f"float32, jax {jax.__version__}, {jax.devices()[0].device_kind} ({processor()})")
    for row in (list(PANELS)[number - 1] for number in options["panels"]):
        compilation, seconds = time_row(row, shape, options["rounds"])
        words = f"{seconds:.1f} s a checkpoint, {compilation:.1f} s of compilation"
        print(f"{row}: {words}, {peak_memory()} at most so far", flush=True)


def time_metrics() -> None:
    kind = "cpu" if jax.default_backend() == "cpu" else "gpu"
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--points", type=int)
    parser.add_argument("--width", type=int)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--serve", help="be the JAX worker of these tasks")
    parser.add_argument("shapes", nargs="*", help="POINTSxWIDTH of the worker's clouds")
    options = parser.parse_args()
    if options.serve:
        serve_jax(
            [tuple(map(int, shape.split("x"))) for shape in options.shapes],
            options.serve.split(","),
        )
        return
    print(hardware(jax.devices()[0].device_kind))
    # the others know no GPU
    peers = peer.PEERS if kind == "cpu" else ("PyTorch",)
    shapes = [(options.points, options.width)] if options.points and options.width else CLOUDS[kind]
    for points, width in shapes:
        side_by_side(points, width, peers, options.rounds)


if __name__ == "__main__":
    if "--panel" in sys.argv:
        time_panels([argument for argument in sys.argv[1:] if argument != "--panel"])
        sys.exit()
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the processes share the device's memory
    keep(CACHE)
    time_metrics()
