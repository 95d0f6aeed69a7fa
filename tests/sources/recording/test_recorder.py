"""The recorder without PyTorch: a fair sample, the same positions everywhere, a file that `measure`
opens.
"""

import contextlib
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import xarray as xr

import anisoscope
from anisoscope.sources import vector_files
from anisoscope.sources.recording.recorded_passes import Pass, Reservoir, Sequences

QUICK = {"families": "similarity", "nulls": ()}
X = np.random.default_rng(0).standard_normal((2, 5, 4))


def batches(count=40, width=4):
    """Every row's first coordinate is its place: pass, sequence, token."""
    rng = np.random.default_rng(0)
    for number in range(count):
        x = rng.standard_normal((3, 5, width)).astype(np.float32)
        x[..., 0] = np.arange(15).reshape(3, 5) + 15 * number
        yield x


def test_every_row_is_kept_with_the_same_probability():
    """4 of 30 rows in passes of 7 and fewer, 3,000 times: each 400 times, to 5 standard
    deviations.
    """
    draws, counts = 3000, np.zeros(30)
    for seed in range(draws):
        reservoir, offered = Reservoir(4, np.random.default_rng(seed)), 0
        for size in (7, 7, 1, 7, 7, 1):
            draw = reservoir.draw((size,), None)
            reservoir.keep(draw, {"x": (offered + draw.rows_M)[:, None]})
            offered += size
        kept = reservoir.x_NSD[0, :, 0].astype(int)
        assert len({*kept}) == 4
        counts[kept] += 1
    assert abs(counts - draws * 4 / 30).max() < 5 * np.sqrt(draws * 4 / 30 * 26 / 30)


def test_hook_points_keep_the_same_positions_and_a_file_opens(tmp_path):
    path = tmp_path / "acts.nc"
    with anisoscope.record(lambda x: {"a": x, "b": 2 * x}, to=path, points=50) as recorder:
        for x in batches():
            np.testing.assert_array_equal(recorder(x)["b"], 2 * x)
    assert recorder.rows == 600
    vectors, clusters, positions = map(np.asarray, vector_files.load_vectors(path)[:3])
    assert vectors.shape == (2, 50, 4)
    np.testing.assert_array_equal(vectors[1], 2 * vectors[0])
    np.testing.assert_array_equal(vectors[0, :, 0], clusters * 5 + positions)
    assert (np.diff(vectors[0, :, 0]) > 0).all()
    with xr.open_dataset(path) as stored:
        assert json.loads(stored.attrs["hook_points"]) == ["a", "b"]
    own = recorder.measure(**QUICK)
    np.testing.assert_array_equal(anisoscope.measure(path, **QUICK).mean_cosine, own.mean_cosine)
    assert own.layer.values.tolist() == ["a", "b"]
    again, other = (anisoscope.record(lambda x: x, points=50, seed=seed) for seed in (0, 1))
    for x in batches():
        again(x)
        other(x)
    np.testing.assert_array_equal(again.sample()["vectors"][0], vectors[0])
    assert (other.sample()["vectors"] != again.sample()["vectors"]).any()


def test_padding_is_never_kept_and_positions_do_not_count_it():
    recorder = anisoscope.record(lambda x: x, points=8)
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    for x in batches(9):
        recorder.add({"x": x}, mask)
    sample = recorder.sample()
    assert recorder.rows == 9 * 9
    place = sample["vectors"][0, :, 0].astype(int) % 15
    assert mask.ravel()[place].all()
    np.testing.assert_array_equal(sample["token_positions"], (mask.cumsum(1) - 1).ravel()[place])


@pytest.mark.parametrize("transform", ["remat", "scan", "jit"])
def test_what_a_gradient_computes_again_is_counted_once(transform):
    recorder = anisoscope.record(jnp.tanh, points=64)
    step = jax.checkpoint(lambda x: recorder(x))
    loss = {
        "remat": lambda x: step(x).sum(),
        "jit": jax.jit(lambda x: step(x).sum()),
        "scan": lambda x: jax.lax.scan(lambda x, _: (step(x), None), x, length=3)[0].sum(),
    }[transform]
    x = jax.random.normal(jax.random.key(0), (2, 5, 4))
    scanned = pytest.warns(UserWarning, match="inside of jax.lax.scan counts each iteration")
    with scanned if transform == "scan" else contextlib.nullcontext():
        gradient = jax.grad(loss)(x)
    assert recorder.rows == (30 if transform == "scan" else 10)
    sample = recorder.sample()
    np.testing.assert_allclose(sample["vectors"][0][:10], jnp.tanh(x).reshape(10, 4), atol=1e-6)
    assert np.bincount(sample["clusters"]).tolist() == [5] * (6 if transform == "scan" else 2)
    if transform != "scan":
        own = jax.grad(lambda x: jnp.tanh(x).sum())(x)
        np.testing.assert_allclose(gradient, own, atol=1e-6)


