"""Measure a source of your own: a folder of step_<n>.npy, the activations (layers, windows, T,
width) of each training step.

    python -m examples.folder_of_arrays ARRAYS TABLES

measures every step into TABLES/measurements, and joins them in results.nc and results.csv. Tables
that exist already are kept.
"""

import dataclasses
import functools
import hashlib
import pathlib
import sys
from collections.abc import Iterator

import numpy as np
import xarray as xr

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.results import replicates_table
from anisoscope.sources import activations
from anisoscope.sources.activations import BatchActivations
from anisoscope.sources.sweep import Families, Source, Target, sweep
from anisoscope.utils.processes import Stop


@dataclasses.dataclass(frozen=True)
class FolderOfArrays(Source):
    """Batches are runs of consecutive windows, points are drawn from all positions of each."""

    folder: pathlib.Path
    root: pathlib.Path
    measure: MeasureConfig
    name: str = "arrays"

    def path(self, step: int) -> pathlib.Path:
        return self.folder / f"step_{step}.npy"

    @functools.cached_property
    def steps(self) -> list[int]:
        """Those too whose array is gone and whose table is there."""
        tables = {int(path.stem) for path in self.root.glob("measurements/*.nc")}
        return sorted(tables | self.stored())

    @functools.cached_property
    def made_by(self) -> dict[str, int]:
        return {
            f"measure.{name}": getattr(self.measure, name)
            for name in ("points", "batches", "folds", "seed")
        }

    def stored(self) -> set[int]:
        return {int(path.stem.removeprefix("step_")) for path in self.folder.glob("step_*.npy")}

    def outdated(self, target: Target, tables: dict[int, xr.Dataset]) -> dict[int, str]:
        return {
            step: "its file has changed"
            for step in self.stored() & tables.keys()
            if tables[step].attrs["sha256"] != self.sha256(step)
        }

    def measure_step(
        self, step: int, families: dict[Target, Families]
    ) -> Iterator[tuple[Target, xr.Dataset]]:
        ((target, names),) = families.items()  # there are no hook points
        settings = dataclasses.replace(self.measure, families=names)
        x_NWTD = np.load(self.path(step)).astype(np.float32)
        windows, context = x_NWTD.shape[1] // settings.batches, x_NWTD.shape[2]
        picks, visible = self.picks(windows, context), np.ones((1, context, context), bool)
        batches = []
        for g in range(settings.batches):
            part = x_NWTD[:, g * windows : (g + 1) * windows]
            batches.append(
                activations.measure_batch(
                    g, BatchActivations(part[None]), {}, picks, visible, settings
                )
            )
        about = {"corpus": self.folder.name, "sha256": self.sha256(step)}
        values = activations.join_batches(batches)
        yield target, replicates_table.build_table(values, step, ("all",), about)

    def picks(self, windows: int, context: int) -> np.ndarray:
        """(1, points): places of windows, fold after fold of whole windows, as many of each."""
        folds = self.measure.folds
        places, share = windows // folds * context, self.measure.points // folds
        draw = np.random.default_rng(self.measure.seed)
        return np.concatenate(
            [fold * places + draw.permutation(places)[:share] for fold in range(folds)]
        )[None]

    def sha256(self, step: int) -> str:
        return hashlib.sha256(self.path(step).read_bytes()).hexdigest()


def main(arrays: str, tables: str) -> None:
    families, nulls = ("spectrum", "dimension", "similarity"), ("gaussian",)
    measure = MeasureConfig(points=512, batches=2, folds=4, families=families, nulls=nulls)
    with Stop() as stop:  # Ctrl-C ends it after the step at hand
        sweep(FolderOfArrays(pathlib.Path(arrays), pathlib.Path(tables), measure), stop)


if __name__ == "__main__":
    main(*sys.argv[1:])
