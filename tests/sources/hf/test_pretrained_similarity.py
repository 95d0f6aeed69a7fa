"""Layers of two models on the same text, one or both of which others trained: points are where
tokens of both end.
"""

import dataclasses
import hashlib
import json
import re
import string

import jax
import numpy as np
import pytest
import tokenizers
import torch
import transformers
import xarray as xr

import anisoscope
from anisoscope.config.model_config import ModelConfig
from anisoscope.config.pretrained_config import PretrainedConfig, WeightsConfig
from anisoscope.config.run_config import DataConfig
from anisoscope.data import corpus as texts
from anisoscope.models.transformer import build
from anisoscope.results import joined_files
from anisoscope.sources import paired_clouds, two_models
from anisoscope.sources.finished_run import OpenRun
from anisoscope.sources.folds import cut_runs
from anisoscope.sources.hf import text_chunks, two_folders, two_pretrained
from anisoscope.utils import folder
from anisoscope.utils.errors import UserError
from anisoscope.utils.settings import replace, to_dict
from tests import reference_comparison
from tests.program import run_examples
from tests.sources.hf import own_in_torch, tiny_models
from tests.tiny import config as own_config

MEASURE = dataclasses.replace(PretrainedConfig().measure, points=64, batches=2, folds=2)
PAIRS = r"[a-z]{1,2}|[^a-z]"  # a tokenizer that reads two letters at a time


@pytest.fixture(scope="module")
def world(training, tmp_path_factory):
    """A text with letters of two bytes, a decoder that reads letters and an encoder that reads
    pairs of them.
    """
    root = tmp_path_factory.mktemp("world")
    (root / "text.txt").write_text(tiny_models.text().replace("q", "é"))
    letters = string.ascii_lowercase
    names = ["<unk>", " ", "\n", *letters, *(one + other for one in letters for other in letters)]
    made = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({name: i for i, name in enumerate(names)}, "<unk>")
    )
    made.pre_tokenizer = tokenizers.pre_tokenizers.Split(tokenizers.Regex(PAIRS), "isolated")
    spelled = transformers.PreTrainedTokenizerFast(tokenizer_object=made, unk_token="<unk>")
    tiny_models.save(tiny_models.model("bert", vocab_size=len(names)), root / "pairs", spelled)
    begin(root, "letters", training / "step60")
    begin(root, "in_pairs", root / "pairs")
    return root


def begin(root, name, model, text=None, points=64, clamp=None, **changes):
    """A run's folder as it is when measuring begins."""
    data = DataConfig(path=str(text or root / "text.txt"))
    of = WeightsConfig(name=str(model), clamp=clamp)
    measure = dataclasses.replace(MEASURE, points=points)
    config = PretrainedConfig(pretrained=of, data=data, measure=measure, window=24, **changes)
    folder.claim_folder(root / name, config, new=True)
    return str(root / name)


def test_a_model_beside_itself_is_the_same(world, tmp_path):
    both = f"--similarity={world / 'letters'},{world / 'letters'}"
    tiny_models.run(both, f"--workdir={tmp_path / 'out'}")
    value = joined_files.read_table(tmp_path / "out" / "similarity.nc").sel(statistic="mean")
    for name in ("cka", "cka_unbiased", "neighbor_overlap"):
        assert value[name].dims == ("positions", "layer", "other_layer")
        np.testing.assert_allclose(np.diagonal(value[name], axis1=1, axis2=2), 1, atol=1e-3)
    words = (tmp_path / "out" / "figures" / "similarity_of_models.txt").read_text()
    assert "where tokens of both end" in words


