"""A model in memory, against what the command measures of the same windows; and that it stays what
it was.
"""

import json
import logging
import re
import shutil

import numpy as np
import pytest
import torch
import transformers
import xarray as xr

import anisoscope
from anisoscope.results import joined_files
from anisoscope.sources.hf import guards, measure_model, memory_model, pretrained_weights
from anisoscope.sources.hf.extract import read_activations
from anisoscope.utils import progress
from anisoscope.utils.errors import SettingError, UserError
from tests import reference_comparison, reference_spectrum
from tests.program import run_examples
from tests.sources.hf import tiny_models

SMALL = {"window": 16, "points": 64, "batches": 2}
QUICK = SMALL | {"batches": 1, "families": "similarity", "nulls": ()}
FAMILIES = ("spectrum", "leading", "comparison", "attention")


@pytest.fixture(scope="module")
def valid(training):
    """What the command reads of the text."""
    text = (training / "text.txt").read_text()
    return text[len(text) * 90 // 100 : len(text) * 95 // 100]


def test_the_examples_of_docstrings_run(training, valid):
    model = transformers.AutoModelForCausalLM.from_pretrained(training / "step60")
    tokenizer = tiny_models.tokenizer()
    run_examples(anisoscope.measure_model, model=model, tokenizer=tokenizer, texts=[valid])
    trainer = transformers.trainer_callback.CallbackHandler([], model, tokenizer, None, None)
    run_examples(anisoscope.trainer_callback, trainer=trainer)


def test_numbers_are_those_of_the_command(training, valid, swept, capsys, tmp_path):
    commanded = joined_files.read_table(swept[0] / "results.nc").sel(step=60, drop=True)
    folder, kind = training / "step60", transformers.AutoModelForCausalLM
    model = kind.from_pretrained(folder, dtype=torch.float32).train(), tiny_models.tokenizer()
    capsys.readouterr()
    nulls = ("isotropic", "shuffled")
    found = anisoscope.measure_model(model, [valid], families=FAMILIES, nulls=nulls, **SMALL)
    assert capsys.readouterr().out == ""
    assert found["null"].values.tolist() == [*nulls]
    assert "step" not in found.dims
    missing = {name for name in commanded.data_vars if name not in found.data_vars}
    # only of revisions; of another family; or an excess over a null model that is not asked for
    others = "_last|_previous|previous_step|_layers_excess|query|key"
    assert all(re.search(others, name) for name in missing), missing
    assert {"anisotropy", "cka_layers", "attention_first_token"} <= set(found.data_vars)
    for name, values in found.data_vars.items():
        own = commanded[name].sel({"null": found["null"]} if "null" in values.dims else {})
        np.testing.assert_array_equal(values.transpose(*own.dims), own, err_msg=name)
        assert values.attrs.get("noise_floor") == own.attrs.get("noise_floor")
    for name in ("windows", "bits_per_byte", "bits_bound", "attention", "residual_stream"):
        words = str(found.attrs[name]).replace("the text", "the validation split")
        assert words == str(commanded.attrs[name])
    assert found.attrs["weights_file"] == "in memory"
    found.to_netcdf(tmp_path / "table.nc")
    assert found.identical(xr.load_dataset(tmp_path / "table.nc"))
    named = anisoscope.measure_model(folder, [valid], **QUICK)
    digest = pretrained_weights.digest_weights(pretrained_weights.find_weights(str(folder), None))
    assert named.attrs["weights_sha256"] == digest


def model_with_a_massive_position(letters):
    """A small GPT-2 whose second position is massive in the embedding, and exactly 8 windows of 16."""
    model, tokenizer = tiny_models.model("gpt2"), tiny_models.tokenizer()
    with torch.no_grad():
        model.transformer.wpe.weight[1] *= 1e3
    ids = torch.as_tensor(tokenizer(letters, add_special_tokens=False)["input_ids"][: 8 * 16])
    with torch.no_grad():
        states = model(ids.reshape(8, 16), output_hidden_states=True).hidden_states
    return model, tokenizer, [x.double().numpy() for x in states]


def test_without_massive_vectors_all_but_a_massive_second_position_is_left(valid):
    """Where each fold is one window and needs all that is left of it, against float64."""
    model, tokenizer, states = model_with_a_massive_position(valid)
    options = {"window": 16, "points": 120, "batches": 1, "tokenizer": tokenizer, "nulls": ()}
    options |= {"families": ("spectrum", "comparison", "attention"), "without_massive": True}
    with pytest.warns(UserWarning, match="bits per byte of this text"):
        table = anisoscope.measure_model(model, [valid[: 8 * 16]], **options)
    assert table.positions.values.tolist() == ["all", "without_first_token", "without_massive"]
    norms_LWT = np.linalg.norm(states[:-1], axis=-1)  # the last has passed the final norm
    massive_LWT = norms_LWT > 10 * np.median(norms_LWT, axis=(1, 2), keepdims=True)
    assert massive_LWT[..., 1].any()
    assert not massive_LWT[..., 2:].any()
    assert table.massive_vectors.values[:-1].tolist() == massive_LWT.sum((1, 2)).tolist()
    assert table.massive_tokens.item() == massive_LWT.any(0).sum() == 8
    rest = [x[:, np.arange(16) != 1].reshape(-1, x.shape[-1]) for x in states]
    value = table.sel(statistic="mean", positions="without_massive")
    for layer in range(3):
        expected = reference_spectrum.anisotropy(rest[layer])
        np.testing.assert_allclose(value.anisotropy[layer], expected, rtol=1e-4)
        expected = reference_comparison.linear_cka(rest[0], rest[layer])
        np.testing.assert_allclose(value.cka_layers[0, layer], expected, rtol=1e-4)
    # it is neither query nor key: the first token is seen by itself and by 14 others
    weight = value.attention_first_token
    assert (weight > table.attention_first_token.sel(statistic="mean", positions="all")).all()


@pytest.mark.filterwarnings("ignore:the model needs .* bits per byte")
def test_windows_are_read_once_and_checks_read_a_quarter_at_most(monkeypatch, caplog):
    """And each stage that takes long is named."""
    model, shapes = tiny_models.model("llama"), []
    model.model.register_forward_pre_hook(
        lambda _, args, options: shapes.append(tuple(options["input_ids"].shape)), with_kwargs=True
    )
    monkeypatch.setattr(progress, "PATIENCE", 0.0)
    longer = QUICK | {"window": 64, "points": 2048}
    given = (model, tiny_models.tokenizer()), [tiny_models.text(6000)]
    anisoscope.measure_model(*given, **longer)
    reads, checks = ([x for x in shapes if (x == (8, 64)) == read] for read in (True, False))
    assert reads == [(8, 64)] * 5
    assert checks == [(1, 32), (2, 32), (5, 64), (1, 64), (1, 64)]
    assert sum(map(np.prod, checks)) <= sum(map(np.prod, shapes)) / 4
    assert "measure_model: measuring batch 1 of 1 …" in caplog.messages


def parts(model):
    """All that must stay: modes of modules, settings, and every weight."""
    modules = {path: module.training for path, module in model.named_modules()}
    weights = {
        name: (x.requires_grad, x.dtype, id(x), None if x.grad is None else x.grad.abs().sum())
        for name, x in model.named_parameters()
    }
    return modules, weights, dict(vars(model.config)), torch.is_grad_enabled()


def levels():
    return [transformers.utils.logging.get_verbosity(), logging.getLogger("huggingface_hub").level]


@pytest.mark.parametrize("broken", [False, True])
def test_a_model_stays_what_it_was(valid, monkeypatch, broken):
    """In the middle of its training, with dropout, a frozen part and a hook of its owner's."""
    settings = {"resid_pdrop": 0.5, "embd_pdrop": 0.5, "attn_implementation": "eager"}
    model = tiny_models.model("gpt2", **settings).train()
    model.config.use_cache = True
    model.transformer.h[1].eval()
    model.transformer.wpe.weight.requires_grad_(False)
    ids, modes = torch.as_tensor(tiny_models.tokens(), dtype=torch.long), []
    model(input_ids=ids, labels=ids).loss.backward()
    first = model.transformer.h[0]
    handle = first.register_forward_hook(lambda *given: modes.append(given[0].training))
    monkeypatch.setattr(logging.getLogger("huggingface_hub"), "level", logging.INFO)
    before = parts(model), levels()

    def table(plan, loaded, *given, **named):
        assert not loaded.model.config.use_cache
        assert levels() == [logging.ERROR, logging.CRITICAL]
        guards.check_attention(loaded, plan.windows.probe.tokens_GWT[0, :2])
        raise SettingError("measure.points is wrong", "measure.points")

    given = QUICK | {"families": "attention", "tokenizer": tiny_models.tokenizer()}
    if broken:
        monkeypatch.setattr(measure_model, "measure_revision", table)
        with pytest.raises(ValueError, match=r"^points is wrong$"):
            anisoscope.measure_model(model, [valid], **given)
    else:
        with pytest.warns(UserWarning, match="bits per byte of this text"):
            anisoscope.measure_model(model, [valid], **given)
    assert (parts(model), levels()) == before
    assert modes
    assert handle.id in first._forward_hooks
    assert not any(modes)  # no dropout
    handle.remove()
    assert handle.id not in first._forward_hooks


def test_an_encoder_in_half_precision_with_special_tokens(valid):
    """With settings that give tuples, and every hidden state."""
    model = tiny_models.model("bert", return_dict=False, output_hidden_states=True)
    model, tokenizer = model.to(torch.bfloat16), tiny_models.tokenizer(framed=True)
    given = QUICK | {"families": ["spectrum"], "special_tokens": True}
    found = anisoscope.measure_model((model, tokenizer), [valid], **given)
    assert found.positions.values.tolist() == ["all", "without_first_token", "without_special"]
    assert (found.attrs["computed_in"], found.attrs["weights_type"]) == ("bfloat16", "bfloat16")
    assert model.dtype == torch.bfloat16
    assert found.anisotropy.sel(statistic="mean").notnull().all()
    llama = tiny_models.model("llama").to(torch.bfloat16)
    with pytest.warns(UserWarning, match="frequencies are rounded to bfloat16"):
        memory_model.model_in_memory(llama, tokenizer)


FRAMED = {"tokenizer": tiny_models.tokenizer(framed=True), "special_tokens": True}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"tokenizer": lambda text: [1]}, "pass its tokenizer of transformers"),
        (FRAMED | {"texts": ["a" * 900, "<s>a</s>"]}, "number 1 begins with <s>"),
        ({"families": "frequency"}, "'frequency' cannot be measured of a model"),
        ({"nulls": "untrained"}, "'untrained' cannot be made of a model"),
        ({"window": 65}, "window is 65, this model has 64 positions"),
        ({"window": 10**9}, "the text has .* characters; .* need .* tokens: lower points"),
        ({"points": 100}, "^points is 100; choose a multiple of 8"),
        ({"batch_size": 0}, "^batch_size is 0; it must be at least 1"),
        ({"batch_size": 2.5}, "^batch_size is 2.5, not int"),
        ({"model": ""}, "model is an empty name"),
        ({"pool": "cls"}, "pass special_tokens=True"),
        ({"pool": "mean", "nulls": "shuffled"}, "'shuffled' cannot be made of separate texts"),
        ({"pool": "mean", "families": "attention"}, "'attention' cannot be measured of separate"),
        ({"revision": "step0"}, "the model is in memory"),
        ({"device": "cpu"}, "device is for a hub name or a local folder"),
    ],
)
def test_what_cannot_be_measured_is_one_line(valid, changes, words):
    given = QUICK | {
        "model": tiny_models.model("gpt2"),
        "texts": [valid],
        "tokenizer": tiny_models.tokenizer(),
    }
    with pytest.raises(ValueError, match=words) as error:
        anisoscope.measure_model(**given | changes)
    assert len(str(error.value).splitlines()) == 1


