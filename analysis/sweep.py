"""Measure every checkpoint of a run with one compiled program; what is measured already is left alone."""

import dataclasses
import json
import pathlib
import sys

import jax
import xarray as xr
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P
from tqdm import tqdm

import models
import processes
from analysis import results
from analysis.measure import make_measure
from analysis.probe import Probe, make_probe
from analysis.quantities import QUANTITIES
from data.corpus import Corpus
from errors import RunError, UserError
from experiments.base import Config, ModelConfig, to_dict
from stop import Stop
from training import checkpoint, folder, mesh

RECORD = "config.json"


def sweep(config: Config, corpus: Corpus, run: pathlib.Path, name: str, stop: Stop) -> None:
    """Write measurements/<step>.nc for every checkpoint on the schedule, then results.nc and results.csv.

    Every table is written whole or not at all; raises Stopped between two of them.
    """
    tables = run / "measurements"
    check_settings(tables, config)
    kept = checkpoint.schedule(config.train.steps, config.checkpoint.every)
    store = checkpoint.Checkpoints(run / "checkpoints", kept)
    try:
        stored = store.steps()
        done = [step for step in kept if (tables / f"{step}.nc").exists()]
        todo = [step for step in kept if step in stored and step not in done]
        if not done + todo:
            raise UserError(f"{run / 'checkpoints'} holds no checkpoint to measure; run --stages=train first")
        processes.on_first(lambda: record_settings(tables, config))
        if todo:
            measure = make_program(config, corpus, store.restore_params(todo[0]))
            interval = 0.1 if sys.stderr.isatty() else 10.0
            quiet = not processes.is_first()
            for step in tqdm(todo, desc=f"{name}: measure", unit="checkpoint", mininterval=interval, disable=quiet):
                stop.check(f"{name}: stopped before measuring step {step}")
                table = results.table(measure(store.restore_params(step)), step, attributes(config, corpus, name))
                if processes.is_first():
                    results.write(table, tables / f"{step}.nc")
    except RunError as error:
        raise RunError(f"{error}; move it elsewhere to measure without it, or to train its step again") from error
    finally:
        store.close()
    steps = sorted(done + todo)
    if processes.is_first():
        join(run, steps)
    print(f"{name}: {len(steps)} checkpoints measured ({len(todo)} now): {run / 'results.nc'}, {run / 'results.csv'}")


def check(tables: pathlib.Path, config: Config, corpus: Corpus) -> None:
    """Raise UserError, before any work is done, where the run could not be measured later."""
    mesh.make_mesh(config.mesh)
    probe_of(config, corpus)
    check_settings(tables, config)


def check_settings(tables: pathlib.Path, config: Config) -> None:
    """Raise UserError where tables were measured with other settings or by other formulas."""
    if any(tables.glob("*.nc")):
        folder.check_same(tables / RECORD, settings(config), (), f"move {tables} away to measure again")


def record_settings(tables: pathlib.Path, config: Config) -> None:
    tables.mkdir(parents=True, exist_ok=True)
    folder.write_atomically(tables / RECORD, json.dumps(settings(config), indent=2) + "\n")


def settings(config: Config) -> dict:
    """What all tables of a run have in common, or they must not be joined."""
    families = config.measure.families
    formulas = {name: quantity.formula for name, quantity in QUANTITIES.items() if quantity.family in families}
    return {"measure": to_dict(config)["measure"], "formulas": formulas}


def probe_of(config: Config, corpus: Corpus) -> Probe:
    measure = config.measure
    return make_probe(corpus.valid, config.model.context, measure.points, measure.batches, measure.seed)


def make_program(config: Config, corpus: Corpus, params: dict):
    """measure(params) -> {quantity: array}: jitted once, in float32 whatever the run was trained in."""
    model = models.build(config.model, corpus.vocab_size, "float32")
    probe = probe_of(config, corpus)
    devices = mesh.make_mesh(config.mesh)
    windows = P(None, ("data", "fsdp")) if probe.tokens_GWT.shape[1] % devices.size == 0 else P()
    tokens_GWT = jax.device_put(probe.tokens_GWT, NamedSharding(devices, windows))
    picks_SGP = jax.device_put(probe.picks_SGP, NamedSharding(devices, P()))
    shardings = mesh.parameter_sharding(devices, params)
    measure = make_measure(model.apply, config.model.mask, config.measure.families)
    compute = jax.jit(measure, out_shardings=NamedSharding(devices, P()))
    return lambda params: jax.device_get(compute(jax.device_put(params, shardings), tokens_GWT, picks_SGP))


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
        "input": "validation windows, unmasked, model applied in float32",
        "config": json.dumps(dataclasses.asdict(config)),
    }


def description(model: ModelConfig) -> str:
    """The model in words; what is as in GPT-2 goes without saying."""
    words = [model.mask, f"{model.norm}-LN", f"{model.layers} layer{'s' * (model.layers > 1)}"]
    words += [f"D={model.width}", f"H={model.heads}", f"T={model.context}"]
    words += [f"F={model.expansion}D"] * (model.expansion != 4) + [model.positions] * (model.positions != "learned")
    words += ["untied"] * (not model.tied) + ["no biases"] * (not model.bias)
    return ", ".join(words)


def join(run: pathlib.Path, steps: list[int]) -> None:
    """results.nc and results.csv from the tables of `steps`."""
    whole = xr.concat([results.read(run / "measurements" / f"{step}.nc") for step in steps], "step", join="exact")
    results.write(whole, run / "results.nc")
    temporary = run / "results.csv.tmp"
    results.tidy(whole).to_csv(temporary, index=False)
    temporary.replace(run / "results.csv")