def test_points_of_two_tokenizers_stand_after_the_same_characters(world):
    paths = tuple(str(world / name) for name in ("letters", "in_pairs"))
    sides = tuple(map(two_folders.open_side, paths))
    length = min(side.bytes for side in sides)
    chunks = text_chunks.draw_chunks(sides[0].text.content, length, 0)
    ends = tuple(side.ends for side in sides)
    points = text_chunks.common_points(chunks, ends, MEASURE, 0)
    clouds = [two_pretrained.read_points(side, points, number) for number, side in enumerate(sides)]
    words = [re.findall(PAIRS, chunk.decode()) for chunk in points.chunks]
    several, first = 0, set()
    for m, (chunk, a, b) in enumerate(zip(points.chunk_M, *points.places_2M, strict=True)):
        read = points.chunks[chunk].decode()[: a + 1]  # a letter is a token
        assert read == "".join(words[chunk][: b + 1])
        several += len(read.encode()) > len(read)
        first |= {m} if 0 in (a, b) else set()
    own = transformers.BertModel.from_pretrained(world / "pairs").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(world / "pairs")
    with torch.no_grad():
        ids = torch.tensor([tokenizer(points.chunks[0].decode())["input_ids"]])
        states = torch.stack(own(ids, output_hidden_states=True).hidden_states)
    there = points.places_2M[1][points.chunk_M == 0]
    np.testing.assert_allclose(clouds[1][:, : len(there)], states[:, 0, there], atol=1e-5)
    assert several > 10
    assert first & set(points.picks_SP[0])
    assert not first & set(points.picks_SP[1])
    fold = points.chunk_M[points.picks_SP].reshape(2, 2, -1)
    assert not set(fold[:, 0].ravel()) & set(fold[:, 1].ravel())  # folds are of whole chunks
    assert (points.chunk_M[points.other_M] != points.chunk_M).all()
    a_NPD, b_NPD = (cloud[:, points.picks_SP[0]] for cloud in clouds)
    folds, clouds = (
        cut_runs(np.arange(a_NPD.shape[1]), MEASURE.folds),
        paired_clouds.PairedClouds(a_NPD, b_NPD),
    )
    measured = paired_clouds.compare_clouds(clouds, folds)["measured"]
    twin = [[reference_comparison.linear_cka_unbiased(x, y) for y in b_NPD] for x in a_NPD]
    np.testing.assert_allclose(measured["cka_unbiased"][..., 0], twin, rtol=1e-3, atol=1e-4)


def test_ours_beside_itself_as_others_read_it(tmp_path, monkeypatch):
    """A model of ours and the same of transformers: two programs, and two readers of the bytes."""
    (tmp_path / "text.txt").write_text(tiny_models.text().replace("q", "é"))
    text = texts.load_corpus(DataConfig(path=str(tmp_path / "text.txt")), 24)
    config = replace(own_config(), {"measure.points": 64, "measure.folds": 2, "measure.batches": 2})
    model = ModelConfig(layers=3, width=32, heads=2, context=24)  # shapes as above: compiled once
    config = dataclasses.replace(config, model=model)
    params = jax.tree.map(
        lambda x: 4 * x + 0.05, build(model, text.vocab_size, "float32").init(jax.random.key(0))
    )
    readers = (lambda step: params), (lambda: text)
    run = OpenRun(tmp_path, config, text.vocab_size, [6], *readers)
    tokenizer = own_in_torch.byte_tokenizer(text.vocabulary)
    tiny_models.save(own_in_torch.in_torch(model, params), tmp_path / "gpt2", tokenizer)
    theirs = begin(tmp_path, "theirs", tmp_path / "gpt2")
    folder.claim_folder(tmp_path / "ours", config, new=True)
    monkeypatch.setattr(two_folders, "open_finished_run", lambda path: run)
    found = two_models.measure_pair(
        two_folders.open_pretrained_pair(str(tmp_path / "ours"), theirs)
    )
    value = found.sel(statistic="mean")
    for name in ("cka_unbiased", "neighbor_overlap"):
        np.testing.assert_allclose(np.diagonal(value[name], axis1=1, axis2=2), 1, atol=2e-3)
    assert found.attrs["first_model"].endswith("step 6")
    other = dataclasses.replace(text, valid=np.random.default_rng(0).permutation(text.valid))
    monkeypatch.setattr(
        two_folders,
        "open_finished_run",
        lambda path: dataclasses.replace(run, read_corpus=lambda: other),
    )
    with pytest.raises(UserError, match="no points in common: text_sha256="):
        two_folders.open_pretrained_pair(str(tmp_path / "ours"), theirs)


