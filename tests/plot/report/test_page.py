"""report.html without a browser: its numbers are those of the tables, no name does harm, nothing is fetched."""

import dataclasses
import json
import re

import numpy as np
import pytest

from anisoscope.plot.report import page
from anisoscope.plot.run import POSITIONS
from anisoscope.plot.seeds import over_seeds
from tests.plot.report.reading import Page
from tests.plot.tables import changed, lacking, make_run, spoiled
from tests.plot.test_tangents import table as tangents

NASTY = "</script><script>alert(1)</script> <!-- & \"'"
SMALL = {"steps": (0, 1, 8), "layers": 2, "heads": 2, "batches": 2}


def built(runs, root, folders=None):
    folders = folders or {label: root / f"run_{number}" for number, label in enumerate(runs)}
    return page.build(runs, over_seeds(runs), folders, root)


@pytest.fixture(scope="module")
def runs():
    """Two seeds of one setting, and a run of another depth whose tables hold infinity and lack a family."""
    other = lacking(make_run(False, **SMALL | {"layers": 3}), "query_drift", "query_projection")
    other = changed(other, lambda table: table.assign(twonn=table.twonn.where(table.layer > 0, np.inf)))
    return {"decoder_0": make_run(seed=0, **SMALL), "decoder_1": make_run(seed=1, **SMALL), "encoder": other}


@pytest.fixture(scope="module")
def read(runs, tmp_path_factory):
    return Page(built(runs, tmp_path_factory.mktemp("root")))


def test_every_number_is_that_of_the_table_to_the_last_bit(runs, read):
    single = {entry["label"]: number for number, entry in enumerate(read.known["runs"])}
    for label, run in runs.items():
        about = read.known["runs"][single[label]]
        excess = {name: f"{name}_excess" for name in run.results.data_vars if f"{name}_excess" in run.results}
        assert set(about["variables"]) == set(run.results.data_vars) - set(excess.values())
        assert {name for name, variable in about["variables"].items() if "excess" in variable} == set(excess)
        for name, variable in about["variables"].items():
            values = run.results[name]
            if "statistic" in values.dims:
                values = values.sel(statistic=["mean", "low", "high"])
            assert variable["dims"] == list(values.dims)
            for dim in values.dims:
                assert about["labels"][dim] == values[dim].values.tolist()
            assert read.values(single[label], name).tobytes() == values.values.astype("<f4").tobytes(), name
            for null in variable.get("nulls", ()):
                beside = run.results[excess[name]].sel(null=null, statistic=["mean", "low", "high"])
                found = read.values(single[label], name, null)
                np.testing.assert_array_equal(found, beside.transpose(*values.dims).values.astype("<f4"), err_msg=name)
    assert np.isinf(read.values(single["encoder"], "twonn")).any()
    assert np.isnan(read.values(single["decoder_0"], "cka_previous")).any()


def test_seeds_of_one_setting_are_one_entry_that_is_on_and_single_ones_that_are_off(runs, read):
    joined = over_seeds(runs)["decoder"]
    entries = read.known["runs"]
    on = {"decoder, 2 seeds together": True, "decoder_0": False, "decoder_1": False, "encoder": True}
    assert {entry["label"]: entry["on"] for entry in entries} == on
    assert [entry["group"] for entry in entries] == ["decoder"] * 3 + ["encoder"]
    assert len({(entry["group"], entry["ink"]) for entry in entries}) == len({entry["ink"] for entry in entries}) == 2
    of_seeds = entries[0]["variables"]
    assert of_seeds["anisotropy"]["band"] == "range of seeds"
    assert entries[3]["variables"]["anisotropy"]["band"] == "95 % interval, windows resampled"
    assert not {"query_drift", "query_projection"} & of_seeds.keys()  # head 2 of one seed is not head 2 of another
    expected = joined.results.anisotropy.sel(statistic=["mean", "low", "high"]).values.astype("<f4")
    assert read.values(0, "anisotropy").tobytes() == expected.tobytes()


def test_a_run_may_be_called_as_other_runs_are_together(runs, tmp_path):
    alone = make_run(learning_rate=1.0, **SMALL)
    read = Page(built({"decoder_0": runs["decoder_0"], "decoder_1": runs["decoder_1"], "decoder": alone}, tmp_path))
    labels = [entry["label"] for entry in read.known["runs"]]
    assert labels == ["decoder_0, 2 seeds together", "decoder_0", "decoder_1", "decoder"]


def test_a_quantity_says_its_formula_source_axes_and_null_models(read):
    known = read.known
    quantities = {quantity["name"]: quantity for quantity in known["quantities"]}
    assert quantities["anisotropy"]["formula"] == "max(lambda) / sum(lambda)"
    assert "Shape of Learning" in quantities["anisotropy"]["source"]
    assert quantities["query_drift"]["dims"] == ["block", "step", "head"]
    assert quantities["query_projection"]["plane"] == ["query_projection", "key_projection"]
    assert "key_projection" not in quantities  # drawn together with queries
    variables = known["runs"][1]["variables"]
    assert variables["twonn"]["nulls"] == ["gaussian", "shuffled", "untrained"]
    assert "gaussian" not in variables["query_drift"]["nulls"]
    assert known["positions"] == POSITIONS
    assert set(known["nulls"]) == {"gaussian", "shuffled", "untrained", "permuted"}


