import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments.config import Config
from models import transformer
from models.config import ModelConfig
from training import objective

MASK = 20


def windows(rows: int, length: int) -> jax.Array:
    return jax.random.randint(jax.random.key(3), (rows, length), 0, MASK, jnp.int32)


def config(kind: str, context: int) -> Config:
    return Config(model=ModelConfig(context=context), objective=kind)


def test_next_character_shifts_by_one_and_counts_every_position():
    windows_BL = windows(2, 5)
    batch = objective.make_batch(config("next", 4), windows_BL, jax.random.key(0), jnp.arange(2), MASK)
    np.testing.assert_array_equal(batch.tokens_BT, windows_BL[:, :4])
    np.testing.assert_array_equal(batch.targets_BT, windows_BL[:, 1:])
    assert (batch.weights_BT == 1).all()


def test_masked_character_follows_the_rule_15_80_10_10():
    windows_BL = windows(400, 257)
    batch = objective.make_batch(config("masked", 256), windows_BL, jax.random.key(1), jnp.arange(400), MASK)
    tokens, targets, chosen = (np.asarray(x) for x in batch)
    chosen = chosen == 1
    np.testing.assert_array_equal(targets, windows_BL[:, :-1])
    np.testing.assert_array_equal(tokens[~chosen], targets[~chosen])
    n = chosen.sum()
    masked = (tokens == MASK)[chosen].mean()
    changed = ((tokens != MASK) & (tokens != targets))[chosen].mean()
    assert abs(chosen.mean() - 0.15) < 4 * np.sqrt(0.15 * 0.85 / chosen.size)
    assert abs(masked - 0.8) < 4 * np.sqrt(0.8 * 0.2 / n)
    assert abs(changed - 0.1 * (1 - 1 / MASK)) < 4 * np.sqrt(0.1 * 0.9 / n)


def test_masks_depend_on_the_global_example_index_alone():
    windows_BL = windows(6, 33)
    whole = objective.make_batch(config("masked", 32), windows_BL, jax.random.key(1), jnp.arange(6), MASK)
    part = objective.make_batch(config("masked", 32), windows_BL[4:], jax.random.key(1), jnp.arange(4, 6), MASK)
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[4:], b)


def test_unselected_positions_cannot_move_the_loss():
    windows_BL = windows(4, 17)
    batch = objective.make_batch(config("masked", 16), windows_BL, jax.random.key(1), jnp.arange(4), MASK)
    logits = jax.random.normal(jax.random.key(2), (4, 16, MASK + 1))
    grads = np.asarray(jax.grad(objective.nats)(logits, batch))
    assert (grads[np.asarray(batch.weights_BT) == 0] == 0).all()
    assert (np.abs(grads[np.asarray(batch.weights_BT) == 1]).sum(-1) > 0).all()


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary():
    batch = objective.next_character(windows(3, 9), np.ones(8, np.float32))
    np.testing.assert_allclose(objective.nats(jnp.zeros((3, 8, 21)), batch), 24 * np.log(21), rtol=1e-6)


MASKS = {
    "causal": {"mask": "causal"},
    "bidirectional": {"mask": "bidirectional"},
    "prefix": {"mask": "prefix", "prefix": 4},
    "window": {"mask": "window", "window": 3},
    "leak": {"mask": "leak", "leak": 0.05, "leak_seed": 3},
    "leak_with_all": {"mask": "leak", "leak": 0.05, "centre_queries": True, "qk_norm": True, "sink": True},
}


DEPTHS = {"causal": [2], "bidirectional": [1], "prefix": [1, 3], "window": [3], "leak": [1, 2, 4], "leak_with_all": [2]}


@pytest.mark.parametrize(("mask", "layers"), [(mask, layers) for mask in MASKS for layers in DEPTHS[mask]])
def test_exactly_the_logits_that_the_target_cannot_change_are_scored(mask, layers):
    """Another character in the target's place leaves a scored logit bitwise alone, and moves one that is not scored."""
    model_config = ModelConfig(layers=layers, width=16, heads=2, context=10, dtype="float32", **MASKS[mask])
    model = transformer.build(model_config, MASK)
    params = jax.tree.map(  # kernels large enough for every path to show, attention far from saturated
        lambda leaf: jnp.where(leaf == 1, 1.0, 5.0 * leaf), jax.jit(model.init)(jax.random.key(0))
    )
    tokens_T = windows(1, 10)[0]
    others_BT = jnp.stack([tokens_T, *(tokens_T.at[t].set((tokens_T[t] + 1) % MASK) for t in range(1, 10))])
    logits_BTV = np.asarray(jax.jit(model.apply)(params, others_BT)[0])
    kept_T = [(logits_BTV[t + 1, t] == logits_BTV[0, t]).all() for t in range(9)]
    scored_T = objective.scored_positions(Config(model=model_config))
    np.testing.assert_array_equal(scored_T[:-1] == 1, kept_T)
    assert scored_T[-1] == 1  # its target lies outside of the window


def test_a_prefix_leaves_the_targets_after_it():
    config = Config(model=ModelConfig(context=8, mask="prefix", prefix=3))
    batch = objective.make_batch(config, windows(2, 9), jax.random.key(0), jnp.arange(2), MASK)
    np.testing.assert_array_equal(batch.weights_BT, [[0, 0, 1, 1, 1, 1, 1, 1]] * 2)
    masked = dataclasses.replace(config, objective="masked")
    assert (objective.scored_positions(masked) == 1).all()


@pytest.mark.parametrize(("layers", "chosen"), [((), (1, 2, 3)), ((0, 2), (0, 2))])
def test_anisotropy_is_one_minus_the_mean_isoscore(layers, chosen):
    resid_NBTD = np.asarray(jax.random.normal(jax.random.key(0), (4, 3, 50, 6))) * np.arange(1, 7) + 5.0
    spectra = [np.linalg.eigvalsh(np.cov(resid_NBTD[n].reshape(-1, 6), rowvar=False)) for n in chosen]
    scores = [(values_E.sum() ** 2 / (values_E**2).sum() - 1) / 5 for values_E in spectra]
    np.testing.assert_allclose(objective.anisotropy(jnp.asarray(resid_NBTD), layers), 1 - np.mean(scores), rtol=1e-5)


def test_anisotropy_is_0_for_a_sphere_and_1_for_a_line_and_has_a_gradient():
    axes_PD = jnp.concatenate([jnp.eye(4), -jnp.eye(4)])
    line_PD = axes_PD * jnp.array([1.0, 0.0, 0.0, 0.0])[None]
    for cloud_PD, value in ((axes_PD, 0.0), (line_PD, 1.0)):
        np.testing.assert_allclose(objective.anisotropy(cloud_PD[None, None], (0,)), value, atol=1e-6)
    x_PD = axes_PD * jnp.array([3.0, 1.0, 1.0, 1.0])[None]
    step = jax.grad(lambda x: objective.anisotropy(x[None, None], (0,)))(x_PD)
    assert objective.anisotropy((x_PD - 0.1 * step)[None, None], (0,)) < objective.anisotropy(x_PD[None, None], (0,))
