"""Call what an extra serves once, on tiny inputs, in an environment that has this extra alone.

tests/test_installs.py runs it outside of the checkout: python -P installed_calls.py EXTRA.
"""

import inspect
import pathlib
import string
import subprocess
import sys

import numpy as np

import anisoscope

RNG = np.random.default_rng(0)
LAYERS = RNG.standard_normal((2, 128, 8)).astype(np.float32)
SENTENCES = np.arange(128) // 8
FEW = {"families": "similarity", "nulls": ()}
QUICK = FEW | {"quiet": True}
HERE = pathlib.Path(sys.executable).parent
SETTINGS = """
    data.source=pydoc train.steps=2 train.batch_size=4 model.layers=1 model.width=16 model.heads=2
    model.context=16 evaluate.windows=8 measure.points=64 measure.batches=1
    measure.families=similarity measure.nulls=
"""
TINY = [f"--config.{setting}" for setting in SETTINGS.split()]


def command(*flags, start=(HERE / "anisoscope",), code=0):
    """Run the installed command; return what it prints, or its line of error."""
    done = subprocess.run([*start, *flags], capture_output=True, text=True)
    assert done.returncode == code, done.stderr
    return done.stderr if code else done.stdout


def lacks(extra, call):
    """An error of one line names the extra that is not installed."""
    try:
        call()
    except ImportError as error:
        line = str(error)
    assert f'pip install "anisoscope[{extra}]"' in line
    assert "\n" not in line


def core():
    """Arrays, recorder, metrics, and the command's help."""
    table = anisoscope.measure([*LAYERS], SENTENCES, **QUICK)
    assert anisoscope.to_frame(table).metric[0] == "mean_cosine"
    assert "mean_cosine" in anisoscope.to_text(table)
    same = anisoscope.compare([*LAYERS], [*2 * LAYERS], SENTENCES, quiet=True)
    assert np.allclose(same.cka.sel(statistic="mean").values.diagonal(), 1)
    q_NHBTK = RNG.standard_normal((1, 2, 4, 8, 4))
    heads = anisoscope.measure_attention(q_NHBTK, q_NHBTK, mask="causal", quiet=True)
    assert "attention_first_token" in heads
    read = anisoscope.make_measure(lambda x, _: x[None], np.zeros((16, 8), int), **FEW)
    assert "mean_cosine" in read(LAYERS[0].reshape(16, 8, 8))
    with anisoscope.record(lambda x: {"block": x}, points=64) as recorder:
        recorder(LAYERS.reshape(16, 16, 8))
    assert "mean_cosine" in anisoscope.measure_step(recorder, 3, "steps", **FEW)
    for name in anisoscope.metrics.__all__:
        metric = getattr(anisoscope.metrics, name)
        assert np.isfinite(metric(*LAYERS[: 1 + ("y" in inspect.signature(metric).parameters)]))
    np.savez("layers.npz", early=LAYERS[0], late=LAYERS[1], s=SENTENCES)
    few = ("--families=similarity", "--nulls=", "--vectors=early,late", "--clusters=s")
    assert "mean_cosine" in command("measure", "layers.npz", *few, "--out=a.csv")
    np.savetxt("rows.csv", LAYERS[0], delimiter=",")
    assert "mean_cosine" in command("measure", "rows.csv", *few[:2])
    assert anisoscope.measure_points([*LAYERS], quiet=True).norm.shape == (2, 128)
    version = f"anisoscope {anisoscope.__version__}\n"
    assert command("--version") == version
    assert command("--version", start=(sys.executable, "-m", "anisoscope")) == version
    assert "--config.train.steps" in command("--help", "--config=quickstart")
    assert "--config=decoder_small" in command("--list")
    assert 'pip install "anisoscope[' in command("--config=quickstart", code=2)


def files():
    """Files of vectors, read and written."""
    import safetensors.numpy

    with anisoscope.record(lambda x: {"block": x}, to="a.nc", points=64) as recorder:
        recorder(LAYERS.reshape(16, 16, 8))
    recorder.write("b.nc")
    np.savez("a.npz", vectors=LAYERS)
    np.save("a.npy", LAYERS)
    safetensors.numpy.save_file({"vectors": LAYERS}, "a.safetensors")
    for name in ("a.nc", "b.nc", "a.npz", "a.npy", "a.safetensors"):
        axes = None if name.endswith(".nc") else ("layer", "point", "width")
        assert "mean_cosine" in anisoscope.measure(name, axes=axes, **QUICK)
    lacks("plots", lambda: anisoscope.plot)


