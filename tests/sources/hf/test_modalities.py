"""Models that read pictures or sound: their blocks and maps, and the chunks of sound that they
read.
"""

import jax.numpy as jnp
import numpy as np
import pytest
import torch
import transformers

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.metrics.comparison import linear_cka
from anisoscope.sources.hf.adapters import MODALITIES, model_kind
from anisoscope.sources.hf.media import feature_maps, media_files
from anisoscope.sources.hf.reading import guards
from anisoscope.sources.hf.reading.extract import forward
from anisoscope.utils.errors import UserError
from tests.sources.hf.recordings import wav
from tests.sources.hf.rows import modalities as of_rows

ROWS = of_rows.ROWS


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if row.model])
def test_blocks_and_attention_are_the_models_own(name):
    shown = of_rows.show(ROWS[name])
    assert shown.layers >= 3
    assert shown.streams < 1e-5
    if name.startswith(("ResNet", "EfficientNet", "ConvNeXt", "WavLM")):
        assert shown.attention is None
    else:
        assert shown.attention < 1e-5


def test_every_entry_has_a_row_and_what_is_missing_is_missing():
    kinds = {of_rows.made(row).adapter for row in ROWS.values() if row.model}
    assert kinds == set(MODALITIES.values())
    assert [name for name, row in ROWS.items() if not row.model] == ["VAN"]
    assert not hasattr(transformers, "VanModel")


def test_two_kinds_of_block_of_one_type_are_told_apart():
    base, large = (of_rows.made(ROWS[name]) for name in ("HuBERT", "HuBERT, large"))
    assert model_kind(base.model.config) == "hubert"
    assert model_kind(large.model.config) == "hubert, norm first"
    assert "before the final norm" in guards.check_final_norm(large, of_rows.inputs(large)[0])
    wrong = large._replace(adapter=large.adapter._replace(final_norm=None))
    with pytest.raises(UserError, match="differs from the last hidden state"):
        guards.check_final_norm(wrong, of_rows.inputs(wrong)[0])


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("MiT (SegFormer)", {"final_norm": None}),
        ("ResNet-50 and larger", {"block": "ResNetConvLayer"}),
        ("CvT", {"block": "CvtAttention"}),
    ],
)
def test_maps_that_are_not_the_models_own_are_refused(name, change):
    loaded = of_rows.made(ROWS[name])
    given = of_rows.inputs(loaded)[0]
    assert "that the model gives are those to" in feature_maps.check_maps(loaded, given)
    with pytest.raises(UserError, match="reported maps differ"):
        feature_maps.check_maps(loaded._replace(adapter=loaded.adapter._replace(**change)), given)


