"""The stage `tangents` on revisions of a tiny training, on a model alone, and what has no
gradients.
"""

import json
import shutil

import numpy as np
import pandas as pd
import pytest
import torch
import transformers

from anisoscope.config.tangents_config import TangentsConfig
from anisoscope.experiments import pretrained as experiment
from anisoscope.results import joined_files
from anisoscope.sources.hf import guards, load_model, pretrained_weights, revision_sweep
from anisoscope.subspaces.hf import pretrained_tangents as tangents
from anisoscope.utils.errors import UserError
from tests.program import here, override, refuse
from tests.sources.hf import tiny_models

NAMES = ("step0", "step4", "step8", "step20")
STEPS = [0, 4, 8, 20]
SETTINGS = TangentsConfig(windows=16, points=32, folds=4)
PLAIN = {
    "window": "16",
    "measure.points": "64",
    "measure.folds": "2",
    "measure.batches": "1",
    "measure.families": "('spectrum',)",
    "measure.nulls": "()",
    "tangents.enabled": "True",
    "tangents.windows": "16",
    "tangents.points": "64",
    "tangents.folds": "4",
    "tangents.ranks": "(2,)",
    "tangents.early_fraction": "0.4",
    "tangents.rounds": "3",
    "tangents.restarts": "1",
    "tangents.controls": "3",
    "tangents.neighbors": "4",
    "tangents.local_points": "8",
    "tangents.families": "()",
}
SMALL = tuple(f"--config.{name}={value}" for name, value in PLAIN.items())


def flags(training, *revisions, **options):
    return *tiny_models.flags(training, *revisions, **options), *SMALL


def start(training, workdir, *revisions, stages="tangents", more=(), **options):
    given = *flags(training, *revisions, **options), *more
    return here(*given, f"--workdir={workdir}", f"--stages={stages}")


@pytest.fixture(scope="module")
def swept(training, tmp_path_factory):
    workdir = tmp_path_factory.mktemp("runs") / "swept"
    given = *flags(training, *NAMES), f"--workdir={workdir}"
    return workdir, tiny_models.run(*given, "--stages=measure,tangents,figures")


def test_revisions_have_what_our_checkpoints_have(swept):
    workdir, process = swept
    table = joined_files.read_table(workdir / "tangents.nc")
    known = table.sel(rows="raw", statistic="mean", rank=2)
    assert list(table.step.values) == STEPS
    for fit in ("early", "here", "previous", "untrained"):
        steps = STEPS[fit in ("previous", "untrained") :]
        assert np.isfinite(known.excess.sel(fit=fit, step=steps)).all(), fit
    assert known.energy.sel(fit="other seed").isnull().all()
    first = known.energy.sel(step=4)
    np.testing.assert_array_equal(first.sel(fit="previous"), first.sel(fit="untrained"))
    matrix = known.matrix_energy.sel(fit="early", kind="PCA")
    assert matrix.sel(of="step").isnull().all()
    for of, steps in {"gradient": STEPS, "between": STEPS[1:]}.items():
        own = matrix.sel(of=of, step=steps)
        assert np.isfinite(own.sel(matrix=["attention", "mlp"], layer=[0, 1, 2])).all()
        assert np.isfinite(own.sel(matrix=["attention_out", "mlp_out"], layer=[1, 2, 3])).all()
        assert np.isfinite(own.sel(matrix="embedding", layer=0)).all()
    radial = known.radial_share
    assert radial.sel(layer=3).max() < 1e-6 < 1e-3 < radial.sel(layer=2).min()
    assert known.ones_share.min() > 1e-3  # RMSNorm leaves it
    assert table.attrs["width"] == 32
    assert table.attrs["early_steps"] == "[4, 8]"
    assert "optimizer" in table.attrs["single_step"]
    assert "vector of ones: kept" in process.stdout
    assert (workdir / "figures" / "tangent_energy.png").exists()
    cells = pd.read_csv(workdir / "tangents_primary.csv")  # those named beforehand
    assert cells[["layer", "step", "rank"]].values.tolist() == [[0, 20, 2], [1, 20, 2], [2, 20, 2]]
    assert {*cells.fit, table.attrs["primary_fit"]} == {"early"}


