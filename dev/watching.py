"""What looking at the geometry of every k-th training step costs: steps with it against steps without, in rounds.

    python -m dev.watching [--every 16] [--layers 6 --width 128 --heads 4 --context 256 --batch 16] [--rounds 9]

Each round is as many steps as lie from one look to the next, so that one of them is looked at.
"""

import argparse
import os
import sys

from anisoscope.config.data import CACHE
from anisoscope.utils.compiled import keep
from benchmarks.rounds import alternate, hardware, ratio, serve, spread
from benchmarks.train_step import jax_side

SHAPE = {"layers": 6, "width": 128, "heads": 4, "context": 256, "batch": 16}  # of decoder_small.py:tiny


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, value in SHAPE.items():
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--every", type=int, default=16, help="watch.every")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--side", type=int, help="be the worker that looks so often; 0: not at all")
    options = vars(parser.parse_args())
    shape = {name: options[name] for name in SHAPE}
    if options["side"] is not None:
        run, facts = jax_side(shape, options["every"], watch=options["side"])
        serve(facts, {"steps": run})
        return
    numbers = [f"--{name}={value}" for name, value in shape.items()] + [f"--every={options['every']}"]
    command = [sys.executable, "-m", "dev.watching", *numbers]
    sides = {"watched": options["every"], "not watched": 0}
    facts, seconds = alternate(
        {name: [*command, f"--side={every}"] for name, every in sides.items()}, options["rounds"]
    )
    print(
        ", ".join(f"{name} {value}" for name, value in shape.items()),
        f"a look every {options['every']} steps",
        sep=", ",
    )
    print(hardware(facts["watched"]["device"]), facts["watched"]["version"], sep="; ")
    times = {name: tasks["steps"] for name, tasks in seconds.items()}
    for name, those in times.items():
        print(f"{name:12} {spread(those)} ms for {options['every']} steps")
    said = ratio(times["watched"], times["not watched"], digits=4)
    print(f"with looks, training takes {said} of the time without (least-most by round)")


if __name__ == "__main__":
    os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
    keep(CACHE)
    main()
