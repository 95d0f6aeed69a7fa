"""The program that measures the checkpoints of a run: compiled once for all of them, and spread over the devices."""

import dataclasses
import functools
from collections.abc import Callable

import jax
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from data.corpus import Corpus
from experiments.config import Config
from models import transformer
from models.config import ModelConfig
from models.masks import idle, seeds, visible_keys
from panel.config import MeasureConfig
from sources.activations import Measured, make_measure
from sources.probe import POSITION_SETS, Probe, make_probe
from workdir import mesh


def probe_of(config: Config, corpus: Corpus) -> Probe:
    measure = config.measure
    return make_probe(corpus.valid, config.model.context, measure.points, measure.batches, measure.groups, measure.seed)


def make_program(config: Config, corpus: Corpus, params: dict) -> Callable[[dict, dict[str, dict]], Measured]:
    """measure(params, references) -> Measured, in NumPy: jitted once, in float32 whatever the run was trained in."""
    probe, shared = probe_of(config, corpus), mesh.measuring_mesh(config.measure.batches, len(POSITION_SETS))
    if shared is not None:
        devices, parts = shared, P(mesh.UNITS[0])
        shardings = jax.tree.map(lambda _: NamedSharding(devices, P()), params)
    else:  # windows may be shared out: of that only the model's own work is less for each device
        devices = mesh.make_mesh(config.mesh)
        parts = P(None, mesh.AXES) if probe.tokens_GWT.shape[1] % devices.size == 0 else P()
        shardings = mesh.parameter_sharding(devices, params)
    split, whole = NamedSharding(devices, parts), NamedSharding(devices, P())
    probe = jax.device_put(probe, Probe(tokens_GWT=split, shuffled_GWT=split, picks_SGP=whole))
    without_effect = [name for name in seeds() if name in idle(config.model)]  # are no reason to compile again
    model = dataclasses.replace(config.model, **dict.fromkeys(without_effect, 0))
    compute = _computation(model, config.measure, corpus.vocab_size, devices, shared is not None)

    def measure(params: dict, references: dict[str, dict]) -> Measured:
        params, references = jax.device_put((params, references), (shardings, dict.fromkeys(references, shardings)))
        return jax.device_get(compute(params, references, probe))

    return measure


@functools.cache
def _computation(
    model: ModelConfig, settings: MeasureConfig, vocab_size: int, devices: jax.sharding.Mesh, by_units: bool
) -> Callable[..., Measured]:
    """Runs of an experiment that share model and settings compile it once."""
    apply = transformer.build(model, vocab_size, "float32").apply
    over_units = mesh.over_units(devices) if by_units and devices.size > 1 else lambda work: work
    measure = make_measure(apply, visible_keys(model, model.context), settings, over_units)
    return jax.jit(measure, out_shardings=NamedSharding(devices, P()))