def test_tables_of_tangents_are_there_with_their_words_at_the_steps_of_the_run(tmp_path):
    run, directions = make_run(**SMALL), tangents().isel(step=slice(1, None))  # step 0 was not read
    read = Page(built({"decoder": dataclasses.replace(run, tangents=directions)}, tmp_path))
    words = {one["name"]: one for one in read.known["quantities"]}
    assert words["excess"]["file"] == "tangents.nc"
    assert words["anisotropy"]["file"] == "results.nc"
    assert "reconstruction" in words["energy"]["source"]
    assert words["matrix_energy"]["dims"] == ["layer", "step", "rank", "fit", "kind", "of", "matrix"]
    (entry,) = read.known["runs"]
    assert entry["labels"]["step"] == [0, 1, 8]
    assert entry["variables"]["energy"]["band"] == "95 % interval, windows resampled"
    assert entry["variables"]["control_energy"]["band"] == "least and greatest of the random subspaces"
    expected = directions.energy.reindex(step=[0, 1, 8])
    assert entry["variables"]["energy"]["dims"] == list(expected.dims)
    np.testing.assert_array_equal(read.values(0, "energy"), expected.values.astype("<f4"))


def test_a_variable_that_is_no_quantity_of_the_panel_is_shown_by_its_dimensions(tmp_path):
    def average(table):
        return table.assign(average_over_blocks=table.twonn.mean("layer").drop_attrs())

    read = Page(built({"decoder": changed(make_run(**SMALL), average)}, tmp_path))
    found = next(one for one in read.known["quantities"] if one["name"] == "average_over_blocks")
    assert (found["dims"], found["long_name"], found["family"]) == (["step"], "average_over_blocks", "further")


@pytest.mark.parametrize("case", ["tiny", "no numbers", "one family"])
def test_what_was_not_measured_does_not_stop_the_page(tmp_path, case):
    tiny = make_run(steps=(0,), layers=1, heads=1, batches=1, folds=1, nulls=())
    few = [name for name in tiny.results.data_vars if name not in ("twonn", "attention_max")]
    run = {"tiny": tiny, "no numbers": spoiled(tiny), "one family": lacking(tiny, *few)}[case]
    known = Page(built({"run": run}, tmp_path)).known
    assert [entry["label"] for entry in known["runs"]] == ["run"]
    assert {one["name"] for one in known["quantities"]} >= {"twonn", "attention_max"}
    assert known["runs"][0]["variables"]["twonn"]["band"] == ""


def test_names_and_formulas_may_hold_tags(runs, tmp_path):
    run = changed(runs["decoder_0"], lambda table: table.assign_attrs(corpus=NASTY))
    run.results.anisotropy.attrs["formula"] = NASTY
    root = tmp_path / NASTY.replace("/", "|")
    plain, nasty = (Page(built({name: run}, root, {name: root})) for name in ("run", NASTY))
    assert [tag for tag, *_ in nasty.elements] == [tag for tag, *_ in plain.elements]
    assert nasty.known["runs"][0]["label"] == NASTY
    assert next(one for one in nasty.known["quantities"] if one["name"] == "anisotropy")["formula"] == NASTY
    assert NASTY in nasty.text
    assert nasty.named("known").count("<") == 0


def test_nothing_is_fetched_and_the_browser_would_refuse_it(read):
    assert not [attributes for tag, attributes, _ in read.elements if "src" in attributes or tag in ("link", "img")]
    assert read.all("a") == []  # no folder has a file here
    policy = next(one["content"] for one in read.all("meta") if one.get("http-equiv") == "Content-Security-Policy")
    assert policy.startswith("default-src 'none';")
    own = "".join(text for tag, attributes, text in read.elements if attributes.get("id") != "library")
    assert set(re.findall(r"https?://[^\"' ]*", own)) <= {"http://www.w3.org/2000/svg"}  # a name, not an address
    assert "url(" not in own
    assert b"plotly.js v" in read.unpacked("library")[:100]


def test_links_lead_to_files_that_are_there(runs, tmp_path):
    root, other = tmp_path / "runs" / "twins", tmp_path / "runs" / "an other #1"
    for path in (root / "figures" / "a b.png", root / "runs.csv", root / "one" / "results.csv", other / "results.nc"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    versions = {"versions": {"jax": "0.0.1"}, "device": {"kind": "cpu"}, "commit": "abc", "command": ["main.py"]}
    (root / "one" / "environment.json").write_text(json.dumps({"sessions": [versions]}))
    both = {"decoder_0": runs["decoder_0"], "encoder": runs["encoder"]}
    read = Page(built(both, root, {"decoder_0": root / "one", "encoder": other}))
    inside = ["figures/a%20b.png", "runs.csv", "one/results.csv"]
    assert [one["href"] for one in read.all("a")] == [*inside, "../an%20other%20%231/results.nc"]
    for words in ("enwik8, first 4,154,399 bytes", "jax 0.0.1", "commit abc", "predicts next character"):
        assert words in read.text


def test_it_is_written_whole_the_same_twice_and_stays_small(runs, tmp_path):
    folders = dict.fromkeys(runs, tmp_path)
    path = page.write(runs, over_seeds(runs), folders, tmp_path)
    first = path.read_bytes()
    assert page.write(runs, over_seeds(runs), folders, tmp_path) == path == tmp_path / "report.html"
    assert path.read_bytes() == first
    assert [one.name for one in tmp_path.iterdir()] == ["report.html"]
    assert len(first) < 2.5e6  # two thirds of it the library
