"""The recorder without PyTorch: a fair sample, the same positions everywhere, a file that `measure`
opens.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import anisoscope
from anisoscope.plot.draw import RUNS
from anisoscope.plot.run_tables import Run
from anisoscope.sources import vector_files
from anisoscope.sources.recording.reservoir import Reservoir

QUICK = {"families": "similarity", "nulls": ()}


def batches(count=40, width=4):
    """Every row says where it stands: pass, sequence, place."""
    rng = np.random.default_rng(0)
    for number in range(count):
        x = rng.standard_normal((3, 5, width)).astype(np.float32)
        x[..., 0] = np.arange(15).reshape(3, 5) + 15 * number
        yield x


def test_every_row_is_kept_with_the_same_probability():
    """4 of 30 rows in passes of 7 and fewer, 6,000 times: each 800 ± 26 times; 5 standard
    deviations are let pass.
    """
    counts = np.zeros(30)
    for seed in range(6000):
        reservoir, given = Reservoir(4, np.random.default_rng(seed)), 0
        for size in (7, 7, 1, 7, 7, 1):
            drawn = reservoir.draw((size,), None)
            reservoir.keep(drawn, {"x": (given + drawn.rows_M)[:, None]})
            given += size
        kept = reservoir.x_SD["x"][:, 0].astype(int)
        assert len({*kept}) == 4
        counts[kept] += 1
    assert abs(counts - 800).max() < 5 * np.sqrt(6000 * 4 / 30 * 26 / 30)


def test_hook_points_keep_the_same_positions_and_a_file_opens(tmp_path):
    with anisoscope.record(
        lambda x: {"a": x, "b": 2 * x}, to=tmp_path / "acts.zarr", points=50
    ) as recorder:
        for x in batches():
            outputs = recorder(x)
            np.testing.assert_array_equal(outputs["b"], 2 * x)
    assert recorder.seen == 600
    found = vector_files.load(tmp_path / "acts.zarr", (), "", "")
    vectors = np.asarray(found.vectors)
    assert vectors.shape == (2, 50, 4)
    np.testing.assert_array_equal(vectors[1], 2 * vectors[0])
    np.testing.assert_array_equal(vectors[0, :, 0], found.cluster_P * 5 + found.position_P)
    assert (np.diff(vectors[0, :, 0]) > 0).all()
    assert json.loads((tmp_path / "acts.zarr" / ".zattrs").read_text())["hook_points"] == ["a", "b"]
    table = anisoscope.measure(tmp_path / "acts.zarr", **QUICK)
    own = recorder.measure(**QUICK)
    np.testing.assert_array_equal(table.mean_cosine, own.mean_cosine)
    assert own.layer.values.tolist() == ["a", "b"]
    again, other = (anisoscope.record(lambda x: x, points=50, seed=seed) for seed in (0, 1))
    for x in batches():
        again(x)
        other(x)
    np.testing.assert_array_equal(again.sample()["vectors"][0], vectors[0])
    assert (other.sample()["vectors"] != again.sample()["vectors"]).any()


def test_padding_is_never_kept_and_places_do_not_count_it():
    recorder = anisoscope.record(lambda x: x, points=8)
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1], [0, 0, 0, 0, 1]])
    for x in batches(9):
        recorder.add({"x": x}, mask)
    found = recorder.sample()
    assert recorder.seen == 9 * 9
    place = found["vectors"][0, :, 0].astype(int) % 15
    assert mask.ravel()[place].all()
    np.testing.assert_array_equal(found["positions"], (mask.cumsum(1) - 1).ravel()[place])


def test_a_jax_function_gives_the_same_outputs_inside_of_jit_and_grad():
    recorder = anisoscope.record(
        lambda params, x: (x * params, {"h": jnp.tanh(x)}), lambda found: found[1], points=20
    )
    plain, compiled = (
        anisoscope.record(jnp.tanh, points=20),
        jax.jit(lambda params, x: recorder(params, x)),
    )
    for x in batches():
        out, acts = compiled(2.0, x)
        np.testing.assert_array_equal(out, 2 * x)
        plain(jnp.asarray(x))
    np.testing.assert_allclose(recorder.sample()["vectors"], plain.sample()["vectors"], atol=1e-6)
    assert isinstance(acts["h"], jax.Array)

    @jax.jit
    def loss(params, x):
        inside.add({"h": x * params})
        return (x * params).sum()

    inside = anisoscope.record(loss, points=20)
    x = next(batches())
    assert float(jax.grad(loss)(2.0, x)) == pytest.approx(x.sum(), rel=1e-5)
    assert inside.seen == 15
    np.testing.assert_allclose(inside.sample()["vectors"][0], 2 * x.reshape(15, 4), atol=1e-6)


def test_hook_points_of_other_shapes_stand_by_themselves(tmp_path):
    with anisoscope.record(
        lambda x: {"a": x, "of text": x[:, 0], "wide": np.tile(x, 2)}, to=tmp_path / "b.zarr"
    ) as recorder:
        for x in batches(9):
            recorder(x)
    found = recorder.sample()
    assert {name: x.shape for name, x in found.items()} == {
        "a": (135, 4), "wide": (135, 8), "of text": (27, 4), "clusters": (135,), "positions": (135,),
        "clusters_1": (27,), "positions_1": (27,),
    }  # fmt: skip
    np.testing.assert_array_equal(
        vector_files.load(tmp_path / "b.zarr", ("wide",), "", "").vectors[0], found["wide"]
    )
    with pytest.raises(ValueError, match="differ in width or positions"):
        recorder.measure()


def test_a_pass_that_does_not_fit_leaves_nothing():
    recorder = anisoscope.record(lambda x: x, points=10)
    first = {"a": np.ones((2, 3, 4)), "b": np.ones((2, 3, 4))}
    recorder.add(first)
    before = recorder.sample()
    for wrong, words in (
        (
            first | {"b": np.ones((2, 4, 4))},
            r"b is \(2, 4\), another is \(2, 3\): they were alike before",
        ),
        (first | {"b": np.ones((2, 3, 5))}, "b gives width 5, and gave 4 before"),
        (first | {"b": np.ones(3)}, r"b is \(3,\); \(batch, tokens, width\) is needed"),
    ):
        with pytest.raises(ValueError, match=words):
            recorder.add(wrong)
    assert recorder.seen == 6
    assert all((x == recorder.sample()[name]).all() for name, x in before.items())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"to": "acts.npz"}, r"a folder is written whose name ends with \.zarr"),
        ({"to": "there.zarr"}, r"there\.zarr exists, and nothing is overwritten"),
        ({"points": 4}, "points is 4"),
    ],
)
def test_what_cannot_be_recorded_is_one_line(given, words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.zarr").mkdir()
    with pytest.raises(ValueError, match=words):
        anisoscope.record(**{"model": lambda x: x} | given)
    assert not [*(tmp_path / "there.zarr").iterdir()]


def test_nothing_is_written_over_and_nothing_is_lost(tmp_path):
    recorder = anisoscope.record(lambda x: x, to=tmp_path / "a.zarr")
    with pytest.raises(ValueError, match="nothing was recorded"), recorder:
        pass
    assert not (tmp_path / "a.zarr").exists()
    recorder(next(batches()))
    with pytest.raises(KeyError), recorder:
        raise KeyError
    assert (tmp_path / "a.zarr" / "vectors" / "0.0.0").is_file()
    with pytest.raises(ValueError, match="exists, and nothing is overwritten"):
        recorder.write()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.zarr"]


def test_a_table_a_step_is_read_by_the_figures_over_training(tmp_path):
    rng, given = np.random.default_rng(0), {"families": "spectrum", "nulls": ()}
    for step in (0, 10, 20):
        recorder = anisoscope.record(lambda x: x, points=64)
        for _ in range(5):
            x = rng.standard_normal((4, 8, 4))
            recorder.add({"a": x, "b": x @ np.diag([1 + step, 1, 1, 1])})
        own = recorder.measure(**given)
        table = anisoscope.write_table(recorder, step, tmp_path / "mine", **given)
        assert table.step.values.tolist() == list(range(0, step + 1, 10))
        np.testing.assert_array_equal(
            table.anisotropy.sel(step=step, positions="all"), own.anisotropy
        )
        assert recorder.seen == 0
    blocks = table.anisotropy.sel(step=20, statistic="mean", positions="all").mean()
    average = table.anisotropy_over_blocks.sel(step=20, statistic="mean", positions="all")
    assert float(average) == pytest.approx(float(blocks))
    figure = RUNS["spectrum_over_training"]({"mine": Run(table, [])})
    assert figure.axes[0].lines[0].get_xdata().tolist() == [0, 10, 20]
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("all of it")
    for step, folder, words in (
        (10, "mine", "has a table of step 10, and nothing is overwritten"),
        (10, "full", r"has thesis\.tex, and nothing is overwritten"),
        (-1, "other", "step is -1"),
    ):
        with pytest.raises(ValueError, match=words):
            anisoscope.write_table(x.reshape(1, -1, 4), step, tmp_path / folder, **given)
    frame = anisoscope.to_frame(table)
    assert sorted(frame.step.unique()) == [0, 10, 20]


@pytest.mark.parametrize(
    ("shape", "mask", "words"),
    [
        (
            (2, 5, 4),
            np.ones((2, 6)),
            r"mask is \(2, 6\), and hook point output is \(2, 5\) vectors",
        ),
        ((2, 5, 4), [1, 1, 1, 0, 0], r"mask is \(5,\)"),
        ((10, 4), np.eye(2, 5), r"mask is \(2, 5\), and hook point output is \(10,\)"),
        ((2, 5, 4), np.full((2, 5), 0.5), "mask holds 0.5; 0 at padding and 1 elsewhere"),
        ((2, 5, 4), np.full((2, 5), np.nan), "mask holds nan"),
        ((2, 5, 4), np.full((2, 5), -10_000.0), "mask holds -10000"),
        ((2, 5, 4), np.ma.masked_array(np.ones((2, 5)), np.eye(2, 5)), "mask is a masked array"),
    ],
)
def test_a_mask_that_does_not_fit_is_refused(shape, mask, words):
    recorder = anisoscope.record(lambda x: x)
    with pytest.raises(ValueError, match=words):
        recorder.add(np.ones(shape), mask)
    assert recorder.seen == 0


def test_vectors_that_float32_cannot_hold_are_refused():
    x = np.random.default_rng(0).standard_normal((2, 5, 4))
    recorder = anisoscope.record(lambda x: x)
    for wrong, words in (
        (np.ma.masked_array(x, x > 0), "numbers are masked; pass mask="),
        (x + 1j, "is of type complex128; real numbers are needed"),
        (x + 1e9, "float32 would lose"),
    ):
        with pytest.raises(ValueError, match=words):
            recorder.add(wrong)
    recorder.add(x[:, 0], np.array([1, 0]))  # a vector of each sequence, and a mask of sequences
    assert recorder.seen == 1
    with pytest.raises(ValueError, match="'clusters': a sample has an array of this name"):
        recorder.add({"clusters": x})


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
    own = jax.grad(lambda x: jnp.tanh(x).sum())(x)
    gradient = jax.grad(loss)(x)
    assert recorder.seen == (30 if transform == "scan" else 10)
    sample = recorder.sample()
    np.testing.assert_allclose(sample["vectors"][0][:10], jnp.tanh(x).reshape(10, 4), atol=1e-6)
    assert np.bincount(sample["clusters"]).tolist() == [5] * (6 if transform == "scan" else 2)
    if transform != "scan":
        np.testing.assert_allclose(gradient, own, atol=1e-6)
    with pytest.raises(ValueError, match=r"inside of jax\.vmap"):
        jax.vmap(lambda x: recorder(x))(jnp.ones((3, 2, 5, 4)))


def test_names_of_hook_points_are_never_paths(tmp_path):
    x = np.random.default_rng(0).standard_normal((2, 5, 4))
    names = ("a/b", "../x", "/tmp/abs", ".hidden", "..")
    (tmp_path / "deep").mkdir()
    widths = dict(zip(names, (2, 3, 4, 4, 4), strict=True))
    with anisoscope.record(
        lambda x: {name: x[..., :width] for name, width in widths.items()},
        to=tmp_path / "deep" / "a.zarr",
    ) as recorder:
        recorder(x)
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]
    assert [path.name for path in (tmp_path / "deep").iterdir()] == ["a.zarr"]
    found = vector_files.load(tmp_path / "deep" / "a.zarr", ("a%2Fb", "%2E.%2Fx"), "", "")
    assert [layer.shape for layer in found.vectors] == [(10, 2), (10, 3)]
    np.testing.assert_array_equal(np.asarray(found.vectors[0]), recorder.sample()["a/b"])
    assert json.loads((tmp_path / "deep" / "a.zarr" / ".zattrs").read_text())["hook_points"] == [
        *names
    ]
