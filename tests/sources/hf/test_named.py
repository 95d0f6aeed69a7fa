"""Hook points that somebody names, and separate texts in padded batches, against what models give
themselves.
"""

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.sources.hf import borrowed_model, hooked, separate_texts
from anisoscope.sources.hf.adapters import UNKNOWN, find_adapter
from anisoscope.sources.hf.reading import named_modules
from anisoscope.sources.hf.reading.extract import residual_stream
from tests.sources.hf import tiny_models
from tests.sources.hf.test_in_memory import QUICK, parts

BLOCKS = [f"transformer.h.{n}" for n in range(3)]


class Own(torch.nn.Module):
    """Of nobody's library: embeddings, two layers, dropout, and a cache that it fills itself."""

    def __init__(self, causal=True):
        super().__init__()
        torch.manual_seed(0)
        self.embed, self.causal, self.seen = (
            torch.nn.Embedding(tiny_models.VOCABULARY, 16),
            causal,
            [],
        )
        self.blocks = torch.nn.ModuleList(torch.nn.Linear(16, 16) for _ in range(2))
        self.pair, self.drop, self.wide = Pair(), torch.nn.Dropout(0.9), torch.nn.Linear(16, 8)
        self.first = First()

    def forward(self, ids):
        self.seen = [*self.seen, ids.shape]
        x = self.embed(ids)
        total = x.cumsum(1) if self.causal else x.sum(1, keepdim=True).expand_as(x)
        for block in self.blocks:
            x = self.drop(block(x + total).tanh())
        return self.first(self.wide(self.pair(x)[0]))


class Pair(torch.nn.Module):
    def forward(self, x):
        return x + 1, "beside"


class First(torch.nn.Module):
    def forward(self, x):
        return x[:, -1]


def spelled(text):
    """A function in place of a tokenizer."""
    return tiny_models.tokenizer()(text)["input_ids"]


