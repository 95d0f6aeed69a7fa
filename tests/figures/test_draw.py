"""Every figure, from every kind of table that a run can leave: written whole, the same twice, with its origin on it."""

import matplotlib
import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure

from figures import draw, style
from figures.run import Run, provenance
from tests.figures.tables import make_run

SPECTRUM, SIMILARITY = ("anisotropy", "effective_rank", "participation_ratio", "alpha_req"), ("mean_cosine", "drift")
OUTLIERS = ("coordinate_share", "anisotropy_left_out")
COMPARISON = ("cka_layers", "overlap_layers", "cka_previous", "cka_last", "overlap_previous", "overlap_last")
DIMENSION = ("twonn", "twonn_mle", "twonn_microscope")
ATTENTION = (
    "query_drift",
    "key_drift",
    "query_key_alignment",
    "query_key_cosine",
    "score_std_within",
    "attention_entropy",
    "attention_max",
    "attention_first",
    "query_fluctuation",
)
SHORT = (0, 1, 10)


def spoiled(run: Run, **where: int) -> Run:
    """The run with NaN in every quantity that has these dimensions, as a degenerate cloud leaves it."""
    results = run.results.copy(deep=True)
    for variable in results.data_vars.values():
        if set(where) <= set(variable.dims):
            variable[where] = np.nan
    return Run(results, run.log)


CASES = {
    "six runs": lambda: {
        f"{causal}_{seed}": make_run(causal, SHORT, seed=seed) for causal in (True, False) for seed in range(3)
    },
    "one layer, head, batch and checkpoint": lambda: {"tiny": make_run(steps=(0,), layers=1, heads=1, batches=1)},
    "many layers": lambda: {"deep": make_run(steps=SHORT, layers=30, heads=2)},
    "no resampling and few null models": lambda: {
        "bare": make_run(steps=SHORT, groups=1, nulls=("gaussian",)),
        "some": make_run(False, SHORT, batches=1, nulls=("untrained",)),
    },
    "different depths and lengths": lambda: {"a": make_run(steps=SHORT, layers=2), "b": make_run(False, steps=(0, 5))},
    "no embedding": lambda: {"decoder": spoiled(make_run(steps=SHORT), layer=0), "encoder": make_run(False, SHORT)},
    "no numbers": lambda: {"decoder": spoiled(make_run(steps=SHORT))},
    "a checkpoint without numbers": lambda: {"decoder": spoiled(make_run(steps=SHORT), step=-1)},
}


@pytest.mark.parametrize("make", CASES.values(), ids=CASES)
def test_every_figure_lays_itself_out_with_its_origin_and_nothing_cut_off(make):
    runs = make()
    with style.context():
        for name, build in draw.FIGURES.items():
            figure = build(runs)
            figure.draw_without_rendering()
            inside(figure, name)
            for line in provenance(runs):
                assert line in " ".join(figure._supxlabel.get_text().split()), name


def inside(figure: Figure, name: str) -> None:
    """All that is drawn lies on the paper, titles and legends apart from each other and from the panels."""
    extents = [axes.get_tightbbox() for axes in figure.axes] + [figure._supxlabel.get_window_extent()]
    extents += [figure._suptitle.get_window_extent()]
    paper = figure.bbox.padded(1)
    for extent in extents:
        assert paper.x0 <= extent.x0 <= extent.x1 <= paper.x1, name
        assert paper.y0 <= extent.y0 <= extent.y1 <= paper.y1, name
    for i, one in enumerate(extents):
        for other in extents[:i]:
            assert not one.padded(-1).overlaps(other.padded(-1)), name


def test_files_are_whole_and_the_same_twice_whatever_the_users_settings(tmp_path):
    runs = {"decoder": make_run(steps=SHORT)}
    first = draw.draw(runs, tmp_path / "first" / "figures")
    before = dict(matplotlib.rcParams)
    with matplotlib.rc_context({"font.size": 20, "pdf.fonttype": 3, "savefig.bbox": "tight", "axes.grid": False}):
        second = draw.draw(runs, tmp_path / "second")
    assert dict(matplotlib.rcParams) == before
    assert [path.name for path in first] == [f"{name}.{kind}" for name in draw.FIGURES for kind in ("png", "pdf")]
    assert sorted(first) == sorted(first[0].parent.iterdir())  # nothing beside them
    for one, two in zip(first, second, strict=True):
        content = one.read_bytes()
        assert content == two.read_bytes(), one.name
        assert content.startswith(b"\x89PNG" if one.suffix == ".png" else b"%PDF")
        if one.suffix == ".pdf":
            assert b"/CIDFontType2" in content  # TrueType, embedded
            assert b"/FontFile2" in content
            assert b"/Type3" not in content
            assert b"CreationDate" not in content


