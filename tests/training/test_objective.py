import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.experiment_config import Config
from anisoscope.config.model_config import ModelConfig
from anisoscope.models import transformer
from anisoscope.training import objective

MASK = 20
make_batch = jax.jit(objective.make_batch, static_argnums=(0, 4))
anisotropy = jax.jit(objective.anisotropy_penalty, static_argnums=1)


def windows(rows: int, length: int) -> np.ndarray:
    return np.random.default_rng(3).integers(MASK, size=(rows, length), dtype=np.int32)


def config(kind: str, context: int) -> Config:
    return Config(model=ModelConfig(context=context), objective=kind)


@pytest.mark.parametrize("prefix", [0, 3])
def test_next_character_shifts_by_one_and_counts_every_position_after_a_prefix(prefix):
    settings = {"mask": "prefix", "prefix": prefix} if prefix else {}
    config, windows_BL = Config(model=ModelConfig(context=8, **settings)), windows(2, 9)
    batch = make_batch(config, windows_BL, jax.random.key(0), np.arange(2), MASK)
    np.testing.assert_array_equal(batch.tokens_BT, windows_BL[:, :-1])
    np.testing.assert_array_equal(batch.targets_BT, windows_BL[:, 1:])
    np.testing.assert_array_equal(batch.weights_BT, [np.arange(8) >= prefix - 1] * 2)
    assert (objective.masked_positions(config.model) == 1).all()


def test_masked_character_follows_the_rule_15_80_10_10():
    windows_BL = windows(400, 257)
    batch = make_batch(config("masked", 256), windows_BL, jax.random.key(1), np.arange(400), MASK)
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
    whole = make_batch(config("masked", 32), windows_BL, jax.random.key(1), np.arange(6), MASK)
    part = make_batch(
        config("masked", 32), windows_BL[4:], jax.random.key(1), np.arange(4, 6), MASK
    )
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[4:], b)


LEAK = {"mask": "leak", "leak": 0.05}
CASES = [(2, {"mask": "causal"}), (2, LEAK | {"leak_seed": 3})]
CASES += [(2, LEAK | {"center_queries": True, "qk_norm": True, "sink": True})]


@pytest.mark.parametrize(("layers", "mask"), CASES, ids=str)
def test_exactly_the_logits_that_the_target_cannot_change_are_scored(layers, mask):
    """Another character in the target's place leaves a scored logit bitwise alone, and moves one
    that is not scored.
    """
    sizes = {"width": 16, "heads": 2, "context": 10, "dtype": "float32"}
    model_config = ModelConfig(layers=layers, **sizes, **mask)
    model = transformer.build(model_config, MASK)

    @jax.jit
    # kernels large enough for every path to show, attention far from saturated
    def logits(key, tokens_BT):
        params = jax.tree.map(lambda leaf: jnp.where(leaf == 1, 1.0, 5.0 * leaf), model.init(key))
        return model.apply(params, tokens_BT)[0]

    tokens_T = windows(1, 10)[0]
    changed_TT = np.eye(10, dtype=bool) & (np.arange(10) > 0)
    others_BT = np.where(changed_TT, (tokens_T + 1) % MASK, tokens_T)
    logits_BTV = np.asarray(logits(jax.random.key(0), others_BT))
    kept_T = [(logits_BTV[t + 1, t] == logits_BTV[0, t]).all() for t in range(9)]
    scored_T = objective.next_positions(model_config)
    np.testing.assert_array_equal(scored_T[:-1] == 1, kept_T)
    assert scored_T[-1] == 1  # its target lies outside of the window


def test_a_first_character_that_is_never_read_is_not_asked_for():
    """The rest of the batch is the same as where it is read."""
    plain = Config(model=ModelConfig(context=8), objective="masked")
    hidden = dataclasses.replace(plain, model=dataclasses.replace(plain.model, same_first=True))
    given = windows(200, 9), jax.random.key(0), np.arange(200), MASK
    read, unread = (make_batch(config, *given) for config in (plain, hidden))
    assert read.weights_BT[:, 0].any()
    np.testing.assert_array_equal(unread.weights_BT, read.weights_BT.at[:, 0].set(0))
    np.testing.assert_array_equal(unread.tokens_BT, read.tokens_BT)
    np.testing.assert_array_equal(
        objective.masked_positions(hidden.model), [0, 1, 1, 1, 1, 1, 1, 1]
    )
    _, protocol = objective.OBJECTIVES["masked"].test_stride(hidden.model, None)
    assert protocol.endswith("without the first of each")


@pytest.mark.parametrize(("layers", "chosen"), [((), (1, 2, 3)), ((0, 2), (0, 2))])
def test_anisotropy_is_one_minus_the_mean_isoscore(layers, chosen):
    resid_LBTD = np.random.default_rng(0).normal(size=(4, 3, 50, 6)) * np.arange(1, 7) + 5.0
    spectra = [
        np.linalg.eigvalsh(np.cov(resid_LBTD[n].reshape(-1, 6), rowvar=False)) for n in chosen
    ]
    scores = [(values_E.sum() ** 2 / (values_E**2).sum() - 1) / 5 for values_E in spectra]
    found = anisotropy(jnp.asarray(resid_LBTD, jnp.float32), layers)
    np.testing.assert_allclose(found, 1 - np.mean(scores), rtol=1e-5)


def test_the_best_answer_without_context_is_bayes_rule_by_enumeration():
    """Over all that can stand in a place that is asked for, and all that it can have been, in
    float64.
    """
    p_V = np.array([0.55, 0.3, 0.1, 0.05])
    mask = len(p_V)
    joint_XV = np.zeros((mask + 1, mask))  # P(seen, answer)
    for y, p in enumerate(p_V):
        joint_XV[mask, y] += 0.8 * p
        joint_XV[y, y] += 0.1 * p
        for drawn in range(mask):
            joint_XV[drawn, y] += 0.1 * p / mask
    seen_BT, answer_BT = np.indices(joint_XV.shape)
    batch = objective.Batch(seen_BT, answer_BT, np.ones_like(seen_BT))
    nats_BT = objective.OBJECTIVES["masked"].context_free(p_V, batch, mask)
    np.testing.assert_allclose(
        np.exp(-nats_BT), joint_XV / joint_XV.sum(1, keepdims=True), rtol=1e-13
    )
    # what is seen tells something
    assert (joint_XV * nats_BT).sum() < 0.97 * -(p_V * np.log(p_V)).sum()
    nats_BT = objective.OBJECTIVES["next"].context_free(p_V, batch, mask)
    np.testing.assert_allclose(nats_BT, -np.log(p_V)[answer_BT], rtol=1e-13)
