"""Separate texts, and several revisions, against what models give themselves."""

import itertools

import numpy as np
import pytest
import torch
import transformers

import anisoscope
from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig
from anisoscope.sources.hf import memory_model, separate_texts
from anisoscope.sources.hf.load_model import tokens_per_position
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models
from tests.sources.hf.test_in_memory import QUICK


def texts(count=40, longest=16):
    rng, letters = np.random.default_rng(0), tiny_models.text(4000)
    starts, sizes = rng.integers(0, 3000, count), rng.integers(3, longest, count)
    return [letters[start : start + size] for start, size in zip(starts, sizes, strict=True)]


def draw(points, pooled=False, **changes):
    measure = MeasureConfig(points=points, batches=1, families=("similarity",), nulls=())
    config = PretrainedConfig(measure=measure, window=12, **changes)
    tokenizer = tiny_models.tokenizer(framed=True)
    tokens = separate_texts.draw_texts(texts(), tokenizer, config, pooled)
    return tokens, separate_texts.pick_tokens(tokens, measure)


@pytest.mark.parametrize("kind", ["gpt2", "bert", "llama"])
def test_vectors_are_the_model_s_own_of_each_text_alone(kind):
    loaded = tiny_models.loaded(kind)
    tokens, picks = draw(120, pooled=True, special_tokens=True)
    rows_M = np.arange(1, len(tokens.special_N), 2)
    pools = separate_texts.POOLS
    assert separate_texts.is_padding_harmless(loaded, tokens)
    assert len({len(tokens.ids[u]) for u in separate_texts.plan_passes(tokens, 96, True)[0]}) > 1
    vectors = separate_texts.read_text_vectors(loaded, tokens, rows_M, pools, 96)
    with torch.no_grad():
        own = [
            loaded.model(torch.as_tensor(ids[None]).long(), output_hidden_states=True).hidden_states
            for ids in tokens.ids
        ]
    for n in range(3):  # the last is after a final norm
        flat = torch.cat([states[n][0] for states in own]).numpy()
        np.testing.assert_allclose(vectors["tokens"][n], flat[rows_M], atol=2e-5)
    pools = {"mean": lambda x: x.mean(0), "last": lambda x: x[-1], "cls": lambda x: x[0]}
    for pool, reduce in pools.items():
        expected = torch.stack([reduce(states[1][0]) for states in own]).numpy()
        np.testing.assert_allclose(vectors[pool][1], expected, atol=2e-5)
    assert set(picks) == {"all", "without_first_token", "without_special"}
    assert (tokens.position_N[picks["without_first_token"]] > 0).all()
    assert not tokens.special_N[picks["without_special"]].any()
    end = tiny_models.SPECIAL.index("</s>")
    assert max(map(len, tokens.ids)) == 12
    assert all(ids[-1] == end for ids in tokens.ids)  # also of a text that is cut


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
            ids = torch.as_tensor([tokenizer(line, truncation=True, max_length=16)["input_ids"]])
            states = model(ids, output_hidden_states=True).hidden_states
            pooled.append(torch.stack([x[0].mean(0) for x in states]))
    own = anisoscope.measure([*torch.stack(pooled, 1)], families="similarity", nulls=())
    mean = table.mean_cosine.sel(statistic="mean", positions="mean").values
    np.testing.assert_allclose(mean, own.mean_cosine.sel(statistic="mean").values, atol=1e-5)
    assert f"40 of {len(lines)} texts" in table.attrs["texts"]
    assert "mean 40" in table.attrs["points_of"]
    assert "no final norm" in table.attrs["residual_stream"]
    with pytest.raises(ValueError, match="88% of the text are unknown to the tokenizer"):
        anisoscope.measure_model(model, ["0" * 30] * 40, **given)
    with pytest.raises(ValueError, match=r"window is 600, .* has 64 positions"):
        anisoscope.measure_model(model, [tiny_models.text(600)] * 4, **given | {"window": 600})
    model.resize_token_embeddings(8)
    with pytest.raises(ValueError, match="the model has 8 embeddings; pass the model's tokenizer"):
        anisoscope.measure_model(model, path, **given)


def test_separate_texts_without_massive_tokens():
    """The first picked tokens that are massive in no layer, as many as in the other sets."""
    model, tokenizer = tiny_models.model("gpt2"), tiny_models.tokenizer()

    def lengthen_second(_, __, output):  # massive from the first block on, not in the embedding
        (output[0] if isinstance(output, tuple) else output)[:, 1] *= 1e3

    model.transformer.h[0].register_forward_hook(lengthen_second)
    lines = [text.replace("\n", " ") for text in texts()]
    given = QUICK | {"points": 96, "padding": "right", "tokenizer": tokenizer}
    table = anisoscope.measure_model(model, lines, without_massive=True, **given)
    plain = anisoscope.measure_model(model, lines, **given)
    assert table.attrs["points_of"] == "all 96, without_first_token 96, without_massive 96"
    left = table.sel(positions=["all", "without_first_token"])
    for name in plain.data_vars:
        np.testing.assert_array_equal(left[name], plain[name])
    drifts = table.drift.sel(statistic="mean", layer=1).to_series()
    assert drifts["without_massive"] < 0.1 * drifts["all"]
    read = int(table.attrs["texts"].split()[0])  # one second token each
    assert table.massive_vectors[0] == 0 < table.massive_vectors[1] == table.massive_tokens == read


