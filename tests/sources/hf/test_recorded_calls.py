"""The recorder on calls that users make: masks, caches, packed rows, PyTorch's own classes.

Each row of a sample is held against the cluster, position and vector that it should have.
"""

import threading

import numpy as np
import pytest
import torch
import transformers
from torch import nn

import anisoscope
from tests.sources.hf import tiny_models

IDS = torch.as_tensor(tiny_models.tokens(3, 10), dtype=torch.long)
ONES = torch.ones_like(IDS)


def recorded(model, hook_points, *args, points=200, **given):
    with torch.no_grad(), anisoscope.record(model, hook_points, points=points) as recorder:
        model(*args, **given)
    return recorder


def left_out(words, model, hook_points, *args, **given):
    """Check that the pass goes on with a warning, and that nothing is recorded."""
    with pytest.warns(UserWarning, match=words):
        recorder = recorded(model, hook_points, *args, **given)
    assert recorder.rows == 0
    with pytest.raises(ValueError, match=f"nothing was recorded: .*{words}"):
        recorder.sample()


def lengths(recorder):
    return np.bincount(recorder.sample()["clusters"]).tolist()


@pytest.fixture(scope="module")
def gpt2():
    return tiny_models.model("gpt2")


@pytest.mark.parametrize("by_name", [True, False])
def test_a_mask_is_read_by_name_and_by_position(gpt2, by_name):
    mask = ONES.clone()
    mask[0, :4] = 0
    given = {"attention_mask": mask} if by_name else {}
    found = recorded(gpt2, ["transformer.h.1"], IDS, *(() if by_name else (None, mask)), **given)
    assert lengths(found) == [6, 10, 10]
    assert found.sample()["token_positions"][:6].tolist() == [*range(6)]


