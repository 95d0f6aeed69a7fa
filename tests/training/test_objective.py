import jax
import jax.numpy as jnp
import numpy as np

from training import objective

MASK = 20


def windows(rows: int, length: int) -> jax.Array:
    return jax.random.randint(jax.random.key(3), (rows, length), 0, MASK, jnp.int32)


def test_next_character_shifts_by_one_and_counts_every_position():
    windows_BL = windows(2, 5)
    batch = objective.make_batch("next", windows_BL, jax.random.key(0), jnp.arange(2), MASK)
    np.testing.assert_array_equal(batch.tokens_BT, windows_BL[:, :4])
    np.testing.assert_array_equal(batch.targets_BT, windows_BL[:, 1:])
    assert (batch.weights_BT == 1).all()


def test_masked_character_follows_the_rule_15_80_10_10():
    windows_BL = windows(400, 257)
    batch = objective.make_batch("masked", windows_BL, jax.random.key(1), jnp.arange(400), MASK)
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
    whole = objective.make_batch("masked", windows_BL, jax.random.key(1), jnp.arange(6), MASK)
    part = objective.make_batch("masked", windows_BL[4:], jax.random.key(1), jnp.arange(4, 6), MASK)
    for a, b in zip(whole, part, strict=True):
        np.testing.assert_array_equal(a[4:], b)


def test_unselected_positions_cannot_move_the_loss():
    windows_BL = windows(4, 17)
    batch = objective.make_batch("masked", windows_BL, jax.random.key(1), jnp.arange(4), MASK)
    logits = jax.random.normal(jax.random.key(2), (4, 16, MASK + 1))
    grads = np.asarray(jax.grad(objective.nats)(logits, batch))
    assert (grads[np.asarray(batch.weights_BT) == 0] == 0).all()
    assert (np.abs(grads[np.asarray(batch.weights_BT) == 1]).sum(-1) > 0).all()


def test_uniform_logits_cost_the_logarithm_of_the_vocabulary():
    batch = objective.next_character(windows(3, 9))
    np.testing.assert_allclose(objective.nats(jnp.zeros((3, 8, 21)), batch), 24 * np.log(21), rtol=1e-6)
