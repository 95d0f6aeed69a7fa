import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.model_config import ModelConfig
from anisoscope.config.run_config import TrainConfig
from anisoscope.models import transformer
from anisoscope.training import optimizer


@pytest.mark.parametrize("kind", optimizer.SCHEDULES)
def test_schedule_warms_up_and_decays_to_its_fraction(kind):
    """A constant schedule decays only at the end."""
    fractions = {"warmup_fraction": 0.1, "decay_fraction": 0.2, "final_fraction": 0.25}
    config = TrainConfig(steps=100, learning_rate=2.0, schedule=kind, **fractions)
    rate = optimizer.schedule(config)
    rates = np.asarray(jax.jit(jax.vmap(rate))(np.arange(100)))
    np.testing.assert_allclose(rates[:10], 2.0 * np.arange(1, 11) / 10, rtol=1e-6)
    np.testing.assert_allclose(rates[-1], 0.5, rtol=1e-6)
    if kind == "constant":
        np.testing.assert_allclose(rates[10:80], 2.0, rtol=1e-6)
        np.testing.assert_allclose(rates[80:], 2.0 - 1.5 * np.arange(1, 21) / 20, rtol=1e-5)
    else:
        assert (np.diff(rates[10:]) < 0).all()


@functools.cache
def parameters(**changes):
    model = transformer.build(ModelConfig(layers=2, width=8, heads=2, context=4, **changes), 11)
    return jax.jit(model.init)(jax.random.key(0))


@pytest.mark.parametrize("kind", optimizer.OPTIMIZERS)
def test_only_matrices_decay_and_as_under_adamw_at_the_rest_of_the_rate(kind):
    """With zero gradients an optimizer moves exactly what it decays."""
    params = jax.tree.map(lambda p: np.full(p.shape, 1.5, np.float32), parameters(sink=True))
    config = TrainConfig(optimizer=kind, learning_rate=0.02, weight_decay=0.5, warmup_fraction=0.0)
    chosen, zeros = optimizer.make_optimizer(config), jax.tree.map(np.zeros_like, params)
    updates, _ = jax.jit(lambda params: chosen.update(zeros, chosen.init(params), params))(params)
    expected = -float(optimizer.schedule(config, optimizer.OPTIMIZERS[kind].rest)(0)) * 0.5 * 1.5
    names = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_leaves_with_path(updates)]
    for name, update in zip(names, jax.tree.leaves(updates), strict=True):
        decays = not name.endswith(("['bias']", "['scale']")) and "['sink']" not in name
        np.testing.assert_allclose(update, expected * decays, rtol=1e-5, err_msg=name)
    assert sum("['sink']" in name for name in names) == 2


def test_muon_orthogonalises_the_matrices_of_each_block():
    params, generator = parameters(), np.random.default_rng(0)
    grads = jax.tree.map(lambda p: generator.normal(size=p.shape).astype(np.float32), params)
    config = TrainConfig(
        optimizer="muon", learning_rate=0.02, weight_decay=0.0, warmup_fraction=0.0, clip_norm=0.0
    )
    chosen = optimizer.make_optimizer(config)
    updates, _ = jax.jit(lambda grads: chosen.update(grads, chosen.init(params), params))(grads)
    kernels = 0
    for path, update in jax.tree_util.tree_leaves_with_path(updates):
        if path[0].key == "blocks" and path[-1].key == "kernel":
            kernels += 1
            # singular values near 1, times the rate and sqrt(max(1, out/in))
            for layer in np.asarray(update):
                scale = 0.02 * max(1, layer.shape[1] / layer.shape[0]) ** 0.5
                values = np.linalg.svd(layer, compute_uv=False) / scale
                assert ((values > 0.6) & (values < 1.3)).all(), path
    assert kernels == 4


def test_each_optimizer_moves_the_matrices_of_blocks_and_adamw_all_else_at_its_own_rate():
    """Two updates by hand: SGD's momentum is Nesterov's; the rest of all three is moved alike."""
    params, generator = parameters(sink=True), np.random.default_rng(0)
    grads = [
        jax.tree.map(lambda p: generator.normal(size=p.shape).astype(np.float32), params)
        for _ in range(2)
    ]
    rates = {"learning_rate": 0.25, "other_learning_rate": 0.01, "schedule": "constant"}
    config = TrainConfig(clip_norm=0.0, weight_decay=0.0, warmup_fraction=0.0, **rates)

    def second_update(chosen):
        def two(first, second):
            _, state = chosen.update(first, chosen.init(params), params)
            return chosen.update(second, state, params)[0]

        return dict(jax.tree_util.tree_leaves_with_path(jax.jit(two)(*grads)))

    found = {
        kind: second_update(optimizer.make_optimizer(dataclasses.replace(config, optimizer=kind)))
        for kind in optimizer.OPTIMIZERS
    }
    rest, on_matrices = (
        second_update(optimizer.adamw(dataclasses.replace(config, learning_rate=rate)))
        for rate in (0.01, 0.25)
    )
    first, second = (dict(jax.tree_util.tree_leaves_with_path(part)) for part in grads)
    # Summands of order 1 can cancel: what float32 rounds away of them is below 1e-6.
    rounding = {"rtol": 1e-5, "atol": 1e-6}
    for path in first:
        if path[0].key == "blocks" and path[-1].key == "kernel":
            before, now = first[path].astype(np.float64), second[path].astype(np.float64)
            by_hand = -0.25 * (now + 0.95 * (now + 0.95 * before))
            np.testing.assert_allclose(found["sgd"][path], by_hand, **rounding)
            np.testing.assert_allclose(found["adamw"][path], on_matrices[path], **rounding)
        else:
            for kind, leaves in found.items():
                np.testing.assert_allclose(leaves[path], rest[path], **rounding, err_msg=kind)


def test_gradients_are_clipped_by_their_global_norm():
    """AdamW is nearly blind to scale, so look at the first moment, which is (1 - beta1) times the
    clipped gradient.
    """
    params = {"a": {"kernel": jnp.ones((2, 2))}, "b": {"bias": jnp.ones(5)}}
    grads = jax.tree.map(lambda p: 100.0 * p, params)
    for clip, norm in ((1.0, 1.0), (0.0, 300.0)):
        adamw = optimizer.make_optimizer(TrainConfig(clip_norm=clip, beta1=0.5))
        _, state = jax.jit(
            lambda grads, adamw=adamw: adamw.update(grads, adamw.init(params), params)
        )(grads)
        moments = jax.tree.leaves(state[1][0].mu)
        np.testing.assert_allclose(
            np.sqrt(sum((m**2).sum() for m in moments)), 0.5 * norm, rtol=1e-5
        )
