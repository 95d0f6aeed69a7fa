import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding, PartitionSpec

from anisoscope.config import variants
from anisoscope.models import transformer
from anisoscope.training import objective, optimizer, step, train_program
from anisoscope.utils.settings import replace
from tests import tiny


@functools.cache
def programs(config, make):
    """Seeds are arguments of the programs, and no reason to compile them again."""
    corpus = tiny.corpus()
    model = transformer.build(config.model, corpus.vocab_size)
    update = optimizer.make_optimizer(config.train)
    one = make(step.make_step(model.apply, update, config, corpus.mask_token))
    return make(lambda key: step.init_state(model.init(key), update)), one


@functools.cache
def forward(model):
    """params, tokens -> (logits, Activations), and the parameters of the key 0."""
    built = transformer.build(model, tiny.corpus().vocab_size)
    return jax.jit(built.apply), jax.jit(built.init)(jax.random.key(0))


@functools.cache
def batches(config):
    return jax.jit(functools.partial(step.train_batch, config), static_argnums=3)


def batch_of(config, at, data_seed=0):
    corpus = tiny.corpus()
    return jax.device_get(
        batches(config)(data_seed, jnp.asarray(corpus.train), jnp.int32(at), corpus.mask_token)
    )


def nats(logits_BTV, targets_BT):
    """-log softmax at the targets, (B, T), in float64."""
    logits_BTV = np.asarray(logits_BTV, np.float64)
    return (
        np.log(np.exp(logits_BTV).sum(-1))
        - np.take_along_axis(logits_BTV, targets_BT[..., None], 2)[..., 0]
    )


def trained(config, steps=3, make=jax.jit):
    corpus, ((weights, data),) = tiny.corpus(), variants.seed_pairs(config.train)
    init, one = programs(replace(config, {"train.seed": 0, "train.data_seed": 0}), make)
    state, metrics = init(jax.random.key(weights)), []
    for _ in range(steps):
        state, done = one(state, data, jnp.asarray(corpus.train))
        metrics.append(done)
    return state, metrics


def assert_close(a, b, **tolerance):
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_allclose(x, y, **tolerance)


def masked(config):
    return replace(config, {"objective": "masked", "model.mask": "bidirectional"})


@pytest.mark.slow
def test_accumulated_gradients_equal_one_batch():
    """Also where micro-batches predict different numbers of characters."""
    whole, whole_metrics = trained(masked(tiny.config()))
    parts, parts_metrics = trained(masked(tiny.config(accumulate=4)))
    assert_close(whole_metrics, parts_metrics, rtol=2e-5)
    assert_close(whole.params, parts.params, atol=2e-5)


def test_the_number_of_steps_per_call_changes_nothing_bitwise_and_compiles_once():
    """Exact resume rests on this: where calls begin and end depends on timing."""
    config, corpus = tiny.config(), tiny.corpus()
    made = train_program.make_train_program(config, corpus)
    ends, losses = [], []
    for counts in ((4, 1), (1, 1, 1, 1, 1), (2, 3)):
        state, seen = made.create(), []
        for count in counts:
            state, metrics = made.steps(state, made.tokens_N, made.data_R, jnp.int32(count))
            assert np.isnan(np.asarray(metrics.loss[0, count:])).all()
            seen += list(np.asarray(metrics.loss[0, :count]))
        ends.append(state)
        losses.append(seen)
    for state, seen in zip(ends[1:], losses[1:], strict=True):
        assert_close(ends[0], state, rtol=0, atol=0)
        assert seen == losses[0]
    assert made.steps._cache_size() == 1
    np.testing.assert_allclose(losses[0], [m.loss for m in trained(config, steps=5)[1]], rtol=1e-5)


def test_the_batch_is_a_pure_function_of_seed_and_step():
    config = tiny.config()
    found = [batch_of(config, s).tokens_BT for s in (4, 4, 5)]
    np.testing.assert_array_equal(found[0], found[1])
    assert not np.array_equal(found[0], found[2])
    assert not np.array_equal(found[0], batch_of(config, 4, data_seed=1).tokens_BT)
    assert not np.array_equal(*(batch_of(masked(config), s).weights_BT for s in (0, 1)))


