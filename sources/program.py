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
from sources.probe import Probe, make_probe
from workdir import mesh


def probe_of(config: Config, corpus: Corpus) -> Probe:
    measure = config.measure
    return make_probe(corpus.valid, config.model.context, measure.points, measure.batches, measure.groups, measure.seed)


def make_program(config: Config, corpus: Corpus, params: dict) -> Callable[[dict, dict[str, dict]], Measured]:
    """measure(params, references) -> Measured, in NumPy: jitted once, in float32 whatever the run was trained in."""
    probe = probe_of(config, corpus)
    devices = mesh.make_mesh(config.mesh)
    # where batches cannot be shared out, windows are, but of that only the model's own work is less for each device
    by_batches, by_windows = (length % devices.size == 0 for length in probe.tokens_GWT.shape[:2])
    parts = P(mesh.AXES) if by_batches else P(None, mesh.AXES) if by_windows else P()
    split, whole = NamedSharding(devices, parts), NamedSharding(devices, P())
    probe = jax.device_put(probe, Probe(tokens_GWT=split, shuffled_GWT=split, picks_SGP=whole))
    shardings = mesh.parameter_sharding(devices, params)
    without_effect = [name for name in seeds() if name in idle(config.model)]  # are no reason to compile again
    model = dataclasses.replace(config.model, **dict.fromkeys(without_effect, 0))
    compute = _computation(model, config.measure, corpus.vocab_size, devices, by_batches)

    def measure(params: dict, references: dict[str, dict]) -> Measured:
        params, references = jax.device_put((params, references), (shardings, dict.fromkeys(references, shardings)))
        return jax.device_get(compute(params, references, probe))

    return measure


@functools.cache
def _computation(
    model: ModelConfig, settings: MeasureConfig, vocab_size: int, devices: jax.sharding.Mesh, by_batches: bool
) -> Callable[..., Measured]:
    """Runs of an experiment that share model and settings compile it once."""
    apply = transformer.build(model, vocab_size, "float32").apply
    over_batches = mesh.over_batches(devices) if by_batches and devices.size > 1 else lambda work: work
    measure = make_measure(apply, visible_keys(model, model.context), settings, over_batches)
    return jax.jit(measure, out_shardings=NamedSharding(devices, P()))
