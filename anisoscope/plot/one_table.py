"""Draw tables on the user's own axes, with the code and style of all other figures."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from anisoscope.plot import panel_axes, style
from anisoscope.plot.render import ORDERED, draw_panel, labels_along
from anisoscope.plot.run_tables import NULLS_IN_FIGURES, POSITION_LABELS, Run
from anisoscope.plot.specs import (
    GAUSSIAN_CURVE,
    LINE,
    NULL_ROLE,
    QUANTITY_ROLE,
    RUN_ROLE,
    SPECS,
    Line,
    Spec,
)
from anisoscope.results.frame import as_run_table, check_table, select_values

Tables = xr.Dataset | Sequence[xr.Dataset] | Mapping[str, xr.Dataset]
COUNTS_OF_DIRECTIONS = ("rankme_centered", "effective_rank", "participation_ratio", "stable_rank")
SMALL_VALUES = 0.5  # a map of smaller values has their range, not 0 to 1


def by_layer(
    table: Tables,
    quantity: str = "anisotropy",
    *,
    null: str | None = None,
    show_null: str | None = None,
    positions: str | None = None,
    step: int | None = None,
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes:
    """Draw a quantity over layers, with its 95 % interval as a band.

    Args:
        table: from `measure`, `measure_model` or `measure_attention`, or results.nc of a run. In a
            dict or a list, several have a line each, named at its end.
        quantity: a variable with the dimension layer or block; for heads (of a single table), a
            line each.
        null: a null model, to draw the excess over it; None for the value itself.
        show_null: a null model whose own value is drawn too, as a dashed line.
        positions: the set of token positions, where a table has several; None for a line each.
            Heads and several tables have lines enough: None is "all", which the title says.
        step: the training step, where a table has several; None for the last.
        label: name of a single table's line in the legend.
        ax: axes to draw on; None for new ones. Call it again with the same axes to compare tables.

    Returns:
        The axes.

    Raises:
        ValueError: a table has no such quantity, null model, positions, step, or layers.

    >>> import anisoscope
    >>> import numpy as np
    >>> layers = [*np.random.default_rng(0).standard_normal((3, 256, 8))]
    >>> table = anisoscope.measure(layers, families="similarity", nulls=())
    >>> axes = by_layer({"first": table, "second": table}, "mean_cosine")
    >>> axes.lines[0].get_xdata().tolist()
    [0, 1, 2]
    """
    tables, several = name_tables(table, label), not isinstance(table, xr.Dataset)
    sets = _position_sets(table, quantity, null) if positions is None and not several else {}
    if sets:
        start = f"{label}, " if label else ""
        tables = {start + sets[at]: table.sel(positions=at, drop=True) for at in sets}
    lines: tuple[Line, ...] = ()
    if show_null:
        words = NULLS_IN_FIGURES.get(show_null, show_null)
        lines = (Line(words, model=show_null, look=GAUSSIAN_CURVE["look"], band=False),)
    place = {"positions": positions or "all", "step": step}
    for own in tables.values():
        values = select_values(own, quantity, null, place)
        if show_null:
            select_values(own, quantity, show_null, place)
        along, others = _depth_and_others(values)
        if along is None:
            raise ValueError(
                f"{quantity} has no layers in this table, which describes one matrix; "
                "measure [x] for a table of layers"
            )
        if len(others) > (not several):
            raise _wrong_dimensions(values, "layer or block, and for a single table one more,")
    spec = Spec("", "", (quantity,), x=along, hue=others[0] if others else RUN_ROLE, lines=lines)
    ax = _draw(spec, tables, place | {NULL_ROLE: null}, label, ax, _set_looks(len(sets)))
    with style.context(mathematics=True):
        crowded = several and not style.label_ends(ax)
        if crowded or (not several and (label or others or show_null or sets)):
            ax.legend(*style.legend_entries([ax]))
        partly = any(own.sizes.get("positions", 1) > 1 for own in tables.values())
        if partly and positions is None and not ax.get_title():
            ax.set_title(POSITION_LABELS["all"])
    return ax


def by_step(
    table: Tables,
    quantity: str = "anisotropy",
    *,
    null: str | None = None,
    positions: str = "all",
    label: str | None = None,
    ax: Axes | None = None,
) -> Axes | list[Axes]:
    """Draw a quantity over training steps: a line for each layer or block, shaded by depth.

    Args:
        table: a table with the dimension step: results.nc of a run, or tables of `measure` joined
            along it by `xarray.concat`.
        quantity: a variable of the table; for heads, their mean is drawn, without an interval.
        null: a null model, to draw the excess over it; None for the value itself.
        positions: the set of token positions, where the table has several.
        label: name of the line in the legend, where there is only one layer.
        ax: axes to draw a single table on; None for new ones.

    Returns:
        The axes; for more than one layer, their figure has a color bar too.
        For several tables, in a dict or a list: a list of axes, one panel for each.

    Raises:
        ValueError: the table has no such quantity, null model or positions, or no steps.

    >>> import anisoscope
    >>> import numpy as np
    >>> layers = np.random.default_rng(0).standard_normal((2, 3, 256, 8))
    >>> tables = [anisoscope.measure([*x], families="similarity", nulls=()) for x in layers]
    >>> axes = by_step(xr.concat(tables, xr.IndexVariable("step", [0, 100])), "mean_cosine")
    >>> len(axes.lines)  # layers
    3
    """
    if not isinstance(table, xr.Dataset):
        return _panels(by_step, table, ax, quantity, null=null, positions=positions, label=label)
    values = select_values(table, quantity, null, {"positions": positions})
    if "head" in values.dims:
        mean = table[values.name].mean("head", skipna=False, keep_attrs=True)
        table = table.assign({values.name: mean.where(mean.statistic == "mean")})
        values = values.isel(head=0)
    along, further = _depth_and_others(values, "step")
    if "step" not in values.dims or further:
        raise _wrong_dimensions(values, "step, and layer or block,")
    spec = Spec("", "", (quantity,), x="step", hue=along or RUN_ROLE)
    return _draw(spec, {"": table}, {"positions": positions, NULL_ROLE: null}, label, ax)


def effective_ranks(
    table: Tables, *, positions: str = "all", step: int | None = None, ax: Axes | None = None
) -> Axes | list[Axes]:
    """Draw how many directions carry the variance, over layers: effective ranks of the spectrum.

    RankMe, effective rank, participation ratio and stable rank weight small eigenvalues less and
    less, in this order: the farther apart they are, the more uneven the spectrum. The axis is
    logarithmic, and bands are 95 % intervals.

    Args:
        table: a table with the family spectrum.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        ax: axes to draw a single table on; None for new ones.

    Returns:
        The axes.
        For several tables, in a dict or a list: a list of axes, one panel for each.

    Raises:
        ValueError: the table has no spectrum, positions, or step.

    >>> import anisoscope
    >>> import numpy as np
    >>> layers = [*np.random.default_rng(0).standard_normal((3, 256, 8))]
    >>> table = anisoscope.measure(layers, families="spectrum", nulls=())
    >>> axes = effective_ranks(table)
    >>> axes.get_yscale()
    'log'
    """
    if not isinstance(table, xr.Dataset):
        return _panels(effective_ranks, table, ax, positions=positions, step=step)
    check_table(table)
    names = tuple(name for name in COUNTS_OF_DIRECTIONS if name in table)
    if not names:
        raise ValueError(
            f"the table has no {', '.join(COUNTS_OF_DIRECTIONS)}: measure the family spectrum"
        )
    lines = tuple(Line(table[name].attrs.get("long_name", name), name) for name in names)
    spec = Spec("", "", names, x="layer", hue=LINE, lines=lines)
    select_values(table, names[0], None, place := {"positions": positions, "step": step})
    ax = _draw(spec, {"": table}, place, None, ax)
    panel_axes.logarithmic(ax.yaxis)
    ax.set_ylabel("directions that carry the variance")
    ax.legend()
    return ax


def layer_map(
    table: Tables,
    quantity: str = "cka_unbiased",
    *,
    null: str | None = None,
    positions: str = "all",
    step: int | None = None,
    ax: Axes | None = None,
) -> Axes | list[Axes]:
    """Draw a heat map of the similarity between every layer and every other.

    Colors go from 0 to 1, or over the range of the values if all are below 0.5. Those of an excess
    are white at 0.

    Args:
        table: from `compare`, or with a family that compares layers, such as "comparison".
        quantity: a variable with the dimensions layer and other_layer ("cka_layers", say).
        null: a null model, to draw the excess over it; None for the value itself.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        ax: axes to draw a single table on; None for new ones.

    Returns:
        The axes; their figure has a color bar too.
        For several tables, in a dict or a list: a list of axes, one panel for each.

    Raises:
        ValueError: the table has no such quantity, null model, positions, step, or pairs of layers.

    >>> import anisoscope
    >>> import numpy as np
    >>> layers = [*np.random.default_rng(0).standard_normal((3, 256, 8))]
    >>> table = anisoscope.measure(layers, families="comparison", nulls=())
    >>> axes = layer_map(table, "cka_layers")
    >>> axes.images[0].get_array().shape
    (3, 3)
    """
    if not isinstance(table, xr.Dataset):
        return _panels(layer_map, table, ax, quantity, null=null, positions=positions, step=step)
    values = select_values(table, quantity, null, {"positions": positions, "step": step})
    if {*values.dims} != {"statistic", "layer", "other_layer"}:
        raise _wrong_dimensions(values, "statistic, layer and other_layer")
    mean = values.sel(statistic="mean").transpose("layer", "other_layer")
    with style.context(mathematics=True):
        ax = plt.subplots(layout="constrained")[1] if ax is None else ax
        low, high, words = _map_limits(mean.values, null)
        look = {"vmin": low, "vmax": high, "cmap": "RdBu_r" if null else "viridis"}
        image = ax.imshow(mean, origin="lower", aspect="auto", **look)
        ax.grid(False)
        for axis, dim, side in ((ax.yaxis, "layer", "first"), (ax.xaxis, "other_layer", "second")):
            labels = mean[dim].values
            if labels.dtype.kind in "iu":
                axis.set_major_locator(MaxNLocator(8, integer=True, min_n_ticks=1))
            else:
                axis.set_ticks(range(labels.size), [style.escape(label) for label in labels])
            axis.set_label_text(f"layer of {style.escape(table.attrs.get(side, 'the model'))}")
        bar = ax.figure.colorbar(image, ax=ax).ax
        bar.set_ylabel(_fit(_value_label(table[quantity], null) + words, bar))
        if table[quantity].sizes.get("positions", 1) > 1 and not ax.get_title():
            ax.set_title(POSITION_LABELS.get(positions, positions))
    return ax


def dimension_by_scale(
    table: Tables, *, positions: str = "all", step: int | None = None, ax: Axes | None = None
) -> Axes | list[Axes]:
    """Draw the intrinsic dimension (GRIDE) against the rank of the neighbors it is estimated from.

    Each layer has a line with its 95 % interval. Dashed lines are Gaussian clouds of the same
    spectrum, where these were measured.

    Args:
        table: a table with the family scale.
        positions: the set of token positions, where the table has several.
        step: the training step, where the table has several; None for the last.
        ax: axes to draw a single table on; None for new ones.

    Returns:
        The axes; for more than one layer, their figure has a color bar too.
        For several tables, in a dict or a list: a list of axes, one panel for each.

    Raises:
        ValueError: the table has no dimensions by scale, positions, or step.

    >>> import anisoscope
    >>> import numpy as np
    >>> layers = [*np.random.default_rng(0).standard_normal((3, 256, 8))]
    >>> table = anisoscope.measure(layers, families="scale", nulls=())
    >>> axes = dimension_by_scale(table)
    >>> len(axes.lines)  # layers
    3
    """
    if not isinstance(table, xr.Dataset):
        return _panels(dimension_by_scale, table, ax, positions=positions, step=step)
    check_table(table)
    if "gride" not in table:
        raise ValueError("the table has no gride: measure the family scale")
    select_values(table, "gride", None, place := {"positions": positions, "step": step})
    ax = _draw(SPECS["dimension_by_scale"], {"": table}, place, None, ax)
    panel_axes.fit_logarithmic([ax])
    ax.set_ylabel("intrinsic dimension (GRIDE)")
    handles, labels = style.legend_entries([ax])
    if handles:
        ax.legend(handles, labels)
    return ax


def name_tables(tables: Tables, label: str | None = None) -> dict[str, xr.Dataset]:
    """Name tables by their keys, by distinct titles, or by number; a single table by its label."""
    if isinstance(tables, xr.Dataset):
        return {"" if label is None else label: tables}
    if isinstance(tables, str) or not isinstance(tables, Sequence | Mapping):
        check_table(tables)  # which refuses it: a path or a DataFrame is no list
    if label is not None:
        raise ValueError("label= is for a single table; name several in a dict")
    if not len(tables):
        raise ValueError("no table was passed; pass one, a list or a dict of tables")
    if isinstance(tables, Mapping):
        return {str(name): table for name, table in tables.items()}
    for table in tables:
        check_table(table)
    titles = [str(table.attrs.get("title", "")) for table in tables]
    distinct = all(titles) and len({*titles}) == len(titles)
    return dict(zip(titles if distinct else map(str, range(len(titles))), tables, strict=True))


def _position_sets(table: xr.Dataset, quantity: str, null: str | None) -> dict[str, str]:
    """Put the sets of positions that have a line each in words; none if other things have lines."""
    values = select_values(table, quantity, null, {})
    if values.sizes.get("positions", 1) == 1 or _depth_and_others(values, "positions", "step")[1]:
        return {}
    return {name: POSITION_LABELS.get(name, name) for name in values["positions"].values.tolist()}


def _set_looks(count: int) -> list[dict[str, Any]]:
    """Give each line shorter dashes and smaller marks: equal lines below it show in its gaps."""
    dashes = [(0, (4 * (count - at), 4 * at)) if at else "-" for at in range(count)]
    return [
        {"linestyle": dash, "markersize": 3 + 2 * (count - 1 - at)}
        for at, dash in enumerate(dashes)
    ] or [{}]


def _panels(
    draw: Callable[..., Any], tables: Tables, ax: Axes | None, *args: Any, **options: Any
) -> list[Axes]:
    """Draw a panel for each table, under its name."""
    named = name_tables(tables, options.pop("label", None))
    if ax is not None:
        raise ValueError("several tables need a panel each; leave ax out, or draw them one by one")
    with style.context(mathematics=True):
        size = (2.9 * len(named), 3.2)
        figure = plt.figure(figsize=size, layout="constrained")
        axes = figure.subplots(1, len(named), sharey=True, squeeze=False)[0]
        for panel_ax, (name, table) in zip(axes, named.items(), strict=True):
            draw(table, *args, ax=panel_ax, **options)
            positions = panel_ax.get_title()
            panel_ax.set_title("\n".join(filter(None, (style.escape(name), positions))))
        for panel_ax in axes[1:]:
            panel_ax.set_ylabel("")
    return [*axes]


def _draw(
    spec: Spec,
    tables: dict[str, xr.Dataset],
    place: dict[str, Any],
    label: str | None,
    ax: Axes | None,
    run_looks: Sequence[dict[str, Any]] = ({},),
) -> Axes:
    """Draw the lines of the spec on new axes or the user's; add a color bar for hues in order."""
    step, null, quantity = place.get("step"), place.get(NULL_ROLE), spec.quantities[0]
    place = {QUANTITY_ROLE: quantity} | {name: at for name, at in place.items() if at is not None}
    runs, names = {}, {}
    for name, table in tables.items():
        results, names = as_run_table(table)
        if "layer" not in results.dims and "layer" in (spec.x, spec.hue):  # a single layer
            results = results.drop_vars("layer", errors="ignore").expand_dims(layer=[0])
        runs[style.escape(name)] = Run(results if step is None else results.sel(step=[step]), [])
    with style.context(mathematics=True):
        ax = plt.subplots(layout="constrained")[1] if ax is None else ax
        hues, colors = labels_along(spec.hue, spec, runs, ()), None
        looks = style.run_styles(hues)
        if spec.hue == RUN_ROLE:
            count = len({line.get_color() for line in ax.lines})
            looks = {
                name: {"color": style.COLORS[at % len(style.COLORS)], "marker": "o", **look}
                for (at, name), look in zip(enumerate(runs, count), cycle(run_looks), strict=False)
            }
        elif spec.hue in ORDERED:
            colors = panel_axes.patch_colors(len(hues), first=int(hues[0]))
        draw_panel(ax, spec, runs, place, looks, colors)
        ax.set_ylabel(_fit(_value_label(next(iter(tables.values()))[quantity], null), ax))
        if colors and len(hues) > 1:
            ticks = hues[:: -(-len(hues) // 8)]
            words = dict(zip(hues, names.get(spec.hue, hues), strict=True))
            called = [style.escape(words[tick]) for tick in ticks]
            panel_axes.add_color_bar(ax.figure, colors, np.array([ax]), spec.hue, ticks, called)
        elif label and colors:
            ax.lines[-1].set_label(style.escape(label))
            ax.legend()
    first = next(iter(runs.values())).results
    if spec.x == "step":
        panel_axes.step_axis(ax, int(first.step.values.max()))
    elif spec.x == "neighbors":
        panel_axes.rank_axis(ax, first.neighbors.values)
    else:
        _name_depth(ax, [*tables.values()], spec.x)
    return ax


def _value_label(values: xr.DataArray, null: str | None) -> str:
    words = f", excess over {NULLS_IN_FIGURES.get(null, null)}".replace("\n", " ") if null else ""
    return style.variable_label(values) + words


def _fit(label: str, ax: Axes) -> str:
    """Break the label of a vertical axis at the axis' length."""
    length = ax.get_window_extent().height / ax.figure.dpi
    return style.wrap(label, length, ax.yaxis.label.get_size())


def _map_limits(values: np.ndarray, null: str | None) -> tuple[float, float, str]:
    """Return the ends of a map's colors, and words that name them where they are not 0 and 1.

    An excess has 0 in the middle; values below 0.5 have the range of the data.
    """
    finite = values[np.isfinite(values)]
    if null:
        reach = np.abs(finite).max(initial=0) or 1.0
        return -reach, reach, ""
    least, most = finite.min(initial=np.inf), finite.max(initial=-np.inf)
    if least < most < SMALL_VALUES:
        return least, most, f", colors from {least:.2g} to {most:.2g}".replace("-", "−")
    return min(0, least), max(1, most), ""


def _wrong_dimensions(values: xr.DataArray, what: str) -> ValueError:
    dims = ", ".join(map(str, values.dims))
    return ValueError(f"{values.name} has the dimensions {dims}; {what} can be drawn")


def _name_depth(ax: Axes, tables: Sequence[xr.Dataset], along: str) -> None:
    """Label layers or blocks by number, or by the user's names if all tables have the same."""
    every = [np.atleast_1d(table[along].values) for table in tables if along in table.dims]
    names = max(every, key=len, default=np.zeros(1, int))
    alike = all(np.array_equal(names, own) for own in every)
    names = names if alike else np.arange(len(names))
    numbers = names.dtype.kind in "iu"
    if numbers:
        ax.xaxis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    else:
        panel_axes.name_axis(ax, along, [style.escape(name) for name in names])
    if len(names) == 1:
        ax.set_xlim(names[0] - 0.5 if numbers else -0.5, None)
    ax.set_xlabel(along)


def _depth_and_others(values: xr.DataArray, *known: str) -> tuple[str | None, list[str]]:
    """Find the dimension layer or block, and the other dimensions."""
    along = next((dim for dim in ("layer", "block") if dim in values.dims), None)
    return along, [dim for dim in values.dims if dim not in (along, "statistic", *known)]
