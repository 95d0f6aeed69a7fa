"""What an experiment will take, before it is run: parameters, disk, memory, and roughly how long.

The time is floating-point operations over a speed that is measured here in a fraction of a second. Shares and weights
were measured on two CPU cores (docs/reference/speed.md, dev/LOG.md); on other machines they are a guess.
"""

import os
from collections.abc import Iterator
from typing import NamedTuple

import jax

from anisoscope.cli import memory
from anisoscope.config.experiment import Config
from anisoscope.config.run import schedule
from anisoscope.data.corpus import Corpus
from anisoscope.measurement.expected import ATTENTION, FAMILY, GAUSSIAN, MEASURED, PAIRS, SEARCH, SORTING
from anisoscope.measurement.nulls import DRAWS, PERMUTATIONS, PERMUTED
from anisoscope.training.objective import OBJECTIVES
from anisoscope.utils.memory import available, format_bytes
from anisoscope.utils.speed import duration, speed

SHARE = 0.32  # of a large product's speed that training reaches
COMPILING, DRAWING = {"train": 12.0, "measure": 28.0, "tangents": 40.0}, 18.0  # seconds
TABLE = 60_000  # bytes of a layer's values at a checkpoint


class Text(NamedTuple):
    """As far as costs go."""

    vocabulary: int = 206  # enwik8's bytes and [MASK]
    test: int = 5_000_000  # characters of the test split


def size_of(corpus: Corpus) -> Text:
    return Text(corpus.vocab_size, corpus.test.size)


class Cost(NamedTuple):
    parameters: int
    checkpoints: int
    disk: int  # bytes
    training: float  # floating-point operations
    measuring: float
    tangents: float
    memory: int  # bytes at the fullest


