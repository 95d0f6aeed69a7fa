"""The program as its users start it, a process; or called here, which is quicker and enough where
it refuses; and tiny experiments for it.
"""

import contextlib
import doctest
import io
import json
import logging
import os
import pathlib
import re
import subprocess
import sys
from typing import Any

import absl.logging
import matplotlib.pyplot as plt

from anisoscope.cli import flags as command_line
from anisoscope.cli import process as program
from anisoscope.cli.flags import Request
from anisoscope.utils.settings import replace, walk_settings

ROOT = pathlib.Path(__file__).parent.parent
SETTINGS = """
    data.source=pydoc model.layers=2 model.width=16 model.heads=2 model.context=16
    model.position_encoding=learned train.steps=24 train.batch_size=16 train.optimizer=adamw
    train.learning_rate=2e-3 train.steps_per_call=4 evaluate.stride=16 evaluate.every=10
    evaluate.windows=64 checkpoint.every=20 measure.points=64 measure.batches=2
    measure.families=spectrum,similarity measure.nulls=untrained
"""
TINY = [f"--config.{setting}" for setting in SETTINGS.split()]
STEPS = [0, 1, 2, 4, 8, 16, 20, 24]  # of its checkpoints
MATCHED_PAIR = ["--config=experiments/quickstart.py", *TINY]
DECODER = ["--config=experiments/decoder_small.py", *TINY]  # the decoder of the pair alone


def command(*flags):
    return [sys.executable, "main.py", *flags]


def environment(devices=1):
    """One device, as on a user's machine, or so many."""
    flags = re.sub(r"(?<=device_count=)\d+", str(devices), os.environ["XLA_FLAGS"])
    return os.environ | {"XLA_FLAGS": flags}


def main(*flags, devices=1, **variables):
    env = environment(devices) | variables
    return subprocess.run(
        command(*flags), cwd=ROOT, env=env, capture_output=True, text=True, timeout=900
    )


def start(*flags, **options):
    return subprocess.Popen(command(*flags), cwd=ROOT, stdout=subprocess.PIPE, text=True, **options)


def here(*flags):
    """The same, in this process and on its one device."""
    levels = logging.getLogger().level, absl.logging.get_verbosity()
    with (
        contextlib.redirect_stdout(io.StringIO()) as output,
        contextlib.redirect_stderr(io.StringIO()) as errors,
    ):
        try:
            code = program.main(["main.py", *flags])
        finally:
            logging.getLogger().setLevel(levels[0])
            absl.logging.set_verbosity(levels[1])
    return subprocess.CompletedProcess(flags, code, output.getvalue(), errors.getvalue())


def override(config, texts):
    """The config with these settings, as the command line reads their texts."""
    kinds = {one.name: one.kind for one in walk_settings(config)}
    return replace(
        config, {name: command_line.parse_value(kinds[name], text) for name, text in texts.items()}
    )


def asked(root, *stages, title="run"):
    """What the command passes on, apart from the experiment."""
    given = command_line.parse(["main.py", f"--stages={','.join(stages)}"])[0]
    return Request(given, set(), root, title)


def refuse(workdir, words, *flags, start=here):
    """The program says what is wrong in one line, with exit code 2, and leaves no folder."""
    process = start(*flags, f"--workdir={workdir}")
    assert process.returncode == 2
    assert words in process.stderr
    assert len(process.stderr.strip().splitlines()) == 1
    assert not workdir.exists()


def saved_digests(checkpoint):
    """Digests of the leaves of a checkpoint, from its folder, as they were when it was saved."""
    metadata = (checkpoint / "_CHECKPOINT_METADATA").read_text()
    return json.loads(metadata)["custom_metadata"]["sha256"]


def checkpoint_digests(folder):
    """`saved_digests` of every checkpoint of a folder, by its name."""
    paths = folder.glob("*/_CHECKPOINT_METADATA")
    return {path.parent.name: saved_digests(path.parent) for path in paths}


def flip(path):
    """Change one bit of a file."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


def run_examples(function, **names) -> None:
    """Run the examples of a docstring, where the reader's own things have these names."""
    names |= {function.__name__: function}
    for test in doctest.DocTestFinder().find(function, function.__name__, globs=names):
        results = doctest.DocTestRunner().run(test)
        assert results.attempted > 0
        assert results.failed == 0


def run_notebook(name: str) -> dict[str, Any]:
    """Run a notebook of examples/ cell by cell, as Jupyter does; return its names at the end."""
    space: dict[str, Any] = {}
    for cell in json.loads((ROOT / "examples" / name).read_text())["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), space)
    plt.close("all")
    return space
