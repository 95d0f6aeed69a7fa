"""The recorder finds padding and sequences whatever a model calls them, or leaves the pass out."""

import copy
import pickle

import numpy as np
import pytest
import torch
import transformers
from torch import nn
from torch.nn.utils import rnn

import anisoscope
from tests.sources.hf import tiny_models
from tests.sources.hf.test_recorded_calls import IDS, ONES, left_out, lengths, recorded

LENGTHS = torch.tensor([6, 10, 3])
REAL = torch.arange(10) < LENGTHS[:, None]
PADDED = IDS.masked_fill(~REAL, 0)


class Encoder(nn.Module):
    """An embedding and a block, with arguments of any name."""

    def __init__(self, **options):
        super().__init__()
        self.embed, self.block = nn.Embedding(100, 4, **options), nn.Linear(4, 4)

    def forward(self, tokens, *more, **given):
        x = tokens["tokens"] if isinstance(tokens, dict) else tokens
        return self.block(x if x.is_floating_point() else self.embed(x))


@pytest.mark.parametrize(
    "given",
    [
        {"mask": REAL},
        {"mask": ~REAL},
        {"padding_mask": ~REAL},
        {"key_padding_mask": torch.zeros(3, 10).masked_fill(~REAL, -torch.inf)},
        {"non_pad_mask": REAL.long()},
        {"lengths": LENGTHS},
        {"attention_mask": REAL},
        {"loss_mask": ONES},
        {},
    ],
)
@pytest.mark.parametrize("side", ["right", "left"])
def test_padding_is_read_under_every_name_and_from_padding_idx(given, side):
    tokens, names = PADDED, ["block", "embed"]
    if side == "left" and "lengths" not in given:
        tokens, given = tokens.flip(1), {name: x.flip(1) for name, x in given.items()}
    model = Encoder(padding_idx=None if given.keys() - {"loss_mask"} else 0)
    for args, more in (((tokens,), given), (({"tokens": tokens} | given,), {})):
        assert lengths(recorded(model, names, *args, **more)) == LENGTHS.tolist()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"mask": REAL}, "which value of mask is padding is unknown; pass attention_mask"),
        ({"lengths": 2 * LENGTHS}, "lengths reaches 20, of 10 vectors in a row"),
        ({"attention_mask": ONES[:, :8]}, r"mask has shape \(3, 8\)"),
    ],
)
def test_padding_that_is_unclear_is_named(given, words):
    left_out(words, Encoder(), ["block"], IDS, **given)


def test_a_begin_token_is_no_padding_and_other_masks_say_nothing():
    tokens = IDS.clone()
    tokens[:, 0] = 0  # as a decoder begins
    given = {"token_type_ids": REAL.long(), "loss_mask": REAL, "global_attention_mask": tokens == 0}
    assert recorded(Encoder(padding_idx=0), ["block"], tokens, **given).rows == 30


@pytest.mark.parametrize("kind", ["bert", "roberta", "distilbert"])
def test_embeddings_and_blocks_of_encoders_leave_the_same_padding_out(kind):
    settings = transformers.AutoConfig.for_model(kind, **tiny_models.SIZES, dim=32, n_layers=1)
    model = transformers.AutoModel.from_config(settings).eval()
    blocks = "transformer.layer.0" if kind == "distilbert" else "encoder.layer.0"
    for names in (["embeddings"], ["embeddings", blocks]):
        found = recorded(model, names, input_ids=IDS, attention_mask=REAL.long())
        assert lengths(found) == LENGTHS.tolist()


@pytest.mark.parametrize("kind", ["bert", "big_bird", "longformer"])
def test_embeddings_of_a_model_that_pads_inside_are_left_out(kind):
    options = {"block_size": 4, "num_random_blocks": 1, "attention_window": [4] * 3}
    options |= {"pad_token_id": 0, "sep_token_id": 1}
    settings = transformers.AutoConfig.for_model(kind, **tiny_models.SIZES | options)
    model, ids = transformers.AutoModel.from_config(settings).eval(), IDS.clamp(min=2)
    ids = torch.nn.functional.pad(ids, (0, 19), value=5)
    if kind == "bert":
        assert recorded(model, ["embeddings"], ids, points=20).rows == 87
    else:
        left_out(r"returns \(3, 32\) vectors for inputs \(3, 29\)", model, ["embeddings"], ids)


class Passes(nn.Module):
    """Calls a function of its own of a module and the input."""

    def __init__(self, part, run):
        super().__init__()
        self.part, self.run = part, run

    def forward(self, idx):
        return self.run(self.part, idx)


@pytest.mark.parametrize(
    ("run", "shape"),
    [
        (lambda part, x: part(x.reshape(-1, 4)), "(30,)"),
        (lambda part, x: part(x.transpose(0, 1)), r"(10, 3)"),
        (lambda part, x: part(x.reshape(6, 5, 4)), r"(6, 5)"),
    ],
)
def test_vectors_of_another_shape_than_the_first_tensor_are_left_out(run, shape):
    words = f"returns {shape} vectors for inputs".replace("(", r"\(").replace(")", r"\)")
    left_out(words, Passes(nn.Linear(4, 4), run), ["part"], torch.randn(3, 10, 4))
    model = Passes(
        nn.Linear(4, 4), lambda part, ids: run(part, ids[..., None].float().repeat(1, 1, 4))
    )
    left_out(words, model, ["part"], IDS)