@pytest.mark.parametrize("inside", ["sharded jit", "pmap", "shard_map", "vmap"])
def test_a_step_of_the_user_s_goes_on_wherever_it_runs(inside):
    """On several devices all rows are recorded, or none with a warning: a part is no whole."""
    recorder, x = anisoscope.record(jnp.tanh, points=64), jnp.ones((2, 4, 5, 3)).cumsum(2)
    mesh = jax.make_mesh((2,), ("data",), axis_types=(jax.sharding.AxisType.Auto,))
    split = jax.P("data")
    run = {
        "sharded jit": lambda: jax.jit(lambda x: recorder(x))(
            jax.device_put(x[0], jax.NamedSharding(mesh, split))
        ),
        "pmap": lambda: jax.pmap(lambda x: recorder(x))(x),
        "shard_map": lambda: jax.shard_map(
            lambda x: recorder(x[0]), mesh=mesh, in_specs=split, out_specs=split
        )(x),
        "vmap": lambda: jax.jit(jax.vmap(lambda x: recorder(x)))(x),
    }[inside]
    whole = inside == "sharded jit"
    with contextlib.nullcontext() if whole else pytest.warns(UserWarning, match="sees a part of"):
        outputs = run()
    np.testing.assert_allclose(outputs.ravel()[:60], jnp.tanh(x[0]).ravel(), atol=1e-6)
    assert recorder.rows == (20 if whole else 0)


def test_errors_in_a_compiled_step_are_warnings():
    recorder = anisoscope.record(lambda x: x, lambda outputs: {"h": outputs["h"]}, points=64)
    with pytest.warns(UserWarning, match="not recorded: list indices"):
        assert recorder([1]) == [1]

    @jax.jit
    def step(x, mask):
        recorder.add({"h": x}, mask)
        return x.sum()

    for x, mask, words in (
        (jnp.ones((2, 5, 4)), jnp.full((2, 5), 0.5), "mask holds 0.5"),
        (jnp.full((2, 5, 4), jnp.inf), jnp.ones((2, 5)), "h has numbers that are not finite"),
        (jnp.ones((2, 5, 4), complex), jnp.ones((2, 5)), "are not real numbers"),
    ):
        with pytest.warns(UserWarning, match=words):
            jax.block_until_ready((step(x, mask), jax.effects_barrier()))
        assert recorder.rows == 0


def test_a_pass_that_does_not_fit_leaves_nothing():
    recorder = anisoscope.record(lambda x: x, points=10)
    first = {"a": np.ones((2, 3, 4)), "b": np.ones((2, 3, 4))}
    recorder.add(first)
    for x, words in (
        (
            first | {"b": np.ones((2, 4, 4))},
            r"a and b have \(2, 3\) and \(2, 4\) vectors; record them",
        ),
        (first | {"b": np.ones((2, 3, 5))}, "record each width separately"),
        ({"a": first["a"]}, "b did not run"),
        (first | {"c": first["a"]}, "c did not run"),
    ):
        with pytest.raises(ValueError, match=words):
            recorder.add(x)
    assert recorder.rows == 6


@pytest.mark.parametrize(
    ("x", "mask", "words"),
    [
        (X, np.ones((2, 6)), "mask has shape"),
        (X, np.full((2, 5), 0.5), "mask holds 0.5"),
        (X, np.ma.masked_array(np.ones((2, 5)), np.eye(2, 5)), "mask is a masked array"),
        (np.ma.masked_array(X, X > 0), None, "masked"),
        (X + 1e9, None, "float32 would lose"),
        (X[None], None, r"h has shape \(1, 2, 5, 4\); pass .* of several layers {name: layer}"),
        ("deleted", None, "h was deleted, as donated arrays are"),
    ],
)
def test_what_does_not_fit_is_refused(x, mask, words):
    recorder = anisoscope.record(lambda x: x)
    if isinstance(x, str):
        x = jnp.ones((2, 5, 4))
        x.delete()
    with pytest.raises(ValueError, match=words):
        recorder.add({"h": x}, mask)
    assert recorder.rows == 0
    recorder.add(X[:, 0], np.array([1, 0]))  # a vector of each sequence, and a mask of sequences
    assert recorder.rows == 1


