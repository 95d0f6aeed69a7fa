"""Fit and test tangent proxies at every checkpoint of a run, one after another; what is there already is left alone."""

import contextlib
import hashlib
import json
import pathlib
from typing import Any

import jax
import numpy as np
import xarray as xr

from data.corpus import Corpus
from experiments.config import Config
from sources import made_from
from tables import files
from tangents import rows, tables, written
from tangents.config import early_steps, width_of
from tangents.program import GIVEN, Program, make_program
from tangents.proxies import KINDS, Frames
from training import checkpoint
from training.config import schedule
from training.next_step import NextStep
from training.objective import OBJECTIVES
from workdir import processes
from workdir.errors import UserError
from workdir.progress import bar
from workdir.settings import to_dict
from workdir.stop import Stop

EARLY = "early.nc"  # the proxies of the first checkpoints together


def check(config: Config, corpus: Corpus, run: pathlib.Path) -> None:
    """Raise UserError, before any work is done, where the run could not be read later or tables are of others."""
    rows.make_windows(config, config.tangents, corpus)
    now = json.loads(tables.made_by(config.tangents, corpus.sha256))
    for path in sorted((run / "tangents").glob("*.nc")):
        there = json.loads(files.read(path).attrs["made_by"])
        different = [
            f"{name}={there.get(name)!r} there, {now[name]!r} now" for name in now if there.get(name) != now[name]
        ]
        if different:
            advice = f"pass the same settings, or move {path.parent} away to fit again"
            raise UserError(f"{path} was made otherwise: {'; '.join(different)}; {advice}")
        return