def test_texts_are_padded_only_where_no_vector_changes(monkeypatch):
    """A model that reads what pads, or computes in half precision, reads texts of one length."""
    loaded, (tokens, _) = tiny_models.loaded("bert"), draw(120)
    half = loaded._replace(attributes=loaded.attributes | {"computed_in": "bfloat16"})
    assert not separate_texts.is_padding_harmless(half, tokens)
    own = loaded.model.forward

    def careless(input_ids, attention_mask, **options):
        return own(input_ids=input_ids, attention_mask=torch.ones_like(input_ids), **options)

    monkeypatch.setattr(loaded.model, "forward", careless)
    assert not separate_texts.is_padding_harmless(loaded, tokens)
    for padded in (False, True):
        passes, lengths = separate_texts.plan_passes(tokens, 40, padded), []
        for text_B in passes:
            lengths.append([len(tokens.ids[u]) for u in text_B])
            assert len(text_B) * max(lengths[-1]) <= 40
        assert sorted(itertools.chain(*passes)) == [*range(len(tokens.ids))]
        assert all(len({*x}) == 1 for x in lengths) != padded


@pytest.mark.parametrize("kind", ["BigBird", "CANINE"])
def test_positions_are_those_of_tokens(kind):
    """BigBird pads inside to whole blocks; four characters of CANINE share a position."""
    letters = tiny_models.text(2000)
    given, sizes = [letters[40 * n :][: 29 + n % 8] for n in range(8)], tiny_models.SIZES
    if kind == "BigBird":
        blocks = {"block_size": 4, "num_random_blocks": 1, "sep_token_id": 1}
        model = transformers.BigBirdModel(transformers.BigBirdConfig(**sizes | blocks)).eval()
        tokenizer = tiny_models.tokenizer()
    else:
        buckets = {"num_hash_buckets": 64}
        model = transformers.CanineModel(transformers.CanineConfig(**sizes | buckets)).eval()
        tokenizer = transformers.CanineTokenizer()
    measure = MeasureConfig(points=64, batches=1, families=("similarity",), nulls=())
    config = PretrainedConfig(measure=measure, window=40)
    loaded = memory_model.model_in_memory(model, tokenizer)
    joined = tokens_per_position(model.config)
    tokens = separate_texts.draw_texts(given, tokenizer, config, True, joined)
    rows_M = np.arange(len(tokens.special_N))
    vectors = separate_texts.read_text_vectors(loaded, tokens, rows_M, ("mean", "last"), 96)
    assert tokens.count_U.tolist() == [len(ids) // joined for ids in tokens.ids]
    ends_U = np.cumsum(tokens.count_U) - 1
    np.testing.assert_array_equal(vectors["last"], vectors["tokens"][:, ends_U])
    means = []
    with torch.no_grad():  # of CANINE the middle one of three stages
        for ids, count in zip(tokens.ids, tokens.count_U, strict=True):
            output = model(torch.as_tensor(ids[None]).long(), output_hidden_states=True)
            states = [x for x in output.hidden_states if x.shape[1] == count or kind == "BigBird"]
            assert kind == "CANINE" or states[0].shape[1] % 4 == 0
            means.append([x[0, :count].mean(0).numpy() for x in states[-3:]])
    np.testing.assert_allclose(vectors["mean"][-3:], np.array(means).swapaxes(0, 1), atol=1e-5)


def test_a_token_that_is_not_finite_is_refused():
    loaded, (tokens, _) = tiny_models.loaded("gpt2"), draw(60)
    with torch.no_grad():
        loaded.model.transformer.wte.weight[int(tokens.ids[3][1])] = torch.nan
    with pytest.raises(UserError, match="residual stream of layer 0 holds numbers"):
        separate_texts.read_text_vectors(loaded, tokens, np.arange(60), (), 96)


def test_revisions_are_one_table_over_steps(tmp_path):
    """Each step is what that revision gives alone, and each is its own model."""
    model, text = tiny_models.model("gpt2"), [tiny_models.text()]
    for name in ("step0", "step20"):
        model.transformer.wte.weight.data.mul_(2)
        tiny_models.save(model, tmp_path / name)
    names = ["step20", "step0"]
    with pytest.warns(UserWarning, match=r"^revision step\d+ needs .* bits per byte"):
        table = anisoscope.measure_model(tmp_path, iter(text), revision=names, **QUICK)
    with pytest.warns(UserWarning, match="bits per byte"):
        alone = anisoscope.measure_model(tmp_path, text, revision="step20", **QUICK)
    assert table.step.values.tolist() == [0, 20]
    assert table.revision.values.tolist() == ["step0", "step20"]
    np.testing.assert_array_equal(table.drift.sel(step=20), alone.drift)
    assert (table.drift.sel(step=0, statistic="mean") != alone.drift.sel(statistic="mean")).any()
    with pytest.raises(
        ValueError, match="holds the checkpoints step0, step20; name them in revision"
    ):
        anisoscope.measure_model(tmp_path, text, **QUICK)
    with pytest.raises(ValueError, match=r"^revision: .* both have step 0"):
        anisoscope.measure_model(tmp_path, text, revision=["step0", "step-0"], **QUICK)
    tiny_models.save(model, tmp_path / "step40")
    with (
        pytest.warns(UserWarning, match="bits per byte"),
        pytest.raises(ValueError, match="steps 20 and 40 hold the same weights"),
    ):
        anisoscope.measure_model(tmp_path, text, revision=["step20", "step40"], **QUICK)
