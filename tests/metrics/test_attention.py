import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.metrics import attention
from anisoscope.metrics.attention import attention_statistics, attention_sums, share_of_means
from tests import reference
from tests.metrics.clouds import gaussian

WINDOWS, TIME, WIDTH = 4, 17, 5
FULL = np.ones((TIME, TIME), bool)
CAUSAL = np.tril(FULL)
WITHOUT_FIRST = CAUSAL & (np.arange(TIME) > 0) & (np.arange(TIME)[:, None] > 0)
MASKS = {"bidirectional": FULL, "causal": CAUSAL, "causal without the first token": WITHOUT_FIRST}


def of_head(q, k, visible, keep=None):
    return jnp.stack(attention_statistics(attention_sums(q, k, visible), keep))


jitted = jax.jit(of_head)
of_choices = jax.jit(
    lambda sums, keep_RB: jnp.stack(
        jax.vmap(attention_statistics, (None, 0))(sums, keep_RB), axis=1
    )
)
of_all = jax.jit(lambda sums: jnp.stack(attention_statistics(sums)))
sums_of = jax.jit(attention_sums)
share_of = jax.jit(
    lambda of_means, q, k, visible: share_of_means(
        of_means, attention_statistics(attention_sums(q, k, visible))
    )
)


def statistics(*of):
    return np.asarray(jitted(*of))


def heads(seed=0, windows=WINDOWS):
    return gaussian(2 * windows * TIME, WIDTH, seed).reshape(2, windows, TIME, WIDTH)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("scale", [0.1, 1, 3])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_agrees_with_the_float64_twin(mask, scale, dtype):
    q, k = jnp.asarray(heads() * np.float32(scale) + 1, dtype)
    values = statistics(q, k, MASKS[mask])
    np.testing.assert_allclose(values, reference.attention_statistics(q, k, MASKS[mask]), rtol=1e-4)


@pytest.mark.parametrize("windows", [3])
def test_windows_that_do_not_fit_at_once_go_some_at_a_time(windows, monkeypatch):
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", windows * TIME**2)
    q, k = heads()
    values = jax.jit(lambda *of: of_head(*of))(q, k, CAUSAL)
    np.testing.assert_allclose(values, reference.attention_statistics(q, k, CAUSAL), rtol=1e-4)


@pytest.mark.parametrize("bias", [10, 100])
def test_a_common_bias_leaves_the_digits_of_the_deviations(bias):
    """At 100 scores are about 22,000 and vary by 2 in a row: naive float32 keeps few digits."""
    q, k = heads() + np.float32(bias)
    k = k * np.float32(0.01) + np.float32(bias)
    values = statistics(q, k, CAUSAL)
    np.testing.assert_allclose(values, reference.attention_statistics(q, k, CAUSAL), rtol=1e-4)


def test_a_sink_is_measured_over_the_rows_that_see_it():
    """Causal, equal scores: row i gives 1/(i + 1) to each key; row 0 has no choice."""
    q, k = np.zeros_like(heads())
    first, most = statistics(q, k, CAUSAL)[-2:]
    rows = 1 / np.arange(2, TIME + 1)
    assert first == pytest.approx(rows.mean(), rel=1e-5)
    # as key 1 is seen by the same rows; later ones by those with more keys only
    assert most == first
    assert statistics(q, k, WITHOUT_FIRST)[-1] == pytest.approx(rows[:-1].mean(), rel=1e-5)
    assert np.isnan(statistics(q, k, WITHOUT_FIRST)[-2])
    k[:, 0, 0], q[:, 2:, 0] = 1.0, 1000.0
    assert statistics(q, k, CAUSAL)[-2] == pytest.approx((0.5 + TIME - 2) / (TIME - 1), rel=1e-5)


def test_the_most_attended_key_is_the_same_in_all_windows():
    """Each window attends to another key: no key stands out in the mean over windows."""
    q, k = np.ones_like(heads()[0]), np.zeros_like(heads()[0])
    k[np.arange(WINDOWS), np.arange(WINDOWS)] = 1000
    first, most = statistics(q, k, FULL)[-2:]
    np.testing.assert_allclose([first, most], 1 / WINDOWS, rtol=1e-5)


@pytest.mark.parametrize("bias", [0.0, 0.5, 1.0, 100.0])
@pytest.mark.parametrize("mask", MASKS)
def test_the_share_of_the_means_agrees_and_has_bounds(mask, bias):
    q, k = heads() + np.float32(bias)
    clouds = q.reshape(-1, WIDTH), k.reshape(-1, WIDTH)
    of_means, share = reference.scores_and_means(q, k, MASKS[mask], *clouds)
    values = share_of(np.float32(of_means), q, k, MASKS[mask])
    assert values == pytest.approx(share, rel=1e-4)
    assert 0 <= values <= 1
    assert (values > 0.5) == (bias > 0.5)


def test_rows_without_a_choice_are_left_out():
    """Two causal positions: row 0 sees one key and tells nothing; row 1 has weights 1/4 and 3/4."""
    q = np.float32([[[5.0], [1.0]]])
    k = np.float32([[[0.0], [np.log(3.0)]]])
    mean, std, within, entropy, *rest = statistics(q, k, np.array([[True, False], [True, True]]))
    scores = np.array([0.0, 0.0, np.log(3.0)])
    np.testing.assert_allclose([mean, std], [scores.mean(), scores.std()], rtol=1e-6)
    assert within == pytest.approx(np.log(3.0) / 2, rel=1e-6)
    assert entropy == pytest.approx(-0.25 * np.log(0.25) - 0.75 * np.log(0.75), rel=1e-6)
    np.testing.assert_allclose(rest, [0.75, 0.25, 0.25, 0.75], rtol=1e-6)


def test_no_choice_no_pair_and_no_window_kept_are_nan():
    q, k = heads()
    alone = statistics(q, k, np.eye(TIME, dtype=bool))
    assert np.isfinite(alone[:2]).all()
    assert np.isnan(alone[2:]).all()
    assert np.isnan(statistics(q, k, np.zeros((TIME, TIME), bool))).all()
    assert np.isnan(statistics(q, k, FULL, np.zeros(WINDOWS, np.float32))).all()


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("bias", [0, 1000])
def test_windows_left_out_are_as_if_they_had_not_been(mask, bias):
    """Each window has a bias of its own, so that each choice of windows has other means."""
    q, k = heads() + np.arange(WINDOWS, dtype=np.float32)[None, :, None, None]
    q, k = q + np.float32(bias), k * np.float32(1 / max(bias, 1)) + np.float32(bias)
    keep = np.ones((1 + WINDOWS, WINDOWS), np.float32) - np.eye(
        1 + WINDOWS, WINDOWS, -1, dtype=np.float32
    )
    sums = sums_of(q, k, MASKS[mask])
    values = np.asarray(of_choices(sums, keep))  # all, then all but one
    for kept, row in zip(keep == 1, values, strict=True):
        np.testing.assert_allclose(
            row, reference.attention_statistics(q[kept], k[kept], MASKS[mask]), rtol=1e-4
        )
        if bias == 0:
            np.testing.assert_allclose(row, statistics(q[kept], k[kept], MASKS[mask]), rtol=1e-5)
    # two programs: a processor may add in another order
    np.testing.assert_allclose(values[0], of_all(sums), rtol=1e-6)
    differs = np.abs(values[1:] - values[:1]).max(axis=0) > 1e-4 * np.abs(values[0])
    assert (differs | np.isnan(values[0])).all()
