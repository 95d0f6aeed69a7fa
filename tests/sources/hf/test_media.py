"""Models that read pictures or sound: their blocks, their files, and the program that reads them."""

import json
import shutil

import numpy as np
import pytest
import transformers
from PIL import ExifTags, Image
from scipy.io import wavfile

from anisoscope.experiments import pretrained as experiment
from anisoscope.results import joined_files
from anisoscope.sources.hf import media, pretrained_weights
from tests.program import override, refuse
from tests.sources.hf import tiny_models
from tests.sources.hf.architectures import build

SMALL = ("--config.measure.points=64", "--config.measure.folds=2", "--config.measure.batches=2")
SMALL += ("--stages=measure", "--config.measure.nulls=shuffled")
SIMILARITY = "--config.measure.families=('similarity',)"
IMAGES = {"size": {"height": 32, "width": 32}}


def wav(path, dtype="int16", rate=16_000, seconds=2.0, channels=1, tone=440.0, seed=0):
    """A tone with noise, of an amplitude below 1."""
    time = np.arange(int(rate * seconds)) / rate
    noise = np.random.default_rng(seed).normal(0, 0.05, time.size)
    wave = 0.5 * np.sin(2 * np.pi * tone * time) + noise
    scales = {"int16": (0, 32767), "int32": (0, 2**31 - 1), "uint8": (128, 127), "float32": (0, 1)}
    shift, scale = scales[dtype]
    scaled = np.repeat((shift + scale * wave)[:, None], channels, axis=1).astype(dtype)
    wavfile.write(path, rate, scaled)
    return wave


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Pictures, recordings, and folders of tiny random models."""
    root = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    for folder in ("pictures", "sounds"):
        (root / folder).mkdir()
    (root / "pictures" / ".hidden").write_text("no picture")
    (root / "pictures" / "deep").mkdir()
    for number in range(16):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 4, 3), dtype=np.uint8))
        name = f"{number}.{('png', 'jpg')[number % 2]}"
        coarse.resize((40, 50)).save(root / "pictures" / "deep" / name)
    for number in range(4):
        wav(root / "sounds" / f"{number}.wav", tone=300.0 * (1 + number), seed=number)
    for name in ("ViT", "DeiT", "DINOv2, registers", "wav2vec 2.0"):
        folder = root / name.split(",")[0]
        build(name).model.save_pretrained(folder)
        if name.startswith("wav"):
            transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
        else:
            transformers.ViTImageProcessorPil(**IMAGES).save_pretrained(folder)
    return root


def flags(world, model, data, *more):
    config = f"--config=experiments/pretrained.py:{world / model}"
    return config, f"--config.data.path={world / data}", *SMALL, SIMILARITY, *more


def measured(world, workdir, model, data, *more):
    process = tiny_models.run(*flags(world, model, data, *more), f"--workdir={workdir}")
    return joined_files.read_table(workdir / "results.nc"), process.stdout


def open_windows(world, model):
    changes = {"data.path": str(world / "pictures"), "measure.points": "64", "measure.folds": "2"}
    config = override(experiment.get_config(str(world / model)), changes)
    location = pretrained_weights.find_weights(config.pretrained.name, None)
    return media.open_media(config, location)


@pytest.mark.parametrize("positions", [2, 7, 50])
def test_a_piece_has_as_many_samples_as_its_positions_need(positions):
    base = build("wav2vec 2.0").base
    samples = media.samples_of_positions(base, None, positions)
    for given, expected in ((samples, positions), (samples - 1, positions - 1)):
        assert int(base._get_feat_extract_output_lengths(given)) == expected


def test_recordings_are_the_same_in_every_format(tmp_path):
    for dtype, close in (("int16", 1e-4), ("int32", 1e-6), ("uint8", 0.02), ("float32", 1e-6)):
        wave = wav(tmp_path / f"{dtype}.wav", dtype, channels=2)
        found, rate = media.read_recording(tmp_path / f"{dtype}.wav")
        assert rate == 16_000
        np.testing.assert_allclose(found, wave, atol=close)


def test_recordings_are_resampled_joined_and_cut(tmp_path):
    wav(tmp_path / "a.wav", rate=44_100, tone=1000.0)
    wav(tmp_path / "b.wav", rate=16_000, tone=1000.0)
    base = build("wav2vec 2.0").base
    extractor = transformers.Wav2Vec2FeatureExtractor(do_normalize=False)
    of = media.Recordings(tmp_path, extractor, base, 150, 0)
    length = media.samples_of_positions(base, None, 150)
    assert of.count == 64_000 // length
    joined = "2 recordings of 4.0 s in all, of 16000, 44100 samples a second; measured at 16000"
    assert of.attributes["joined"] == joined
    chunks = of.prepare(range(of.count))
    peaks = np.abs(np.fft.rfft(chunks)).argmax(axis=1) * 16_000 / length
    np.testing.assert_allclose(peaks, 1000, atol=10)
    mixed = of.shuffle(range(of.count), chunks, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(mixed, axis=None), np.sort(chunks, axis=None))
    before, after = (abs(np.corrcoef(x[0, :-1], x[0, 1:])[0, 1]) for x in (chunks, mixed))
    assert after < 0.2 < before


def test_windows_are_the_pictures_that_they_are_called(world):
    source, windows = open_windows(world, "ViT")
    assert source.name == "pictures of pictures"
    prepare, prepared = transformers.ViTImageProcessorPil(**IMAGES), {}
    for path in (world / "pictures").rglob("*.??g"):
        with Image.open(path) as picture:
            (pixels,) = prepare(images=[picture.convert("RGB")], return_tensors="np").values()
        prepared[pixels[0].astype(np.float32).tobytes()] = path.name
    read_GWCHW, shuffled_GWCHW = windows.probe.tokens_GWT, windows.probe.shuffled_GWT
    names = [prepared[picture.tobytes()] for inputs in read_GWCHW for picture in inputs]
    # 2 batches of 2 folds of 2 pictures, none of them twice
    assert len({*names}) == len(names) == 8
    assert windows.attributes["first_windows"].split(" | ") == names[:3]
    for one, mixed in zip(read_GWCHW, shuffled_GWCHW, strict=True):
        colors, others = (np.moveaxis(x_WCHW, 1, 3).reshape(-1, 3) for x_WCHW in (one, mixed))
        assert sorted(colors.tolist()) == sorted(others.tolist())
        assert (np.diff(colors[:, 0]) == 0).mean() > 10 * (np.diff(others[:, 0]) == 0).mean()


def test_a_photograph_that_is_marked_as_turned_is_read_upright(tmp_path):
    exif = Image.Exif()
    exif[ExifTags.Base.Orientation] = 6  # a quarter turn
    Image.new("RGB", (40, 20)).save(tmp_path / "a.jpg", exif=exif)
    assert media.read_picture(tmp_path / "a.jpg", "RGB").size == (20, 40)


def test_register_tokens_are_no_patches(world):
    _, windows = open_windows(world, "DINOv2")
    assert windows.fixed_T.tolist() == [True] * 5 + [False] * 16
    assert windows.attributes["special_tokens"] == "1 cls_token, 4 register_tokens"
    picks_GP = windows.probe.picks_SGP[windows.positions.index("without_special")]
    assert (picks_GP % 21 >= 5).all()


def test_pictures_through_a_vision_transformer(world, tmp_path):
    families = "--config.measure.families=('similarity', 'attention')"
    results, said = measured(world, tmp_path / "run", "DeiT", "pictures", families)
    assert results.mean_cosine.sizes["layer"] == 4
    assert results["positions"].values.tolist() == ["all", "without_first_token", "without_special"]
    assert results.mean_cosine.sel(statistic="mean").notnull().all()
    assert results.mean_cosine_excess.sel(statistic="mean", null="shuffled").notnull().all()
    assert results.attrs["windows"] in said
    assert results.attrs["bits_per_byte"] == "not checked: it reads no text"
    first = results.attention_first_token.sel(statistic="mean")
    assert first.sel(positions="all").notnull().all()
    assert first.sel(positions="without_first_token").isnull().all()


def test_speech_in_pieces_of_equal_length(world, tmp_path):
    results, _ = measured(world, tmp_path / "run", "wav2vec 2.0", "sounds", "--config.window=20")
    assert results["positions"].values.tolist() == ["all", "without_first_token"]
    assert results.mean_cosine_excess.sel(null="shuffled", statistic="mean").notnull().all()
    assert results.attrs["windows"].endswith("20 positions each")


def only_deep(pictures):
    """In the place of all pictures one of 16 bits."""
    shutil.rmtree(pictures)
    pictures.mkdir()
    Image.fromarray(np.full((40, 40), 40_000, np.uint16)).save(pictures / "deep.png")


def only_jpg(pictures):
    for file in pictures.rglob("*.png"):
        file.unlink()


@pytest.mark.parametrize(
    ("change", "setting", "words"),
    [
        (only_deep, "measure.batches=1", "deep.png has pixels of mode I;16"),
        (only_jpg, "measure.points=256", "holds 8 pictures, 17 positions each"),
    ],
)
def test_pictures_that_cannot_be_used_are_one_line(world, tmp_path, change, setting, words):
    pictures = shutil.copytree(world / "pictures", tmp_path / "pictures")
    change(pictures)
    refuse(tmp_path / "run", words, *flags(world, "ViT", pictures, f"--config.{setting}"))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (np.full(9, np.nan, np.float32), "holds numbers that are not finite"),
        (np.zeros(900, np.int16), "holds no chunks of 0.133 s"),
    ],
)
def test_recordings_that_cannot_be_used_are_one_line(world, tmp_path, content, words):
    path = tmp_path / "a.wav"
    wavfile.write(path, 16_000, content)
    refuse(tmp_path / "run", words, *flags(world, "wav2vec 2.0", path, "--config.window=105"))


def test_a_list_of_models_of_pictures_is_read_as_the_papers_read(world, tmp_path):
    """What only texts have is not asked of them; a model without a processor is left out."""
    shutil.copytree(world / "DeiT", tmp_path / "bare")
    (tmp_path / "bare" / "preprocessor_config.json").unlink()
    process = tiny_models.run(
        "--config=experiments/inherent.py:paper",
        f"--config.models={world / 'ViT'},{tmp_path / 'bare'}",
        f"--config.images={world / 'pictures'}",
        *(SMALL[0], SMALL[2], SMALL[3], f"--workdir={tmp_path / 'run'}"),
    )
    assert process.stdout.count("left out: bare: ") == 1
    assert json.loads((tmp_path / "run" / "models.json").read_text()).keys() == {"ViT"}
    table = joined_files.read_table(tmp_path / "run" / "ViT" / "results.nc")
    assert table.attrs["residual_stream"].startswith("hidden states as")
    refuse(tmp_path / "alone", "cannot be loaded", *flags(world, tmp_path / "bare", "pictures"))