def fit_early(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """tangents/early.nc: the proxies of the first checkpoints together, as many points of each.

    They stay when a checkpoint is gone, and are fitted again when one has changed.
    """
    path, steps = run / "tangents" / EARLY, early_steps(config, config.tangents)
    with contextlib.closing(_store(config, run)) as store:
        if path.exists() and not made_from.is_outdated(files.read(path), store):
            return
        if missing := [step for step in steps if step not in store.steps()]:
            lost = ", ".join(map(str, missing))
            raise UserError(
                f"{run / 'checkpoints'} lacks step {lost}, which early proxies are fitted to; run --stages=train"
            )
        program = make_program(config, config.tangents, corpus)
        clouds = []
        for at, step in enumerate(bar(steps, f"{name}: early proxies", "checkpoint")):
            stop.check(f"{name}: stopped before the early proxies were fitted")
            cloud_NPD = np.asarray(program.activations(store.restore_params(step)))
            clouds.append(cloud_NPD[:, at :: len(steps)])
        fitted = jax.device_get(program.fit(np.concatenate(clouds, axis=1)))
        about = attributes(config, corpus, name) | {
            "checkpoints": json.dumps({step: store.digest(step) for step in steps})
        }
        if processes.is_first():
            table = tables.of_proxies(fitted).assign_coords(kind=list(KINDS), rank=list(config.tangents.ranks))
            path.parent.mkdir(exist_ok=True)
            files.write(table.assign_attrs(about), path)


def sweep(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop, other: pathlib.Path | None) -> None:
    """Write tangents/<step>.nc for every checkpoint, then tangents.nc. `other` is the run of another seed, if any.

    Every table is written whole or not at all; raises Stopped between two of them.
    """
    folder, kept = run / "tangents", schedule(config.train.steps, config.checkpoint.every)
    early = {"early": run, "other seed": other}
    early = {fit: files.read(one / "tangents" / EARLY) if one else None for fit, one in early.items()}
    early_digests = {fit: _digest(table, config) for fit, table in early.items()}
    with contextlib.closing(_store(config, run)) as store:
        stored, found = set(store.steps()), {}
        todo = []
        for step in kept:
            path = folder / f"{step}.nc"
            table = files.read(path) if path.exists() else None
            if table is not None and not (step in stored and _stale(table, store, early_digests, todo)):
                found[step] = table
            elif step in stored:
                todo.append(step)
        if not todo and not found:
            raise UserError(f"{run / 'checkpoints'} holds no checkpoint to read; run --stages=train first")
        if unknown := [step for step in kept if step not in found and step not in todo]:
            print(f"{name}: neither checkpoint nor table of tangents: step{'s' * (len(unknown) > 1)} {unknown}")
        if todo:
            program, update = make_program(config, config.tangents, corpus), NextStep(config, corpus, store)
            for step in bar(todo, f"{name}: tangents", "checkpoint"):
                stop.check(f"{name}: stopped before the tangents of step {step}")
                found[step] = _at(config, corpus, name, step, found, early, early_digests, store, program, update)
                if processes.is_first():
                    files.write(found[step], folder / f"{step}.nc")
    if processes.is_first():
        raw = {step: files.read(folder / f"{step}.nc") for step in sorted(found)}
        tables.write(run, raw, attributes(config, corpus, name), tables.primary_cells(raw, primary(config), name))
    print(f"{name}: tangents of {len(found)} checkpoints ({len(todo)} now): {run / 'tangents.nc'}")


def _at(
    config: Config,
    corpus: Corpus,
    name: str,
    step: int,
    found: dict[int, xr.Dataset],
    early: dict[str, xr.Dataset | None],
    early_digests: dict[str, str],
    store: checkpoint.Checkpoints,
    program: Program,
    update: NextStep,
) -> xr.Dataset:
    """The table of one checkpoint."""
    tangents = config.tangents
    before = max((one for one in found if one < step), default=None)
    previous = None if before is None else found[before]
    given = {
        "early": early["early"],
        "previous": previous,
        "untrained": found.get(0),
        "other seed": early["other seed"],
    }
    frames = {fit: _frames(given[fit], config) for fit in GIVEN}
    params = store.restore_params(step)
    there = before in store.steps()
    between = written.change(store.restore_params(before), params) if there else None
    single = written.rows(written.take(update.change(step)))
    nothing = jax.tree.map(lambda x: np.full_like(x, np.nan), single)
    tested = program.test(params, frames, {"between": between or nothing, "step": single})
    about = attributes(config, corpus, name) | {
        "checkpoints": json.dumps({one: store.digest(one) for one in {step, before} - {None} if one in store.steps()}),
        "previous_step": -1 if before is None else before,
        "early_proxies": json.dumps(early_digests),
    }
    return tables.of_checkpoint(tested, tangents, step, about)


def _frames(table: xr.Dataset | None, config: Config) -> Frames:
    """Those of a table; NaN where there is none, and so will be what is tested of them."""
    if table is not None:
        return tables.frames(table, config.tangents)
    shape = len(KINDS), config.model.layers + 1, width_of(config.model)
    return {rank: np.full((*shape, rank), np.nan, np.float32) for rank in config.tangents.ranks}


def _store(config: Config, run: pathlib.Path) -> checkpoint.Checkpoints:
    return checkpoint.Checkpoints(run / "checkpoints", schedule(config.train.steps, config.checkpoint.every))


def _stale(table: xr.Dataset, store: checkpoint.Checkpoints, early: dict[str, str], todo: list[int]) -> bool:
    """Whether what it was made from has changed, or is made again now."""
    again = 0 in todo or int(table.attrs["previous_step"]) in todo
    return again or made_from.is_outdated(table, store) or json.loads(table.attrs["early_proxies"]) != early


def _digest(table: xr.Dataset | None, config: Config) -> str:
    if table is None:
        return ""
    content = b"".join(np.ascontiguousarray(one).tobytes() for one in tables.frames(table, config.tangents).values())
    return hashlib.sha256(content).hexdigest()


def primary(config: Config) -> list[tuple[int, int, int]]:
    """The cells (layer, step, rank) named before any number was seen: all else is exploratory.

    The embedding, the middle and the last layer but one (in the last, the state itself is out of the gradient's reach);
    the first checkpoint after the early ones, and the last; the largest rank.
    """
    layers, steps = config.model.layers, schedule(config.train.steps, config.checkpoint.every)
    last_early = early_steps(config, config.tangents)[-1]
    late = [min(step for step in steps if step > last_early), steps[-1]]
    chosen = dict.fromkeys((0, layers // 2, max(layers - 1, 0)))
    return [(layer, step, config.tangents.ranks[-1]) for layer in chosen for step in dict.fromkeys(late)]


def attributes(config: Config, corpus: Corpus, name: str) -> dict[str, Any]:
    """What every table says about where its numbers come from."""
    tangents, objective = config.tangents, OBJECTIVES[config.objective]
    return made_from.of_run(config, corpus, name) | {
        "input": f"validation windows as in training (predicts {objective.label}), model applied in float32",
        "positions": "scored ones: those that the loss counts",
        "points": tangents.points,
        "sample": f"{tangents.points:,} scored positions of {tangents.windows:,} windows",
        "width": width_of(config.model),
        "windows": f"{tangents.windows} to test on, {tangents.windows} others to fit to",
        "groups": tangents.groups,
        "controls": tangents.controls,
        "early_steps": json.dumps(early_steps(config, tangents)),
        "primary": json.dumps(primary(config)),
        "made_by": tables.made_by(tangents, corpus.sha256),
    }


def other_seed(name: str, configs: dict[str, Config]) -> str | None:
    """The next run of the experiment, round and round, that differs from this one in its seeds alone, if any."""

    def without_seeds(config: Config) -> Any:
        values = to_dict(config)
        return values | {"train": {key: value for key, value in values["train"].items() if "seed" not in key}}

    alike = [one for one, config in configs.items() if without_seeds(config) == without_seeds(configs[name])]
    following = alike[(alike.index(name) + 1) % len(alike)]
    return None if configs[following].train.seed == configs[name].train.seed else following
