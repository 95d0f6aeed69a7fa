"""Models that read pictures or sound in the program as its users start it, and what it refuses of
their files.
"""

import json
import shutil

import numpy as np
import pytest
import transformers
from PIL import Image
from scipy.io import wavfile

from anisoscope.experiments import pretrained as experiment
from anisoscope.results import joined_files
from anisoscope.sources.hf import media_inputs, pretrained_weights
from tests.program import here, override, refuse
from tests.sources.hf import tiny_models
from tests.sources.hf.recordings import wav
from tests.sources.hf.rows.modalities import ROWS
from tests.sources.hf.rows.row import made

SMALL = (
    "--config.measure.points=64",
    "--config.measure.folds=2",
    "--config.measure.batches=2",
    "--stages=measure",
)
SIMILARITY = "--config.measure.families=('similarity',)"
IMAGES = {"size": {"height": 32, "width": 32}}


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """Pictures, recordings, and folders of tiny random models."""
    root = tmp_path_factory.mktemp("world")
    rng = np.random.default_rng(0)
    for folder in ("pictures", "sounds"):
        (root / folder).mkdir()
    for number in range(16):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 4, 3), dtype=np.uint8))
        coarse.resize((40, 50)).save(root / "pictures" / f"{number}.{('png', 'jpg')[number % 2]}")
    for number in range(4):
        wav(root / "sounds" / f"{number}.wav", tone=300.0 * (1 + number), seed=number)
    for name in ("ViT", "DeiT", "DINOv2, registers", "wav2vec 2.0"):
        folder = root / name.split(",")[0]
        made(ROWS[name]).model.save_pretrained(folder)
        if name.startswith("wav"):
            transformers.Wav2Vec2FeatureExtractor().save_pretrained(folder)
        else:
            transformers.ViTImageProcessorPil(**IMAGES).save_pretrained(folder)
    tiny_models.save(tiny_models.model("llama"), root / "Llama")
    return root


def flags(world, model, data, *more):
    given = [] if data is None else [f"--config.data.path={world / data}"]
    return f"--config=experiments/pretrained.py:{world / model}", *given, *SMALL, SIMILARITY, *more


def measured(world, workdir, model, data, *more):
    process = tiny_models.done(*flags(world, model, data, *more), f"--workdir={workdir}")
    return joined_files.read_table(workdir / "results.nc"), process.stdout


def open_windows(world, model):
    changes = {"data.path": str(world / "pictures"), "measure.points": "64", "measure.folds": "2"}
    config = override(experiment.get_config(str(world / model)), changes)
    location = pretrained_weights.find_weights(config.pretrained.name, None)
    return media_inputs.open_media(config, location)


def test_windows_are_the_pictures_that_they_are_called(world):
    source, windows = open_windows(world, "ViT")
    assert source.name == "pictures of pictures"
    prepare, prepared = transformers.ViTImageProcessorPil(**IMAGES), {}
    for path in (world / "pictures").iterdir():
        with Image.open(path) as picture:
            pixels = prepare(images=[picture.convert("RGB")], return_tensors="np")["pixel_values"][
                0
            ]
        prepared[pixels.astype(np.float32).tobytes()] = path.name
    read_GWCHW, shuffled_GWCHW = windows.probe.tokens_GWT, windows.probe.shuffled_GWT
    names = [prepared[picture.tobytes()] for inputs in read_GWCHW for picture in inputs]
    assert (
        len({*names}) == len(names) == 8
    )  # 2 batches of 2 folds of 2 pictures, none of them twice
    assert windows.attributes["first_windows"].split(" | ") == names[:3]
    for one, mixed in zip(read_GWCHW, shuffled_GWCHW, strict=True):
        colors, others = (np.moveaxis(x_WCHW, 1, 3).reshape(-1, 3) for x_WCHW in (one, mixed))
        assert sorted(colors.tolist()) == sorted(others.tolist())
        assert (np.diff(colors[:, 0]) == 0).mean() > 10 * (np.diff(others[:, 0]) == 0).mean()


def test_register_tokens_are_no_patches(world):
    _, windows = open_windows(world, "DINOv2")
    assert windows.fixed_T.tolist() == [True] * 5 + [False] * 16
    assert windows.attributes["windows"].endswith(
        "21 positions each, in front a class token and 4 register tokens"
    )
    picks_GP = windows.probe.picks_SGP[windows.positions.index("without_special")]
    assert (picks_GP % 21 >= 5).all()


def test_pictures_through_a_vision_transformer(world, tmp_path):
    families = "--config.measure.families=('similarity', 'attention')"
    results, said = measured(world, tmp_path / "run", "DeiT", "pictures", families)
    assert results.mean_cosine.sizes["layer"] == 4
    assert results["positions"].values.tolist() == ["all", "without_first_token", "without_special"]
    assert results.mean_cosine.sel(statistic="mean").notnull().all()
    assert results.mean_cosine_excess.sel(statistic="mean", null="shuffled").notnull().all()
    assert "18 positions each, in front a class token and a distillation token" in said
    assert results.attrs["bits_per_byte"] == "not asked: the loss is guarded for texts alone"
    assert "softmax of q and k is the model's own" in results.attrs["attention"]
    first = results.attention_first_token.sel(statistic="mean")
    assert first.sel(positions="all").notnull().all()
    assert first.sel(positions="without_first_token").isnull().all()
    assert results.attrs["windows"] in said


def test_speech_in_pieces_of_equal_length(world, tmp_path):
    results, said = measured(world, tmp_path / "run", "wav2vec 2.0", "sounds", "--config.window=20")
    assert results["positions"].values.tolist() == ["all", "without_first_token"]
    assert results.mean_cosine_excess.sel(null="shuffled", statistic="mean").notnull().all()
    assert "20 positions each, in front the first of them" in said
    assert "4 recordings of 8.0 s in all" in results.attrs["joined"]


def only_deep(pictures):
    """In the place of all pictures one of 16 bits."""
    shutil.rmtree(pictures)
    pictures.mkdir()
    Image.fromarray(np.full((40, 40), 40_000, np.uint16)).save(pictures / "deep.png")


@pytest.mark.parametrize(
    ("change", "setting", "words"),
    [
        (only_deep, "measure.batches=1", "deep.png has pixels of mode I;16"),
        (
            lambda pictures: [file.unlink() for file in pictures.glob("*.png")],
            "measure.points=256",
            "holds 8 pictures, 17 positions each",
        ),
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
    """What only texts have is not asked of them."""
    run = tmp_path / "run"
    process = tiny_models.done(
        "--config=experiments/inherent.py:paper",
        f"--config.models={world / 'ViT'},{world / 'DeiT'}",
        f"--config.images={world / 'pictures'}",
        *(SMALL[0], SMALL[2], SMALL[3], f"--workdir={run}"),
    )
    assert "left out" not in process.stdout
    assert json.loads((run / "models.json").read_text()).keys() == {"ViT", "DeiT"}
    table = joined_files.read_table(run / "ViT" / "results.nc")
    assert table.attrs["residual_stream"].startswith("hidden states as")


def test_a_model_without_a_processor_is_refused(world, tmp_path):
    model = shutil.copytree(world / "ViT", tmp_path / "model")
    (model / "preprocessor_config.json").unlink()
    process = here(*flags(world, model, "pictures"), f"--workdir={tmp_path / 'run'}")
    tiny_models.one_line(process, "cannot be loaded")
