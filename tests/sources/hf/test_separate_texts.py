"""Separate texts in padded batches, and several revisions, against what models give themselves."""

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources.hf import borrowed_model, separate_texts
from anisoscope.sources.hf.adapters import find_adapter
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models
from tests.sources.hf.test_in_memory import QUICK


def texts(count=40, longest=16):
    rng, letters = np.random.default_rng(0), tiny_models.text(4000)
    starts, sizes = rng.integers(0, 3000, count), rng.integers(3, longest, count)
    return [letters[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def small_config(points, **changes):
    measure = MeasureConfig(points=points, batches=1, families=("similarity",), nulls=())
    return PretrainedConfig(measure=measure, window=12, **changes)


def means(table, **at):
    return table.mean_cosine.sel(statistic="mean", **at).values


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["gpt2", "bert", "llama"])
def test_padded_batches_give_what_texts_alone_give(kind, side):
    """Token by token the model's own hidden states of each text alone; padding is in no cloud."""
    tokenizer = tiny_models.tokenizer(framed=True)
    model = tiny_models.model(kind, attn_implementation="eager")
    loaded = borrowed_model.model_in_memory(model, tokenizer)
    config = small_config(120, special_tokens=True)
    tokens = separate_texts.draw_texts(texts(), tokenizer, config, True)
    picks = separate_texts.pick_tokens(tokens, config.measure)
    rows_M = np.arange(len(tokens.special_N))
    with borrowed_model.evaluation_mode(loaded):
        batches = separate_texts.padded_batches(tokens, side, 0, 8)
        vectors, words = separate_texts.read_vectors(
            loaded, tokens, rows_M, separate_texts.POOLS, batches
        )
        assert words.startswith("a text alone gives the same vectors to")
        own = [
            model(torch.as_tensor(ids[None]).long(), output_hidden_states=True).hidden_states
            for ids in tokens.ids
        ]
    for n in range(3):  # the last is after a final norm
        flat = torch.cat([states[n][0] for states in own]).numpy()
        np.testing.assert_allclose(vectors["tokens"][n], flat, atol=2e-5)
    pools = {"mean": lambda x: x.mean(0), "last": lambda x: x[-1], "cls": lambda x: x[0]}
    for pool, reduce in pools.items():
        expected = torch.stack([reduce(states[1][0]) for states in own]).numpy()
        np.testing.assert_allclose(vectors[pool][1], expected, atol=2e-5)
    assert set(picks) == {"all", "without_first_token", "without_special"}
    assert (tokens.position_N[picks["without_first_token"]] > 0).all()
    assert not tokens.special_N[picks["without_special"]].any()


def test_separate_texts_and_pooled_vectors_in_one_table(tmp_path):
    """The numbers of `measure` on vectors that somebody pools, with the texts as clusters."""
    model, tokenizer = tiny_models.model("bert"), tiny_models.tokenizer(framed=True)
    given = QUICK | {"points": 200, "pool": ("mean", "cls"), "special_tokens": True}
    given |= {"padding": "left", "tokenizer": tokenizer}
    path = tmp_path / "lines.txt"
    path.write_text("\n".join(text.replace("\n", " ") for text in texts()) + "\n\n")
    lines = [line for line in path.read_text().splitlines() if line.strip()]
    table = anisoscope.measure_model(model, path, **given)
    sets = ["all", "without_first_token", "without_special", "mean", "cls"]
    assert table.positions.values.tolist() == sets
    pooled = []
    with torch.no_grad():
        for line in lines:
            ids = torch.as_tensor([tokenizer(line)["input_ids"][:16]])
            states = model(ids, output_hidden_states=True).hidden_states
            pooled.append(torch.stack([x[0].mean(0) for x in states]))
    own = anisoscope.measure(torch.stack(pooled, 1), families="similarity", nulls=())
    np.testing.assert_allclose(means(table, positions="mean"), means(own), atol=1e-5)
    assert f"40 of {len(lines)} texts" in table.attrs["texts"]
    assert "mean 40" in table.attrs["points_of"]
    again = anisoscope.measure_model(model, lines, **given)
    np.testing.assert_array_equal(means(again), means(table))


def test_a_model_that_reads_padding_is_refused(monkeypatch):
    """Without a mask padding enters each vector of a model that sees the whole text."""
    model, given = tiny_models.model("bert"), QUICK | {"tokenizer": tiny_models.tokenizer()}
    monkeypatch.setattr(separate_texts, "padding_arguments", lambda loaded, mask_BT: {})
    with pytest.raises(ValueError, match="padding changes the vectors"):
        anisoscope.measure_model(model, texts(), padding="right", **given)


def test_padding_that_is_not_finite_is_no_number_and_a_token_that_is_not_is_refused(monkeypatch):
    loaded, read = tiny_models.loaded("gpt2"), separate_texts.read_layers
    tokens = separate_texts.draw_texts(texts(), tiny_models.tokenizer(), small_config(60), False)
    batches = separate_texts.padded_batches(tokens, "right", 0, 8)
    for keep, refused in ((True, False), (False, True)):

        def damaged(loaded, ids_BT, mask_BT, keep=keep):
            hidden = torch.as_tensor(mask_BT if keep else np.zeros_like(mask_BT))[..., None]
            return [torch.where(hidden, x, torch.nan) for x in read(loaded, ids_BT, mask_BT)]

        monkeypatch.setattr(separate_texts, "read_layers", damaged)
        monkeypatch.setattr(separate_texts, "check_padding", lambda *given: "not checked")
        given = loaded, tokens, np.arange(len(tokens.special_N)), (), batches
        if refused:
            with pytest.raises(UserError, match="residual stream of layer 0 holds numbers"):
                separate_texts.read_vectors(*given)
        else:
            assert np.isfinite(separate_texts.read_vectors(*given)[0]["tokens"]).all()


def test_roberta_counts_positions_by_itself():
    torch.manual_seed(0)
    settings = tiny_models.SIZES | {"pad_token_id": 0, "initializer_range": 0.2}
    model = transformers.RobertaModel(transformers.RobertaConfig(**settings)).eval()
    ids = np.array([[0, 0, 9, 8, 7], [5, 6, 7, 8, 9]])
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], bool)
    loaded = tiny_models.as_loaded(model, find_adapter("roberta"))
    with torch.no_grad():
        padded = separate_texts.read_layers(loaded, ids, mask)
        alone = model(torch.as_tensor(ids[:1, 2:]), output_hidden_states=True).hidden_states
    np.testing.assert_allclose(padded[-1][0, 2:], alone[-1][0], atol=1e-5)


def test_revisions_are_one_table_over_steps(tmp_path):
    """Each step is what that revision gives alone, and each is its own model."""
    model, text = tiny_models.model("gpt2"), [tiny_models.text()]
    for name in ("step0", "step20"):
        model.transformer.wte.weight.data.mul_(2)
        tiny_models.save(model, tmp_path / name)
    with pytest.warns(UserWarning, match="bits per byte"):
        table = anisoscope.measure_model(
            tmp_path, iter(text), revision=["step20", "step0"], **QUICK
        )
    with pytest.warns(UserWarning, match="bits per byte"):
        alone = anisoscope.measure_model(tmp_path, text, revision="step20", **QUICK)
    assert table.step.values.tolist() == [0, 20]
    assert table.revision.values.tolist() == ["step0", "step20"]
    np.testing.assert_array_equal(table.drift.sel(step=20), alone.drift)
    assert (table.drift.sel(step=0, statistic="mean") != alone.drift.sel(statistic="mean")).any()
    with pytest.raises(ValueError, match="both have step 0"):
        anisoscope.measure_model(tmp_path, text, revision=["step0", "step-0"], **QUICK)
