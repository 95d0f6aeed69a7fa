"""What theory says of a probe's gradient on curved manifolds, measured; and the experiment from
settings to figure.
"""

import dataclasses

import numpy as np
import pytest
from scipy import stats

from anisoscope.cli import untrained_stages
from anisoscope.config.untrained_config import CurvedConfig, check_curved
from anisoscope.plot import draw, style
from anisoscope.subspaces import curved_program, curved_tables
from anisoscope.subspaces.curved_tables import LAW
from anisoscope.utils.errors import UserError
from tests.plot.reading import inside
from tests.program import asked

EPSILON = np.finfo(np.float32).eps
SMALL = CurvedConfig(types=1024, draws=1024, seeds=8, width=6)


@pytest.fixture(scope="module")
def results():
    seeds = curved_tables.seed_table(SMALL, curved_program.energies(SMALL))
    return curved_tables.summarize_manifolds(SMALL, seeds)


def of(table, name, **where):
    """Mean, low, high and the closed form."""
    return table[name].sel(where).transpose("statistic", ...).values


@pytest.mark.parametrize(("name", "slope"), curved_program.SLOPES.items())
def test_norms_follow_the_spread_and_its_square_and_energies_their_squares(results, name, slope):
    """On each manifold and curvature: the intervals at 95 %, of which all hold the slope at a level
    for six of them.
    """
    mean, low, high, predicted = of(results, f"slope_{name}")
    assert (predicted == slope).all()
    quantiles = stats.t.ppf([1 - 0.025 / mean.size, 0.975], SMALL.seeds - 1)
    assert (np.abs(mean - slope) <= quantiles[0] / quantiles[1] * (high - mean)).all()
    assert (high - low).max() < 0.05 * slope


@pytest.mark.parametrize("name", LAW)
def test_leading_orders_are_what_is_measured_where_the_spread_is_small(results, name):
    for curvature in SMALL.curvatures:
        small = [spread for spread in SMALL.spreads if spread * curvature <= 0.05]
        where = {"target": "by direction", "curvature": curvature, "spread": small}
        mean, _, _, predicted = of(results, name, **where)
        np.testing.assert_allclose(mean, predicted, rtol=0.12)


def test_a_constant_error_violates_the_law_of_the_ratio(results):
    """The tangent part, bounded by the spread alone, is nothing at all: the normal part is
    everything.
    """
    mean, _, _, predicted = of(results, "normal_share", target="constant")
    assert (predicted == 1).all()
    np.testing.assert_allclose(mean, 1, atol=1e-6)
    lawful, _, _, _ = of(results, "normal_share", target="by direction")
    assert lawful.max() < 0.35
    assert (lawful[..., 0] < 1e-3 * lawful[..., -1]).all()


def test_frequency_hides_curvature_as_predicted_and_weighting_brings_back_what_was_drawn(results):
    # (manifold, curvature, bias, weighting)
    mean, _, _, predicted = of(results, "biased_normal_share")
    np.testing.assert_allclose(mean, predicted, rtol=0.25)
    drawn, types = np.moveaxis(mean, -1, 0)
    assert (np.diff(drawn, axis=-1) < 0).all()
    assert (drawn[..., -1] < 0.05 * drawn[..., 0]).all()
    assert (types[..., 1:] > drawn[..., 1:]).all()
    np.testing.assert_allclose(drawn[..., 0] / drawn[..., -1], 1 + SMALL.biases[-1], rtol=0.3)