class Embeds(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(100, 4)

    def forward(self, input_ids, attention_mask):
        return self.embedding(input_ids)


class Named(Embeds):
    def forward(self, idx, attention_mask):
        return self.embedding(idx)


def test_a_mask_is_read_whatever_the_input_is_called_and_rows_come_in_the_order_asked(gpt2):
    mask = ONES.clone()
    mask[0, :4] = 0
    found = recorded(Named(), ["embedding"], IDS, mask)
    assert lengths(found) == [6, 10, 10]
    names = ["transformer.h.1", "transformer.h.0"]
    both = recorded(gpt2, names, IDS).sample()["vectors"]
    for name, rows in zip(names, both, strict=True):
        np.testing.assert_array_equal(recorded(gpt2, [name], IDS).sample()["vectors"][0], rows)


@pytest.mark.parametrize(
    ("mask", "words"),
    [
        (ONES * 0.5, "mask holds 0.5; pass 0 at padding"),
        (ONES[:, None, None] * 1.0, r"mask has shape \(3, 1, 1, 10\), hook point"),
        (torch.nn.functional.pad(ONES, (2, 0), value=1), r"mask has shape \(3, 12\), hook point"),
    ],
)
def test_a_mask_of_another_shape_or_with_other_values_is_refused(mask, words):
    left_out(words, Embeds(), ["embedding"], IDS, mask)


def test_of_generate_the_prompt_is_recorded_and_what_follows_refused(gpt2):
    settings = {"max_new_tokens": 3, "do_sample": False, "pad_token_id": 0}
    recorder = anisoscope.record(gpt2, ["transformer.h.1"], points=200)
    with recorder, pytest.warns(UserWarning, match="continues a cache, as generate does"):
        gpt2.generate(IDS, attention_mask=ONES, **settings)
    assert lengths(recorder) == [10, 10, 10]
    cache = gpt2(IDS[:, :6], use_cache=True).past_key_values  # by hand too, without a mask
    left_out("continues a cache", gpt2, ["transformer.h.1"], IDS[:, 6:], past_key_values=cache)


def test_positions_that_begin_anew_make_clusters(gpt2):
    packed = torch.tensor([0, 1, 2, 3, 0, 1, 0, 1, 2, 3])
    found = recorded(gpt2, ["transformer.h.0", "transformer.ln_f"], IDS, position_ids=packed[None])
    assert lengths(found) == [4, 2, 4] * 3
    np.testing.assert_array_equal(found.sample()["token_positions"], packed.repeat(3))
    padded = ONES.clone()
    padded[1, :4] = 0
    ids = (padded.cumsum(-1) - 1).masked_fill(padded == 0, 1)  # as generate makes them
    found = recorded(gpt2, ["transformer.h.0"], IDS, attention_mask=padded, position_ids=ids)
    assert lengths(found) == [10, 6, 10]
    llama = tiny_models.model("llama")
    left_out(
        "pass position_ids", llama, ["model.layers.0"], IDS, cu_seq_lens_q=torch.tensor([0, 30])
    )


def test_models_that_pad_inside_are_refused_with_and_without_a_mask():
    sizes = {"max_position_embeddings": 128, "attention_window": [4] * 3, "pad_token_id": 0}
    settings = transformers.LongformerConfig(**tiny_models.SIZES | sizes)
    model, ids, mask = transformers.LongformerModel(settings).eval(), IDS.clamp(min=1), ONES.clone()
    mask[0, 7:] = 0
    left_out(r"returns \(3, 12\) vectors for inputs \(3, 10\)", model, ["encoder.layer.1"], ids)
    left_out(r"returns \(3, 12\)", model, ["encoder.layer.1"], ids, attention_mask=mask)


def test_encoder_and_decoder_are_each_recorded_with_their_own_mask():
    sizes = {"d_model": 32, "d_kv": 8, "num_layers": 2, "num_heads": 4, "d_ff": 48}
    sizes |= {"vocab_size": tiny_models.VOCABULARY, "decoder_start_token_id": 0}
    model = transformers.T5ForConditionalGeneration(transformers.T5Config(**sizes)).eval()
    encoder, decoder = ONES.clone(), ONES.clone()
    encoder[0, 4:], decoder[1:, 2:] = 0, 0
    given = {"attention_mask": encoder, "decoder_input_ids": IDS, "decoder_attention_mask": decoder}
    assert lengths(recorded(model, ["encoder.block.1"], IDS, **given)) == [4, 10, 10]
    assert lengths(recorded(model, ["decoder.block.1"], IDS, **given)) == [10, 2, 2]
    left_out("read other sequences", model, ["encoder.block.1", "decoder.block.1"], IDS, **given)
    given["decoder_attention_mask"] = None
    # no mask of its own: all are tokens
    assert lengths(recorded(model, ["decoder.block.1"], IDS, **given)) == [10, 10, 10]
    left_out("outside encoder and decoder", model, ["lm_head"], IDS, labels=IDS)


@pytest.mark.parametrize("batch_first", [True, False])
def test_pytorch_s_encoder_gives_sequences_however_its_axes_are(batch_first):
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=batch_first)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).eval()
    x = torch.randn(4, 10, 16)
    padding = torch.zeros(4, 10, dtype=torch.bool)
    padding[0, 5:] = True
    given = x if batch_first else x.transpose(0, 1)
    found = recorded(encoder, ["layers.0"], given, src_key_padding_mask=padding)
    sample = found.sample()
    assert np.bincount(sample["clusters"]).tolist() == [5, 10, 10, 10]
    own = encoder.layers[0](given, src_key_padding_mask=padding)
    own = (own if batch_first else own.transpose(0, 1))[~padding].detach().numpy()
    np.testing.assert_allclose(sample["vectors"][0], own, atol=1e-6)


def test_nested_tensors_are_recorded_and_the_unclear_is_refused():
    layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
    encoder = nn.TransformerEncoder(layer, 2).eval()
    padding = torch.zeros(4, 10, dtype=torch.bool)
    padding[:, 8:], padding[0, 5:] = True, True
    with pytest.warns(UserWarning, match="nested tensors is in prototype"):
        found = recorded(
            encoder, ["layers.0"], torch.randn(4, 10, 16), src_key_padding_mask=padding
        )
    assert lengths(found) == [5, 8, 8, 8]
    model = nn.Sequential(nn.TransformerEncoderLayer(16, 2, 32), nn.Linear(16, 8))
    with pytest.raises(ValueError, match="hook point 1: 0 has batch_first=False"):
        anisoscope.record(model, ["1"])


