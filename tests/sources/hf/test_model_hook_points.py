"""Further clouds of pretrained models: what attention and the feed-forward layer add to the stream,
and values.
"""

import json

import numpy as np
import pytest
import torch

from anisoscope.config.measure_config import MeasureConfig
from anisoscope.config.pretrained_config import PretrainedConfig, WeightsConfig
from anisoscope.results import joined_files
from anisoscope.sources.hf import revision
from anisoscope.sources.hf.adapters import find_adapter
from anisoscope.sources.hf.reading import guards, inside_names
from anisoscope.sources.hf.reading.extract import read_activations
from anisoscope.sources.hf.reading_plan import Plan
from anisoscope.utils.errors import UserError
from tests.sources.hf import tiny_models
from tests.sources.hf.rows import __main__ as rows
from tests.sources.hf.rows import modalities
from tests.sources.hf.rows.row import made
from tests.sources.hf.test_revision_sweep import flags

MAPS = ("MiT (SegFormer)", "ResNet-18, 34", "ResNet-50 and larger", "EfficientNet")
MAPS += ("CvT", "ConvNeXt")
HERE = {
    name: row
    for name, row in (rows.ROWS | modalities.ROWS).items()
    if row.model and name not in MAPS
}
NORMS_AFTER = {
    "BERT", "RoBERTa", "ALBERT", "DistilBERT", "ELECTRA", "OPT-350m", "CANINE", "wav2vec 2.0", "HuBERT", "DeBERTa",
    "DeBERTa-v3", "WavLM", "CamemBERT", "XLM-RoBERTa", "MPNet",
}  # fmt: skip


def read_by(name):
    if name in modalities.ROWS:
        return (loaded := modalities.made(HERE[name])), modalities.inputs(loaded)
    return (loaded := made(HERE[name])), HERE[name].reads(loaded.model.config)


@pytest.mark.parametrize("name", HERE)
def test_what_blocks_add_is_the_next_stream(name):
    loaded, windows = read_by(name)
    said = inside_names.check_sum(loaded, windows[0])
    assert said.startswith("norm(norm(") == (name in NORMS_AFTER)
    resid_NWTD = read_activations(loaded, windows[None], 2, heads=False).resid_ZNWTD[0]
    attention, mlp = (
        inside_names.read_hook_point(loaded, windows[None], 2, hook_point)[0]
        for hook_point in inside_names.ADDED
    )
    assert attention.shape == mlp.shape == resid_NWTD[1:].shape
    assert min(np.abs(attention).max(), np.abs(mlp).max()) > 1e-3
    if name not in NORMS_AFTER:
        np.testing.assert_allclose(
            resid_NWTD[:-1] + attention + mlp, resid_NWTD[1:], atol=1e-5, rtol=1e-5
        )