@pytest.mark.parametrize("manifold", SMALL.manifolds)
def test_gradients_agree_with_float64(manifold):
    """Points by trigonometry without care for digits, the gradient written out, the parts by an
    orthonormal basis.
    """
    small = {"curvatures": (2.0,), "seeds": 1, "types": 64, "draws": 64}
    config = dataclasses.replace(SMALL, manifolds=(manifold,), **small)
    found, drawn = curved_program.energies(config), curved_program.draw_manifold(config, 0, 0, 0)
    for setting, weighting, target in np.ndindex(len(drawn.v_SVE), 2, 2):
        v, y = np.float64(drawn.v_SVE[setting]), np.float64(drawn.y_SYV[setting, target])
        weight, turn = np.float64(drawn.weight_SXV[setting, weighting]), np.float64(drawn.turn_DD)
        x = surface(manifold, v) @ turn[:, :3].T
        parts = -(weight * y) @ x @ turn
        at = 0, 0, 0, setting, weighting, target
        # of terms that may cancel
        rounding = EPSILON * np.abs(weight * y) @ np.linalg.norm(x, axis=1)
        for side, part in (("tangent", parts[:2]), ("normal", parts[2:])):
            norm, expected = found[f"{side}_norm"][at], np.linalg.norm(part)
            np.testing.assert_allclose(norm, expected, rtol=1e-3, atol=rounding)
        variance = weight @ np.square((x - weight @ x) @ turn)
        share = variance[2:].sum() / variance.sum()
        np.testing.assert_allclose(found["normal_variance_share"][at], share, rtol=1e-3, atol=1e-9)


def surface(manifold, v):
    """Curvature 2, tangent coordinates and the normal one."""
    if manifold == "paraboloid":
        return np.column_stack([v, (v**2).sum(1)])
    if manifold == "sphere":
        length = np.linalg.norm(v, axis=1, keepdims=True)
        return np.hstack([v / length * np.sin(2 * length) / 2, (1 - np.cos(2 * length)) / 2])
    around, across = v[:, 0] / 1.5, v[:, 1] / 0.5
    radius = 1 + 0.5 * np.cos(across)
    normal = 1.5 - radius * np.cos(around)
    return np.column_stack([radius * np.sin(around), 0.5 * np.sin(across), normal])


def test_a_manifold_without_a_normal_direction_is_refused():
    flat = dataclasses.replace(SMALL, manifolds=("sphere",), dimension=6)
    with pytest.raises(UserError, match="set at least 7"):
        check_curved(flat)
    check_curved(dataclasses.replace(flat, width=7))


def test_closed_forms_agree_where_they_meet():
    """Types drawn without bias are those of the law at that spread."""
    place, spread = (SMALL, "torus", 2.0), SMALL.biased_spread
    law = curved_program.predict_over_spread(*place, "by direction", spread)
    assert curved_program.predict_over_bias(*place, "none", 0.0) == pytest.approx(law, rel=1e-3)
    rare, often = (
        curved_program.predict_over_bias(SMALL, "sphere", 2.0, "none", bias)["tangent_norm"]
        for bias in (0.0, 3.0)
    )
    assert rare / often == pytest.approx(2, rel=1e-4)


def test_one_stage_measures_and_draws_and_the_same_again_changes_nothing(
    tmp_path, capsys, monkeypatch
):
    config = dataclasses.replace(SMALL, types=64, draws=64, seeds=2)
    root, figures = tmp_path / "curved", []
    # which takes long
    monkeypatch.setattr(draw, "save_figure", lambda figure, to, name: figures.append(figure) or [])
    with style.context():
        untrained_stages.run(config, asked(root, "measure", "figures"))
    assert "norm of the normal gradient: t^" in capsys.readouterr().out
    inside(figures[0], "curved_manifolds")
    before = {path: path.read_bytes() for path in root.rglob("*.[nc][cs]*")}
    monkeypatch.setattr(curved_tables, "energies", lambda config: pytest.fail("measured again"))
    untrained_stages.run(config, asked(root, "measure"))
    assert {path: path.read_bytes() for path in before} == before
    with pytest.raises(UserError, match="seed=0 there, 1 now"):
        untrained_stages.run(dataclasses.replace(config, seed=1), asked(root, "measure"))


def test_in_many_dimensions_frequencies_do_not_underflow():
    config = dataclasses.replace(SMALL, dimension=64, width=66, biases=(200.0,))
    assert np.isfinite(curved_program.draw_manifold(config, 0).weight_SXV).all()
