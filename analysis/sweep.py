"""Measure every checkpoint of a run with one compiled program; what is measured already is left alone."""

import dataclasses
import functools
import json
import pathlib
import sys
from collections.abc import Callable

import jax
import numpy as np
import xarray as xr
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from tqdm import tqdm

import models
import processes
from analysis import correlations, projection, results
from analysis.measure import make_measure
from analysis.probe import Probe, make_probe
from analysis.quantities import COORDINATES, QUANTITIES
from analysis.summary import summary
from data.corpus import Corpus
from errors import RunError, UserError
from experiments.base import Config, MeasureConfig, ModelConfig, from_dict, to_dict
from models.masks import visible_keys
from stop import Stop
from training import checkpoint, folder, mesh


def sweep(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """Write measurements/<step>.nc for every checkpoint on the schedule, then the tables of all of them (see `join`).

    Every table is written whole or not at all; raises Stopped between two of them.
    """
    tables = run / "measurements"
    folder.check_tables(tables, settings(config))
    kept = checkpoint.schedule(config.train.steps, config.checkpoint.every)
    store = checkpoint.Checkpoints(run / "checkpoints", kept)
    try:
        stored = store.steps()
        done = [step for step in kept if (tables / f"{step}.nc").exists()]
        todo = [step for step in kept if step in stored and step not in done]
        if not done + todo:
            raise UserError(f"{run / 'checkpoints'} holds no checkpoint to measure; run --stages=train first")
        processes.on_first(lambda: folder.record_tables(tables, settings(config)))
        if todo:
            measure = make_program(config, corpus, store.restore_params(todo[0]))
            references, picks_P = References(store, stored, config), probe_of(config, corpus).picks_SGP[0, 0]
            interval = 0.1 if sys.stderr.isatty() else 10.0
            quiet = not processes.is_first()
            for step in tqdm(todo, desc=f"{name}: measure", unit="checkpoint", mininterval=interval, disable=quiet):
                stop.check(f"{name}: stopped before measuring step {step}")
                params = store.restore_params(step)
                values = references.without_itself(step, measure(params, references.of(step, params)))
                vectors = {name: values.pop(name) for name in projection.VECTORS if name in values}
                table = results.table(values, step, attributes(config, corpus, name)).assign(
                    **references.recorded(step),
                    **projection.labelled(vectors, picks_P, config.model.context, config.measure.projected_head),
                )
                if processes.is_first():
                    results.write(table, tables / f"{step}.nc")
    except RunError as error:
        raise RunError(f"{error}; move it elsewhere to measure without it, or to train its step again") from error
    finally:
        store.close()
    steps = sorted(done + todo)
    if processes.is_first():
        join(run, steps, config.measure.nulls)
    print(f"{name}: {len(steps)} checkpoints measured ({len(todo)} now): {run / 'results.nc'}, {run / 'results.csv'}")


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


class References:
    """The parameters that a checkpoint is compared with: those before it, and the last of the run."""

    def __init__(self, store: checkpoint.Checkpoints, stored: list[int], config: Config):
        self.store, self.stored, self.kept = store, sorted(stored), None
        self.wanted = "comparison" in config.measure.families
        if self.wanted and config.train.steps not in stored:
            raise UserError(
                f"measure.families=comparison needs the checkpoint of the last step, {config.train.steps}; "
                "finish the training or leave that family out"
            )
        self.last = store.restore_params(config.train.steps) if self.wanted else None

    def of(self, step: int, params: dict) -> dict[str, dict]:
        if not self.wanted:
            return {}
        before = self.before(step)
        if self.kept is None or self.kept[0] != before:
            self.kept = before, params if before is None else self.store.restore_params(before)
        previous, self.kept = self.kept[1], (step, params)
        return {"previous": previous, "last": self.last}

    def before(self, step: int) -> int | None:
        return max((other for other in self.stored if other < step), default=None)

    def recorded(self, step: int) -> dict[str, xr.DataArray]:
        """The step that this one is compared with, where it is."""
        before = self.before(step)
        about = {"long_name": "step of the checkpoint that cka_previous and overlap_previous compare with; -1: none"}
        return {"previous_step": xr.DataArray(-1 if before is None else before, attrs=about)} if self.wanted else {}

    def without_itself(self, step: int, values: results.Arrays) -> results.Arrays:
        """The first checkpoint has none before it: NaN."""
        if self.before(step) is None:
            for name in ("cka_previous", "overlap_previous"):
                if name in values:
                    values[name] = np.full_like(values[name], np.nan)
        return values


def probe_of(config: Config, corpus: Corpus) -> Probe:
    measure = config.measure
    return make_probe(corpus.valid, config.model.context, measure.points, measure.batches, measure.groups, measure.seed)


def make_program(config: Config, corpus: Corpus, params: dict):
    """measure(params, references) -> {quantity: array}: jitted once, in float32 whatever the run was trained in."""
    probe = probe_of(config, corpus)
    devices = mesh.make_mesh(config.mesh)
    windows = P(None, ("data", "fsdp")) if probe.tokens_GWT.shape[1] % devices.size == 0 else P()
    split, whole = NamedSharding(devices, windows), NamedSharding(devices, P())
    probe = jax.device_put(probe, Probe(tokens_GWT=split, shuffled_GWT=split, picks_SGP=whole))
    shardings = mesh.parameter_sharding(devices, params)
    values = to_dict(config)
    if config.model.mask != "leak":
        values["model"]["leak_seed"] = 0  # of no effect, and no reason to compile again
    compute = _computation(json.dumps(values["model"]), json.dumps(values["measure"]), corpus.vocab_size)

    def measure(params: dict, references: dict[str, dict]) -> results.Arrays:
        params, references = jax.device_put((params, references), (shardings, dict.fromkeys(references, shardings)))
        return jax.device_get(compute(params, references, probe))

    return measure


@functools.cache
def _computation(model: str, measure: str, vocab_size: int) -> Callable[..., results.Arrays]:
    """The measurement of models and settings in JSON: runs of an experiment that share both compile it once."""
    config = from_dict(json.loads(model), ModelConfig)
    apply = models.build(config, vocab_size, "float32").apply
    return jax.jit(
        make_measure(apply, visible_keys(config, config.context), from_dict(json.loads(measure), MeasureConfig))
    )


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


def description(model: ModelConfig) -> str:
    """The model in words; what is as in GPT-2 goes without saying."""
    reach = {"prefix": model.prefix, "window": model.window, "leak": model.leak}.get(model.mask)
    words = [
        model.mask if reach is None else f"{model.mask} {reach:g}",
        f"{model.norm}-LN",
        f"{model.layers} layer{'s' * (model.layers > 1)}",
    ]
    words += [f"D={model.width}", f"H={model.heads}", f"T={model.context}"]
    words += [f"F={model.expansion}D"] * (model.expansion != 4) + [model.positions] * (model.positions != "learned")
    words += ["untied"] * (not model.tied) + ["no biases"] * (not model.bias)
    words += [model.attention] * (model.attention != "softmax") + ["query-key norm"] * model.qk_norm
    words += ["queries centred"] * model.centre_queries + ["sink"] * model.sink
    return ", ".join(words)


def join(run: pathlib.Path, steps: list[int], nulls: tuple[str, ...]) -> None:
    """results.nc, results.csv and correlations.csv from the tables of `steps`."""
    raw = {step: results.read(run / "measurements" / f"{step}.nc") for step in steps}
    tables = [summary(raw[step], raw.get(0), nulls) for step in steps]
    whole = xr.concat(tables, "step", join="exact", data_vars="all", combine_attrs="drop_conflicts")
    whole = whole.assign(projection.over_training(raw))
    if "previous_step" in raw[steps[0]]:
        whole["previous_step"] = xr.concat([raw[step]["previous_step"] for step in steps], "step")
    results.write(whole, run / "results.nc")
    temporary = run / "results.csv.tmp"
    results.tidy(whole).to_csv(temporary, index=False)
    temporary.replace(run / "results.csv")
    correlations.write({whole.attrs["run"]: whole}, run / "correlations.csv")
