"""Every figure, of every kind of table: written whole, the same twice, with its origin on it."""

from collections.abc import Callable

import matplotlib
import pandas as pd
import pytest
import xarray as xr

from anisoscope.plot import draw, panel_axes, style
from anisoscope.plot.run_tables import Run, provenance, round_up, shared_positions
from anisoscope.plot.specs import WATCHED
from tests.plot.reading import footer_of, inside
from tests.plot.tables import changed, lacking, make_run, spoiled, under


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
        "one layer, head, batch and checkpoint": lambda: {"tiny": tiny},
        "six runs of other depths, lengths and null models": six,
        "many layers": lambda: {"deep": make_run(steps=(0, 10), layers=30, heads=2)},
        "no numbers": lambda: {"decoder": spoiled(short)},
    }


@pytest.mark.parametrize(
    "case", [0, *(pytest.param(case, marks=pytest.mark.slow) for case in (1, 2, 3))]
)
def test_every_figure_lays_itself_out_with_its_origin_and_nothing_cut_off(cases, case):
    name, make = list(cases.items())[case]
    runs = make()
    shared, own = provenance(runs)
    for figure_name, build in draw.RUN_FIGURES.items():
        if figure_name == "tangent_energy":  # no run has tangents
            continue
        if (figure := build(runs)) is None:  # a figure over training of a single step
            assert runs.keys() == {"tiny"}
            continue
        inside(figure, f"{figure_name}: {name}")
        if figure_name in WATCHED:  # a log has other steps than the tables
            continue
        assert shared in footer_of(figure), figure_name
        for line in [shared, *own]:
            assert line in [*figure.get_label().splitlines(), ""], figure_name


def test_files_are_whole_and_the_same_twice_whatever_the_users_settings(
    short, tmp_path, monkeypatch
):
    """With lines, bands and a color bar, with an image, and with points of some transparency."""
    names = ("anisotropy_by_checkpoint", "layer_similarity", "cosine_against_drift")
    some = {name: draw.RUN_FIGURES[name] for name in names}
    monkeypatch.setattr(draw, "RUN_FIGURES", some)
    monkeypatch.setitem(style.RC, "savefig.dpi", 40)
    paths = draw.draw_runs({"decoder": short}, tmp_path / "new" / "figures")
    assert {path.name for path in paths} == {
        f"{name}.{kind}" for name in some for kind in draw.FILE_KINDS
    }
    assert {*paths, paths[0].parent / draw.FOLDER_MARK} == {*paths[0].parent.iterdir()}
    for path in paths:
        content = path.read_bytes()
        assert content.startswith({".png": b"\x89PNG", ".pdf": b"%PDF"}.get(path.suffix, b""))
        if path.suffix == ".txt":
            assert "enwik8, first 4,154,399 bytes; " in content.decode("utf-8")
        if path.suffix == ".pdf":  # TrueType, embedded
            assert all(word in content for word in (b"/CIDFontType2", b"/FontFile2"))
            assert not any(word in content for word in (b"/Type3", b"CreationDate"))
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 20, "pdf.fonttype": 3, "savefig.bbox": "tight"}):
        second = draw.save_figures(some, {"decoder": short}, tmp_path)
    assert dict(matplotlib.rcParams) == before
    for one, two in zip(paths, second, strict=True):
        assert one.read_bytes() == two.read_bytes(), one.name


def test_runs_drawn_together_are_pooled_and_what_no_longer_applies_is_removed(
    short, tmp_path, monkeypatch
):
    some = {name: draw.RUN_FIGURES[name] for name in ("dimension_by_scale", "training_curve")}
    monkeypatch.setattr(draw, "RUN_FIGURES", some)
    monkeypatch.setitem(style.RC, "savefig.dpi", 40)
    pair = {"decoder": short, "other_run": under(short, {"train.seed": 1})}
    paths = draw.draw_runs(pair, tmp_path)
    assert {*paths, tmp_path / draw.FOLDER_MARK} == {*tmp_path.iterdir()}
    assert set(pd.read_csv(paths[-1]).run) == {"decoder", "other_run", "all"}
    assert "other run: seed 1" in (tmp_path / "training_curve.txt").read_text()
    mine = tmp_path / "dimension_by_scale_old.png"
    mine.write_text("mine")
    paths = draw.draw_runs({"decoder": lacking(short, "gride")}, tmp_path)
    assert {path.stem for path in paths} == {"training_curve"}
    assert {*paths, mine, tmp_path / draw.FOLDER_MARK} == {*tmp_path.iterdir()}


def test_models_with_other_sets_of_positions_are_drawn_on_those_that_all_have(tiny):
    """Such as one with special tokens next to one without."""
    special = tiny.results.sel(positions="all").expand_dims(positions=["without_special"])
    more = Run(xr.concat([tiny.results, special], "positions", data_vars="minimal"), tiny.log)
    for runs in ({"more": more, "tiny": tiny}, {"tiny": tiny, "more": more}):
        assert shared_positions(runs) == list(tiny.results.positions.values)
    alone = {"tiny": tiny, "other": Run(tiny.results.sel(positions=["all"]), tiny.log)}
    assert shared_positions(alone) == ["all"]


def test_a_noise_floor_is_rounded_up():
    assert [round_up(x) for x in (0.00149, 0.001, 9.2e-7, 3.0)] == [0.002, 0.001, 1e-6, 3.0]


def test_provenance_says_what_is_shared_once_and_what_differs_by_run(runs, tiny):
    texts = {x: changed(tiny, lambda table, x=x: table.assign_attrs(corpus_sha256=x)) for x in "ab"}
    assert provenance(texts)[1] == [f"{x}: enwik8, first 4,154,399 bytes ({x})" for x in "ab"]
    other = make_run(False, steps=(0, 1000), seed=1)
    shared, own = provenance({"decoder": runs["decoder"], "encoder": other})
    for fact in ("enwik8, first 4,154,399 bytes", "6 layers", "AdamW", "1,000 steps"):
        assert fact in shared
    decoder = "decoder: causal; H=4; predicts next character; seed 0"
    assert own == [decoder, "encoder: bidirectional; H=8; predicts masked characters; seed 1"]
    unfinished = changed(runs["decoder"], lambda table: table.assign_attrs(steps=2000))
    assert "step 1,000 of 2,000" in provenance({"decoder": unfinished})[0]
    rates = {f"at {rate}": under(tiny, {"train.learning_rate": rate}) for rate in (0.01, 0.001)}
    assert provenance(rates)[1] == [f"{name}: train.learning_rate={name[3:]}" for name in rates]


def test_a_null_model_of_several_runs_has_one_gray_entry_and_zero_is_the_edge_or_a_line():
    for least in (1.0, -1.0):
        ax = style.new_figure(2, 2).subplots()
        for run, color in zip("ab", style.COLORS, strict=False):
            ax.plot([least, 2], color=color, label=run)
            ax.plot([3, 3], "--", color=color, label="null")
        handles, labels = style.legend_entries([ax])
        assert labels == ["a", "b", "null"]
        assert [line.get_color() for line in handles] == [*style.COLORS[:2], "0.35"]
        panel_axes.fit_limits([ax], zero=True)
        assert (len(ax.lines), ax.get_ylim()[0] == 0) == ((4, True) if least > 0 else (5, False))