def test_the_loss_is_that_of_the_run(swept):
    """In nats of a token, on other windows."""
    tables = (joined_files.read_table(swept[0] / f"{n}.nc") for n in ("tangents", "results"))
    tangents, results = tables
    loss = tangents.loss_in_bin.sel(statistic="mean", step=20).mean()
    bits = json.loads(results.attrs["revisions"])["20"]["bits_per_byte"]
    assert float(loss) == pytest.approx(bits * np.log(2), rel=0.2)


def test_what_is_gone_or_has_changed_is_made_again(swept, training, tmp_path, monkeypatch):
    """Of step 8: itself, the early proxies, and step 20, which is tested with proxies of step 8."""
    run, own = shutil.copytree(swept[0], tmp_path / "swept"), pretrained_weights.digest_model
    before = {path.name: path.read_bytes() for path in run.glob("tangents*/*.nc")}
    for name in ("early.nc", "8.nc"):
        (run / "tangents" / name).unlink()
    assert "tangents: 4 checkpoints measured (2 now)" in start(training, run, *NAMES).stdout
    assert {path.name: path.read_bytes() for path in run.glob("tangents*/*.nc")} == before

    def other(place, weights):
        return own(place, weights) + "x" * place.name.endswith("step8")

    for module in (pretrained_weights, load_model):
        monkeypatch.setattr(module, "digest_model", other)
    refused = start(training, run, *NAMES)  # results.nc names the former weights
    assert refused.returncode == 2
    assert "8.nc does not exist or is outdated; run --stages=measure" in refused.stderr
    for now in (2, 0):
        said = start(training, run, *NAMES, stages="measure,tangents").stdout
        assert f"tangents: 4 checkpoints measured ({now} now)" in said
    for name in ("early", "8", "20"):
        table = joined_files.read_table(run / "tangents" / f"{name}.nc")
        assert json.loads(table.attrs["checkpoints"])["8"].endswith("x")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("BertModel", "BertModel has no head that predicts tokens: no loss, no gradient"),
        ("BertForMaskedLM", "has no mask token"),
        ("ViTModel", "reads no text"),
        ("XLNetLMHeadModel", "models of type 'xlnet' have no entry in sources/hf/adapters.py"),
    ],
)
def test_what_has_no_gradients_is_refused_before_it_is_read(training, tmp_path, name, words):
    """Of a folder with settings and a tokenizer, whose weights hold nothing."""
    kind = getattr(transformers, name)
    kind.config_class(architectures=[name], vocab_size=tiny_models.VOCABULARY).save_pretrained(
        tmp_path / "model"
    )
    spelled = tiny_models.tokenizer()
    spelled.mask_token = None
    spelled.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "model.safetensors").touch()
    refuse(tmp_path / "run", words, *flags(training, name=tmp_path / "model"))


def save_random(folder, kind, name, **changes):
    """Save a tiny model with random weights."""
    settings = tiny_models.MODELS[kind][1] | changes
    torch.manual_seed(0)
    model = getattr(transformers, name)
    return tiny_models.save(model(model.config_class(**settings)), folder)


def test_an_encoder_alone_has_proxies_of_its_own_masked_windows(training, tmp_path):
    """Untrained, its loss is about that of guessing."""
    folder = save_random(tmp_path / "bert", "bert", "BertForMaskedLM")
    more = ("--config.pretrained.max_bits_per_byte=99", "--config.tangents.windows=48")
    run = tmp_path / "run"
    process = start(training, run, name=folder, stages="measure,tangents", more=more)
    assert "no early subspaces: they need 2 revisions" in process.stdout, process.stderr
    assert not (run / "tangents" / "early.nc").exists()
    table = joined_files.read_table(run / "tangents.nc").sel(statistic="mean", step=1)
    assert "predicts masked tokens, 15%" in table.attrs["input"]
    known = table.sel(rows="raw")
    assert np.isfinite(known.excess.sel(fit="here")).all()
    assert np.isfinite(known.control_energy.sel(fit="here")).all()
    assert known.excess.sel(fit=[fit for fit in table.fit.values if fit != "here"]).isnull().all()
    assert float(table.loss_in_bin.mean()) == pytest.approx(np.log(tiny_models.VOCABULARY), rel=0.5)
    assert table.attrs["width"] == 32  # its norms come after
    assert table.ones_share.min() > 1e-4
    frame = pd.read_csv(run / "tangents_primary.csv")
    assert {*frame.fit, table.attrs["primary_fit"]} == {"here"}
    assert np.isfinite(frame.p_holm).all()


