"""What tests of activations share: the panel of a tiny model, measured once."""

import functools

import jax
import numpy as np

from anisoscope.config.measure_config import DEFAULT_FAMILIES, NULLS, MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.measurement.families import registry as families
from anisoscope.models.masks import visible_keys
from anisoscope.models.transformer import build
from anisoscope.sources import run_program
from anisoscope.sources.evaluation_windows import add_types, make_probe

VOCAB, CONTEXT, POINTS, BATCHES, FOLDS = 31, 12, 96, 2, 4
# of a kind there are enough
TOKENS, KINDS_OF_TOKENS = np.random.default_rng(0).integers(0, VOCAB, 24 * CONTEXT), 4
PROBE = make_probe(TOKENS, CONTEXT, POINTS, BATCHES, FOLDS, 0)
OF_KINDS = PROBE._replace(tokens_GWT=PROBE.tokens_GWT // 8, shuffled_GWT=PROBE.shuffled_GWT // 8)
PROBE = PROBE._replace(types=add_types(OF_KINDS, TOKENS // 8, KINDS_OF_TOKENS).types)
FAMILIES, QUANTITIES, COORDINATES = DEFAULT_FAMILIES, families.quantities(), families.coordinates()
MEASURED = {name for name in QUANTITIES if families.find_family(name) in FAMILIES}


@functools.cache
def tiny():
    """Rotary, so that layer 0 is full of copies."""
    config = ModelConfig(layers=2, width=16, heads=2, context=CONTEXT, position_encoding="rotary")
    model = build(config, VOCAB, "float32")
    params = model.init(jax.random.key(0))
    # scores far from 0, a drift to be seen
    return jax.jit(model.apply), jax.tree.map(lambda leaf: 5 * leaf + 0.1, params)


def program(families=FAMILIES, nulls=NULLS, over_clouds=jax.lax.map):
    """measure(params, others, probe, visible_TT), params and others."""
    apply, params = tiny()
    sizes = {"points": POINTS, "batches": BATCHES, "folds": FOLDS}
    settings = MeasureConfig(families=families, nulls=nulls, **sizes)
    others = {
        name: jax.tree.map(lambda leaf, by=by: leaf**2 * by + leaf, params)
        for name, by in {"previous": 1.1, "last": 1.3}.items()
    }

    def measure(params, others, probe, visible_TT):
        arguments = params, others, probe, settings.seed, visible_TT
        return run_program.measure_probe(
            apply, *arguments, settings=settings, over_clouds=over_clouds
        )

    return measure, params, others


def visible():
    return visible_keys(ModelConfig(), CONTEXT)


@functools.cache
def panel():
    measure, *params = program()
    return jax.tree.map(np.asarray, jax.jit(measure)(*params, PROBE, visible())).values


def of(cloud="measured"):
    return panel()[cloud]


def activations_of(tokens):
    apply, params = tiny()
    return jax.tree.map(np.asarray, apply(params, tokens)[1])
