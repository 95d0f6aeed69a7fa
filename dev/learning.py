"""What is learned from so many characters, and in so many seconds: our recipes beside nanoGPT's in PyTorch, one seed.

    python -m dev.learning [--recipes muon,rotary,nanogpt] [--characters 7000000] [--config.data.path=FILE] …

Models have one shape (decoder_small.py:tiny), and read the same text and as many characters a step. A recipe that is
done is not done again; ours go on where they were stopped. Seconds are those of the median step, for every step:
neither compilation counts, nor what else the machine does for less than half of the time. nanoGPT's recipe is that of
its config/train_shakespeare_char.py: AdamW at 1e-3 with 100 steps of warm-up and a cosine to a tenth, and projections
into the residual stream begun smaller. It has our biases, begun at 0, and no dropout, since the text is read three
times at most.
"""

import argparse
import importlib.util
import io
import json
import math
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

import numpy as np

from anisoscope.cli import flags
from anisoscope.training import finished
from anisoscope.utils import files
from benchmarks.rounds import hardware

CONFIG = "experiments/decoder_small.py:tiny"
THEIRS = "nanogpt"
LABELS = {
    "muon": "Muon, rotary (here)",
    "rotary": "AdamW, rotary (here)",
    "gpt2": "AdamW, learned (here)",
    THEIRS: "nanoGPT's recipe, PyTorch",
}
# README of pszemraj/megalodon-enwik8-jax at 9b2c2c8: 1,200 steps of 16 windows of 512, of enwik8, 12.49M parameters,
# bfloat16, AdamW 4e-4, another validation. At steps 1,000 and 1,100 it says 2.17 and 2.18.
PUBLISHED = {
    "label": "published: a Llama of 12.5M, other validation text (megalodon-enwik8-jax)",
    "characters": 9.8e6,
    "bits": 2.21,
}
SETTINGS = {"train.schedule": "constant", "train.log_every": "1"}  # of ours; of nanoGPT's only sizes and the text count
# Settings that all recipes share; of the rest each has its own, and PyTorch's model has no other sizes.
SHARED = ("data.", "evaluate.", "train.batch_size", "train.seed")
SIZES = ("model.layers", "model.width", "model.heads", "model.context")
RATE, LEAST, WARMUP = 1e-3, 1e-4, 100


def settings_of(recipe: str, characters: int, given: dict[str, str | None]) -> Any:
    config = flags.load(CONFIG if recipe == THEIRS else f"{CONFIG},{recipe}")
    config = flags.override(config, SETTINGS | given)
    steps = characters // (config.train.batch_size * config.model.context)
    return flags.override(config, {"train.steps": str(steps)})


def ours(recipe: str, characters: int, given: dict[str, str | None], out: pathlib.Path) -> None:
    """The main command trains; what it logs is read."""
    config = settings_of(recipe, characters, given)
    settings = SETTINGS | given | {"train.steps": config.train.steps}
    folder = out / recipe
    command = [
        sys.executable,
        "main.py",
        f"--config={CONFIG},{recipe}",
        f"--workdir={folder}",
        "--stages=train",
        *flags.joined(settings),
    ]
    if code := subprocess.run(command).returncode:
        sys.exit(code)
    if not finished.is_finished(folder):
        sys.exit(f"{recipe} was stopped; the same command resumes")
    lines = [json.loads(line) for line in (folder / "train.jsonl").read_text().splitlines()]
    each = config.train.batch_size * config.model.context
    step = statistics.median(each / line["characters_per_second"] for line in lines if line["kind"] == "train")
    curve = [[line["step"], line["bits_per_character"]] for line in lines if line["kind"] == "valid"]
    save(out, recipe, config, curve, step, finished.read_score(folder)["bits_per_character"])