def test_the_matched_pair_reads_the_same_windows_and_starts_from_the_same_parameters():
    decoder, encoder = tiny.config(), masked(tiny.config())
    np.testing.assert_array_equal(batch_of(decoder, 2).tokens_BT, batch_of(encoder, 2).targets_BT)
    assert_close(forward(decoder.model)[1], forward(encoder.model)[1], rtol=0, atol=0)


def prefixed(config):
    return replace(config, {"model.mask": "prefix", "model.prefix": 5})


SLOW = pytest.param(prefixed, marks=pytest.mark.slow)


@pytest.mark.parametrize("task", [lambda c: c, masked, SLOW], ids=["next", "masked", "prefix"])
def test_the_loss_is_nats_per_predicted_character_before_the_update(task):
    config = task(tiny.config())
    (apply, params), batch = forward(config.model), batch_of(config, 0)
    nats_BT = nats(apply(params, batch.tokens_BT)[0], batch.targets_BT)
    assert (batch.weights_BT == 1).sum() > 4
    assert (batch.weights_BT[:, :4].any(), batch.weights_BT[:, 4:].all()) == (
        False,
        True,
    ) or task is not prefixed
    _, (metrics,) = trained(config, steps=1)
    np.testing.assert_allclose(metrics.loss, nats_BT[batch.weights_BT == 1].mean(), rtol=1e-5)


def test_the_penalty_is_in_the_gradient_and_not_in_the_loss():
    plain, (before,) = trained(tiny.config(), steps=1)
    pushed, (after,) = trained(tiny.config(penalty=2.0, penalty_layers=(1,)), steps=1)
    np.testing.assert_allclose(after.loss, before.loss, rtol=1e-6)
    assert before.penalty == 0
    config = tiny.config()
    apply, params = forward(config.model)
    found = {}
    for name, given in {"first": params, "plain": plain.params, "pushed": pushed.params}.items():
        found[name] = objective.anisotropy_penalty(
            apply(given, batch_of(config, 0).tokens_BT)[1].resid_LBTD, (1,)
        )
    np.testing.assert_allclose(after.penalty, 2.0 * found["first"], rtol=1e-5)
    assert found["pushed"] < found["plain"] - 0.02


def test_starts_cover_every_window_evenly():
    num_characters, length, draws = 10, 3, 8000
    starts = np.asarray(step.starts(0, 0, jnp.arange(draws), num_characters, length))
    counts = np.bincount(starts, minlength=8)
    assert counts.shape == (8,)  # 0 .. 7: the last window ends with the text
    spread = np.sqrt(draws * (1 / 8) * (7 / 8))
    assert np.abs(counts - draws / 8).max() < 4 * spread


def test_any_share_of_the_examples_draws_the_same_windows():
    examples_B = jnp.arange(16)
    whole = np.asarray(step.starts(5, 6, examples_B, 12_345, 32))
    for size in (1, 3, 8):
        shares = [
            step.starts(5, 6, examples_B[i : i + size], 12_345, 32) for i in range(0, 16, size)
        ]
        np.testing.assert_array_equal(np.concatenate(shares), whole)
    mesh = jax.make_mesh((8,), ("data",))
    over_devices = jax.device_put(examples_B, NamedSharding(mesh, PartitionSpec("data")))
    np.testing.assert_array_equal(step.starts(5, 6, over_devices, 12_345, 32), whole)


def test_crop_equals_a_loop_of_slices():
    corpus = np.random.default_rng(1).integers(0, 256, 300, dtype=np.uint8)
    starts = np.array([0, 17, 280, 3], np.int32)
    windows = step.crop(jnp.asarray(corpus), jnp.asarray(starts), 20)
    assert windows.dtype == jnp.int32
    np.testing.assert_array_equal(
        windows, np.stack([corpus[start : start + 20] for start in starts])
    )