@pytest.mark.parametrize(
    "part",
    [
        nn.Conv1d(5, 4, 3, padding=1),
        nn.Sequential(nn.Conv1d(5, 4, 3, padding=1), nn.ReLU()),
        nn.BatchNorm1d(5),
        nn.GroupNorm(1, 5),
    ],
)
def test_channels_come_last_in_the_sample(part):
    x = torch.randn(3, 5, 10)
    found = recorded(Passes(part, lambda part, x: part(x)), ["part"], x)
    with torch.no_grad():
        own = part(x).transpose(1, 2).flatten(0, 1)
    np.testing.assert_allclose(found.sample()["vectors"][0], own, atol=1e-6)
    assert lengths(found) == [10] * 3
    square = Passes(nn.Conv1d(5, 10, 1), lambda part, x: part(x))
    left_out(r"\(3, 10, 10\), and channels may come first", square, ["part"], x)


def test_arguments_named_as_caches_are_read_by_what_they_hold():
    class Policy(nn.Module):
        def __init__(self):
            super().__init__()
            self.trunk = nn.Linear(3, 8)

        def forward(self, pixel_values, state):
            return self.trunk(pixel_values.mean((-1, -2)))

    args = torch.randn(16, 3, 4, 4), torch.randn(16, 7)
    assert recorded(Policy(), ["trunk"], *args).rows == 16


def test_two_towers_have_each_its_own_padding():
    """A wrapper's mask is that of the tower that reads the wrapper's own ids."""

    class Towers(nn.Module):
        def __init__(self):
            super().__init__()
            self.query, self.document = tiny_models.model("bert"), tiny_models.model("bert")

        def forward(self, input_ids, attention_mask, document_ids):
            self.query(input_ids.clone(), attention_mask)
            return self.document(document_ids)

    for tower, rows in (("query", 19), ("document", 30)):
        args = PADDED, REAL.long(), IDS.flip(0)
        assert recorded(Towers(), [f"{tower}.embeddings"], *args).rows == rows


def test_tokens_that_a_wrapper_adds_are_read_with_their_own_mask():
    """As prompt tuning does."""

    class Prompt(nn.Module):
        def __init__(self):
            super().__init__()
            self.base = tiny_models.model("gpt2")

        def forward(self, input_ids, attention_mask):
            x = torch.nn.functional.pad(self.base.transformer.wte(input_ids), (0, 0, 2, 0))
            mask = torch.nn.functional.pad(attention_mask, (2, 0), value=1)
            return self.base(inputs_embeds=x, attention_mask=mask)

    found = recorded(Prompt(), ["base.transformer.h.0"], PADDED, REAL.long())
    assert lengths(found) == (LENGTHS + 2).tolist()


def test_packed_rows_of_an_rnn_come_back_as_sequences():
    gru = nn.GRU(4, 6)
    packed = lambda part, x: part(rnn.pack_padded_sequence(x, LENGTHS, True, False))[0].data  # noqa: E731
    x = torch.randn(3, 10, 4)
    found = recorded(Passes(gru, packed), ["part"], x)
    assert lengths(found) == LENGTHS.tolist()
    own = gru(x.transpose(0, 1))[0].transpose(0, 1)[REAL].detach()
    np.testing.assert_allclose(found.sample()["vectors"][0], own, atol=1e-6)


def test_copies_and_pickles_of_a_model_are_free_of_hooks():
    """As averages of weights, and checkpoints of the whole model, make them within `with`."""
    model = Encoder()
    with anisoscope.record(model, ["block"]) as recorder:
        clones = copy.deepcopy(model), pickle.loads(pickle.dumps(model))
        for clone in clones:
            clone(IDS)
        with recorder:  # again: hooks are in place once
            model(IDS)
        model(IDS)
    assert recorder.rows == 60


def test_numbers_that_are_not_finite_and_tensors_without_data_leave_a_pass_out():
    model, x = nn.Sequential(nn.Linear(4, 4)), torch.randn(3, 10, 4)
    left_out("0 has numbers that are not finite", model, ["0"], x * torch.inf)
    left_out("meta", model.to("meta"), ["0"], x.to("meta"))
    with pytest.warns(DeprecationWarning, match=r"jit\.trace"):
        traced = torch.jit.trace(nn.Linear(4, 4), x)
    with pytest.raises(ValueError, match=r"torch\.jit runs no hooks"):
        anisoscope.record(traced, ["0"])
    model = Encoder()
    with (
        anisoscope.record(model, ["block"]) as recorder,
        pytest.warns(UserWarning, match="block has no values to read; call .* outside"),
    ):
        gradient = torch.func.grad(lambda x: model({"tokens": x}).sum())(x)
    assert gradient.shape == x.shape
    assert recorder.rows == 0
    with pytest.raises(ValueError, match="vectors are a Recorder; call its measure"):
        anisoscope.measure(recorder)
