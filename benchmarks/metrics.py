"""Compare time and memory of the neighbor search, TwoNN and the spectrum with other libraries.

    python -m benchmarks.metrics [--points 4096 --width 512] [--rounds 7]

Every library has a process of its own that sleeps while another one works; ratios are taken round
by round. The plain product of the cloud with itself, P x P x D, is what an exact search cannot do
without, or half of it.
"""

import argparse
import os
import sys

if "--serve" in sys.argv:  # our worker: as in main.py, and the others as they are
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import jax
import jax.numpy as jnp
import numpy as np

from anisoscope.measurement.families import spectrum_family
from anisoscope.metrics.dimension import twonn
from anisoscope.metrics.neighbors import nearest_neighbors
from anisoscope.metrics.spectrum import spectrum as compute_spectrum
from anisoscope.utils.compiled import CACHE, keep
from benchmarks.peers import peer
from benchmarks.rounds import alternate, hardware, ratio, serve, spread

SHAPES = {"cpu": [(4096, 512)], "gpu": [(20_000, 1024), (10_000, 768)]}  # by kind of device


def search(cloud_PD: jax.Array) -> jax.Array:
    return twonn(nearest_neighbors(cloud_PD))


def spectrum(cloud_PD: jax.Array) -> dict[str, jax.Array]:
    """Compute the family spectrum of a cloud as the package does, without resamples."""
    return spectrum_family.read(compute_spectrum(cloud_PD, 1))


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


def side_by_side(points: int, width: int, peers: dict[str, tuple[str, str]], rounds: int) -> None:
    size = [str(points), str(width)]
    commands = {"ours": jax_command([(points, width)], ["TwoNN", "spectrum", "steep", "product"])}
    commands |= {
        name: [python, "-m", script, "tasks", *size] for name, (python, script) in peers.items()
    }
    facts, seconds = alternate(commands, rounds)
    print(f"\n## {points} points of width {width}, float32\n")
    print("; ".join(f"{fact['version']} on {fact['kind']}" for fact in facts.values()), end="\n\n")
    ours = {name.split()[0]: times for name, times in seconds.pop("ours").items()}
    print(
        "| task | who | ms: median (least-most) | ours / theirs, by round |",
        "|---|---|---|---|",
        sep="\n",
    )
    decompositions = ("svdvals", "SVD")
    for mine, others in (
        ("TwoNN", ("TwoNN", "product")),
        ("spectrum", decompositions),
        ("steep", decompositions),
    ):
        words = "spectrum, lambda ~ 1/i^2" if mine == "steep" else mine
        print(f"| {words} | ours | {spread(ours[mine])} | |")
        for other in others:
            for name, times in seconds.items():
                if other in times:
                    same = facts[name]["kind"] == facts["ours"]["kind"]
                    words = (
                        ratio(ours[mine], times[other])
                        if same
                        else f"no ratio: it ran on {facts[name]['kind']}"
                    )
                    print(f"| {other} | {name} | {spread(times[other])} | {words} |")
        if mine == "TwoNN":
            print(
                f"| product | JAX | {spread(ours['product'])} | {ratio(ours[mine], ours['product'])} |"
            )


def main() -> None:
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
    peers = peer.PEERS if kind == "cpu" else {"PyTorch": peer.PEERS["PyTorch"]}
    shapes = [(options.points, options.width)] if options.points and options.width else SHAPES[kind]
    for points, width in shapes:
        side_by_side(points, width, peers, options.rounds)


if __name__ == "__main__":
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"  # the processes share the device's memory
    keep(CACHE)
    main()