def texts(count=40, longest=16):
    rng, whole = np.random.default_rng(0), tiny_models.text(4000)
    starts, sizes = rng.integers(0, 3000, count), rng.integers(3, longest, count)
    return [whole[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def means(table, **at):
    return table.mean_cosine.sel(statistic="mean", **at).values


def stream(loaded, ids_BT, mask_BT):
    return residual_stream(loaded, ids_BT, **named_modules.padding_arguments(loaded, mask_BT))[0]


def test_named_blocks_are_the_residual_stream():
    """The same windows and points, so the same numbers; and nothing of the model has changed."""
    model, text = tiny_models.model("gpt2").train(), [tiny_models.text()]
    before = parts(model)
    given = QUICK | {"tokenizer": tiny_models.tokenizer(), "nulls": ("gaussian", "shuffled")}
    given |= {"families": ("spectrum", "similarity")}
    with pytest.warns(UserWarning, match="bits per byte"):
        whole = anisoscope.measure_model(model, text, **given)
    found = anisoscope.measure_model(model, text, hook_points=BLOCKS, **given)
    assert found.layer.values.tolist() == BLOCKS
    for name in ("anisotropy", "anisotropy_excess", "mean_cosine", "drift"):
        blocks = whole[name].isel(layer=slice(1, None)).values
        np.testing.assert_array_equal(found[name].transpose(*whole[name].dims).values, blocks)
    assert parts(model) == before
    assert found.attrs["hook_points"] == ", ".join(BLOCKS)
    attention = {"attention": model.transformer.h[1].attn}  # its output is a tuple
    found = anisoscope.measure_model(model, text, hook_points=attention, **given)
    assert found.sizes["layer"] == 1


def test_any_module_is_measured_and_stays_what_it_was():
    model, names = Own().train(), ["blocks.0", "blocks.1", "pair"]
    model.blocks[1].eval()
    modes, states = [x.training for x in model.modules()], model.state_dict()
    given = QUICK | {"tokenizer": spelled, "hook_points": names}
    found = anisoscope.measure_model(model, [tiny_models.text()], **given)
    assert found.positions.values.tolist() == ["all", "without_first_token"]
    assert found.layer.values.tolist() == names
    assert [x.training for x in model.modules()] == modes
    assert model.seen == []
    assert not any(x._forward_hooks for x in model.modules())
    assert all((x == states[name]).all() for name, x in model.state_dict().items())
    ids, loaded = tiny_models.tokens(1, 16), tiny_models.as_loaded(model.eval(), UNKNOWN)
    with torch.no_grad():
        read = named_modules.read_windows(loaded, ids[None], 1, hooked.find_modules(model, names))
        embedded = model.embed(torch.as_tensor(ids, dtype=torch.long))
        first = model.blocks[0](embedded + embedded.cumsum(1))
        second = model.blocks[1](first.tanh() + embedded.cumsum(1))
    own = torch.stack([first, second, second.tanh() + 1]).numpy()
    np.testing.assert_allclose(read[0], own, atol=1e-6)


@pytest.mark.parametrize("side", ["left", "right"])
@pytest.mark.parametrize("kind", ["gpt2", "bert", "llama"])
def test_padded_batches_give_what_texts_alone_give(kind, side):
    """Token by token the model's own hidden states of each text alone; padding is in no cloud."""
    model, tokenizer = (
        tiny_models.model(kind, attn_implementation="eager"),
        tiny_models.tokenizer(framed=True),
    )
    loaded = borrowed_model.model_in_memory(model, tokenizer, False)
    measure = MeasureConfig(points=120, batches=1, families=("similarity",), nulls=())
    tokens = separate_texts.draw_texts(texts(), tokenizer, 12, True, True, measure)
    picks = separate_texts.pick_tokens(tokens, measure)
    kept = separate_texts.KeptVectors(tokens, picks, separate_texts.POOLS)
    with borrowed_model.evaluation_mode(loaded):
        words = separate_texts.read_batches(
            tokens, kept, lambda *batch: stream(loaded, *batch), 8, side, 0, "float32"
        )
        assert words.startswith("a text alone gives the same vectors to")
        own = [
            model(torch.as_tensor(ids[None]).long(), output_hidden_states=True).hidden_states
            for ids in tokens.ids
        ]
    clouds = kept.clouds(picks, 120)
    assert set(picks) == {"all", "without_first_token", "without_special"}
    for n in range(3):  # the last is after a final norm
        flat = torch.cat([states[n][0] for states in own]).numpy()
        for name, row_M in picks.items():
            np.testing.assert_allclose(clouds[name][0][n], flat[row_M], atol=2e-5)
    one_layer = [states[1][0] for states in own]
    pools = {"mean": lambda x: x.mean(0), "last": lambda x: x[-1], "cls": lambda x: x[0]}
    for pool, of in pools.items():
        expected = torch.stack([of(x) for x in one_layer]).numpy()
        np.testing.assert_allclose(clouds[pool][0][1], expected, atol=2e-5)
    assert (tokens.places[1][picks["without_first_token"]] > 0).all()
    assert not tokens.special_N[picks["without_special"]].any()


def test_separate_texts_and_pooled_vectors_in_one_table(tmp_path):
    """The numbers of `measure` on vectors that somebody pools, with the texts as clusters."""
    model, tokenizer, path = (
        tiny_models.model("bert"),
        tiny_models.tokenizer(framed=True),
        tmp_path / "lines.txt",
    )
    given = QUICK | {"points": 200, "pool": ("mean", "cls"), "special_tokens": True}
    given |= {"padding": "left", "tokenizer": tokenizer}
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
    assert anisoscope.to_frame(table).positions.nunique() == 5
    again = anisoscope.measure_model(model, lines, **given)
    np.testing.assert_array_equal(means(again), means(table))


def test_a_vector_for_each_text_is_measured_by_itself():
    given = QUICK | {"tokenizer": spelled, "hook_points": ["first"], "padding": "left"}
    found = anisoscope.measure_model(Own(), texts(), batch_size=1, **given)
    assert found.positions.values.tolist() == ["all"]
    assert "40 of 40 texts" in found.attrs["texts"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"hook_points": ["blocks.7"]}, r"Own has no module 'blocks\.7'; it has embed"),
        ({"hook_points": ["drop"]}, "drop runs more than once in a pass"),
        ({"hook_points": ["blocks.0", "wide"]}, "wide has width 8, blocks.0 has 16"),
        ({"hook_points": ["first"]}, "first returns one vector per window; pass padding="),
        ({"families": "attention"}, "'attention' cannot be measured of hook points"),
        ({"pool": "cls"}, "pass special_tokens=True"),
        ({"pool": "mean", "nulls": "shuffled"}, "'shuffled' cannot be made of separate texts"),
        ({"tokenizer": lambda text: [99] * len(text)}, "cannot read token ids .* up to 99"),
    ],
)
def test_what_cannot_be_read_is_one_line(changes, words):
    given = QUICK | {"model": Own(), "texts": [tiny_models.text()], "tokenizer": spelled}
    given |= {"hook_points": ["pair"]}
    with pytest.raises(ValueError, match=words) as error:
        anisoscope.measure_model(**given | changes)
    assert len(str(error.value).splitlines()) == 1


