"""What a recorder costs: seconds per step of a training in PyTorch without it and with it, in rounds that take turns.

    python -m benchmarks.recorder [--layers 6 --width 256 --context 128 --batch 16] [--rounds 7 --steps 6]

All blocks are hook points. The model is a GPT-2 of transformers with random tokens.
"""

import argparse
import time

import torch
import transformers

import anisoscope
from benchmarks.rounds import hardware, ratio, spread

VOCABULARY = 4096


def training(layers: int, width: int, context: int, batch: int):
    """The model, and a function that makes some steps of its training."""
    torch.manual_seed(0)
    sizes = {"n_embd": width, "n_layer": layers, "n_head": max(width // 32, 1), "n_positions": context}
    settings = transformers.GPT2Config(**sizes, vocab_size=VOCABULARY, use_cache=False)
    model = transformers.GPT2LMHeadModel(settings).train()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    ids_BT = torch.randint(VOCABULARY, (batch, context))

    def steps(count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            model(input_ids=ids_BT, labels=ids_BT).loss.backward()
            optimizer.step()

    return model, steps


def timed(shape: dict[str, int], rounds: int, count: int, points: int) -> dict[str, list[float]]:
    """Seconds per step in each round: without a recorder, with one that is still filling up, with one long full."""
    model, steps = training(**shape)
    blocks = [f"transformer.h.{n}" for n in range(shape["layers"])]
    full = anisoscope.record(model, blocks, points=points)
    with full:
        while full.seen < 20 * points:
            with torch.no_grad():
                model(input_ids=torch.randint(VOCABULARY, (shape["batch"], shape["context"])))
    steps(2)
    seconds: dict[str, list[float]] = {"without": [], "filling": [], "full": []}
    for _ in range(rounds):
        filling = anisoscope.record(model, blocks, points=points)
        for name, recorder in (("without", None), ("filling", filling), ("full", full)):
            begin = time.perf_counter()
            if recorder is None:
                steps(count)
            else:
                with recorder:
                    steps(count)
            seconds[name].append((time.perf_counter() - begin) / count)
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in {"layers": 6, "width": 256, "context": 128, "batch": 16}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    for name, default in {"rounds": 7, "steps": 6, "points": 4096}.items():
        parser.add_argument(f"--{name}", type=int, default=default)
    given = parser.parse_args()
    shape = {name: getattr(given, name) for name in ("layers", "width", "context", "batch")}
    seconds = timed(shape, given.rounds, given.steps, given.points)
    print(hardware("cpu"), f"torch {torch.__version__}, transformers {transformers.__version__}", shape)
    for name, times in seconds.items():
        beside = f", {ratio(times, seconds['without'], 3)} of a step without" if name != "without" else ""
        print(f"{name}: {spread(times)} ms a step{beside}")


if __name__ == "__main__":
    main()
