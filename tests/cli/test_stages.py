import json
import pathlib

import pytest
import xarray as xr

from anisoscope.cli import drawing, training_stages
from anisoscope.config import variants
from anisoscope.results import joined_files
from anisoscope.training import log, loop
from anisoscope.utils.errors import Stopped
from anisoscope.utils.folder import claim_folder
from anisoscope.utils.settings import replace
from tests import tiny
from tests.plot.tables import make_run, under
from tests.program import asked, main


def write_run(path, seed=0, changes=None):
    """A run's folder as far as figures read it."""
    run = make_run(steps=(0, 1), layers=1, heads=1, batches=2, folds=2, nulls=(), seed=seed)
    joined_files.write_table(under(run, changes or {}).results, path / "results.nc")
    (path / "train.jsonl").write_text("".join(json.dumps(line) + "\n" for line in run.log))
    (path / "environment.json").write_text("{}")
    (path / log.SCORE_NAME).write_text('{"bits_per_character": 2.3}')
    return path


def test_a_run_to_compare_with_does_not_take_the_place_of_a_condition(tmp_path, monkeypatch):
    """Seeds 0 and 1 are drawn as `plain`; the other experiment's run is called so too."""
    own, other = tmp_path / "own", str(tmp_path / "other" / "plain")
    for seed in (0, 1):
        write_run(own / f"plain_{seed}", seed)
    write_run(pathlib.Path(other), 2, {"model.sink": True})
    seen = {}
    monkeypatch.setattr(
        drawing.draw, "draw_runs", lambda drawn, *_: (seen.update(drawn=drawn), [])[1]
    )
    monkeypatch.setattr(drawing, "write_page", lambda drawn, *_: seen.update(page=drawn))
    paths = drawing.find_runs({"plain_0": None, "plain_1": None}, own, "own", [other])
    drawing.draw_figures(paths, own / "figures", own, "step", "own")
    assert [*seen["drawn"]] == ["plain", other]
    assert "seeds" in seen["drawn"]["plain"].results.attrs
    assert [*seen["page"]] == ["plain", other]


def test_figures_come_with_bits_and_a_page_which_lies_with_the_run(tmp_path, monkeypatch, capsys):
    folder = write_run(tmp_path / "run")
    monkeypatch.setattr(drawing.draw, "draw_runs", lambda runs, to, over: [to / "a.png"])
    (tmp_path / "elsewhere").mkdir()
    killed = folder / ".report.html.0123456789abcdef.tmp"  # while it wrote the page
    killed.touch()
    for to, page in (
        (tmp_path / "elsewhere", tmp_path / "elsewhere"),
        (folder / ".." / "run" / "figures", folder),
    ):
        drawing.draw_figures({"run": folder}, to, folder, "step", "title")
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].endswith("predicting next character: run 2.30")
        assert lines[-2].startswith(f"figures: {to} (1, ")
        assert lines[-1] == f"page:    {page / 'report.html'}"
    assert not killed.exists()
    (folder / "runs.csv").write_text("of other tables")
    (folder / "figures").mkdir()
    (folder / "figures" / "contrasts.png").touch()
    drawing.draw_figures({"run": folder}, to, folder, "step", "title")
    assert "contrasts are not drawn" in capsys.readouterr().out
    assert not (folder / "figures" / "contrasts.png").exists()


def test_auto_becomes_the_type_the_run_began_with_or_that_of_this_machine(tmp_path):
    config = replace(tiny.config(), {"model.dtype": "auto"})
    assert training_stages.resolve_auto_dtype(config, tmp_path).model.dtype == "float32"
    claim_folder(tmp_path / "run", replace(config, {"model.dtype": "bfloat16"}), new=True)
    assert training_stages.resolve_auto_dtype(config, tmp_path / "run").model.dtype == "bfloat16"


def test_runs_that_differ_in_seeds_are_trained_together_into_a_folder_each(
    tmp_path, monkeypatch, capsys
):
    seeds = {"train.num_seeds": 2, "train.num_data_seeds": 1, "train.data_seed": 7}
    both = {"decoder": {}, "encoder": {"model.mask": "bidirectional", "objective": "masked"}}
    experiment = replace(tiny.config(), seeds | {"variants": both})
    configs, trained = variants.expand(experiment), []
    monkeypatch.setattr(
        loop, "train", lambda config, _, folders, name, __: trained.append((name, config, folders))
    )
    training_stages.work(experiment, configs, asked(tmp_path / "pair", "train", title="pair"))
    runs = {model: [f"{model}_weights_{weights}_data_7" for weights in (0, 1)] for model in both}
    assert list(configs) == [*runs["decoder"], *runs["encoder"]]
    masks = {"decoder": "causal", "encoder": "bidirectional"}
    for (name, config, folders), model in zip(trained, both, strict=True):
        assert name == f"{model}: 2 weight × 1 data seeds"
        assert folders == {run: tmp_path / "pair" / run for run in runs[model]}
        assert (config.train.num_seeds, config.model.mask) == (2, masks[model])
    path = tmp_path / "pair" / "encoder_weights_1_data_7"
    train = json.loads((path / "config.json").read_text())["train"]
    names = ("seed", "data_seed", "num_seeds", "num_data_seeds")
    assert [train[name] for name in names] == [1, 7, 1, None]
    for run in configs:
        record = json.loads((tmp_path / "pair" / run / "environment.json").read_text())
        assert record["corpus"]["sha256"]
    assert "corpus: pydoc" in capsys.readouterr().out


def test_who_asks_to_stop_between_two_variants_is_heard(tmp_path, monkeypatch):
    experiment = replace(tiny.config(), {"variants": {"one": {}, "two": {"train.seed": 1}}})
    begun = []

    def train(config, text, folders, name, stop):
        begun.append(name)
        stop.requested = True

    monkeypatch.setattr(loop, "train", train)
    with pytest.raises(Stopped, match="one: stopped when train was done"):
        training_stages.work(
            experiment, variants.expand(experiment), asked(tmp_path / "run", "train", "measure")
        )
    assert begun == ["one"]


def test_what_jax_reads_of_the_environment_changes_no_number():
    """Nor ends the command where JAX would not have it."""
    done = main("--version", JAX_ENABLE_X64="maybe", JAX_DEFAULT_PRNG_IMPL="rbg", MPLBACKEND="junk")
    assert done.returncode == 0, done.stderr
    for name in ("JAX_ENABLE_X64=maybe", "JAX_DEFAULT_PRNG_IMPL=rbg"):
        assert f"{name} is ignored: results would depend on it" in done.stdout.splitlines()


def test_hook_points_of_another_sample_are_not_drawn(tmp_path, capsys):
    table = xr.Dataset(coords={"step": [0, 8]}, attrs={"points": 64, "batches": 1, "folds": 2})
    others = {"mlp_out": table.isel(step=[0]), "keys": table.assign_attrs(points=32)}
    joined_files.write_table(table, tmp_path / "results.nc")
    for name, other in ({"values": table} | others).items():
        (tmp_path / "hook_points" / name).mkdir(parents=True)
        joined_files.write_table(other, tmp_path / "hook_points" / name / "results.nc")
    assert [*drawing.load_run(tmp_path).hook_points] == ["values"]
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" is of")[0].split("/")[-2] for line in lines] == ["keys", "mlp_out"]
