"""Every figure, from every kind of table that a run can leave: written whole, the same twice, with
its origin on it.
"""

import dataclasses
from collections.abc import Callable

import matplotlib
import pandas as pd
import pytest
import xarray as xr

from anisoscope.plot import draw, style
from anisoscope.plot.footer import provenance
from anisoscope.plot.run_tables import Run, positions, same
from anisoscope.plot.specs import WATCHED
from anisoscope.utils.errors import UserError
from tests.plot.reading import footer_of, inside
from tests.plot.tables import changed, lacking, make_run, spoiled, under

SPECTRUM, SIMILARITY = (
    ("anisotropy", "effective_rank", "participation_ratio", "alpha_req"),
    ("mean_cosine", "drift"),
)
COMPARISON = (
    "cka_layers",
    "overlap_layers",
    "cka_previous",
    "cka_last",
    "overlap_previous",
    "overlap_last",
)
ATTENTION = (
    *("query_drift", "key_drift", "query_key_alignment", "query_key_cosine", "query_fluctuation"),
    *("score_std_within", "attention_entropy", "attention_max", "attention_first"),
)
# figures
ANISOTROPY = {"anisotropy_profile", "anisotropy_by_checkpoint", "anisotropy_decomposition"}
SHARPNESS = {"attention_sharpness", "sharpness_against_alignment"}


def own(folder):
    """What lies beside the figures."""
    return [folder / draw.MARK]


TINY = "one layer, head, batch and checkpoint"
SIX = "six runs of other depths and lengths, resampling, null models and numbers"
FIGURES = {  # of cases where the others would be laid out as in another case
    # as many panels
    SIX: set(draw.RUNS) - {"spectrum_over_training", "query_key_drift", "query_key_fluctuation"},
    "no numbers": draw.OVER_TRAINING,  # last checkpoints as below
}


@pytest.fixture(scope="module")
def tiny() -> Run:
    return make_run(steps=(0,), layers=1, heads=1, batches=1)


@pytest.fixture(scope="module")
def short() -> Run:
    return make_run(steps=(0, 10), layers=3, heads=2)


@pytest.fixture
def cases(tiny, short, request) -> dict[str, Callable[[], dict[str, Run]]]:
    def six() -> dict[str, Run]:
        others = {"point_0": spoiled(short, layer=0), "lost": spoiled(short, step=-1)}
        others["bare"] = make_run(steps=(0, 5), layers=2, heads=1, folds=1, nulls=("gaussian",))
        others["some"] = make_run(False, steps=(0, 10), heads=1, batches=1, nulls=("untrained",))
        return request.getfixturevalue("runs") | others

    return {
        SIX: six,
        TINY: lambda: {"tiny": tiny},
        "many layers": lambda: {"deep": make_run(steps=(0, 10), layers=30, heads=2)},
        "no numbers": lambda: {"decoder": spoiled(short)},
        "a checkpoint without numbers": lambda: {"decoder": spoiled(short, step=-1)},
    }


@pytest.mark.parametrize(
    "case", [1, *(pytest.param(case, marks=pytest.mark.slow) for case in (0, 3))]
)
def test_every_figure_lays_itself_out_with_its_origin_and_nothing_cut_off(cases, case):
    name, make = list(cases.items())[case]
    runs = make()
    for figure_name in FIGURES.get(name, draw.RUNS):
        figure = draw.RUNS[figure_name](runs)
        inside(figure, f"{figure_name}: {name}")
        shared, own = provenance(runs)
        assert shared in footer_of(figure), figure_name
        # a log has other steps than the tables
        for line in [shared, *own] if figure_name not in WATCHED else []:
            assert line in [*figure.get_label().splitlines(), ""], figure_name
        if name == TINY:
            figure.draw_without_rendering()