def test_rotated_copies_are_the_same_and_independent_clouds_at_the_level_of_the_null_model():
    measure = dataclasses.replace(MEASURE, batches=24)
    turn = np.linalg.qr(np.random.default_rng(0).normal(size=(32, 32)))[0]
    content = np.random.default_rng(1).integers(97, 101, 60_000).astype(np.uint8).tobytes()
    text = two_pretrained.SharedText("letters", content, "digest", {})

    def planted(seed, turned=False):
        def vectors(chunk):
            drawn = np.random.default_rng([seed, *hashlib.sha256(chunk).digest()]).normal(
                size=(4, len(chunk), 32)
            )
            return (3 * drawn @ turn + 1 if turned else drawn).astype(np.float32)

        return two_pretrained.Side(
            1, measure, text, 20, np.inf, "", lambda chunk: np.arange(1, len(chunk) + 1), vectors
        )

    pairs = (
        two_pretrained.pair_sides(("a", "b"), (planted(0), other))
        for other in (planted(0, True), planted(9))
    )
    copies, apart = map(two_models.measure_pair, pairs)
    for name, level in {"cka_unbiased": 0.0, "neighbor_overlap": 10 / 63}.items():
        value, excess = (
            copies[variable].sel(statistic="mean", positions="all")
            for variable in (name, f"{name}_excess")
        )
        np.testing.assert_allclose(np.diag(value), 1, atol=2e-3)
        np.testing.assert_allclose(value - excess.sel(null="permuted"), level, atol=0.02)
        np.testing.assert_allclose(apart[name].sel(statistic="mean"), level, atol=0.02)
        assert (apart[f"{name}_excess"].sel(statistic="low") < 0.02).all()
        assert (apart[f"{name}_excess"].sel(statistic="high") > -0.02).all()


def test_two_models_by_name_and_texts(world, training):
    """Revisions of one folder; other tokenizers; and a model in memory, which stays as it was."""
    read, tokenizer = [(world / "text.txt").read_text()], tiny_models.tokenizer()
    options = {"window": 16, "points": 64, "batches": 1}
    revisions = ("step20", "step60")
    steps = anisoscope.compare_models(training, training, read, revision=revisions, **options)
    assert (steps.attrs["first"], steps.attrs["second"]) == ("training0@step20", "training0@step60")
    assert steps.sizes["layer"] == steps.sizes["other_layer"] == 4
    unlike = steps.cka_unbiased.sel(statistic="mean", positions="all").values
    assert (np.diag(unlike)[1:] < 0.999).all()
    model = transformers.AutoModelForCausalLM.from_pretrained(training / "step60").train()
    memory, labels = (model, tokenizer), ("letters", "pairs")
    found = anisoscope.compare_models(memory, world / "pairs", read, labels=labels, **options)
    assert model.training
    assert (found.attrs["first"], found.attrs["second"]) == labels
    assert found.cka_unbiased_excess["null"].values.tolist() == ["permuted"]
    found.to_netcdf(world / "table.nc")
    with pytest.raises(ValueError, match=r"^tokens of both models .* lower points"):
        anisoscope.compare_models(memory, memory, ["too short a text"], **options)
    run_examples(anisoscope.compare_models, model=model, tokenizer=tokenizer, texts=read)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"texts": ["CAPITALS, " * 200]}, "are unknown to the tokenizer"),
        ({"texts": [""]}, "empty"),
        ({"window": 300}, "this model has 64 positions; lower window"),
        ({"device": "cpu"}, "a model in memory has its own"),
        ({"labels": ("a",)}, "labels is .*; pass two"),
        ({"revision": ("a",)}, r"revision is \('a',\); pass two"),
    ],
)
def test_two_models_are_checked_as_one_is(change, words):
    change = {"texts": [tiny_models.text()], "window": 16, "points": 64, "batches": 1} | change
    memory = tiny_models.model("gpt2"), tiny_models.tokenizer()
    with pytest.raises(ValueError, match=words):
        anisoscope.compare_models(memory, memory, change.pop("texts"), **change)


def test_bytes_are_tokens_whose_ends_are_known():
    """Of ByT5, whose tokenizer gives no offsets; that of another class is refused."""
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_heads": 4}
    config = transformers.T5Config(**sizes | {"vocab_size": 400})
    model, tokenizer = transformers.T5EncoderModel(config).eval(), transformers.ByT5Tokenizer()
    options = {"window": 16, "points": 64, "batches": 1, "quiet": True}
    letters = tiny_models.model("gpt2"), tiny_models.tokenizer()
    read = [tiny_models.text(6000)]
    table = anisoscope.compare_models((model, tokenizer), letters, read, **options)
    assert table.sizes["layer"] == 3
    for text, ends in (("aé", [1, 2, 3, 0]), ("a</s>b", [0, 0, 0, 0])):
        chunk, ids = text.encode(), tokenizer(text)["input_ids"]
        np.testing.assert_array_equal(text_chunks.byte_ends(chunk, ids), ends)
    with pytest.raises(UserError, match="CanineTokenizer does not say where its tokens end"):
        two_pretrained.reads_bytes("a", transformers.CanineTokenizer())


