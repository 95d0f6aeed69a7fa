"""Further clouds of a run, where they are asked for: what attention and the feed-forward layer add, and the values.

Each has tables of its own, sites/<site>/ in the folder of the run, in the form of the run's own; layer l is block l.
"""

import contextlib
import json
import pathlib
from collections.abc import Callable

import numpy as np
import xarray as xr

from anisoscope.config.experiment import Config
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.families.entries import FAMILIES
from anisoscope.measurement.sources import made_from
from anisoscope.measurement.sources.probe import POSITION_SETS
from anisoscope.measurement.sources.program import make_program
from anisoscope.measurement.tables import join, measurements, raw
from anisoscope.measurement.tables.averages import BLOCK
from anisoscope.measurement.tables.measurements import Standing
from anisoscope.measurement.tables.scores import scores
from anisoscope.training import checkpoint, log, loop
from anisoscope.utils import mesh, processes, shares
from anisoscope.utils.settings import replace
from anisoscope.utils.stop import Stop

FOLDER = "sites"
WORDS = {
    "attention_out": "output of attention, before it is added to the residual stream",
    "mlp_out": "output of the feed-forward layer, before it is added to the residual stream",
    "values": "values of all heads side by side",
}


def folders(config: Config) -> list[str]:
    """Of the tables of each site, in the folder of a run."""
    return [f"{FOLDER}/{site}/measurements" for site in config.measure.sites]


def measure(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """Write sites/<site>/measurements/<step>.nc of every checkpoint, then the tables of each site; as sources/sweep.

    Families of clouds alone. A site whose checkpoint is gone keeps the table it has.
    """
    sites, kept = config.measure.sites, loop.kept_steps(config, run)
    families = tuple(family for family in config.measure.families if FAMILIES[family].of == "cloud")
    config = replace(config, {"measure.families": families})
    nulls, made = config.measure.nulls, made_from.made_by(config, corpus)
    with contextlib.closing(checkpoint.Checkpoints(run / "checkpoints", kept, True)) as store:
        found = {site: _standing(run, site, store, config, kept, made) for site in sites}
        stored = set(store.steps())
        todo = [step for step in kept if step in stored and any(one[step].missing for one in found.values())]
        missing = {step: {s: found[s][step] for s in sites if found[s][step].missing} for step in todo}
        _measure(config, corpus, run, store, missing, name, stop)

    def join_tables() -> None:
        for site in sites:
            folder = run / FOLDER / site
            paths = {step: folder / "measurements" / f"{step}.nc" for step in kept}
            whole = {step: measurements.read(path, site) for step, path in paths.items() if path.exists()}
            learned = scores(log.read_log(run) if (run / "train.jsonl").exists() else [], list(whole))
            join.write(folder, whole, families, nulls, attributes(config, corpus, name, site), learned)

    processes.on_first(join_tables)
    print(f"{name}: {', '.join(sites)}: {len(todo)} checkpoints measured now: {run / FOLDER}/<site>/results.nc")


def attributes(config: Config, corpus: Corpus, name: str, site: str) -> dict:
    """What the run's tables say, and of which site these are."""
    about = made_from.attributes(config, corpus, name)
    return about | {"run": f"{name}, {site}", "site": site, "site_in_words": WORDS[site], "layer_0": BLOCK}


def _standing(
    run: pathlib.Path, site: str, store: checkpoint.Checkpoints, config: Config, kept: list[int], made: dict
) -> dict[int, Standing]:
    """What there is of one site and what is missing; all of it where a checkpoint has changed."""
    settings, tables, of_run = config.measure, run / FOLDER / site / "measurements", made_from.settings_of(config)
    found = measurements.plan(tables, kept, settings.families, settings.nulls, made, of_run, site)
    for step, one in found.items():
        if one.table is not None and made_from.is_outdated(one.table, store):
            found[step] = measurements.nothing(settings.families, settings.nulls)
    return found


def _measure(
    config: Config,
    corpus: Corpus,
    run: pathlib.Path,
    store: checkpoint.Checkpoints,
    todo: dict[int, dict[str, Standing]],
    name: str,
    stop: Stop,
) -> None:
    """One program for all checkpoints and sites: which site it reads is data."""
    sites, made = config.measure.sites, {"made_by": json.dumps(made_from.made_by(config, corpus))}
    apart = mesh.measures_apart(config.mesh)

    @made_from.damage_told()
    def begin() -> Callable[[int], dict[str, xr.Dataset]]:
        program = make_program(config, corpus, store.restore_params(next(iter(todo))), sites, apart)

        @made_from.damage_told()
        def tables(step: int) -> dict[str, xr.Dataset]:
            params, digest = store.restore_params(step), {"checkpoints": json.dumps({step: store.digest(step)})}
            found = {}
            for site in todo[step]:
                values = program(params, {}, sites.index(site)).values
                about = attributes(config, corpus, name, site) | made | digest
                found[site] = of_blocks(raw.table(values, step, POSITION_SETS, about))
            return found

        return tables

    def keep(step: int, tables: dict[str, xr.Dataset]) -> None:
        for site, table in tables.items():
            measurements.keep(table, step, todo[step][site], run / FOLDER / site / "measurements")

    written = {
        step: [run / FOLDER / site / "measurements" / f"{step}.nc" for site in missing]
        for step, missing in todo.items()
    }
    what = f"measure {', '.join(sites)}", "measuring the sites of"
    shares.each(written, begin, keep, name, what, stop, apart)


def of_blocks(table: xr.Dataset) -> xr.Dataset:
    """Layers from 1 on: the embedding is no block's output."""
    layer = np.arange(1, table.sizes["layer"] + 1)
    return table.assign_coords(layer=layer, depth=("layer", layer / len(layer)))