def of_run(config: Config, text: Text) -> Cost:
    model, train = config.model, config.train
    params, state = memory.state_bytes(config, text.vocabulary)
    saved, objective = schedule(train.steps, config.checkpoint.every), OBJECTIVES[config.objective]
    kept = len(saved)
    stride, _ = objective.test_stride(model, config.evaluate.stride)
    draws = config.evaluate.draws if objective.drawn else 1
    between = sum(step % config.evaluate.every > 0 for step in saved)
    validations = train.steps // config.evaluate.every + 1 + between
    validated = validations * draws * config.evaluate.windows * model.context
    scored = validated + text.test // stride * model.context  # forward alone: a third
    tokens = train.steps * train.batch_size * model.context * (4 / 3 if model.remat else 1) + scored / 3
    block = (4 + 2 * model.expansion) * model.width**2
    per_token = 6 * (model.layers * block + model.width * text.vocabulary)
    per_token += 12 * model.layers * model.context * model.width
    tables = kept * (model.layers + 1) * len(config.measure.families) * TABLE
    needed = [memory.training(config, text.vocabulary), memory.measuring(config)]
    needed += [memory.tangents(config, text.vocabulary)] * config.tangents.enabled
    fullest = max(sum(one.values()) for one in needed)
    training, measuring = tokens * per_token, kept * _checkpoint(config)
    tangents = kept * _tangents(config, per_token) if config.tangents.enabled else 0.0
    return Cost(params // memory.FLOAT, kept, kept * state + tables, training, measuring, tangents, fullest)


def _checkpoint(config: Config) -> float:
    """Operations that measuring one takes."""
    model, measure = config.model, config.measure
    inputs, layers = 1 + ("shuffled" in measure.nulls), model.layers + 1
    searched = max((SEARCH.get(family, 0.0) for family in measure.families), default=0.0)
    layers += model.layers * len(measure.hook_points)
    products = layers * inputs * (searched + sum(FAMILY.get(family, 0.0) for family in measure.families))
    if "gaussian" in measure.nulls and searched:
        products += layers * DRAWS * (GAUSSIAN + searched)
    layers = model.layers + 1
    compared = 1 + PERMUTATIONS * (PERMUTED in measure.nulls)
    searches = SEARCH["comparison"] * (compared - 1) * layers
    products += layers**2 * compared * sum(PAIRS.get(family, 0.0) for family in measure.families)
    products += searches * ("comparison" in measure.families)
    products += layers * sum(MEASURED.get(family, 0.0) for family in measure.families)
    of_heads = sum(family in measure.families for family in ("attention", "sinks"))
    products += model.layers * inputs * ATTENTION * model.context / 256 * of_heads
    clouds = 2 * measure.batches  # twice: with and without token 0
    return clouds * products * 2 * measure.points**2 * max(model.width, SORTING)


def _tangents(config: Config, per_token: float) -> float:
    """Operations of a checkpoint: passes over the windows, semi-NMF, and random subspaces beside 10."""
    tangents, width, layers = config.tangents, config.model.width, config.model.layers + 1
    passes = 4 / 3 * tangents.windows * config.model.context * per_token
    factors = tangents.restarts * tangents.rounds * 4 * tangents.points * width
    controls = 10 * tangents.controls * 40 * width**2
    return passes + layers * sum(tangents.ranks) * (factors + controls)


def seconds(costs: dict[str, Cost], stages: list[str], units: int, per_second: float) -> dict[str, float]:
    """Of each stage; measuring goes on as many cores as there are units of it."""
    cores = os.cpu_count() or 1
    busy = min(units, cores) / cores if jax.default_backend() == "cpu" else 1.0
    taken = {
        "train": len(costs) * COMPILING["train"] + sum(one.training for one in costs.values()) / (per_second * SHARE),
        "measure": COMPILING["measure"] + sum(one.measuring for one in costs.values()) / (per_second * busy),
        "figures": DRAWING,
    }
    if work := sum(one.tangents for one in costs.values()):
        taken["tangents"] = COMPILING["tangents"] + work / (per_second * SHARE)
    return {stage: taken[stage] for stage in taken if stage in stages}


def summary(costs: dict[str, Cost], stages: list[str], units: int) -> str:
    each = seconds(costs, stages, units, speed())
    if not each:
        return "not known beforehand"
    parts = ", ".join(f"{stage} {duration(taken)}" for stage, taken in each.items())
    return f"roughly {duration(sum(each.values()))} on this machine ({parts})"


def plan(configs: dict[str, Config], costs: dict[str, Cost], stages: list[str]) -> str:
    first, one = next(iter(configs.values())), next(iter(costs.values()))
    count = first.train.steps
    steps = len({config.train.steps for config in configs.values()}) == 1 and f"{count:,} step{'s' * (count != 1)}"
    words = {
        "train": f"train {f'{len(configs)} runs' if len(configs) > 1 else 'a run'} of {steps or 'several lengths'}",
        "measure": f"measure {one.checkpoints:,} checkpoints{' of each' if len(configs) > 1 else ''}",
        "tangents": "fit and test activation subspaces",
        "matched": "read loss-matched contrasts (its time is not counted)",
        "export": "export Hugging Face folders (its time is not counted)",
        "figures": "draw figures",
    }
    return ", ".join(word for stage, word in words.items() if stage in stages)


def format_costs(configs: dict[str, Config], text: Text, stages: list[str], units: int) -> Iterator[str]:
    costs = {name: of_run(config, text) for name, config in configs.items()}
    yield f"plan: {plan(configs, costs, stages)}"
    for name, one in costs.items():
        train = configs[name].train
        what = f"{one.parameters:,} parameters; {train.steps:,} steps of {train.batch_size:,} windows"
        yield f"{name + ': ' if name else ''}{what}; {one.checkpoints:,} checkpoints kept and measured"
    disk, most = sum(one.disk for one in costs.values()), max(one.memory for one in costs.values())
    there = available()
    yield f"disk: about {format_bytes(disk)} for checkpoints, tables and figures"
    yield f"memory: about {format_bytes(most)} at the fullest" + (f", {format_bytes(there)} available" if there else "")
    yield f"time: {summary(costs, stages, units)}"
