"""Every block of code in README and the documents runs and gives what is shown; commands are looked
up.
"""

import contextlib
import importlib.util
import pydoc
import re
from unittest import SkipTest

import numpy as np
import pytest

import anisoscope
from anisoscope.metrics.registry import FAMILIES
from tests.docs.blocks import DOCUMENTS
from tests.program import ROOT, main, run_notebook

FOLDERS = [ROOT / "docs", ROOT / "findings"]
PAGES = [path for folder in FOLDERS for path in sorted(folder.rglob("*.md"))]
PAGES = [path for path in PAGES if ROOT / "docs" / "made" not in path.parents]
PAGES += [ROOT / "README.md", ROOT / "CONTRIBUTING.md"]
LANGUAGES = {"python", "sh", "text", "{toctree}", "{eval-rst}", "{math}", "{literalinclude}"}
# The demo, smaller in all but its steps.
SMALLER = ("model.width=16", "model.heads=2", "model.context=16", "train.batch_size=4")
SMALLER += ("measure.points=128", "measure.batches=1", "evaluate.windows=8", "evaluate.stride=16")


@pytest.fixture(scope="module")
def checkout(tmp_path_factory):
    """A folder with all that a checkout has, a run of the demo, and what it said; what a block
    writes stays in it.
    """
    folder = tmp_path_factory.mktemp("checkout")
    for path in ROOT.iterdir():
        if path.name not in ("runs", ".git"):
            (folder / path.name).symlink_to(path)
    run = main(
        "--config=experiments/quickstart.py",
        f"--workdir={folder / 'runs' / 'quickstart'}",
        *(f"--config.{setting}" for setting in SMALLER),
    )
    assert run.returncode == 0, run.stderr
    (folder / "said.txt").write_text(run.stdout)
    return folder


def names() -> dict:
    """What documents call the reader's own things."""
    x = np.random.default_rng(0).normal(size=(512, 16)).astype(np.float32)
    return {
        "layers": [x, np.tanh(x)],
        "sentence_of_each": np.arange(512) // 8,
        "cache": {f"blocks.{n}.hook_resid_post": x.reshape(32, 16, 16) for n in range(2)},
        "torch": None,  # tests/sources/hf/test_pages_in_torch.py has it
    }


@pytest.mark.slow
@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_blocks(path, checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    monkeypatch.setenv("COLUMNS", "80")
    document = DOCUMENTS.parse(path)
    document.namespace.update(names())
    for example in document.examples():
        with contextlib.suppress(SkipTest):  # each says why, or the test below fails
            example.evaluate()


@pytest.mark.slow
def test_the_demo_ends_as_its_page_says(checkout):
    """Line by line, up to the colon: the numbers are those of the whole demo."""
    page = (ROOT / "docs" / "tutorials" / "demo.md").read_text()
    shown = re.search(r"## What it says at the end\n\n```text\n(.*?)```", page, re.DOTALL)[1]
    said = (checkout / "said.txt").read_text()
    assert labels(said)[-len(labels(shown)) :] == labels(shown)


@pytest.mark.slow
def test_every_cell_of_the_notebook_over_training_runs(checkout, monkeypatch):
    monkeypatch.chdir(checkout)
    space = run_notebook("training.ipynb")
    assert list(space["gains"]) == ["decoder", "encoder"]
    assert all(gain.iloc[-1] > gain.iloc[0] for gain in space["gains"].values())
    assert space["rank"].sizes == {"layer": 5}


def labels(text: str) -> list[str]:
    return [line.partition(":")[0] for line in text.strip().splitlines()]


def test_no_block_escapes():
    """Each has a language that the test above knows, and each that is left out says why."""
    for path in PAGES:
        text = path.read_text()
        opened = re.findall(r"^ *```(.*)$", text, re.MULTILINE)[::2]
        assert {fence.partition(" ")[0] for fence in opened} <= LANGUAGES, path
        assert all(
            re.fullmatch(r'next (".+"|if\(not \w+, reason=".+"\))', said)
            for said in re.findall(r"<!-- skip: (.*?) -->", text)
        ), path
        assert not re.search(r"^#.*\n\n    \S", text, re.MULTILINE), f"{path}: an indented block"


@pytest.mark.parametrize("path", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files_and_commands_to_modules(path):
    """In sentences too, which `make docs` does not read for commands."""
    text = path.read_text()
    links = [
        link
        for link in re.findall(r"\]\(([^)\s#:]+)(?:#[^)\s]*)?\)", text)
        if not link.startswith("/made/")
    ]
    assert [link for link in links if not (path.parent / link).exists()] == []
    assert [
        name
        for name in re.findall(r"python -m ([\w.]+)", text)
        if not importlib.util.find_spec(name)
    ] == []


def test_the_page_on_functions_names_what_exists():
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    names = re.findall(r"^\.\. auto\w+:: (.+)$", page, re.MULTILINE)
    assert {f"anisoscope.{name}" for name in anisoscope.__all__} - {*names} <= {
        f"anisoscope.{room}" for room in anisoscope.SUBPACKAGES
    }
    assert [name for name in names if pydoc.locate(name) is None] == []


def test_the_page_on_families_names_every_quantity():
    page = (ROOT / "docs" / "reference" / "metric_families.md").read_text()
    for name, family in FAMILIES.items():
        assert f"| `{name}` |" in page
        assert [quantity for quantity in family.quantities if f"`{quantity}`" not in page] == []
