"""What figures of activation subspaces show is what the table says."""

import matplotlib.colors
import numpy as np
import pytest
import xarray as xr

from anisoscope.data.unigrams import BINS
from anisoscope.plot import seed_lines
from anisoscope.plot.run_tables import Run
from anisoscope.plot.tangent_figures import FIGURES
from anisoscope.subspaces.proxies import KINDS
from anisoscope.subspaces.subspace_energy import ROWS
from anisoscope.subspaces.tangent_quantities import DERIVED, MEASURED, about
from anisoscope.subspaces.tested_proxies import FITS
from anisoscope.subspaces.weight_gradients import MATRICES, OF
from tests.plot.reading import caption_of, edges_are, inside, title_of

LABELS = {
    **{
        "step": [0, 1, 2, 4, 8, 10],
        "rank": [4, 16],
        "layer": [0, 1, 2],
        "fit": list(FITS),
        "kind": list(KINDS),
    },
    **{"rows": list(ROWS), "bin": list(BINS), "matrix": list(MATRICES), "of": list(OF)},
    "statistic": ["mean", "low", "high"],
}


def table(seed=0, layers=3):
    """A tangents.nc of made-up numbers."""
    generator, variables, labels = (
        np.random.default_rng(seed),
        {},
        LABELS | {"layer": range(layers)},
    )
    for name, quantity in (MEASURED | {name: one for name, (one, _) in DERIVED.items()}).items():
        dims = tuple(dim for dim in quantity.dims if dim != "control")
        shape = tuple(len(labels[dim]) for dim in ("step", *dims))
        mean = generator.uniform(0.2, 0.8, shape)
        if quantity.resampling or dims != quantity.dims:
            low, high = (
                mean - generator.uniform(0.01, 0.1, shape),
                mean + generator.uniform(0.01, 0.1, shape),
            )
            variables[name] = (
                ("statistic", "step", *dims),
                np.stack([mean, low, high]),
                about(quantity),
            )
        else:
            variables[name] = ("step", *dims), mean, about(quantity)
    attrs = {
        **{
            "corpus": "letters",
            "model": "causal, 2 layers",
            "objective": "next",
            "steps": 10,
            "seed": seed,
        },
        **{
            "config": f'{{"train": {{"seed": {seed}, "data_seed": 0}}}}',
            "points": 64,
            "width": 63,
            "folds": 4,
        },
        **{
            "sample": "64 scored positions of 8 windows",
            "positions": "scored ones",
            "windows": "8",
        },
        "early_steps": "[1, 2]",
    }
    return xr.Dataset(variables, labels | {"layer": list(range(layers))}, attrs)


@pytest.fixture(scope="module")
def runs():
    found = {"decoder": table(0), "encoder": table(1)}
    return {label: Run(one, [], one) for label, one in found.items()}


def drawn(figure, label):
    """Of each panel the line with this label, and its band."""
    for ax in figure.axes[:-1]:  # the last is the strip of the key
        lines = [line for line in ax.lines if line.get_label() == label]
        if lines:
            colour = matplotlib.colors.to_rgb(lines[0].get_color())
            bands = [
                band for band in ax.collections if tuple(band.get_facecolor()[0][:3]) == colour
            ]
            yield lines[0], bands[0]


@pytest.mark.parametrize("name", FIGURES)
def test_everything_lies_on_the_paper_and_says_that_it_is_a_reconstruction(runs, name):
    figure = FIGURES[name](runs)
    inside(figure, name)
    said = caption_of(figure)
    assert "reconstructions after Bernas et al. 2026" in said
    assert "steps 1, 2" in said
    assert "rank 16 of 63" in title_of(figure)
    assert [ax.get_ylabel() for ax in figure.axes if ax.get_ylabel()][:2] == ["decoder", "encoder"]
    assert FIGURES[name]({label: Run(run.results, []) for label, run in runs.items()}) is None


def test_energy_stands_beside_variance_and_all_control_frames(runs):
    figure = FIGURES["tangent_energy"](runs)
    places = [(run, layer) for run in runs.values() for layer in (0, 1, 2)]
    for label, name in {
        "e: gradient energy": "energy",
        "v: variance of the activations": "variance",
    }.items():
        found = list(drawn(figure, label))
        assert len(found) == 6
        for (line, band), (run, layer) in zip(found, places, strict=True):
            values = run.tangents[name].sel(rank=16, kind="semi-NMF", fit="early", layer=layer)
            values = values.sel(rows="raw") if "rows" in values.dims else values
            np.testing.assert_array_equal(line.get_ydata(), values.sel(statistic="mean"))
            edges_are(band, line, values)
    controls = runs["decoder"].tangents.control_energy.sel(
        rank=16, kind="semi-NMF", fit="early", layer=0, rows="raw"
    )
    edges_are(figure.axes[0].collections[0], figure.axes[0].lines[0], controls)
    titles = [ax.get_title() for ax in figure.axes[:3]]
    assert titles == ["layer 0 (embedding)", "layer 1", "layer 2"]


@pytest.mark.parametrize("name", FIGURES)
def test_of_one_checkpoint_without_early_proxies_those_fitted_there_are_drawn_over_layers(name):
    alone = table(layers=5).isel(step=[-1])
    known = (
        "energy",
        "variance",
        "excess",
        "control_energy",
        "enrichment_in_bin",
        "isoscore_gain",
        "matrix_energy",
    )
    for quantity in known:
        alone[quantity] = alone[quantity].where(alone.fit == "here")
    alone.attrs |= {
        "early_steps": "[]",
        "provenance": "a text; a model",
        "batches": 1,
        "types": "token",
    }
    figure = FIGURES[name]({"a model": Run(alone, [], alone)})
    inside(figure, name)
    caption = caption_of(figure)
    assert "There are no early subspaces." in caption
    assert "character" not in caption + figure.get_suptitle()
    assert {ax.get_xlabel() for ax in figure.axes} - {""} == {"layer"}
    if name == "tangent_energy":
        (line, band), *more = drawn(figure, "e: gradient energy")
        values = alone.energy.sel(rank=16, kind="semi-NMF", fit="here", rows="raw").isel(step=0)
        np.testing.assert_array_equal(line.get_xdata(), alone.layer)
        np.testing.assert_array_equal(line.get_ydata(), values.sel(statistic="mean"))
        edges_are(band, line, values)
        assert not more
        assert "the activation subspace fitted at the checkpoint" in title_of(figure)


def test_seeds_are_one_curve_with_their_range_and_the_controls_of_all():
    members = [table(0), table(1), table(2)]
    found = seed_lines._tangents(members, "seeds 0, 1, 2 together")
    means = np.stack([one.energy.sel(statistic="mean") for one in members])
    for end, expected in {"mean": means.mean(0), "low": means.min(0), "high": means.max(0)}.items():
        np.testing.assert_allclose(found.energy.sel(statistic=end), expected)
    ends = np.stack([one.control_energy.sel(statistic="high") for one in members])
    np.testing.assert_allclose(found.control_energy.sel(statistic="high"), ends.max(0))
    np.testing.assert_allclose(found.control_p, np.mean([one.control_p for one in members], axis=0))
    assert seed_lines._tangents([members[0], None], "") is None