def test_a_model_that_reads_padding_is_refused():
    """Without a mask padding enters each vector of a model that sees the whole text."""
    given = QUICK | {"tokenizer": spelled, "hook_points": ["pair"], "padding": "right"}
    anisoscope.measure_model(Own(), texts(), **given)
    with pytest.raises(ValueError, match="padding changes the vectors"):
        anisoscope.measure_model(Own(causal=False), texts(), **given)


def test_roberta_counts_positions_by_itself():
    torch.manual_seed(0)
    settings = tiny_models.SIZES | {"pad_token_id": 0, "initializer_range": 0.2}
    model = transformers.RobertaModel(transformers.RobertaConfig(**settings)).eval()
    ids = np.array([[0, 0, 9, 8, 7], [5, 6, 7, 8, 9]])
    mask = np.array([[0, 0, 1, 1, 1], [1, 1, 1, 1, 1]], bool)
    with torch.no_grad():
        padded = stream(tiny_models.as_loaded(model, find_adapter("roberta")), ids, mask)
        alone = model(torch.as_tensor(ids[:1, 2:]), output_hidden_states=True).hidden_states
    np.testing.assert_allclose(padded[-1][0, 2:], alone[-1][0], atol=1e-5)


def test_revisions_are_one_table_over_steps(tmp_path):
    """Each step is what that revision gives alone, and each is its own model."""
    model = tiny_models.model("gpt2")
    for name in ("step0", "step20"):
        model.transformer.wte.weight.data.mul_(2)
        model.save_pretrained(tmp_path / name)
        tiny_models.tokenizer().save_pretrained(tmp_path / name)
    given = QUICK | {"families": "similarity"}
    with pytest.warns(UserWarning, match="bits per byte"):
        table = anisoscope.measure_model(
            tmp_path, iter([tiny_models.text()]), revision=["step20", "step0"], **given
        )
    with pytest.warns(UserWarning, match="bits per byte"):
        alone = anisoscope.measure_model(tmp_path, [tiny_models.text()], revision="step20", **given)
    assert table.step.values.tolist() == [0, 20]
    assert table.revision.values.tolist() == ["step0", "step20"]
    np.testing.assert_array_equal(table.drift.sel(step=20), alone.drift)
    assert (table.drift.sel(step=0, statistic="mean") != alone.drift.sel(statistic="mean")).any()
    with pytest.raises(ValueError, match="in memory"):
        anisoscope.measure_model(
            model,
            [tiny_models.text()],
            tokenizer=tiny_models.tokenizer(),
            revision="step0",
            **given,
        )
    with pytest.raises(ValueError, match="both have step 0"):
        anisoscope.measure_model(
            tmp_path, [tiny_models.text()], revision=["step0", "step-0"], **given
        )