def test_runs_that_are_drawn_together_are_pooled(tmp_path):
    runs = {"decoder": make_run(steps=SHORT), "encoder": make_run(False, SHORT)}
    paths = draw.draw(runs, tmp_path)
    assert paths[-1] == tmp_path / "correlations.csv"
    assert sorted(paths) == sorted(tmp_path.iterdir())
    assert set(pd.read_csv(paths[-1]).run) == {"decoder", "encoder", "all"}


def test_what_no_longer_applies_is_removed_and_nothing_else(tmp_path):
    draw.draw({"decoder": make_run(steps=SHORT), "encoder": make_run(False, SHORT)}, tmp_path)
    mine = [tmp_path / "notes.txt", tmp_path / "dimension_by_scale_old.png"]
    for path in mine:
        path.write_text("mine")
    paths = draw.draw({"decoder": make_run(steps=SHORT, without=("gride",))}, tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([*paths, *mine])
    assert tmp_path / "dimension_by_scale.pdf" not in paths


def test_a_broken_write_leaves_the_old_file(tmp_path, monkeypatch):
    runs = {"decoder": make_run(steps=SHORT)}
    with style.context():
        (path, _) = style.save(draw.FIGURES["training_curve"](runs), tmp_path, "curve")
        old = path.read_bytes()
        monkeypatch.setattr(style.os, "replace", lambda *_: (_ for _ in ()).throw(OSError("disk full")))
        with pytest.raises(OSError, match="disk full"):
            style.save(draw.FIGURES["anisotropy_profile"](runs), tmp_path, "curve")
    assert path.read_bytes() == old


@pytest.mark.parametrize(
    ("family", "lost"),
    [
        (SPECTRUM, {"anisotropy_profile", "anisotropy_by_checkpoint", "spectrum_over_training"}),
        (OUTLIERS, {"outlier_coordinates"}),
        (("gride",), {"dimension_by_scale"}),
        (COMPARISON, {"layer_similarity", "change_over_training"}),
        (DIMENSION, {"dimension_over_training"}),
        (SIMILARITY, {"cosine_against_drift"}),
        (("projection",), {"query_key_projection"}),
        (
            ATTENTION,
            {"query_key_drift", "query_key_fluctuation", "attention_sharpness", "sharpness_against_alignment"},
        ),
    ],
)
def test_a_family_that_was_not_measured_costs_only_its_figures(family, lost):
    without = {"decoder": make_run(steps=SHORT, without=family)}
    with style.context():
        assert {name for name, build in draw.FIGURES.items() if build(without) is None} == lost
        both = without | {"encoder": make_run(False, SHORT)}
        assert not [name for name, build in draw.FIGURES.items() if build(both) is None]


def test_the_excess_is_drawn_of_what_was_measured():
    rows = draw.FIGURES["excess_over_nulls"]
    run = make_run(steps=SHORT, without=(*SPECTRUM, *SIMILARITY))
    assert len(rows({"decoder": run}).axes) == 3  # twonn alone, beside three null models
    assert rows({"decoder": make_run(steps=SHORT, without=(*SPECTRUM, *SIMILARITY, *DIMENSION))}) is None


def test_without_a_log_there_is_no_training_curve():
    run = make_run(steps=SHORT)
    assert draw.FIGURES["training_curve"]({"decoder": Run(run.results, [])}) is None


def test_provenance_says_what_is_shared_once_and_what_differs_by_run():
    runs = {"decoder": make_run(), "encoder": make_run(False, seed=1)}
    assert provenance(runs) == [
        "enwik8, first 4,154,399 bytes; pre-LN; 6 layers; D=512; H=8; T=512; 1,000 steps; points × batches = 4,096 × 4",
        "decoder: causal; predicts next character; seed 0",
        "encoder: bidirectional; predicts masked characters; seed 1",
    ]
    unfinished = make_run(steps=SHORT)
    unfinished.results.attrs["steps"] = 2000
    assert "step 10 of 2,000" in provenance({"decoder": unfinished})[0]


def test_a_run_keeps_its_colour_in_figures_that_lack_another():
    runs = {"decoder": make_run(steps=SHORT, without=SPECTRUM), "encoder": make_run(False, SHORT)}
    with style.context():
        lines = draw.FIGURES["anisotropy_profile"](runs).axes[0].lines
        assert [line.get_color() for line in lines] == [style.OKABE_ITO[1]]
        assert [line.get_color() for line in draw.FIGURES["dimension_over_training"](runs).axes[0].lines] == [
            *style.OKABE_ITO[:2]
        ]
    assert len({tuple(look.values()) for look in style.inks(map(str, range(63))).values()}) == 63


def test_runs_that_differ_in_one_setting_do_not_bear_one_caption():
    runs = {"fast": make_run(learning_rate=1e-2), "slow": make_run(learning_rate=1e-3)}
    assert provenance(runs)[1:] == ["fast: train.learning_rate=0.01", "slow: train.learning_rate=0.001"]
    assert "learning_rate" not in " ".join(provenance({"fast": runs["fast"]}))
