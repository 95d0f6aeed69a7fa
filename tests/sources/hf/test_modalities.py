"""Models that read pictures or sound: their blocks, and the chunks of sound that they read."""

import numpy as np
import pytest
import torch
import transformers

from anisoscope.sources.hf import guards, media_files
from anisoscope.sources.hf.adapters import MODALITIES, UNKNOWN, adapter_name
from anisoscope.sources.hf.extract import read_activations
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models
from tests.sources.hf.recordings import wav
from tests.sources.hf.rows.modalities import ROWS, media
from tests.sources.hf.rows.row import made, show


@pytest.mark.parametrize("name", ROWS)
def test_blocks_and_attention_are_the_models_own(name):
    shown = show(ROWS[name])
    assert shown.layers >= 3
    assert shown.streams < 1e-5
    assert shown.attention is None if name.startswith("WavLM") else shown.attention < 1e-5


def test_every_entry_has_a_row():
    assert {made(row).adapter for row in ROWS.values()} == set(MODALITIES.values())


def test_two_kinds_of_block_of_one_type_are_told_apart():
    base, large = (made(ROWS[name]) for name in ("HuBERT", "HuBERT, large"))
    assert adapter_name(base.model.config) == "hubert"
    assert adapter_name(large.model.config) == "hubert, norm first"
    assert "before the final norm" in guards.check_final_norm(large, media(large.model.config)[0])
    wrong = large._replace(adapter=large.adapter._replace(final_norm=None))
    with pytest.raises(UserError, match="differs from the last hidden state"):
        guards.check_final_norm(wrong, media(wrong.model.config)[0])


@pytest.mark.parametrize(
    ("name", "settings", "words"),
    [
        ("ResNetModel", {"hidden_sizes": [8, 8], "depths": [1, 1]}, "returns maps of shape"),
        (
            "SwinModel",
            {"image_size": 32, "depths": [1, 1], "num_heads": [2, 2], "window_size": 4},
            "other layers have",
        ),
    ],
)
def test_maps_that_shrink_from_stage_to_stage_are_refused(name, settings, words):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    settings = kind.config_class(embedding_size=8, embed_dim=16, num_hidden_layers=2, **settings)
    loaded = tiny_models.as_loaded(kind(settings).eval(), UNKNOWN)
    pictures = np.random.default_rng(0).normal(size=(1, 2, 3, 32, 32)).astype(np.float32)
    with pytest.raises(UserError, match=words):
        read_activations(loaded, pictures, 2, heads=False)


@pytest.mark.parametrize("positions", [2, 7, 50])
def test_a_piece_has_as_many_samples_as_its_positions_need(positions):
    loaded = made(ROWS["wav2vec 2.0"])
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
    base = made(ROWS["wav2vec 2.0"]).base
    of = media_files.Recordings(
        tmp_path, transformers.Wav2Vec2FeatureExtractor(do_normalize=False), base, 150, 0
    )
    length = media_files.samples_of_positions(base, None, 150)
    assert of.count == 64_000 // length
    assert "2 recordings of 4.0 s in all; 1 of" in of.attributes["joined"]
    assert "resampled from 44100" in of.attributes["preparation"]
    chunks = of.prepare(range(of.count))
    peaks = np.abs(np.fft.rfft(chunks)).argmax(axis=1) * 16_000 / length
    np.testing.assert_allclose(peaks, 1000, atol=10)
    mixed = of.shuffle(range(of.count), chunks, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(mixed, axis=None), np.sort(chunks, axis=None))
    before, after = (abs(np.corrcoef(x[0, :-1], x[0, 1:])[0, 1]) for x in (chunks, mixed))
    assert after < 0.2 < before


def test_hidden_files_are_left_out_and_folders_gone_through(tmp_path):
    (tmp_path / "deep" / ".cache").mkdir(parents=True)
    for name in (".DS_Store", "deep/.cache/x.txt", "b.PNG", "deep/a.png"):
        (tmp_path / name).touch()
    files = media_files.list_files(tmp_path, 0)
    assert {path.name for path in files} == {"a.png", "b.PNG"}