def test_a_compiled_model_is_recorded_as_the_model_itself():
    model, names = tiny_models.model("gpt2", n_layer=1), ["transformer.h.0"]
    own = recorded(model, names, input_ids=IDS, attention_mask=ONES)
    with torch.no_grad(), anisoscope.record(model, names, points=200) as recorder:
        torch.compile(model, backend="eager")(input_ids=IDS, attention_mask=ONES)
    np.testing.assert_allclose(recorder.sample()["vectors"], own.sample()["vectors"], atol=1e-6)


def test_rows_of_experts_are_no_sequences():
    """A router gives (batch * tokens, experts), which would be 30 sequences of one token."""
    sizes = {"num_local_experts": 2, "num_key_value_heads": 2, "num_hidden_layers": 1}
    model = transformers.MixtralModel(transformers.MixtralConfig(**tiny_models.SIZES | sizes))
    gate = next(name for name, _ in model.named_modules() if name.endswith("gate"))
    left_out(r"returns \(30,\) vectors for inputs \(3, 10\)", model.eval(), [gate], IDS)


class Fails(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.fails = nn.Linear(4, 4), nn.Linear(4, 4), True

    def forward(self, x):
        x = self.first(x)
        if self.fails:
            raise KeyError("a batch that does not fit")
        return self.second(x)


def test_a_failure_in_mid_forward_leaves_no_trace_in_the_next_pass():
    model, x = Fails(), torch.randn(2, 5, 4)
    with anisoscope.record(model, ["first", "second"], points=200) as recorder:
        with pytest.raises(KeyError):
            model(100 + x)
        model.fails = False
        model(x)
    assert recorder.rows == 10
    own = model.first(x).detach().flatten(0, 1).numpy()
    np.testing.assert_allclose(recorder.sample()["vectors"][0], own, atol=1e-6)


def test_passes_in_threads_never_mix():
    """As replicas run: of 8 passes at once each is kept whole, or left out with a warning."""
    model = nn.Sequential(nn.Identity(), nn.Linear(1, 1))
    start = threading.Barrier(8)

    class Waits(nn.Module):
        def forward(self, x):
            start.wait()
            return x

    model.insert(1, Waits())
    xs = [torch.full((2, 5, 1), float(number)) for number in range(8)]
    recorder = anisoscope.record(model, ["0", "1"], points=200)

    def run():
        threads = [threading.Thread(target=model, args=(x,)) for x in xs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    with recorder, pytest.warns(UserWarning, match="another pass ended while"):
        run()
    sample = recorder.sample()
    assert recorder.rows == 10
    assert len(np.unique(sample["vectors"])) == 1
    assert np.bincount(sample["clusters"]).tolist() == [5, 5]


def test_a_wrapper_with_a_tuple_or_dict_is_looked_through(gpt2):
    class Wrapper(nn.Module):
        """As DistributedDataParallel is: its arguments have no names."""

        def __init__(self, module):
            super().__init__()
            self.module = module

        def forward(self, *inputs, **given):
            return {"loss": self.module(*inputs, **given)[0].mean(), "more": 1}

    mask = ONES.clone()
    mask[0, 4:] = 0
    found = recorded(Wrapper(gpt2), ["module.transformer.h.1"], IDS, None, mask)
    assert lengths(found) == [4, 10, 10]


class Stack(nn.Module):
    """A loop over layers, with a padding mask that is made and dropped in the pass."""

    def __init__(self):
        super().__init__()
        layers = (nn.TransformerEncoderLayer(16, 2, 32, batch_first=True) for _ in range(2))
        self.layers = nn.ModuleList(layers)

    def forward(self, x, tokens):
        padding = tokens == 0
        for layer in self.layers:
            x = layer(x, src_key_padding_mask=padding)
        return x


class TwoStacks(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.a, self.b = nn.Embedding(50, 16), Stack(), Stack()

    def forward(self, query, document):
        return self.a(self.embed(query), query), self.b(self.embed(document), document)


def test_layers_of_a_loop_share_their_sequences_and_two_loops_do_not():
    tokens = torch.randint(1, 50, (8, 12))
    document = tokens.clone()
    document[:, 6:] = 0
    for loop, rows in (("a", 96), ("b", 48)):
        names = [f"{loop}.layers.{number}" for number in range(2)]
        assert recorded(TwoStacks(), names, tokens, document).rows == rows
    left_out("read other sequences", TwoStacks(), ["a.layers.1", "b.layers.0"], tokens, document)
