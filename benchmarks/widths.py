"""Seconds by width: the spectrum with its jackknife, outliers, TwoNN, anisotropy alone, beside NumPy and PyTorch.

    python -m benchmarks.widths [--points 4096] [--widths 256 1024 4096] [--rounds 3] [--cloud flat]

Each library has a process of its own that sleeps while another one works; ratios are taken round by round. NumPy:
eigvalsh of the centred cloud's Gram matrix, of width x width or points x points, whichever is smaller, with its
product. PyTorch: svdvals of the centred cloud; cdist and topk. Ours: what `measure` compiles, in 8 folds, with LAPACK's
threads as `measure` sets them. Clouds: normal points of variance 1 (flat), 1/i or 1/i^2 along coordinate i and then
rotated, or flat with one coordinate a hundred times as wide (rogue).
"""

import argparse
import importlib.util
import statistics
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.rounds import alternate, hardware, ratio, serve

FOLDS = 8
CLOUDS = ("flat", "1/i", "1/i^2", "rogue")
RATIOS = (  # ours, then what it is compared with
    ("spectrum", "NumPy", "eigvalsh"),
    ("spectrum", "PyTorch", "svdvals"),
    ("outliers", "ours", "spectrum"),
    ("TwoNN", "PyTorch", "cdist, topk"),
    ("anisotropy alone", "NumPy", "eigvalsh"),
)


def drawn(name: str, points: int, width: int) -> np.ndarray:
    generator = np.random.default_rng(0)
    x_PD = generator.standard_normal((points, width)).astype(np.float32)
    if name in ("1/i", "1/i^2"):
        x_PD *= np.arange(1, width + 1, dtype=np.float32) ** (-0.5 if name == "1/i" else -1.0)
        x_PD -= x_PD @ (direction_D := _unit(generator, width))[:, None] * 2 * direction_D  # a reflection: no axes
    if name == "rogue":
        x_PD[:, min(7, width - 1)] *= 100
    return x_PD - x_PD.mean(axis=0)


def _unit(generator: np.random.Generator, width: int) -> np.ndarray:
    direction_D = generator.standard_normal(width).astype(np.float32)
    return direction_D / np.linalg.norm(direction_D)


def of_numpy(x_PD: np.ndarray) -> dict[str, Callable[[], Any]]:
    across = x_PD.T if x_PD.shape[0] < x_PD.shape[1] else x_PD
    return {"eigvalsh": lambda: np.linalg.eigvalsh(across.T @ across)}


def of_torch(x_PD: np.ndarray) -> dict[str, Callable[[], Any]]:
    import torch

    y_PD = torch.from_numpy(x_PD)
    return {
        "svdvals": lambda: torch.linalg.svdvals(y_PD),
        "cdist, topk": lambda: torch.cdist(y_PD, y_PD).topk(3, dim=1, largest=False),
    }


def of_ours(x_PD: np.ndarray) -> dict[str, Callable[[], Any]]:
    import jax

    from anisoscope import metrics
    from anisoscope.measurement.families import outliers, spectrum
    from anisoscope.measurement.resamples import Cloud
    from anisoscope.metrics import lapack
    from anisoscope.metrics.dimension import twonn
    from anisoscope.metrics.neighbours import nearest_neighbours

    on_device = jax.device_put(x_PD)

    def task(function: Callable) -> Callable[[], Any]:
        program = jax.jit(jax.default_matmul_precision("highest")(function)).lower(on_device).compile()

        def run() -> Any:
            with lapack.threads_for(min(x_PD.shape)):
                return jax.block_until_ready(program(on_device))

        return run

    return {
        "spectrum": task(lambda x_PD: spectrum.readings(x_PD, FOLDS)),
        "outliers": task(lambda x_PD: outliers.compute(Cloud(x_PD, FOLDS, None))),
        "TwoNN": task(lambda x_PD: twonn(nearest_neighbours(x_PD))),
        "anisotropy alone": lambda: float(metrics.anisotropy(on_device)),
    }


LIBRARIES = {"ours": of_ours, "NumPy": of_numpy, "PyTorch": of_torch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=4096)
    parser.add_argument("--widths", type=int, nargs="+", default=[256, 1024, 4096])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cloud", choices=CLOUDS, default="flat")
    parser.add_argument("--only", nargs="+", choices=LIBRARIES, default=[*LIBRARIES])
    parser.add_argument("--serve", choices=LIBRARIES, help="be the worker of this library, of the first width")
    options = parser.parse_args()
    if options.serve:
        serve({}, LIBRARIES[options.serve](drawn(options.cloud, options.points, options.widths[0])))
        return
    names = [name for name in options.only if name != "PyTorch" or importlib.util.find_spec("torch")]
    print(f"{options.points} points, {options.cloud}, {options.rounds} rounds; {hardware('cpu')}\n")
    print("| width | who | what | seconds | ratios: median (least-most) |", "|---|---|---|---|---|", sep="\n")
    for width in options.widths:
        same = [f"--points={options.points}", f"--cloud={options.cloud}", f"--widths={width}"]
        worker = [sys.executable, "-m", "benchmarks.widths", *same, "--serve"]
        _, seconds = alternate({name: [*worker, name] for name in names}, options.rounds)
        for name, tasks in seconds.items():
            for task, taken in tasks.items():
                ratios = [
                    f"{ratio(taken, seconds[who][other])} of {other}"
                    for what, who, other in RATIOS
                    if name == "ours" and what == task and who in seconds
                ]
                middle = f"{statistics.median(taken):.3g}"
                print(f"| {width} | {name} | {task} | {middle} | {'; '.join(ratios)} |", flush=True)


if __name__ == "__main__":
    main()