def test_points_of_all_maps_stand_below_one_another():
    sizes, picks_P = (
        [(12, 8), (6, 4), (6, 4), (3, 2)],
        np.random.default_rng(0).permutation(6 * 500),
    )
    at = feature_maps.pick_points(picks_P, sizes, 0)
    assert set(at.cell_P) == {(12, 8), (6, 4), (3, 2)}
    for (height, width), (row_P, column_P) in at.cell_P.items():
        np.testing.assert_array_equal(row_P * 3 // height, picks_P % 6 // 2)
        np.testing.assert_array_equal(column_P * 2 // width, picks_P % 2)
        # every cell is drawn
        assert len(set(zip(row_P.tolist(), column_P.tolist(), strict=True))) == height * width
    np.testing.assert_array_equal(at.window_P, picks_P // 6)
    uneven = feature_maps.pick_points(np.arange(6), [(7, 5), (3, 2)], 0).cell_P[7, 5]
    assert (uneven[0] < 7).all()
    assert (uneven[1] < 5).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_maps_through_a_norm_of_half_precision_are_the_models_own(dtype):
    loaded = of_rows.made(ROWS["MiT (SegFormer)"])
    given = of_rows.inputs(loaded)[0]
    loaded.model.to(dtype)
    assert "that the model gives are those to" in feature_maps.check_maps(loaded, given)


@pytest.fixture(scope="module")
def seen():
    """Clouds of a tiny CvT, whose last stage has a class token before its map, and where they were
    taken.
    """
    loaded = of_rows.made(ROWS["CvT"])
    given = of_rows.inputs(loaded, windows=4)
    sizes = [shape[:2] for shape in feature_maps.map_shapes(loaded, given[:1])]
    at = feature_maps.pick_points(np.random.default_rng(1).permutation(4 * 16), sizes, 0)
    return loaded, given, at, feature_maps.read_clouds(loaded, given[None], at, batch_size=3)


def test_clouds_are_points_of_the_models_own_maps(seen):
    loaded, given, at, clouds_N = seen
    assert [cloud.shape for cloud in clouds_N] == [
        (1, 64, width) for width in (8, 8, 16, 16, 24, 24, 24)
    ]
    own = forward(loaded, given, output_hidden_states=True).hidden_states
    for map_BDHW, n in zip(own, (1, 3, 6), strict=True):
        row_P, column_P = at.cell_P[tuple(map_BDHW.shape[2:])]
        expected = map_BDHW.numpy()[at.window_P, :, row_P, column_P]
        np.testing.assert_allclose(clouds_N[n][0], expected, atol=1e-5)


def test_each_layer_is_measured_in_its_own_width_and_all_are_compared(seen):
    *_, at, clouds_N = seen
    settings = MeasureConfig(
        points=64, folds=2, batches=1, families=("similarity", "comparison"), nulls=()
    )
    others = {
        name: feature_maps.pad_widths([cloud[:, ::-1] for cloud in clouds_N])[0]
        for name in ("previous", "last")
    }
    found = feature_maps.measure_clouds(0, clouds_N, others, at, settings)["measured"]
    units = [cloud[0] / np.linalg.norm(cloud[0], axis=1, keepdims=True) for cloud in clouds_N]
    pairs = 64 * 63
    cosines = [(np.square(unit.sum(0)).sum() - 64) / pairs for unit in units]
    np.testing.assert_allclose(found["mean_cosine"][0, 0, :, 0], cosines, atol=1e-4)
    assert found["cka_layers"].shape == (1, 1, 7, 7, 3)
    first_PD, middle_PD, last_PD = (jnp.asarray(clouds_N[n][0]) for n in (1, 2, 6))
    np.testing.assert_allclose(
        found["cka_layers"][0, 0, 1, 6], linear_cka(first_PD, last_PD, folds=2), atol=1e-5
    )
    np.testing.assert_allclose(
        found["cka_last"][0, 0, 2], linear_cka(middle_PD, middle_PD[::-1], 2), atol=1e-5
    )


@pytest.mark.parametrize("positions", [2, 7, 50])
def test_a_piece_has_as_many_samples_as_its_positions_need(positions):
    loaded = of_rows.made(ROWS["wav2vec 2.0"])
    samples = media_files.samples_of_positions(loaded.base, None, positions)
    for given, expected in ((samples, positions), (samples - 1, positions - 1)):
        assert int(loaded.base._get_feat_extract_output_lengths(given)) == expected


def test_recordings_are_the_same_in_every_format(tmp_path):
    for dtype, close in (("int16", 1e-4), ("int32", 1e-6), ("uint8", 0.02), ("float32", 1e-6)):
        wave = wav(tmp_path / f"{dtype}.wav", dtype, channels=2)
        found, rate = media_files.read_recording(tmp_path / f"{dtype}.wav")
        assert rate == 16_000
        np.testing.assert_allclose(found, wave, atol=close)


def test_recordings_are_resampled_joined_and_cut(tmp_path):
    wav(tmp_path / "a.wav", rate=44_100, tone=1000.0)
    wav(tmp_path / "b.wav", rate=16_000, tone=1000.0)
    base = of_rows.made(ROWS["wav2vec 2.0"]).base
    of = media_files.Recordings(
        tmp_path, transformers.Wav2Vec2FeatureExtractor(do_normalize=False), base, 150, 0
    )
    length = media_files.samples_of_positions(base, None, 150)
    assert of.count == 64_000 // length
    assert "2 recordings of 4.0 s in all; 1 of" in of.about["joined"]
    assert "resampled from 44100" in of.about["preparation"]
    chunks = of.prepare(range(of.count))
    peaks = np.abs(np.fft.rfft(chunks)).argmax(axis=1) * 16_000 / length
    np.testing.assert_allclose(peaks, 1000, atol=10)
    mixed = of.shuffle(range(of.count), chunks, np.random.default_rng(0))
    assert mixed.shape == chunks.shape
    np.testing.assert_array_equal(np.sort(mixed, axis=None), np.sort(chunks, axis=None))
    assert (
        np.abs(np.corrcoef(mixed[0, :-1], mixed[0, 1:])[0, 1])
        < 0.2
        < np.corrcoef(chunks[0, :-1], chunks[0, 1:])[0, 1]
    )


def test_hidden_files_are_left_out_and_folders_gone_through(tmp_path):
    (tmp_path / "deep" / ".cache").mkdir(parents=True)
    for name in (".DS_Store", "deep/.cache/x.txt", "b.PNG", "deep/a.png"):
        (tmp_path / name).touch()
    assert {path.name for path in media_files.list_files(tmp_path, {".png"}, "picture", 0)} == {
        "a.png",
        "b.PNG",
    }