def test_files_are_whole_and_the_same_twice_whatever_the_users_settings(
    short, tmp_path, monkeypatch
):
    """With lines, bands and a colour bar, with an image, and with points of some transparency."""
    some = {
        name: draw.RUNS[name]
        for name in ("anisotropy_by_checkpoint", "layer_similarity", "query_key_projection")
    }
    monkeypatch.setattr(draw, "RUNS", some)
    monkeypatch.setitem(style.RC, "savefig.dpi", 40)
    paths = draw.draw_runs({"decoder": short}, tmp_path / "new" / "figures")
    assert [path.name for path in paths] == [
        f"{name}.{kind}" for name in some for kind in ("png", "pdf", "txt")
    ]
    mark = own(paths[0].parent)
    assert sorted([*paths, *mark]) == sorted(paths[0].parent.iterdir())
    for path in paths:
        content = path.read_bytes()
        assert content.startswith({".png": b"\x89PNG", ".pdf": b"%PDF"}.get(path.suffix, b""))
        if path.suffix == ".txt":
            assert "enwik8, first 4,154,399 bytes; " in content.decode("utf-8")
        if path.suffix == ".pdf":
            # TrueType, embedded
            assert all(word in content for word in (b"/CIDFontType2", b"/FontFile2"))
            assert not any(word in content for word in (b"/Type3", b"CreationDate"))
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context(
        {"font.size": 20, "pdf.fonttype": 3, "savefig.bbox": "tight", "axes.grid": False}
    ):
        second = draw.draw(some, {"decoder": short}, tmp_path)
    assert dict(matplotlib.rcParams) == before
    for one, two in zip(paths, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


def test_runs_drawn_together_are_pooled_and_what_no_longer_applies_is_removed(
    short, tmp_path, monkeypatch
):
    monkeypatch.setattr(
        draw, "RUNS", {name: draw.RUNS[name] for name in ("dimension_by_scale", "training_curve")}
    )
    monkeypatch.setitem(style.RC, "savefig.dpi", 40)
    paths = draw.draw_runs({"decoder": short, "encoder": under(short, {"train.seed": 1})}, tmp_path)
    assert paths[-1] == tmp_path / "correlations.csv"
    mark = own(tmp_path)
    assert sorted([*paths, *mark]) == sorted(tmp_path.iterdir())
    assert set(pd.read_csv(paths[-1]).run) == {"decoder", "encoder", "all"}
    mine = [
        tmp_path / "notes.txt",
        tmp_path / "dimension_by_scale_old.txt",
        tmp_path / "dimension_by_scale_old.png",
    ]
    for path in mine:
        path.write_text("mine")
    paths = draw.draw_runs({"decoder": lacking(short, "gride")}, tmp_path)
    assert [path.name for path in paths] == [
        f"training_curve.{kind}" for kind in ("png", "pdf", "txt")
    ]
    assert sorted(tmp_path.iterdir()) == sorted([*paths, *mine, *mark])


@pytest.mark.parametrize("held", draw.OF_A_RUN)
def test_the_folder_of_a_run_is_not_drawn_into(tiny, tmp_path, monkeypatch, held):
    monkeypatch.setattr(draw, "RUNS", {})
    for name in (held, draw.MARK, "correlations.csv"):
        (tmp_path / name).write_text("measured")
    with pytest.raises(
        UserError, match="is the folder of a run, whose tables are no figures; name another folder"
    ):
        draw.draw_runs({"decoder": tiny}, tmp_path)
    assert (tmp_path / "correlations.csv").read_text() == "measured"


@pytest.mark.parametrize(
    ("family", "lost"),
    [
        (SPECTRUM, ANISOTROPY | {"spectrum_over_training"}),
        (COMPARISON, {"layer_similarity", "change_over_training"}),
        (ATTENTION, SHARPNESS | {"query_key_drift", "query_key_fluctuation"}),
    ],
)
@pytest.mark.slow
def test_a_family_that_was_not_measured_costs_only_its_figures(tiny, family, lost):
    assert set(family) <= set(tiny.results.data_vars)
    without = {"decoder": lacking(tiny, *family)}
    assert {name for name, build in draw.RUNS.items() if build(without) is None} == lost
    both = without | {"encoder": tiny}
    assert not [name for name in lost if draw.RUNS[name](both) is None]


def test_models_with_other_sets_of_positions_are_drawn_on_those_that_all_have(tiny):
    """As one with special tokens beside one without."""
    special = tiny.results.sel(positions="all").expand_dims(positions=["without_special"])
    more = xr.concat([tiny.results, special], "positions", data_vars="minimal")
    runs = {"encoder": Run(more, tiny.log), "decoder": tiny}
    # the last as all are
    assert positions({"encoder": runs["encoder"]}, "anisotropy") == list(more.positions.values)
    for order in (runs, dict(reversed(runs.items()))):
        assert set(positions(order, "anisotropy")) <= set(tiny.results.positions.values)
    alone = Run(tiny.results.sel(positions=["all"]), tiny.log)
    assert positions({"decoder": tiny, "other": alone}, "anisotropy") == ["all"]
    # nobody has seen that they look the same
    assert same({"decoder": tiny, "other": alone}, ["all"]) == []


def test_without_hook_points_or_a_log_there_is_no_figure_of_them(tiny):
    without = {"decoder": dataclasses.replace(tiny, hook_points={}, log=[])}
    assert draw.RUNS["hook_points"](without) is draw.RUNS["training_curve"](without) is None
    (ax, *_) = draw.RUNS["hook_points"](without | {"encoder": tiny}).axes
    assert [line.get_label() for line in ax.lines[:3]] == [
        "residual stream",
        "attention out",
        "values",
    ]
    last = tiny.results.anisotropy.isel(step=-1).sel(positions="all", statistic="mean")
    for line, values in zip(ax.lines, (last, last[1:], last[1:] / 2), strict=False):
        assert line.get_xdata().tolist() == values.layer.values.tolist()
        assert line.get_ydata() == pytest.approx(values.values)


def test_provenance_says_what_is_shared_once_and_what_differs_by_run(runs):
    shared, own = provenance(
        {"decoder": runs["decoder"], "encoder": make_run(False, steps=(0, 1000), seed=1)}
    )
    model = "pre-LN; 6 layers; D=512; H=8; T=512"
    assert (
        shared
        == f"enwik8, first 4,154,399 bytes; {model}; AdamW; 1,000 steps; 4,096 points × 4 batches"
    )
    decoder = "decoder: causal; predicts next character; seed 0"
    assert own == [decoder, "encoder: bidirectional; predicts masked characters; seed 1"]
    unfinished = changed(runs["decoder"], lambda table: table.assign_attrs(steps=2000))
    assert "step 1,000 of 2,000" in provenance({"decoder": unfinished})[0]


def test_runs_that_differ_in_one_setting_do_not_bear_one_caption(tiny):
    runs = {
        name: under(tiny, {"train.learning_rate": rate})
        for name, rate in (("fast", 1e-2), ("slow", 1e-3))
    }
    assert provenance(runs)[1] == [
        "fast: train.learning_rate=0.01",
        "slow: train.learning_rate=0.001",
    ]
    assert "learning_rate" not in str(provenance({"fast": runs["fast"]}))


def test_a_linked_folder_and_pictures_of_ones_own_are_refused_and_stay(
    short, tmp_path, monkeypatch
):
    monkeypatch.setattr(draw, "RUNS", {"training_curve": draw.RUNS["training_curve"]})
    monkeypatch.setitem(style.RC, "savefig.dpi", 40)
    (elsewhere := tmp_path / "elsewhere").mkdir()
    (tmp_path / "figures").symlink_to(elsewhere)
    with pytest.raises(UserError, match="figures is a link; name the folder"):
        draw.draw_runs({"decoder": short}, tmp_path / "figures")
    assert not list(elsewhere.iterdir())
    for name in ("training_curve.png", "training_curve.txt"):
        (folder := tmp_path / name.replace(".", "_")).mkdir()
        (folder / name).write_text("mine")
        with pytest.raises(UserError, match=f"{name} was not drawn here and would be lost"):
            draw.draw_runs({"decoder": short}, folder)
        assert (folder / name).read_text() == "mine"
