import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import models
from tests import tiny
from training import optimizer, program, step


def trained(config, steps=3, make=jax.jit):
    corpus = tiny.corpus()
    model = models.build(config.model, corpus.vocab_size)
    adamw = optimizer.make_optimizer(config.train)
    one = make(step.make_step(model.apply, adamw, config, corpus.mask_token))
    state = step.init_state(model.init(jax.random.key(config.train.seed)), adamw)
    metrics = []
    for _ in range(steps):
        state, done = one(state, jnp.asarray(corpus.train))
        metrics.append(done)
    return state, metrics


def assert_close(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


def masked(config):
    config.objective, config.model.mask = "masked", "bidirectional"
    return config


@pytest.mark.parametrize("twin", [lambda c: c, masked], ids=["next", "masked"])
def test_accumulated_gradients_equal_one_batch(twin):
    """Also where micro-batches predict different numbers of characters."""
    whole, whole_metrics = trained(twin(tiny.config()))
    parts, parts_metrics = trained(twin(tiny.config(accumulate=4)))
    assert_close(whole_metrics, parts_metrics, rtol=2e-5)
    assert_close(whole.params, parts.params, atol=2e-5)


def test_many_steps_in_one_call_equal_single_steps_bitwise_with_one_compilation():
    config, corpus = tiny.config(), tiny.corpus()
    single, metrics = trained(config, steps=5)
    model = models.build(config.model, corpus.vocab_size)
    adamw = optimizer.make_optimizer(config.train)
    steps = jax.jit(step.make_steps(step.make_step(model.apply, adamw, config, corpus.mask_token), 4))
    state = step.init_state(model.init(jax.random.key(0)), adamw)
    tokens_N = jnp.asarray(corpus.train)
    state, first = steps(state, tokens_N, jnp.int32(4))
    state, second = steps(state, tokens_N, jnp.int32(1))
    losses = [*first.loss, second.loss[0]]
    np.testing.assert_allclose(losses, [m.loss for m in metrics], rtol=1e-6)
    assert np.isnan(np.asarray(second.loss[1:])).all()
    assert_close(single.params, state.params, atol=1e-6)
    assert steps._cache_size() == 1


def test_the_batch_is_a_pure_function_of_seed_and_step():
    config, tokens_N = tiny.config(), jnp.asarray(tiny.corpus().train)
    batches = [step.train_batch(config, tokens_N, jnp.int32(s), 7) for s in (4, 4, 5)]
    other = step.train_batch(dataclasses.replace(config, train=tiny.config(seed=1).train), tokens_N, jnp.int32(4), 7)
    np.testing.assert_array_equal(batches[0].tokens_BT, batches[1].tokens_BT)
    assert not np.array_equal(batches[0].tokens_BT, batches[2].tokens_BT)
    assert not np.array_equal(batches[0].tokens_BT, other.tokens_BT)


def test_the_twins_read_the_same_windows_and_start_from_the_same_parameters():
    decoder, encoder = tiny.config(), masked(tiny.config())
    tokens_N = jnp.asarray(tiny.corpus().train)
    a, b = (step.train_batch(c, tokens_N, jnp.int32(2), 7) for c in (decoder, encoder))
    np.testing.assert_array_equal(a.tokens_BT, b.targets_BT)
    inits = [models.build(c.model, 8).init(jax.random.key(0)) for c in (decoder, encoder)]
    assert_close(*inits, rtol=0, atol=0)


def test_training_learns():
    _, metrics = trained(tiny.config(steps=60, learning_rate=1e-2), steps=60)
    assert metrics[-1].loss < 0.7 * metrics[0].loss


@pytest.mark.parametrize(("data", "fsdp"), [(8, 1), (2, 4)])
def test_eight_devices_equal_one(data, fsdp):
    config, corpus = tiny.config(), tiny.corpus()
    config.mesh.data, config.mesh.fsdp = data, fsdp
    many = program.make_program(config, corpus)
    state, metrics = many.steps(many.create(), many.tokens_N, jnp.int32(3))
    kernel = state.params["blocks"]["mlp_up"]["kernel"]
    assert len({shard.device for shard in kernel.addressable_shards}) == 8
    assert kernel.addressable_shards[0].data.size == kernel.size // fsdp
    one, one_metrics = trained(config)
    np.testing.assert_allclose(metrics.loss[:3], [m.loss for m in one_metrics], rtol=1e-5)
    assert_close(one.params, state.params, atol=1e-4)