def test_nothing_is_written_over_and_nothing_is_lost(tmp_path):
    path = tmp_path / "a.nc"
    recorder = anisoscope.record(lambda x: x, to=path)
    with pytest.raises(ValueError, match="nothing was recorded"), recorder:
        pass
    assert not path.exists()
    recorder(X)
    with pytest.raises(KeyError), recorder:
        raise KeyError
    assert path.is_file()
    with pytest.raises(ValueError, match="exists, and nothing is overwritten"):
        recorder.write()
    for to, words in ((path, "exists, and nothing is over"), ("acts.npz", r"ends with \.nc")):
        with pytest.raises(ValueError, match=words):
            anisoscope.record(lambda x: x, to=to)
    assert [path.name for path in tmp_path.iterdir()] == ["a.nc"]
    (tmp_path / "link.nc").symlink_to(tmp_path / "elsewhere.nc")
    with pytest.raises(ValueError, match="exists, and nothing is overwritten"):
        recorder.write(tmp_path / "link.nc")
    nested = anisoscope.record(lambda x: x, to=tmp_path / "nested.nc")
    with nested, nested:  # written at the outer end
        nested(X)
    assert (tmp_path / "nested.nc").is_file()
    empty = anisoscope.record(lambda x: x, to=tmp_path / "empty.nc")
    with pytest.raises(KeyError), empty:  # and not that nothing was recorded
        raise KeyError


def test_a_file_is_written_completely_or_not_at_all(tmp_path, monkeypatch):
    recorder = anisoscope.record(lambda x: x)
    recorder(X)

    def stop(table, path, **options):
        path.write_bytes(b"a part")
        raise KeyboardInterrupt

    monkeypatch.setattr(xr.Dataset, "to_netcdf", stop)
    with pytest.raises(KeyboardInterrupt):
        recorder.write(tmp_path / "a.nc")
    assert not [*tmp_path.iterdir()]


def test_hook_points_that_read_other_sequences_are_refused():
    whole = np.ones((2, 3), bool)
    own = Sequences((2, 3), whole, source="encoder")
    for other in (
        own._replace(mask=np.tril(whole)),
        own._replace(mask=None),
        own._replace(source="decoder"),
        own._replace(position_ids=np.arange(6).reshape(2, 3)),
    ):
        current = Pass(Reservoir(9, np.random.default_rng(0)))
        current.draw("a", own)
        with pytest.raises(ValueError, match="a and b read other sequences, or other padding"):
            current.draw("b", other)
        current.draw("c", own._replace(mask=whole.copy()))


def test_another_sequence_begins_where_position_ids_do_not_rise():
    ids = np.array([[0, 0, 1, 0, 1, 2]])
    draw = Reservoir(9, np.random.default_rng(0)).draw((1, 6), None, ids)
    assert draw.cluster_M.tolist() == [0, 1, 1, 2, 2, 2]
    assert draw.position_M.tolist() == ids[0].tolist()
    assert draw.sequences == 3


def test_passes_that_overlap_are_refused():
    reservoir = Reservoir(4, np.random.default_rng(0))
    first, second = (reservoir.draw((3,)) for _ in range(2))
    reservoir.keep(first, {"x": np.ones((3, 2), np.float32)})
    with pytest.raises(ValueError, match="another pass ended while this pass ran"):
        reservoir.keep(second, {"x": np.zeros((3, 2), np.float32)})
    assert reservoir.offered == 3
    assert (reservoir.x_NSD[0, :3] == 1).all()


def test_a_sequence_that_is_padding_alone_has_no_number():
    recorder = anisoscope.record(lambda x: x, points=64)
    for _ in range(2):
        recorder.add(X, np.array([[0] * 5, [1] * 5]))
    assert recorder.sample()["clusters"].tolist() == [0] * 5 + [1] * 5
