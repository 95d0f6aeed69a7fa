"""What tests of activations share: the panel of a tiny model, measured once."""

import functools

import jax
import numpy as np

from anisoscope.config.measure_config import DEFAULT_FAMILIES, NULLS, MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.metrics import registry
from anisoscope.models.masks import visible_keys
from anisoscope.models.transformer import build
from anisoscope.sources import activations
from anisoscope.sources.evaluation_windows import add_types, make_probe

VOCAB, CONTEXT, POINTS, BATCHES, FOLDS = 31, 12, 96, 2, 4
# of a kind there are enough
TOKENS, KINDS_OF_TOKENS = np.random.default_rng(0).integers(0, VOCAB, 24 * CONTEXT), 4
PROBE = make_probe(TOKENS, CONTEXT, POINTS, BATCHES, FOLDS, 0)
OF_KINDS = PROBE._replace(tokens_GWT=PROBE.tokens_GWT // 8, shuffled_GWT=PROBE.shuffled_GWT // 8)
PROBE = PROBE._replace(types=add_types(OF_KINDS, TOKENS // 8, KINDS_OF_TOKENS).types)
FAMILIES, QUANTITIES, COORDINATES = DEFAULT_FAMILIES, registry.quantities(), registry.coordinates()
# rotary, so that layer 0 is full of copies
CONFIG = ModelConfig(layers=2, width=16, heads=2, context=CONTEXT, position_encoding="rotary")
MEASURED = {name for name in QUANTITIES if registry.find_family(name) in FAMILIES}


@functools.cache
def tiny():
    model = build(CONFIG, VOCAB, "float32")
    params = model.init(jax.random.key(0))
    # scores far from 0, a drift to be seen
    return jax.jit(model.apply), jax.tree.map(lambda leaf: 5 * leaf + 0.1, params)


def others():
    """Parameters of other checkpoints."""
    return {
        name: jax.tree.map(lambda leaf, by=by: leaf**2 * by + leaf, tiny()[1])
        for name, by in {"previous": 1.1, "last": 1.3}.items()
    }


def visible():
    return visible_keys(ModelConfig(), CONTEXT)


@functools.cache
def panel():
    settings = MeasureConfig(
        points=POINTS, batches=BATCHES, folds=FOLDS, families=FAMILIES, nulls=NULLS
    )
    visible_TT = np.asarray(visible())
    inner_TT = np.zeros_like(visible_TT)
    inner_TT[1:, 1:] = visible_TT[1:, 1:]
    batches = []
    for g in range(BATCHES):
        texts = PROBE.tokens_GWT[g], PROBE.shuffled_GWT[g]
        inputs = zip(*(activations_of(tokens)[:3] for tokens in texts), strict=True)
        types_Z = jax.tree.map(lambda x_G, g=g: x_G[g], PROBE.types)
        read = activations.BatchActivations(*map(np.stack, inputs), types_Z=types_Z)
        compared = {name: activations_of(texts[0], x).resid_LBTD for name, x in others().items()}
        sets = PROBE.picks_SGP[:, g], np.stack([visible_TT, inner_TT])
        batches.append(activations.measure_batch(g, read, compared, *sets, settings))
    return activations.join_batches(batches)


def of(cloud="measured"):
    return panel()[cloud]


def activations_of(tokens, params=None):
    apply, own = tiny()
    params = own if params is None else params
    return jax.tree.map(np.asarray, apply(params, tokens)[1])