def small(name, **settings):
    """A model of a class, small and random."""
    made = getattr(transformers, name)
    return made(made.config_class(**settings | {"vocab_size": tiny_models.VOCABULARY})).eval()


T5 = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 4}
BART = {"d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "max_position_embeddings": 64}
BART |= {"encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 48}


def llava():
    vision = {"image_size": 8, "patch_size": 4, "num_hidden_layers": 1}
    parts = {"vision_config": transformers.CLIPVisionConfig(**tiny_models.SIZES | vision)}
    parts["text_config"] = tiny_models.model("llama").config
    return transformers.LlavaForConditionalGeneration(transformers.LlavaConfig(**parts)).eval()


@pytest.mark.parametrize(
    ("make", "advice", "part"),
    [
        (lambda: small("T5ForConditionalGeneration", **T5), r"model\.get_encoder\(\)", "encoder"),
        (lambda: small("BartModel", **BART), r"model\.get_encoder\(\)", "encoder"),
        (llava, r"model\.model\.language_model", "model.language_model"),
        (lambda: torch.nn.ModuleList([tiny_models.model("gpt2")]), r"model\[0\]", "0"),
    ],
    ids=["T5", "BART", "LLaVA", "inside another module"],
)
def test_of_a_model_of_several_parts_the_one_to_pass_is_named_and_read(valid, make, advice, part):
    """In one line; and each layer of what is then passed is what that part reports itself."""
    model, tokenizer = make(), tiny_models.tokenizer()
    with pytest.raises(ValueError, match=rf"pass \({advice}, tokenizer\)") as error:
        anisoscope.measure_model((model, tokenizer), [valid], **QUICK)
    assert len(str(error.value).splitlines()) == 1
    part = model.get_submodule(part)
    loaded = memory_model.model_in_memory(part, tokenizer)
    ids = tiny_models.tokens()
    read = read_activations(loaded, ids[None], 4).resid_ZLBTD[0]
    with torch.no_grad():
        own = part(input_ids=torch.as_tensor(ids).long(), output_hidden_states=True).hidden_states
    assert len(read) == len(own)
    for x, y in zip(read[:-1], own[:-1], strict=True):  # the last is after a final norm
        np.testing.assert_allclose(x, y.numpy(), atol=1e-5)


def test_other_models_in_memory_are_refused(valid):
    vit = transformers.ViTConfig(**tiny_models.SIZES | {"image_size": 8, "patch_size": 4})
    damaged = tiny_models.model("gpt2")
    damaged.transformer.wte.weight.data[3, 3] = torch.inf
    decoder = small("T5ForConditionalGeneration", **T5).get_decoder()
    for model, words in (
        (decoder, "model is a T5Stack; pass"),
        (transformers.ViTModel(vit), "ViTModel reads pixel_values, not text"),
        (damaged, r"weight transformer\.wte\.weight holds numbers that are not finite"),
        (torch.nn.Linear(2, 2), r"model is a Linear; pass a PreTrainedModel .* anisoscope\.record"),
    ):
        with pytest.raises(ValueError, match=words):
            anisoscope.measure_model((model, tiny_models.tokenizer()), [valid], **QUICK)
    with pytest.raises(ValueError, match=r"a tuple of 1; pass \(model, tokenizer\)"):
        anisoscope.measure_model((damaged,), [valid], **QUICK)


@pytest.mark.parametrize(
    ("file", "content", "words"),
    [
        ("adapter_config.json", {"peft_type": "LORA"}, "holds a LoRA adapter"),
        ("config.json", {"quantization_config": {"quant_method": "own"}}, "are quantized"),
        ("config.json", {"model_type": "own", "auto_map": {"AutoConfig": "o.C"}}, "never run"),
    ],
)
def test_folders_that_would_be_read_in_part_or_with_code_are_refused(
    training, tmp_path, file, content, words
):
    folder = shutil.copytree(training / "step60", tmp_path / "model")
    path = folder / file
    path.write_text(json.dumps((json.loads(path.read_text()) if path.exists() else {}) | content))
    (folder / "own.py").write_text("raise SystemExit('run')\n")
    with pytest.raises(UserError, match=words) as error:
        tiny_models.load(folder)
    assert len(str(error.value).splitlines()) == 1