@pytest.mark.parametrize(
    ("name", "projection"),
    [
        ("BERT", "attention.output.dense"),
        ("Llama, grouped keys", "self_attn.o_proj"),
        ("GPT-J", "attn.out_proj"),
        ("Falcon-7B", "self_attention.dense"),
        ("Falcon-RW", "self_attention.dense"),
        ("Bloom", "self_attention.dense"),
        ("ByT5", "layer.0.SelfAttention.o"),
        ("ViT", "attention.o_proj"),
    ],
)
def test_values_are_what_the_model_s_own_weights_mix(name, projection):
    loaded, windows = read_by(name)
    mixed = []
    modules = [block.get_submodule(projection) for block in loaded.block_modules]
    hooks = [
        module.register_forward_pre_hook(lambda _, args: mixed.append(args[0]))
        for module in modules
    ]
    weights = guards.model_outputs(loaded, windows, "attentions")
    for hook in hooks:
        hook.remove()
    values = inside_names.read_hook_point(loaded, windows[None], 2, "values")[0]
    for v_WTD, weights_WHTT, mixed_WTD in zip(values, weights, mixed, strict=True):
        heads, width = weights_WHTT.shape[1], mixed_WTD.shape[-1] // weights_WHTT.shape[1]
        v_WHTK = torch.from_numpy(v_WTD).unflatten(2, (-1, width)).transpose(1, 2)
        v_WHTK = v_WHTK.repeat_interleave(heads // v_WHTK.shape[1], dim=1)
        own = (weights_WHTT @ v_WHTK).transpose(1, 2).flatten(2)
        # up to 6; ByT5's scores are large
        np.testing.assert_allclose(own.detach(), mixed_WTD.detach(), atol=1e-4)


@pytest.mark.parametrize(
    ("name", "changes"),
    [("OLMo 2, Gaperon of 24B", {"mlp": "mlp"}), ("GPT-2", {"attention": "ln_1"})],
)
def test_a_wrong_entry_is_refused_and_a_massive_coordinate_hides_none(name, changes):
    loaded, windows = read_by(name)
    if name == "GPT-2":
        with torch.no_grad():
            loaded.base.wte.weight[:, 0] += 1e4
    assert "is the output of every block" in inside_names.check_sum(loaded, windows[0])
    adds = loaded.adapter.adds._replace(**changes)
    wrong = loaded._replace(adapter=loaded.adapter._replace(adds=adds))
    with pytest.raises(UserError, match="differs from the output of a block"):
        inside_names.check_sum(wrong, windows[0])


@pytest.mark.parametrize("kind", ["helium", "resnet"])
def test_classes_without_an_entry_are_refused(kind):
    with pytest.raises(UserError, match=r"measure\.hook_points=values: OfThis has none"):
        inside_names.check_hook_points(find_adapter(kind), "OfThis", ("values",))
    inside_names.check_hook_points(find_adapter("gemma"), "OfThis", ())


def test_the_table_of_a_hook_point_is_of_its_cloud():
    loaded, windows = tiny_models.loaded("llama"), tiny_models.windows()
    measure = MeasureConfig(points=64, batches=1, folds=2, families=("similarity",), nulls=())
    config = PretrainedConfig(pretrained=WeightsConfig(name="a"), measure=measure, window=24)
    found = revision.measure_hook_point(
        Plan(config, windows, "a"), loaded, 5, False, "values", {"corpus": "letters"}
    )
    assert found.layer.values.tolist() == [1, 2, 3]
    values_NWTD = inside_names.read_hook_point(loaded, windows.probe.tokens_GWT[:1], 8, "values")[0]
    assert values_NWTD.shape[-1] == 16  # of two heads, which four share
    for s, picks_P in enumerate(windows.probe.picks_SGP[:, 0]):
        clouds_NPD = values_NWTD.reshape(3, -1, 16)[:, picks_P]
        norms = np.linalg.norm(clouds_NPD, axis=2).mean(1)
        got = found.mean_norm.isel(cloud=0, positions=s, batch=0, jackknife=0)
        np.testing.assert_allclose(got, norms, rtol=1e-4)


def test_from_the_command_line(training, tmp_path):
    root, option = tmp_path / "run", "--config.measure.hook_points="
    given = *flags(training, "step0", "step60"), "--config.measure.families=similarity"
    given = *given, "--config.measure.nulls=untrained", f"--workdir={root}"
    process = tiny_models.done(*given, f"{option}mlp_out,values", "--stages=measure,figures")
    assert "stream + attention_out + mlp_out is the output of every block to " in process.stdout
    for hook_point in ("mlp_out", "values"):
        folder = root / "hook_points" / hook_point
        results, batches = (
            joined_files.read_table(folder / f"{name}.nc") for name in ("results", "batches")
        )
        assert results.layer.values.tolist() == [1, 2, 3]
        assert results.attrs["hook_point"] == hook_point
        noise = json.loads(results.attrs["noise_floor"])["mean_norm"]
        assert results.mean_norm.attrs["noise_floor"] == noise < 1e-3
        results = results.sel(positions="all", statistic="mean")
        value, excess = results.mean_norm, results.mean_norm_excess.sel(null="untrained", step=60)
        assert (value.sel(step=60) > 0).all()
        np.testing.assert_allclose(excess, value.sel(step=60) - value.sel(step=0), atol=1e-6)
        assert batches.sizes["batch"] == 2
    assert (root / "figures" / "hook_points.png").exists()
    written = {path: path.read_bytes() for path in root.glob("**/[0-9]*.nc")}
    assert len(written) == 2 + 2 * 2  # tables of revisions and of hook points
    tiny_models.done(*given, f"{option}mlp_out,values,attention_out", "--stages=measure")
    assert {path: path.read_bytes() for path in written} == written
    assert (root / "hook_points" / "attention_out" / "results.csv").exists()


def test_blocks_of_several_groups_are_known_in_the_order_of_their_calls():
    """ALBERT runs the first group for the first layers, and then the second."""
    loaded = tiny_models.loaded("albert", num_hidden_layers=4, num_hidden_groups=2)
    # else their norms are the same
    torch.nn.init.constant_(loaded.block_modules[1].full_layer_layer_norm.weight, 2.0)
    assert "is the output of every block" in inside_names.check_sum(loaded, tiny_models.tokens()[0])