def theirs(characters: int, given: dict[str, str | None], out: pathlib.Path) -> None:
    import torch

    from anisoscope.data import corpus
    from anisoscope.training import evaluate
    from benchmarks.peers import torch_twin

    config = settings_of(THEIRS, characters, given)
    shape, batch, steps = config.model, config.train.batch_size, config.train.steps
    text = corpus.load(config.data, shape.context)
    torch.manual_seed(config.train.seed)
    model = torch_twin.Transformer(shape.layers, shape.width, shape.heads, shape.context, text.vocab_size)
    begin_as_nanogpt(model, shape.layers)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    corpus_N = torch.from_numpy(np.array(text.train)).to(device)
    step = torch_twin.make_step(
        model.to(device), corpus_N, batch, shape.context, device.type == "cuda", lambda at: rate(at, steps)
    )

    def bits(split_N: np.ndarray, windows: Any) -> float:
        nats, count = 0.0, 0.0
        for part in evaluate.batches(config, split_N, windows, text.mask_token, batch):
            tokens, targets, weights = (torch.from_numpy(np.array(one)).to(device) for one in part)
            with torch.no_grad():
                logits = model(tokens.long()).flatten(0, 1).float()
            each = torch.nn.functional.cross_entropy(logits, targets.long().flatten(), reduction="none")
            nats, count = nats + float((each * weights.flatten()).sum()), count + float(weights.sum())
        return nats / count / math.log(2)

    valid = evaluate.valid_windows(config, text.valid.size)
    seconds, curve, told = [], [[0, bits(text.valid, valid)]], 0
    for at in range(1, steps + 1):
        began = time.perf_counter()
        step().item()
        seconds.append(time.perf_counter() - began)
        if at & (at - 1) == 0 or at % config.evaluate.every == 0 or at == steps:
            curve.append([at, bits(text.valid, valid)])
            if at > 1.2 * told:
                told = at
                print(f"{THEIRS}: step {at} of {steps}, {curve[-1][1]:.3f} bits, {sum(seconds):.0f} s", flush=True)
    test = bits(text.test, evaluate.test_windows(config, text.test.size)[0])
    save(out, THEIRS, config, curve, statistics.median(seconds), test)


def begin_as_nanogpt(model: Any, layers: int) -> None:
    """Matrices have nanoGPT's N(0, 0.02²) already."""
    import torch

    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
        if name.endswith(("attention_out.weight", "mlp_down.weight")):
            torch.nn.init.normal_(parameter, std=0.02 / math.sqrt(2 * layers))