def reader_of(folder, training, root):
    changes = {"data.path": str(training / "text.txt"), "tangents.windows": "48"}
    config = override(experiment.get_config(str(folder)), PLAIN | changes)
    source = revision_sweep.open_revisions(config, root, "a model")
    return tangents.prepare_study(source)


@pytest.mark.parametrize(
    ("kind", "name", "width"),
    [("gpt2", "GPT2LMHeadModel", 31), ("albert", "AlbertForMaskedLM", 32)],
)
def test_what_is_found_of_a_model_is_told_and_stands_in_its_tables(
    training, tmp_path, kind, name, width
):
    reader = reader_of(save_random(tmp_path / kind, kind, name), training, tmp_path / "run")
    known = reader.facts
    assert (known["layers"], known["full_width"], known["width"]) == (4, 32, width)
    reader.source.digests[1] = "of the table, which was made before a hub replaced them"
    with pytest.raises(UserError, match="weights of step 1 are not those of its table in"):
        reader.open(1)
    assert (known["largest_ones_share"] < 1e-8) == (width == 31)
    missing = "embedding, attention, mlp, attention_out, mlp_out"
    assert (known["matrices_missing"] == missing) == (kind == "albert")


def test_a_model_that_sees_its_answer_is_refused(training, tmp_path):
    """The loss of the next token would say nothing of its gradients."""
    folder = save_random(tmp_path / "llama", "llama", "LlamaForCausalLM", is_causal=False)
    with pytest.raises(UserError, match="sees the token that it is to predict"):
        _ = reader_of(folder, training, tmp_path / "run").facts


def framed_windows(task):
    spelled, text = tiny_models.tokenizer(framed=True), tiny_models.text(40_000)
    windows = tiny_models.windows(spelled, text, special=True)
    return windows, *tangents.choose_text_windows(windows, SETTINGS, task)


def test_an_encoder_reads_masked_tokens():
    windows, *parts = framed_windows(guards.MASKED_TOKEN)
    for part in parts:
        asked = part.weights_JWT == 1
        assert not asked[..., [0, -1]].any()  # <s> and </s>
        assert 0.1 < asked[..., 1:-1].mean() < 0.2
        assert (part.tokens_JWT == part.targets_JWT)[~asked].all()
        assert 0.7 < (part.tokens_JWT == windows.mask_token)[asked].mean() < 0.9
        assert 0.03 < (part.tokens_JWT == part.targets_JWT)[asked].mean() < 0.2
        assert np.take_along_axis(part.weights_JWT.reshape(4, -1), part.picks_JQ, axis=1).all()


def test_a_decoder_is_asked_for_what_comes_next_and_bins_are_of_what_stands_there():
    windows, fit, test = framed_windows(guards.NEXT_TOKEN)
    asked = test.weights_JWT == 1
    assert asked[..., :-2].all()
    assert not asked[..., -2:].any()  # neither </s> nor what would come after it
    assert (np.roll(test.tokens_JWT, -1, axis=2) == test.targets_JWT)[asked].all()
    tokens_P = np.take_along_axis(test.tokens_JWT.reshape(4, -1), test.picks_JQ, axis=1).ravel()
    assert set(test.bins_P[test.time_P == 0]) <= {tangents.NO_BIN}
    bins = [test.bins_P == number for number in range(4)]
    often = [windows.counts_V[tokens_P[own]].mean() for own in bins if own.any()]
    assert often == sorted(often)
    starts = [{row.tobytes() for row in part.targets_JWT.reshape(16, -1)} for part in (fit, test)]
    assert not starts[0] & starts[1]
    short = windows._replace(rows_NT=windows.rows_NT[:20])
    with pytest.raises(UserError, match="needs twice as many: lower it to"):
        tangents.choose_text_windows(short, SETTINGS, guards.NEXT_TOKEN)
