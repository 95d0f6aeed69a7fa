"""What a recorder costs: seconds per training step in PyTorch without it and with it, in rounds that take turns.

    python -m benchmarks.recorder [--layers 6 --width 256 --context 128 --batch 8] [--rounds 7 --steps 6]

All blocks are hook points. `filling`: the sample has still room, so that all rows are kept. `full`: 20 times as many
rows as it holds have gone by before. On a CPU the seconds are those of all its cores together.
"""

import argparse
import time

import numpy as np
import torch

import anisoscope
from benchmarks.peers import torch_twin
from benchmarks.rounds import hardware, ratio, spread

VOCABULARY = 206


def timed(shape: dict[str, int], rounds: int, steps: int, points: int) -> dict[str, list[float]]:
    """Seconds per step in each round."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    sizes = shape["layers"], shape["width"], max(shape["width"] // 32, 1), shape["context"]
    model = torch_twin.Transformer(*sizes, VOCABULARY).to(device)
    corpus_N = torch.from_numpy(np.random.default_rng(0).integers(0, VOCABULARY, 1_000_000)).to(device)
    step = torch_twin.make_step(model, corpus_N, shape["batch"], shape["context"], bfloat16=device.type == "cuda")
    blocks = [f"blocks.{n}" for n in range(shape["layers"])]
    full = anisoscope.record(model, blocks, points=points)
    with full, torch.no_grad():
        while full.seen < 20 * points:
            model(corpus_N[: shape["batch"] * shape["context"]].view(shape["batch"], -1).long())
    clock = time.perf_counter if device.type == "cuda" else time.process_time
    seconds: dict[str, list[float]] = {"without": [], "filling": [], "full": []}
    for number in range(rounds + 1):  # the first warms up
        filling = anisoscope.record(model, blocks, points=points)
        for name, recorder in (("without", torch.enable_grad()), ("filling", filling), ("full", full)):
            begin = clock()
            with recorder:
                for _ in range(steps):
                    float(step())  # waits for the device
            seconds[name] += [(clock() - begin) / steps] * (number > 0)
    return seconds


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"layers": 6, "width": 256, "context": 128, "batch": 8}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"rounds": 7, "steps": 6, "points": 4096}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args(arguments)
    shape = {name: getattr(given, name) for name in ("layers", "width", "context", "batch")}
    seconds = timed(shape, given.rounds, given.steps, given.points)
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "cpu"
    print(f"{hardware(device)}; torch {torch.__version__}; {shape}; {given.points} points")
    for name, times in seconds.items():
        beside = f", {ratio(times, seconds['without'], 3)} of a step without" if name != "without" else ""
        print(f"{name}: {spread(times)} ms a step{beside}")


if __name__ == "__main__":
    main()
