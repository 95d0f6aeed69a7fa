"""CKA of two runs, calibrated by permutations, trained and untrained: results/families/calibrated.csv.

    .venv/bin/python -m dev.calibrated RUN RUN

Layer l of the first run beside layer l of the second, of the same windows, at their first and last checkpoints. Windows
change places as wholes; `alone` is the same with each point permuted by itself, which takes a common text for likeness.
"""

import pathlib
import sys

import jax
import numpy as np
import pandas as pd

from anisoscope.measurement.sources.run import open_run
from anisoscope.measurement.tables import files
from anisoscope.metrics.calibration import calibrated_cka

TABLE = pathlib.Path("docs/results/families/calibrated.csv")
WINDOWS = 32


def rows_of(one: str, other: str) -> list[dict]:
    runs = [open_run(root) for root in (one, other)]
    tokens_WT, rows = runs[0].windows(WINDOWS), []
    for place, state in ((0, "untrained"), (-1, "trained")):
        clouds = [
            np.asarray(run.vectors(run.params(run.steps[place]), tokens_WT)).reshape(
                -1, tokens_WT.size, run.config.model.width
            )
            for run in runs
        ]
        for layer, pair in enumerate(zip(*clouds, strict=True)):
            for how, together in (("windows", tokens_WT.shape[1]), ("alone", 1)):
                found = _calibrated(*pair, jax.random.key(0), together)
                for kind, one in zip(("cka", "cka_unbiased"), found, strict=True):
                    numbers = {name: float(value) for name, value in one._asdict().items()}
                    rows.append({"state": state, "layer": layer, "permuted": how, "quantity": kind} | numbers)
    return rows


_calibrated = jax.jit(calibrated_cka, static_argnums=3)


def main(given: list[str]) -> None:
    frame = pd.DataFrame(rows_of(*given)).round(4)
    TABLE.parent.mkdir(parents=True, exist_ok=True)
    files.write_csv(frame, TABLE)
    print(frame.to_string(index=False))


if __name__ == "__main__":
    main(sys.argv[1:])
