"""What tests of activations share: the panel of a tiny model, measured once for each choice of
settings.
"""

import functools

import jax
import numpy as np

from anisoscope.config.measure_config import DEFAULT_FAMILIES, NULLS, MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.measurement.families import registry as families
from anisoscope.models.masks import visible_keys
from anisoscope.models.transformer import build, unembedding
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


def tiny(mask):
    """Rotary, so that layer 0 is full of copies."""
    config = ModelConfig(
        layers=2, width=16, heads=2, context=CONTEXT, mask=mask, position_encoding="rotary"
    )
    model = build(config, VOCAB, "float32")
    params = model.init(jax.random.key(0))
    # scores far from 0, a drift to be seen
    return model.apply, jax.tree.map(lambda leaf: 5 * leaf + 0.1, params)


def program(mask, families=FAMILIES, nulls=NULLS, folds=FOLDS, over_clouds=jax.lax.map):
    apply, params = tiny(mask)
    sizes = {"points": POINTS, "batches": BATCHES, "folds": folds, "projected_head": 1}
    settings = MeasureConfig(families=families, nulls=nulls, **sizes)
    others = {"previous": 1.1, "last": 1.3} if "comparison" in families else {}
    others = {
        name: jax.tree.map(lambda leaf, by=by: leaf**2 * by + leaf, params)
        for name, by in others.items()
    }
    return made(apply, settings, over_clouds), params, others


def made(apply, settings, over_clouds=jax.lax.map):
    """measure(params, others, probe, visible_TT)."""
    options = {"settings": settings, "over_clouds": over_clouds}
    options["unembedding"] = functools.partial(unembedding, ModelConfig())
    return lambda params, others, probe, visible_TT: run_program.measure_probe(
        apply, params, others, probe, settings.seed, visible_TT, **options
    )


def visible(mask):
    return visible_keys(ModelConfig(mask=mask), CONTEXT)


@functools.cache
def measured(mask, families=FAMILIES, nulls=NULLS, folds=FOLDS):
    measure, *params = program(mask, families, nulls, folds)
    return jax.tree.map(np.asarray, jax.jit(measure)(*params, PROBE, visible(mask)))


def of(mask, cloud="measured", *settings):
    return measured(mask, *settings).values[cloud]


def activations_of(mask, tokens):
    apply, params = tiny(mask)
    return jax.tree.map(np.asarray, jax.jit(apply)(params, tokens)[1])
