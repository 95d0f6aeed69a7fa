"""Run tests, a training step, metrics and a checkpoint's measurement on an accelerator.

    make gpu                                   # .venv-gpu with jax[cuda13]; `make gpu JAX=tpu` on a TPU
    make gpu JAX=cpu SIZE=--small              # tries the script without an accelerator

Each part is a command, whose output goes to runs/accelerator.txt. A part that fails is named, and
the others continue.
"""

import argparse
import os
import pathlib
import subprocess
import sys

import jax

from benchmarks.rounds import hardware

TESTED = ["tests/metrics", "tests/measurement", "tests/models"]
SMALL_STEP = ["--layers=2", "--width=64", "--heads=2", "--context=64", "--batch=4", "--rounds=2"]
SMALL_PANEL = [
    "--layers=2",
    "--width=64",
    "--heads=2",
    "--context=64",
    "--batches=1",
    "--points=512",
]


def parts(small: bool, peer: str) -> dict[str, list[str]]:
    quick = ["tests/metrics", "-k", "spectrum", "-m", "not slow"] if small else TESTED
    return {
        "tests on the device": ["pytest", "--numprocesses=1", "-q", *quick],
        "training step": [
            "benchmarks.train_step",
            f"--peer={peer}",
            *(SMALL_STEP if small else []),
        ],
        "metrics": ["benchmarks.metrics", *(["--points=512", "--width=64"] if small else [])],
        "a checkpoint": ["benchmarks.panel_time", *([*SMALL_PANEL, "--panels=1"] if small else [])],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--peer", default=sys.executable, help="the Python of an environment with PyTorch"
    )
    parser.add_argument(
        "--small", action="store_true", help="small sizes, to try the script itself"
    )
    options = parser.parse_args()
    backend = jax.default_backend()
    (path := pathlib.Path("runs/accelerator.txt")).parent.mkdir(exist_ok=True)
    settings = {
        "ANISOSCOPE_PLATFORM": {"gpu": "cuda,cpu", "cpu": "cpu"}.get(backend, f"{backend},cpu"),
        "JAX_DEFAULT_MATMUL_PRECISION": "highest",  # of the tests' own products
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",  # processes share the device's memory
    }
    failed = []
    with path.open("w") as output:
        print(
            hardware(jax.devices()[0].device_kind),
            f"jax {jax.__version__}",
            file=output,
            flush=True,
        )
        for name, words in parts(options.small, options.peer).items():
            print(f"\n## {name}\n", file=output, flush=True)
            command = [sys.executable, "-m", *words]
            if subprocess.run(
                command, env=os.environ | settings, stdout=output, stderr=subprocess.STDOUT
            ).returncode:
                failed.append(name)
    print(f"written: {path}" + (f"; failed: {', '.join(failed)}" if failed else ""))
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
