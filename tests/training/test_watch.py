"""What is looked at while training is what the panel's metrics say of the same activations, and
disturbs nothing.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.run_config import WATCHED_BLOCKS, WATCHED_LAYERS
from anisoscope.metrics import similarity
from anisoscope.metrics.decomposition import spectrum
from anisoscope.metrics.spectrum import read_anisotropy, read_participation_ratio
from anisoscope.training import watch
from anisoscope.utils.settings import replace
from tests import tiny
from tests.training.test_step import assert_close, trained

WATCHED = replace(tiny.config(), {"watch.every": 2, "watch.points": 40})


# more than dimensions, and fewer
@pytest.mark.parametrize("points", [pytest.param(40, marks=pytest.mark.slow), 12])
def test_values_are_those_of_the_panel_on_the_same_activations(points):
    """Anisotropy to 2 % and from below; everything else to rounding."""
    config = replace(WATCHED, {"watch.points": points})
    rng = np.random.default_rng(0)
    scale_D = np.linspace(1, 3, 16) ** 2
    resid_LBTD = (rng.normal(size=(3, 8, 8, 16)) * scale_D + rng.normal(size=16)).astype(np.float32)
    q_NBTHK, k_NBTHK = 2 * rng.normal(size=(2, 2, 8, 8, 2, 8)).astype(np.float32)
    kernel_NDF, bias_ND = rng.normal(size=(2, 3, 4)), rng.normal(size=(2, 5))
    grads = {"blocks": {"a": {"kernel": kernel_NDF}, "bias": bias_ND}, "tokens": [9.0]}

    @jax.jit
    def look(resid_LBTD, q_NBTHK, k_NBTHK):
        snapshot_N = jax.vmap(watch.make_capture(config))(resid_LBTD[1:], q_NBTHK, k_NBTHK)
        return watch.measure_snapshot(
            config, watch.select_cloud(config, resid_LBTD[0]), snapshot_N, grads
        )

    found = look(resid_LBTD, q_NBTHK, k_NBTHK)
    assert set(found) == {*WATCHED_LAYERS, *WATCHED_BLOCKS}
    picks_P = np.random.default_rng(0).permutation(64)[:points]
    for n in range(3):
        cloud_PD = jnp.asarray(resid_LBTD[n].reshape(64, 16)[picks_P])
        values = jax.tree.map(lambda x: x[0], spectrum(cloud_PD))
        exact = float(read_anisotropy(values))
        assert 0.98 * exact < found["anisotropy"][n] < (1 + 1e-5) * exact
        ratio = read_participation_ratio(values)
        np.testing.assert_allclose(found["participation_ratio"][n], ratio, rtol=1e-4)
        for name in ("mean_cosine", "drift", "mean_norm"):
            expected = getattr(similarity, f"weighted_{name}")(cloud_PD)
            np.testing.assert_allclose(found[name][n], expected, rtol=1e-5, atol=1e-6)
    for n in range(2):
        q_BTHK, k_BTHK = (x[n, :2].astype(np.float64) for x in (q_NBTHK, k_NBTHK))
        scores_BHTT = np.einsum("bthk,bshk->bhts", q_BTHK, k_BTHK) / 8**0.5
        first = []
        for row in range(1, 8):  # row 0 has nothing to choose
            weights_BHT = np.exp(scores_BHTT[:, :, row, : row + 1])
            first.append((weights_BHT[..., 0] / weights_BHT.sum(-1)).mean())
        np.testing.assert_allclose(found["attention_first_token"][n], np.mean(first), rtol=1e-5)
        norm = np.sqrt((kernel_NDF[n] ** 2).sum() + (bias_ND[n] ** 2).sum())
        np.testing.assert_allclose(found["gradient_norm"][n], norm, rtol=1e-5)


@pytest.mark.slow
def test_looking_changes_nothing_bitwise():
    (plain, _), (looked, found) = (trained(config, steps=5) for config in (tiny.config(), WATCHED))
    assert_close(plain, looked, rtol=0, atol=0)
    for name in ("anisotropy", "drift"):
        finite = [bool(np.isfinite(step.watch[name]).all()) for step in found]
        assert finite == [True, False, True, False, True]
