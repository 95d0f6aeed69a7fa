"""The panel of a model's activations as a program: its shapes, a family alone, one trace, clouds at once."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from anisoscope.config.measure import FURTHER, NULLS, MeasureConfig
from anisoscope.measurement.families import entries as families
from anisoscope.measurement.families import leading
from anisoscope.measurement.families.projection import VECTORS
from anisoscope.measurement.resamples import leave_out, sections
from anisoscope.utils import mesh
from anisoscope.utils.layout import MeshConfig
from tests.measurement.sources.activated import (
    BATCHES,
    FOLDS,
    MEASURED,
    POINTS,
    PROBE,
    QUANTITIES,
    SIZES,
    made,
    measured,
    of,
    program,
    tiny,
    visible,
)


@pytest.mark.slow
def test_shapes_are_the_declared_dimensions():
    measure, *params = program("causal")
    shapes = jax.eval_shape(measure, *params, PROBE, visible("causal"))
    assert {shapes.vectors[name].shape for name in VECTORS} == {(2, POINTS, 8)}
    assert shapes.values["measured"].keys() == MEASURED
    for cloud, own in shapes.values.items():
        wanted = {
            name for name in MEASURED if cloud in ("measured", *families.FAMILIES[families.family_of(name)].nulls)
        }
        assert own.keys() == wanted
        for name, found in own.items():
            assert found.shape == tuple(SIZES[dim] for dim in QUANTITIES[name].raw_dims), name
            assert found.dtype == (jnp.int32 if QUANTITIES[name].units == "points" else jnp.float32), name


@pytest.mark.parametrize(  # quick: one of a cloud, of layers, of heads, of vectors
    "family",
    [
        pytest.param(
            name,
            marks=[pytest.mark.slow] * (name not in ("attention", "projection", "readout")),
        )
        for name in families.FAMILIES
    ],
)
def test_a_family_alone_gives_its_quantities_and_no_others(family):
    measure, *params = program("causal", (family,), NULLS if family in FURTHER else ())
    shapes = jax.eval_shape(measure, *params, PROBE, visible("causal"))
    own = {name for name, one in families.FAMILIES[family].quantities.items() if not one.derived}
    assert {cloud for cloud, found in shapes.values.items() if found.keys() == own} - {"measured"} == (
        {*families.FAMILIES[family].nulls} - {"untrained"} if family in FURTHER else set()
    )
    assert shapes.values["measured"].keys() == own
    for name in own:
        assert shapes.values["measured"][name].shape == tuple(SIZES[dim] for dim in QUANTITIES[name].raw_dims), name
    assert set(shapes.vectors) == set({"projection": VECTORS, "leading": leading.VECTORS}.get(family, ()))


def test_one_trace_serves_all_parameters():
    apply, params = tiny("causal")
    traces = []

    def counted(params, tokens_BT):
        traces.append(1)
        return apply(params, tokens_BT)

    settings = MeasureConfig(points=POINTS, batches=BATCHES, folds=FOLDS, families=("spectrum",), nulls=())
    measure = jax.jit(made(counted, settings))
    several = [jax.tree.map(lambda leaf, by=by: leaf * by, params) for by in (1.0, 0.5, 2.0)]
    found = [measure(one, {}, PROBE, visible("causal")).values for one in several]
    assert len(traces) == 1
    assert found[0]["measured"]["anisotropy"].tolist() != found[1]["measured"]["anisotropy"].tolist()


UNDECOMPOSED = ("dimension", "scale", "comparison", "attention", "frequency")


@pytest.mark.slow
def test_clouds_at_once_change_nothing():
    """As on an accelerator: all layers of an input together, all heads of a block. Nothing that is decomposed: on a CPU
    jaxlib's decompositions of several matrices at once can wait for each other for ever.
    """
    settings = UNDECOMPOSED, ("shuffled", "untrained")
    measure, *params = program("causal", *settings, over_clouds=mesh.over_clouds(MeshConfig(clouds=3), 1))
    found = jax.jit(measure)(*params, PROBE, visible("causal"))
    alone = measured("causal", *settings)
    jax.tree.map(lambda one, two: np.testing.assert_allclose(one, two, rtol=1e-4, atol=1e-5), found, alone)


ON_CPU = jax.default_backend() == "cpu"  # else as many at once as fit, where no number is asked for


@pytest.mark.parametrize(("asked", "steps"), [(None, 6 if ON_CPU else 1), (1, 6), (3, 2), (4, 2), (9, 1)])
def test_clouds_at_once_come_in_groups_of_one_size(asked, steps):
    over = mesh.over_clouds(MeshConfig(clouds=asked), 1)
    assert f"length={steps}" in str(jax.make_jaxpr(lambda x: over(jnp.sin, x))(jnp.zeros((6, 5))))


@pytest.mark.slow
def test_jit_changes_nothing():
    measure, *params = program("causal", ("similarity",), ())
    eager = measure(*params, jax.tree.map(jnp.asarray, PROBE), visible("causal"))
    for name, value in eager.values["measured"].items():
        compiled = of("causal", "measured", ("similarity",), ())[name]
        np.testing.assert_allclose(value, compiled, rtol=1e-4, atol=1e-6, err_msg=name)


def test_leaving_out_and_cutting_go_by_whole_folds():
    np.testing.assert_array_equal(leave_out(2, 4), [[1, 1, 1, 1], [0, 0, 1, 1], [1, 1, 0, 0]])
    np.testing.assert_array_equal(leave_out(1, 2), [[1, 1]])
    np.testing.assert_array_equal(sections(jnp.arange(8.0)[:, None], 8)[:, :, 0], [[0, 1], [2, 3], [4, 5], [6, 7]])