def plots():
    """Figures and the page, of a table in memory."""
    families = {"families": ("spectrum", "scale"), "nulls": (), "quiet": True}
    tables = [anisoscope.measure([*x], SENTENCES, **families) for x in (LAYERS, 2 * LAYERS)]
    steps = [table.expand_dims(step=[n]) for n, table in enumerate(tables)]
    import xarray

    anisoscope.plot.by_layer(tables[0], "anisotropy")
    anisoscope.plot.by_step(xarray.concat(steps, "step"), "anisotropy")
    anisoscope.plot.effective_ranks(tables[0])
    anisoscope.plot.dimension_by_scale(tables[0])
    anisoscope.plot.layer_map(
        anisoscope.compare([*LAYERS], [*LAYERS], SENTENCES, quiet=True), "cka"
    )
    anisoscope.report(tables[0], "page.html")
    assert "<html" in pathlib.Path("page.html").read_text()[:200]
    lacks("train", lambda: anisoscope.open_run("."))


def train():
    """The command: an experiment with figures, checked, and its run opened."""
    experiment = ("--config=experiments/decoder_small.py:tiny", *TINY)
    command(*experiment, "--dry_run")
    command(*experiment)
    folder = pathlib.Path("runs/decoder_small_tiny")
    assert (folder / "figures" / "training_curve.png").exists()
    command(*experiment, "--stages=verify")
    run = anisoscope.open_run(folder)
    assert run.vectors(run.params(run.steps[-1]), run.windows(2)).shape == (2, 2, 16, 16)
    assert len(repr(run).splitlines()) == 3
    assert anisoscope.models.__name__ == "anisoscope.models"
    error = command("--config=experiments/pretrained.py:gpt2", "--config.data.source=pydoc", code=2)
    assert 'pip install "anisoscope[pretrained]"' in error


def small_model(folder):
    """Save a random GPT-2 whose tokens are letters; return it and its tokenizer."""
    import tokenizers
    import torch
    import transformers

    torch.manual_seed(0)
    ids = {token: i for i, token in enumerate(("<unk>", *string.ascii_lowercase, " ", "\n"))}
    letters = tokenizers.Tokenizer(tokenizers.models.WordLevel(ids, "<unk>"))
    every = tokenizers.Regex(r"[\s\S]")
    letters.pre_tokenizer = tokenizers.pre_tokenizers.Split(every, "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=letters, unk_token="<unk>")
    sizes = {"n_embd": 16, "n_layer": 2, "n_head": 2, "vocab_size": len(ids), "n_positions": 32}
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model, tokenizer


def pretrained():
    """Models by name and in memory, hooks in a model of torch, and the callback."""
    import torch

    model, tokenizer = small_model("gpt")
    texts = ["".join(RNG.choice([*string.ascii_lowercase, " "], 400)) for _ in range(8)]
    options = {"window": 16, "points": 64, "quiet": True}
    table = anisoscope.measure_model("gpt", texts, batches=1, **FEW, **options)
    assert table.positions.values.tolist() == ["all", "without_first_token"]
    pair = anisoscope.compare_models("gpt", (model, tokenizer), texts, batches=1, **options)
    assert np.allclose(np.diagonal(pair.cka.sel(statistic="mean", positions="all")), 1, atol=1e-3)
    with anisoscope.record(model, ["transformer.h.0"], to="a.nc", points=64), torch.no_grad():
        model(torch.arange(16)[None].repeat(8, 1))
    assert "mean_cosine" in anisoscope.measure("a.nc", **QUICK)
    assert anisoscope.trainer_callback(["transformer.h.0"], "steps").every == 100
    lacks("train", lambda: anisoscope.open_run("."))
    lacks("plots", lambda: anisoscope.plot)


def everything():
    """The command on a pretrained model, with figures."""
    small_model("gpt")
    text = "".join(RNG.choice([*string.ascii_lowercase, " "], 40_000))
    pathlib.Path("text.txt").write_text(text)
    settings = "data.path=text.txt window=16 measure.points=64 measure.batches=1"
    settings += " measure.families=similarity measure.nulls= pretrained.max_bits_per_byte=8"
    flags = [f"--config.{setting}" for setting in settings.split()]
    command("--config=experiments/pretrained.py:gpt", *flags, "--workdir=runs/gpt")
    assert list(pathlib.Path("runs/gpt/figures").glob("*.png"))


if __name__ == "__main__":
    assert "site-packages" in anisoscope.__file__, anisoscope.__file__
    globals()[sys.argv[1].replace("all", "everything")]()
