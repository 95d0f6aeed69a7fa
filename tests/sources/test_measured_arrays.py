import dataclasses
import functools

import jax
import numpy as np
import pytest

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.model_config import ModelConfig
from anisoscope.models.masks import visible_keys
from anisoscope.models.transformer import build
from anisoscope.sources import activations, run_program
from anisoscope.sources.evaluation_windows import make_probe

VOCAB, CONTEXT = 31, 12
SETTINGS = MeasureConfig(points=96, batches=2, folds=4)
PROBE = make_probe(np.random.default_rng(0).integers(0, VOCAB, 24 * CONTEXT), CONTEXT, 96, 2, 4, 0)


@pytest.mark.slow
@pytest.mark.parametrize("families", [("similarity", "projection"), ("leading", "attention")])
def test_activations_from_elsewhere_are_measured_as_those_of_our_own_models(families):
    """Batch by batch and from arrays, or fused with the model: the same numbers."""
    settings = dataclasses.replace(SETTINGS, families=families)
    model = build(
        ModelConfig(layers=2, width=16, heads=2, context=CONTEXT, mask="causal"), VOCAB, "float32"
    )
    params = jax.tree.map(lambda leaf: 5 * leaf + 0.1, model.init(jax.random.key(0)))
    visible_TT = visible_keys(ModelConfig(mask="causal"), CONTEXT)
    spec = activations.Spec(run_program.make_activate(model.apply, settings), settings)
    fused = jax.jit(functools.partial(activations.measure_batches, spec))
    whole = jax.device_get(
        fused(
            params,
            {},
            run_program.probe_batches(
                PROBE, activations.batch_keys(settings.seed, settings.batches), visible_TT
            ),
        )
    )

    # no further hook points
    apply = jax.jit(lambda params, tokens: tuple(model.apply(params, tokens)[1][:3]))
    both_TT = np.array([visible_TT, visible_TT.at[0].set(False).at[:, 0].set(False)])
    found = []
    for g in range(settings.batches):
        inputs = [
            apply(params, tokens_GWT[g]) for tokens_GWT in (PROBE.tokens_GWT, PROBE.shuffled_GWT)
        ]
        read = activations.Read(*(np.stack(parts) for parts in zip(*inputs, strict=True)))
        found.append(
            activations.measure_batch(g, read, {}, PROBE.picks_SGP[:, g], both_TT, settings)
        )
    jax.tree.map(
        lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5),
        activations.join_batches(found),
        whole,
    )
