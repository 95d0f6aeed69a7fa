"""Chosen layers of a model have the numbers that they have in the table of all."""

import numpy as np
import pytest
import torch

import anisoscope
from anisoscope.results import joined_files
from anisoscope.sources.hf.extract import read_activations
from tests.sources.hf import tiny_models
from tests.sources.hf.test_in_memory import QUICK, SMALL, valid  # noqa: F401 a fixture

CHOSEN, PLACES = (-1, 1), {"layer": [1, 3], "other_layer": [1, 3], "block": [1, 3]}
FAMILIES = ("spectrum", "dimension", "comparison", "alignment", "attention", "sinks")


def check_equal(chosen, whole):
    """Check every number of a table of chosen layers; return the names that it lacks."""
    for name, values in chosen.data_vars.items():
        places = {dim: x for dim, x in PLACES.items() if dim in values.dims}
        places |= {"null": values["null"].values} if "null" in values.dims else {}
        expected = whole[name].sel(places).transpose(*values.dims)
        assert all((values[dim] == expected[dim]).all() for dim in values.dims), name
        np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6, err_msg=name)
    return set(whole.data_vars) - set(chosen.data_vars)


@pytest.mark.parametrize("kind", ["llama", "gpt2"])
def test_numbers_are_those_of_the_table_of_all_layers(kind, valid):  # noqa: F811
    given = ((tiny_models.model(kind), tiny_models.tokenizer()), [valid])
    options = SMALL | {"families": FAMILIES, "nulls": ("gaussian", "shuffled")}
    with pytest.warns(UserWarning, match="bits per byte"):  # a model that was not trained
        whole = anisoscope.measure_model(*given, **options)
    with pytest.warns(UserWarning, match="bits per byte"):
        chosen = anisoscope.measure_model(*given, layers=CHOSEN, **options)
    assert {"anisotropy", "twonn_excess", "cka_layers", "sink_rate"} <= set(chosen.data_vars)
    assert all("_over_blocks" in name for name in check_equal(chosen, whole))
    assert chosen.depth.values.tolist() == [1 / 3, 1]
    assert chosen.attrs["layers"] == "1, 3 of 0 to 3"
    assert "\n    1 " in anisoscope.to_text(chosen.sel(positions="all"))


def test_pooled_texts_too(valid):  # noqa: F811
    texts = [valid[n : n + 12] for n in range(0, 800, 10)]
    given, options = (
        (tiny_models.model("gpt2"), texts),
        QUICK | {"tokenizer": tiny_models.tokenizer()},
    )
    whole = anisoscope.measure_model(*given, pool="mean", **options)
    chosen = anisoscope.measure_model(*given, pool="mean", layers=np.array(CHOSEN), **options)
    assert check_equal(chosen, whole) == set()
    assert chosen.layer.values.tolist() == PLACES["layer"]


def test_the_others_are_not_kept():
    loaded, tokens = tiny_models.loaded("llama"), tiny_models.tokens()[None]
    whole = read_activations(loaded, tokens, 4, heads=True)
    for layers in ((0, 2), (3,)):
        read = read_activations(loaded, tokens, 4, heads=True, layers=layers)
        blocks = [layer - 1 for layer in layers if layer]
        np.testing.assert_array_equal(read.resid_ZLBTD, whole.resid_ZLBTD[:, layers])
        np.testing.assert_array_equal(read.q_ZNBTHK, whole.q_ZNBTHK[:, blocks])
    reported = read_activations(loaded, tokens, 4, reported=True, layers=(3,)).resid_ZLBTD
    with torch.no_grad():
        ids = torch.as_tensor(tokens[0]).long()
        own = loaded.model(ids, output_hidden_states=True).hidden_states[3]
    np.testing.assert_allclose(reported[0, 0], own.numpy(), atol=1e-5)


def test_everything_leaves_out_what_reads_every_layer(valid):  # noqa: F811
    given = QUICK | {"families": "all", "tokenizer": tiny_models.tokenizer()}
    with pytest.warns(UserWarning, match="bits per byte"):
        table = anisoscope.measure_model(tiny_models.model("gpt2"), [valid], layers=[0], **given)
    assert "anisotropy" in table
    assert not {"linearity", "logit_lens_loss", "attention_entropy"} & set(table.data_vars)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"layers": [4]},
            r"^layers: GPT2LMHeadModel has no layer 4; it has 0, .* to 3, or -1 to -4$",
        ),
        ({"layers": [-5]}, "has no layer -5"),
        ({"layers": [3, -1]}, "^layers names layer 3 twice"),
        ({"layers": 3}, r"^layers is 3; pass a list of whole numbers"),
        ({"layers": []}, r"^layers is \[\]; pass a list"),
        ({"layers": [1.0]}, r"^layers is \[1.0\]; pass a list"),
        ({"layers": [True]}, "pass a list"),
        ({"layers": "1"}, "pass a list"),
        ({"layers": [1], "families": "logit_lens"}, "logit_lens reads the last layer too"),
        ({"layers": [1], "families": "linearity", "pool": "mean"}, "reads the layer before too"),
        ({"layers": [0], "families": "attention"}, "the embedding has no attention"),
        ({"layers": [9], "pool": "mean"}, "has no layer 9"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(valid, changes, words):  # noqa: F811
    given = QUICK | {"tokenizer": tiny_models.tokenizer()}
    with pytest.raises(ValueError, match=words) as error:
        anisoscope.measure_model(tiny_models.model("gpt2"), [valid], **given | changes)
    assert len(str(error.value).splitlines()) == 1


def test_the_command_has_the_same_setting(training, swept, tmp_path):
    names = ("step20", "step60")
    flags = tiny_models.flags(training, *names)
    run = f"--workdir={tmp_path}", "--stages=measure,figures"
    tiny_models.run(*flags, *run, "--config.layers=1,-1")
    whole = joined_files.read_table(swept[0] / "results.nc").sel(step=[20, 60])
    chosen = joined_files.read_table(tmp_path / "results.nc")
    differ = {name for name in chosen.data_vars if "_previous" in name or "previous_step" in name}
    lacking = check_equal(chosen.drop_vars(differ), whole) - differ
    assert all("_over_blocks" in name for name in lacking), lacking
    assert (tmp_path / "report.html").exists()
    process = tiny_models.here(*flags, f"--workdir={tmp_path / 'other'}", "--config.layers=7")
    assert process.returncode == 2
    assert "LlamaForCausalLM has no layer 7" in process.stderr