def rate(at: int, steps: int) -> float:
    """nanoGPT's get_lr, at update number `at` from 0."""
    warmup = min(WARMUP, steps // 10)
    if at < warmup:
        return RATE * (at + 1) / (warmup + 1)
    share = (at - warmup) / max(steps - warmup, 1)
    return LEAST + 0.5 * (1 + math.cos(math.pi * share)) * (RATE - LEAST)


def save(out: pathlib.Path, recipe: str, config: Any, curve: list[list[float]], step: float, test: float) -> None:
    """Curves are written as (characters, seconds, bits), given as (steps, bits) and the seconds of a step."""
    from anisoscope.utils.files import write_json

    each = config.train.batch_size * config.model.context
    curve = [[steps * each, steps * step, bits] for steps, bits in curve]
    out.mkdir(parents=True, exist_ok=True)
    write_json(out / f"{recipe}.json", {"curve": curve, "test": test, "config": str(config)})


def report(found: dict[str, dict[str, Any]], out: pathlib.Path) -> None:
    import jax
    import pandas as pd

    from anisoscope.measurement.tables.files import write_csv

    print(hardware(jax.devices()[0].device_kind))
    print(f"{'recipe':30} {'characters':>12} {'seconds':>8} {'validation':>10} {'test':>7}")
    for recipe, one in found.items():
        characters, seconds, valid = one["curve"][-1]
        print(f"{LABELS[recipe]:30} {characters:12,.0f} {seconds:8.0f} {valid:10.3f} {one['test']:7.3f}")
    print(f"{PUBLISHED['label']}: {PUBLISHED['bits']} bits after {PUBLISHED['characters']:,.0f} characters")
    rows = [(recipe, *point) for recipe, one in found.items() for point in one["curve"]]
    frame = pd.DataFrame(rows, columns=["recipe", "characters", "seconds", "valid_bits"])
    write_csv(frame, out / "learning.csv")
    print(out / "learning.csv", draw(frame, out / "learning.png"), sep="\n")


def draw(frame: Any, path: pathlib.Path) -> pathlib.Path:
    """Of learning.csv."""
    from anisoscope.plot import style

    curves = dict(tuple(frame[frame["characters"] > 0].groupby("recipe", sort=False)))
    last = {recipe: curve.iloc[-1] for recipe, curve in curves.items()}
    with style.context():
        figure = style.new(style.PAGE, 3.2)
        strip, axes = style.below_a_strip(figure, 1, 2, 2.6)
        for (recipe, curve), look in zip(curves.items(), style.inks(curves).values(), strict=True):
            for ax, column, unit in zip(axes[0], ("characters", "seconds"), (1e6, 60), strict=True):
                ax.plot(curve[column] / unit, curve["valid_bits"], label=LABELS[recipe], markersize=3, **look)
        axes[0, 0].plot(PUBLISHED["characters"] / 1e6, PUBLISHED["bits"], "k*", label=PUBLISHED["label"])
        axes[0, 0].set(xlabel="characters seen (millions)", ylabel="bits per character, validation")
        axes[0, 1].set(xlabel="minutes of training")
        least = min(one["valid_bits"] for one in last.values())
        for ax in axes[0]:
            ax.set_ylim(least - 0.1, least + 2.5)  # the first steps are the same for all
        strip.legend(*style.entries(axes.flat), loc="center", ncols=2)
        bits = ", ".join(f"{one['valid_bits']:.2f} ({LABELS[recipe].split(' (')[0]})" for recipe, one in last.items())
        characters = max(one["characters"] for one in last.values())
        style.title(figure, f"Bits after {characters / 1e6:.3g} million characters, one seed: {bits}")
        content = io.BytesIO()
        figure.savefig(content, format=path.suffix[1:], dpi=150)
        files.write(path, content.getvalue())
    return path


def main() -> None:
    from anisoscope.config.data import CACHE
    from anisoscope.utils.compiled import keep

    words, given = flags.split(sys.argv[1:])
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--recipes", default=f"muon,rotary,{THEIRS}", help=f"of {', '.join(LABELS)}")
    parser.add_argument("--characters", type=int, default=7_000_000, help="that each of them trains on")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("runs/learning"))
    parser.add_argument("--table", type=pathlib.Path, help="a learning.csv, of which the figure alone is drawn")
    options = parser.parse_args(words)
    if options.table:
        import pandas as pd

        print(draw(pd.read_csv(options.table), options.out / "learning.png"))
        return
    recipes = options.recipes.split(",")
    if unknown := [recipe for recipe in recipes if recipe not in LABELS]:
        parser.error(f"{unknown[0]!r} is no recipe; choose from {', '.join(LABELS)}")
    if own := [name for name in given if not name.startswith((*SHARED, *SIZES))]:
        parser.error(f"--config.{own[0]} is not the same for all recipes; leave it out")
    if settings_of(recipes[0], options.characters, given).train.steps < 1:
        parser.error(f"--characters={options.characters} is less than one step")
    if THEIRS in recipes and importlib.util.find_spec("torch") is None:
        parser.error(f"{THEIRS} needs PyTorch: run it with .venv-bench/bin/python (make .venv-bench), or leave it out")
    keep(CACHE)
    found = {}
    for recipe in recipes:
        path, config = options.out / f"{recipe}.json", str(settings_of(recipe, options.characters, given))
        done = json.loads(path.read_text()) if path.exists() else {"config": config, "curve": None}
        if done["config"] != config:
            parser.error(f"{path} comes from other settings; name another --out")
        if done["curve"] is None:
            theirs(options.characters, given, options.out) if recipe == THEIRS else ours(
                recipe, options.characters, given, options.out
            )
        found[recipe] = json.loads(path.read_text())
    report(found, options.out)


if __name__ == "__main__":
    main()
