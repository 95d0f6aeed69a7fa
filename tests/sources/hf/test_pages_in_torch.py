"""Blocks of documents that need torch: a user's own loop, and a model over its training."""

import contextlib
import types
from unittest import SkipTest

import numpy as np
import pytest
import torch
from torch import nn

import anisoscope
from tests.docs.blocks import DOCUMENTS
from tests.program import ROOT


class Small(nn.Module):
    """A model of the user's own, with a list of layers."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        layers = (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2))
        self.blocks = nn.ModuleList(layers)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return x


def run_page(name, **names):
    document = DOCUMENTS.parse(ROOT / "docs" / name)
    document.namespace.update({"torch": torch, "anisoscope": anisoscope, "cache": {}} | names)
    for example in document.examples():
        with contextlib.suppress(SkipTest):
            example.evaluate()
    return document.namespace


def test_a_loop_and_lightning_write_tables_of_all_layers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(0)
    model, logged = Small(), []
    names = run_page(
        "howto/own_loop.md",
        model=model,
        optimizer=torch.optim.SGD(model.parameters()),
        compute_loss=lambda model, batch: model(batch).square().mean(),
        batches=[torch.randint(0, 50, (8, 16))] * 101,
        wandb=types.SimpleNamespace(log=lambda values, step: logged.append((values, step))),
        lightning=types.SimpleNamespace(Callback=object),
    )
    table = names["table"]
    assert table.step.values.tolist() == [0, 100]
    assert logged[0][0].keys() == {"anisotropy/blocks.0", "anisotropy/blocks.1"}
    assert logged[0][1] == 100
    callback = names["MeasureGeometry"]()
    trainer = types.SimpleNamespace(sanity_checking=False, global_step=7)
    callback.on_validation_start(trainer, types.SimpleNamespace(model=model))
    model(names["batch"])
    callback.on_validation_end(trainer, None)
    assert (tmp_path / "tables" / "measurements" / "7.nc").exists()


@pytest.mark.slow
def test_readme_prints_what_a_model_of_transformers_gives(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    (tmp_path / "LICENSE").symlink_to(ROOT / "LICENSE")
    names = run_page(ROOT / "README.md")
    assert [*names["hidden"][0].shape] == [33, 209, 576]  # of the table that was compared


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:revision step0 needs")  # the untrained checkpoint
def test_a_model_over_its_training(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    table = run_page("tutorials/over_training.md")["table"]
    first, last = (table.anisotropy.sel(statistic="mean", step=step) for step in (0, 100))
    assert np.isfinite(last).all()
    assert not np.allclose(first, last)