def test_what_cannot_be_compared_is_refused(world, training, tmp_path):
    letters = str(world / "letters")
    fewer = begin(world, "fewer", training / "step60", points=32)
    with pytest.raises(UserError, match=r"no points in common: measure\.points='64'"):
        two_folders.open_pretrained_pair(letters, fewer)
    other = begin(world, "other_text", training / "step60", text=training / "text.txt")
    with pytest.raises(UserError, match="corpus_sha256="):
        two_folders.open_pretrained_pair(letters, other)
    (tmp_path / "config.json").write_text(json.dumps({"models": ["a"]}))
    with pytest.raises(UserError, match="several models"):
        two_folders.open_side(str(tmp_path))


def test_revisions_are_those_that_were_measured(world, training):
    """The folder's own settings name none, since some may be added."""
    name = begin(world, "several", training)
    of = WeightsConfig(name=str(training), revisions=("step20", "step60"))
    data = DataConfig(path=str(world / "text.txt"))
    config = PretrainedConfig(pretrained=of, data=data, measure=MEASURE, window=24)
    table = xr.Dataset(attrs={"config": json.dumps(to_dict(config))})
    joined_files.write_table(table, world / "several" / "results.nc")
    assert two_folders.open_side(f"{name}@20").step == 20
    assert two_folders.open_side(name).step == 60
    with pytest.raises(UserError, match=r"has no checkpoint of step '3'; it has \[20, 60\]"):
        two_folders.open_side(f"{name}@3")


def test_a_token_ends_where_its_vector_has_read_to():
    """Byte-level tokens that leave out spaces, a sign for a space to come, halves of a character,
    and [SEP].
    """
    text = "ab\n   <é"
    named = [("ab", 0, 2), ("ĊĠĠ", 2, 3), ("Ġ<", 6, 7), ("Ã", 7, 8), ("©", 7, 8), ("[SEP]", 0, 0)]
    names, offsets = [one[0] for one in named], [one[1:] for one in named]
    np.testing.assert_array_equal(text_chunks.token_ends(text, offsets, names), [2, 0, 7, 0, 9, 0])
    np.testing.assert_array_equal(
        text_chunks.token_ends("ab", [(0, 1), (0, 2)], ["▁", "ab"]), [0, 2]
    )


def test_where_tokens_end_and_what_stands_beside():
    # special; several tokens of one character
    first, second = np.array([0, 2, 3, 3, 7]), np.array([1, 3, 7, 7, 9])
    np.testing.assert_array_equal(text_chunks.shared_ends(first, second), [[3, 1], [4, 3]])
    chunk_M, place_M = np.array([0, 0, 1, 1, 1, 2]), np.array([0, 4, 0, 3, 9, 5])
    found = text_chunks.points_elsewhere(chunk_M, place_M, np.random.default_rng(0))
    assert (chunk_M[found] != chunk_M).all()
    for m, other in enumerate(found):
        there = chunk_M == chunk_M[other]
        # the first token has its like, where there is one
        like = there & ((place_M == 0) == (place_M[m] == 0))
        there = like if like.any() else there
        assert abs(place_M[other] - place_M[m]) == np.abs(place_M[there] - place_M[m]).min()
    valid = "añb".encode() * 50
    read = list(text_chunks.draw_chunks(valid, 7, 0))
    assert 0 < len(read) < len(valid) // 7
    assert all(chunk.decode() in "añb" * 4 for chunk in read)


def test_a_run_s_special_tokens_and_clamp_are_those_of_the_comparison(world, tmp_path):
    tiny_models.save(
        tiny_models.model("llama"), tmp_path / "model", tiny_models.tokenizer(framed=True)
    )
    texts_of = {"text": world / "text.txt"}
    framed = begin(tmp_path, "framed", tmp_path / "model", special_tokens=True, **texts_of)
    bare = begin(tmp_path, "bare", tmp_path / "model", **texts_of)
    cut = begin(tmp_path, "cut", tmp_path / "model", clamp=0.5, **texts_of)
    framed, bare, cut = (two_folders.open_side(name) for name in (framed, bare, cut))
    assert framed.bytes < bare.bytes
    chunk = "abé d".encode()
    np.testing.assert_array_equal(framed.ends(chunk), [0, 1, 2, 4, 5, 6, 0])
    np.testing.assert_array_equal(
        text_chunks.shared_ends(framed.ends(chunk), bare.ends(chunk)),
        [[n + 1, n] for n in range(5)],
    )
    assert framed.vectors(chunk).shape == (4, 7, 32)
    assert np.abs(cut.vectors(chunk)[1:]).max() == 0.5 < np.abs(bare.vectors(chunk)[1:]).max()
    assert "; clamped: coordinates above 0.5" in cut.description
