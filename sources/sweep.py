"""Measure every checkpoint of a run with one compiled program; what is measured already is left alone."""

import contextlib
import dataclasses
import functools
import json
import pathlib
from collections.abc import Callable

import jax
import xarray as xr
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from data.corpus import Corpus
from experiments.config import Config
from models import transformer
from models.config import ModelConfig
from models.description import description
from models.masks import idle, visible_keys
from panel import projection
from panel.config import MeasureConfig
from panel.quantities import COORDINATES, QUANTITIES
from sources.measure import make_measure
from sources.probe import Probe, make_probe
from sources.references import References
from studies import correlations
from tables import results
from tables.summary import summary
from training import checkpoint
from workdir import folder, mesh, processes
from workdir.errors import RunError, UserError
from workdir.progress import bar
from workdir.settings import from_dict, to_dict
from workdir.stop import Stop


def sweep(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """Write measurements/<step>.nc for every checkpoint on the schedule, then the tables of all of them (see `join`).

    Every table is written whole or not at all; raises Stopped between two of them. A table stays when its checkpoint
    is gone, and is measured again when it comes from a checkpoint that has changed since.
    """
    tables = run / "measurements"
    folder.check_tables(tables, settings(config))
    kept = checkpoint.schedule(config.train.steps, config.checkpoint.every)
    raw = {step: results.read(path) for step in kept if (path := tables / f"{step}.nc").exists()}
    with contextlib.closing(checkpoint.Checkpoints(run / "checkpoints", kept)) as store:
        stored = store.steps()
        if not raw.keys() | set(kept) & set(stored):
            raise UserError(f"{run / 'checkpoints'} holds no checkpoint to measure; run --stages=train first")
        outdated = [step for step, table in raw.items() if is_outdated(table, store)]
        todo = [step for step in kept if step in stored and (step not in raw or step in outdated)]
        present = {*raw, *stored}
        tell(name, outdated, stored, [step for step in kept if step not in present and step < max(present)], config)
        if todo:
            processes.on_first(lambda: folder.record_tables(tables, settings(config)))
            measure_checkpoints(config, corpus, store, tables, todo, name, stop)
    count = len(raw.keys() | set(todo))
    if processes.is_first():
        raw |= {step: results.read(tables / f"{step}.nc") for step in todo}
        join(run, dict(sorted(raw.items())), config.measure.nulls, attributes(config, corpus, name))
    print(f"{name}: {count} checkpoints measured ({len(todo)} now): {run / 'results.nc'}, {run / 'results.csv'}")


def is_outdated(table: xr.Dataset, store: checkpoint.Checkpoints) -> bool:
    """Whether a checkpoint that the table was made from has other parameters now; a table of old does not say."""
    made_from = json.loads(table.attrs.get("checkpoints", "{}"))
    return any(store.digest(int(step)) not in (None, digest) for step, digest in made_from.items())


def tell(name: str, outdated: list[int], stored: list[int], missing: list[int], config: Config) -> None:
    """What a reader of the tables should know before they are made."""
    for steps, what in (
        ([step for step in outdated if step in stored], "measured again, since a checkpoint has changed"),
        (
            [step for step in outdated if step not in stored],
            "compared with a checkpoint that has changed; its own is gone",
        ),
        (missing, "neither checkpoint nor table"),
    ):
        if steps:
            print(f"{name}: {what}: step{'s' * (len(steps) > 1)} {', '.join(map(str, steps))}")
    if 0 in missing and "untrained" in config.measure.nulls:
        print(f"{name}: without step 0 there is no excess over the untrained network")


def measure_checkpoints(
    config: Config,
    corpus: Corpus,
    store: checkpoint.Checkpoints,
    tables: pathlib.Path,
    todo: list[int],
    name: str,
    stop: Stop,
) -> None:
    try:
        measure = make_program(config, corpus, store.restore_params(todo[0]))
        references, picks_P = References(store, config), probe_of(config, corpus).picks_SGP[0, 0]
        for step in bar(todo, f"{name}: measure", "checkpoint"):
            stop.check(f"{name}: stopped before measuring step {step}")
            params = store.restore_params(step)
            values = references.without_itself(step, measure(params, references.of(step, params)))
            vectors = {name: values.pop(name) for name in projection.VECTORS if name in values}
            about = attributes(config, corpus, name) | {"checkpoints": json.dumps(references.digests(step))}
            table = results.table(values, step, about).assign(
                **references.recorded(step),
                **projection.labelled(vectors, picks_P, config.model.context, config.measure.projected_head),
            )
            if processes.is_first():
                results.write(table, tables / f"{step}.nc")
    except RunError as error:
        advice = "move it elsewhere to measure without it, or it and all later ones to train them again"
        raise RunError(f"{error}; {advice}") from error


def check(tables: pathlib.Path, config: Config, corpus: Corpus) -> None:
    """Raise UserError, before any work is done, where the run could not be measured later."""
    mesh.make_mesh(config.mesh)
    probe_of(config, corpus)
    folder.check_tables(tables, settings(config))


def settings(config: Config) -> dict:
    """What all tables of a run have in common, or they must not be joined."""
    families = config.measure.families
    chosen = {name: quantity for name, quantity in QUANTITIES.items() if quantity.family in families}
    vectors = dict.fromkeys(projection.VECTORS, projection.CHOICE) if "projection" in families else {}
    return {
        "measure": to_dict(config)["measure"],
        "formulas": {name: quantity.formula for name, quantity in chosen.items()} | vectors,
        "resampling": {name: quantity.resampling for name, quantity in chosen.items()},
        "coordinates": {name: list(values) for name, values in COORDINATES.items()},
    }


def probe_of(config: Config, corpus: Corpus) -> Probe:
    measure = config.measure
    return make_probe(corpus.valid, config.model.context, measure.points, measure.batches, measure.groups, measure.seed)


def make_program(config: Config, corpus: Corpus, params: dict):
    """measure(params, references) -> {quantity: array}: jitted once, in float32 whatever the run was trained in."""
    probe = probe_of(config, corpus)
    devices = mesh.make_mesh(config.mesh)
    # where batches cannot be shared out, windows are, but of that only the model's own work is less for each device
    by_batches, by_windows = (length % devices.size == 0 for length in probe.tokens_GWT.shape[:2])
    parts = P(mesh.AXES) if by_batches else P(None, mesh.AXES) if by_windows else P()
    split, whole = NamedSharding(devices, parts), NamedSharding(devices, P())
    probe = jax.device_put(probe, Probe(tokens_GWT=split, shuffled_GWT=split, picks_SGP=whole))
    shardings = mesh.parameter_sharding(devices, params)
    values = to_dict(config)
    values["model"] |= dict.fromkeys(idle(config.model), 0)  # of no effect, and no reason to compile again
    settings = json.dumps(values["model"]), json.dumps(values["measure"])
    compute = _computation(*settings, corpus.vocab_size, devices, by_batches)

    def measure(params: dict, references: dict[str, dict]) -> results.Arrays:
        params, references = jax.device_put((params, references), (shardings, dict.fromkeys(references, shardings)))
        return jax.device_get(compute(params, references, probe))

    return measure


@functools.cache
def _computation(
    model: str, measure: str, vocab_size: int, devices: jax.sharding.Mesh, by_batches: bool
) -> Callable[..., results.Arrays]:
    """The measurement of models and settings in JSON: runs of an experiment that share both compile it once."""
    config = from_dict(json.loads(model), ModelConfig)
    apply = transformer.build(config, vocab_size, "float32").apply
    settings, visible_TT = from_dict(json.loads(measure), MeasureConfig), visible_keys(config, config.context)
    over_batches = mesh.over_batches(devices) if by_batches and devices.size > 1 else lambda work: work
    whole = NamedSharding(devices, P())
    return jax.jit(make_measure(apply, visible_TT, settings, over_batches), out_shardings=whole)


def attributes(config: Config, corpus: Corpus, name: str) -> dict:
    """What every table says about where its numbers come from."""
    return {
        "run": name,
        "corpus": corpus.name,
        "corpus_sha256": corpus.sha256,
        "model": description(config.model),
        "objective": config.objective,
        "steps": config.train.steps,
        "seed": config.train.seed,
        "points": config.measure.points,
        "batches": config.measure.batches,
        "groups": config.measure.groups,
        "input": "validation windows, unmasked, model applied in float32",
        "config": json.dumps(dataclasses.asdict(config)),
    }


def join(run: pathlib.Path, raw: dict[int, xr.Dataset], nulls: tuple[str, ...], about: dict) -> None:
    """results.nc, results.csv and correlations.csv from the raw tables by step.

    They say of themselves what the run says now: the text may have moved since some of them were measured.
    """
    tables = [summary(table, raw.get(0), nulls) for table in raw.values()]
    whole = xr.concat(tables, "step", join="exact", data_vars="all", combine_attrs="override")
    whole = whole.assign(projection.over_training(raw))
    if all("previous_step" in table for table in raw.values()):
        whole["previous_step"] = xr.concat([table["previous_step"] for table in raw.values()], "step")
    whole.attrs = about
    results.write(whole, run / "results.nc")
    results.write_csv(results.tidy(whole), run / "results.csv")
    correlations.write({whole.attrs["run"]: whole}, run / "correlations.csv")
