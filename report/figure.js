// A selection, drawn: traces and layout for Plotly, a title, remarks and the numbers as rows.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const NULL_DASHES = { gaussian: "dot", shuffled: "dash", untrained: "dashdot" };
const NARROW = 700; // pixels, as in page.css

/** Plotly reads some tags in its texts; what users have named is none. */
function plain(text) {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;");
}

/** In lines of so many letters at most, as far as there are spaces. */
function broken(text, length) {
  const lines = [];
  for (const word of text.split(" ").filter(Boolean)) {
    if (lines.length && (lines.at(-1) + word).length < length) lines.push(`${lines.pop()} ${word}`);
    else lines.push(word);
  }
  return lines;
}

function wrapped(text, length = 64) {
  return broken(text, length).map(plain).join("<br>");
}

function digits(value, count = 4) {
  if (Number.isNaN(value)) return "–";
  if (!Number.isFinite(value)) return value > 0 ? "∞" : "−∞";
  const size = Math.abs(value);
  const text = size && (size < 1e-4 || size >= 1e6) ? value.toExponential(count - 1) : String(Number(value.toPrecision(count)));
  return text.replaceAll("-", "−");
}

function unit(quantity) {
  return ["", "1"].includes(quantity.units) ? "" : ` (${quantity.units})`;
}

function where(own) {
  return Object.entries(own).map(([dim, label]) => said(dim, label)).join(", ");
}

function titles({ known, state, quantity, view, chosen, less, positions, step, steps, runs }) {
  const single = chosen.filter(({ chosen, labels }) => chosen.length === 1 && labels.length > 1);
  const excess = less === "nothing" ? "" : `excess over ${known.nulls[less]}`;
  const parts = [excess, ...single.map(({ dim, chosen }) => said(dim, chosen[0]))];
  if (steps.length) parts.push(said("step", step));
  if (!quantity.plane) parts.push(known.positions[positions] ?? positions);
  const axes = view.y ? `: ${view.y} × ${named(view.x)}` : quantity.plane ? "" : ` over ${MANY[view.x] ?? named(view.x)}`;
  const bands = new Set(state.bands && !view.y ? runs.map((run) => run.variables[quantity.name].band).filter(Boolean) : []);
  const name = quantity.long_name[0].toUpperCase() + quantity.long_name.slice(1);
  return { title: `${name}${axes}, ${parts.filter(Boolean).join(", ")}`, band: bands.size ? `band: ${[...bands].join(" or ")}` : "" };
}

function hover({ quantity }, run, place, point) {
  const ends = Number.isFinite(point.low) ? ` (${digits(point.low)} to ${digits(point.high)})` : "";
  const lines = [plain(run.label), plain(place), `<b>${digits(point.mean)}</b>${ends}${plain(unit(quantity))}`];
  if (quantity.formula) lines.push(wrapped(quantity.formula));
  if (quantity.source) lines.push(`<i>${wrapped(quantity.source)}</i>`);
  return lines.filter(Boolean).join("<br>");
}

/** Where labels of a dimension lie on an axis, and the axis. */
function scale(dim, runs, room = 14, evenly = false) {
  const labels = union(runs, dim);
  const thin = (count) => labels.filter((_, i) => i % Math.ceil(labels.length / count) === 0);
  if (dim === "step" && !evenly) {
    const last = labels.at(-1);
    const decades = [0, ...Array.from({ length: 9 }, (_, power) => 10 ** power).filter((tick) => 2 * tick <= last), last];
    const ticks = [...new Set(decades)];
    return { place: (_, step) => Math.log10(1 + step), axis: ticked("training step", ticks.map((tick) => Math.log10(1 + tick)), ticks) };
  }
  if (DEPTHS.includes(dim) && !evenly) {
    const lasts = new Set(runs.map((run) => run.labels[dim].at(-1)));
    const words = dim === "layer" ? " (0 = embedding)" : "";
    if (lasts.size > 1) return { place: (run, label) => label / run.labels[dim].at(-1), axis: { title: { text: `relative depth${words}` } } };
    return { place: (_, label) => label, axis: ticked(`${dim}${words}`, thin(room), thin(room)) };
  }
  const places = new Map(labels.map((label, i) => [label, i]));
  const words = dim === "step" ? "training step, a column for each checkpoint" : named(dim);
  const shown = thin(room);
  return { place: (_, label) => places.get(label), axis: ticked(words, shown.map((label) => places.get(label)), shown) };
}

function ticked(text, values, labels) {
  const short = (label) => (label >= 10000 ? `${label / 1000}k` : String(label));
  return { title: { text }, tickvals: values, ticktext: labels.map(short) };
}

/** Panels side by side as far as they fit: the domains of their axes. */
function grid(count, width, tall) {
  const columns = width < NARROW ? 1 : count === 4 ? 2 : Math.min(count, 3);
  const rows = Math.ceil(count / columns);
  const height = rows * tall + (rows - 1) * 70;
  const [dx, dy] = [columns > 1 ? 0.05 : 0, 70 / height];
  const [w, h] = [(1 - dx * (columns - 1)) / columns, (1 - dy * (rows - 1)) / rows];
  const panels = Array.from({ length: count }, (_, i) => {
    const [row, column] = [Math.floor(i / columns), i % columns];
    const top = 1 - row * (h + dy);
    return { x: [column * (w + dx), column * (w + dx) + w], y: [Math.max(top - h, 0), top], left: column === 0, lowest: i + columns >= count };
  });
  return { panels, height };
}

function id(panel) {
  return panel ? String(panel + 1) : "";
}

function frame(panels, names, theme, x, y, height, width) {
  const line = { color: theme.ink, gridcolor: theme.grid, zeroline: false, linecolor: theme.muted, ticks: "outside", tickcolor: theme.muted };
  const layout = {
    paper_bgcolor: theme.paper, plot_bgcolor: theme.paper, font: { color: theme.ink, family: theme.font, size: 13 },
    height, width, margin: { l: 62, r: 12, t: names.length ? 34 : 12, b: 52 }, hovermode: "closest", dragmode: theme.touch ? false : "zoom",
    hoverlabel: { align: "left", bgcolor: theme.paper, bordercolor: theme.muted, font: { color: theme.ink, family: theme.font } },
    annotations: names.map((name, i) => ({
      text: `<b>${plain(name)}</b>`, showarrow: false, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", x: panels[i].x[0], y: panels[i].y[1],
    })),
  };
  panels.forEach((panel, i) => {
    layout[`xaxis${id(i)}`] = { ...line, ...x, domain: panel.x, anchor: `y${id(i)}`, title: panel.lowest ? x.title : undefined };
    layout[`yaxis${id(i)}`] = { ...line, ...y, domain: panel.y, anchor: `x${id(i)}`, title: panel.left ? y.title : undefined };
  });
  return layout;
}

/** One scale at all steps. Intervals that reach far would flatten the curves: they are cut off at the edge. */
function reach(selection) {
  const all = (selection.steps.length ? selection.steps : [undefined]).flatMap((step) => curves(selection, step));
  const points = all.flatMap((curve) => curve.points).filter((point) => Number.isFinite(point.mean));
  if (!points.length) return undefined;
  const [low, high] = ends(points.map((point) => point.mean));
  const room = high - low || Math.abs(high) || 1;
  const bands = selection.state.bands ? points.flatMap((point) => [point.low, point.high]).filter(Number.isFinite) : [];
  const [least, most] = ends([low, high, ...bands]);
  return [Math.max(least, low - 0.6 * room) - 0.05 * room, Math.min(most, high + 0.6 * room) + 0.05 * room];
}

function ends(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}

/**
 * How curves are told apart: by run; where several labels are chosen, by those, with a panel for each run. A legend has
 * colours first, then what dashes mean: the labels of a second dimension, and null models.
 */
function looks({ chosen, known, beside }, theme) {
  const [by, second] = chosen.filter((one) => one.chosen.length > 1);
  const dashes = new Map(second ? second.chosen.map((label, i) => [said(second.dim, label), DASHES[i % DASHES.length]]) : []);
  for (const less of beside) dashes.set(known.nulls[less], NULL_DASHES[less] ?? "dot");
  return {
    by: by?.dim,
    dashes,
    of({ run, own, less }) {
      const place = by ? by.labels.indexOf(own[by.dim]) / Math.max(by.labels.length - 1, 1) : 0;
      const shade = known.shades[Math.round((theme.dark ? 0.2 + 0.8 * place : place) * (known.shades.length - 1))];
      const color = by ? shade : theme.dark ? run.ink_on_dark : run.ink;
      const dash = less ? dashes.get(known.nulls[less]) : second ? dashes.get(said(second.dim, own[second.dim])) : "solid";
      return { color, dash, name: by ? String(own[by.dim]) : run.label, symbol: by ? "circle" : run.symbol };
    },
  };
}

function lines(selection, theme, width) {
  const { known, quantity, view, runs, step, steps, state } = selection;
  const look = looks(selection, theme);
  const axis = scale(view.x, runs);
  const count = look.by ? runs.length : 1;
  const { panels, height } = grid(count, width, width < NARROW ? 280 : count > 3 ? 260 : 380);
  const [traces, bands, rows, told] = [[], [], [], new Set()];
  for (const curve of curves(selection, step)) {
    const { run, own, less, labels, points } = curve;
    const { color, dash, name, symbol } = look.of(curve);
    const axes = look.by ? id(runs.indexOf(run)) : "";
    const x = labels.map((label) => axis.place(run, label));
    const places = labels.map((label) => where({ ...own, [view.x]: label, ...(steps.length ? { step } : {}) }) + (less ? `, ${known.nulls[less]}` : ""));
    const trace = {
      type: "scatter", mode: "lines+markers", x, y: points.map((point) => point.mean), xaxis: `x${axes}`, yaxis: `y${axes}`,
      name: plain(name), legendgroup: name, showlegend: !less && !told.has(name), hoverinfo: "text", meta: { run: run.label, ...own, less },
      hovertext: points.map((point, i) => hover(selection, run, places[i], point)),
      line: { color, dash, width: less ? 1.2 : 2 }, marker: { color, symbol, size: less ? 4 : 7 },
    };
    if (!less) told.add(name);
    if (state.bands && !less) bands.push(...band(x, points, trace));
    traces.push(trace);
    points.forEach((point, i) => rows.push({ run: run.label, place: places[i], ...point }));
  }
  for (const [name, dash] of look.dashes) {
    traces.push({ type: "scatter", mode: "lines", x: [null], y: [null], name: plain(name), hoverinfo: "skip", meta: {}, line: { color: theme.muted, dash, width: 1.6 } });
  }
  const y = { title: { text: wrapped(quantity.long_name + unit(quantity), 40) }, range: reach(selection) };
  const layout = frame(panels, look.by ? runs.map((run) => run.label) : [], theme, axis.axis, y, height + 100, width);
  const names = [...told, ...look.dashes.keys()];
  legend(layout, names, look.by, height, width);
  return { data: [...bands, ...traces], layout, rows };
}

/** At the side, or below where names are long or the screen is narrow. */
function legend(layout, names, by, height, width) {
  layout.showlegend = names.length > 1;
  layout.legend = { title: { text: by ? plain(named(by)) : "" }, itemsizing: "constant", x: 1.02, y: 1 };
  const longest = Math.max(0, ...names.map((name) => name.length));
  if (width >= NARROW && longest <= 24) return;
  Object.assign(layout.legend, { orientation: "h", x: 0, y: -66 / height, yanchor: "top" });
  layout.height += 24 * Math.ceil(names.length / Math.max(1, Math.floor(width / (60 + 8 * longest))));
}

/** Filled where neighbours on the axis both have an interval; a bar where one stands alone. */
function band(x, points, trace) {
  const finite = (point) => point && Number.isFinite(point.low) && Number.isFinite(point.high);
  const [outline, alone] = [{ x: [], y: [] }, new Set()];
  for (let first = 0; first < points.length; first++) {
    if (!finite(points[first])) continue;
    let last = first;
    while (finite(points[last + 1])) last++;
    const there = points.map((_, i) => i).slice(first, last + 1);
    if (last === first) alone.add(first);
    else {
      outline.x.push(...there.map((i) => x[i]), ...there.toReversed().map((i) => x[i]), null);
      outline.y.push(...there.map((i) => points[i].low), ...there.toReversed().map((i) => points[i].high), null);
    }
    first = last;
  }
  if (alone.size) {
    const far = (end) => points.map((point, i) => (alone.has(i) ? Math.abs(point[end] - point.mean) : null));
    trace.error_y = { type: "data", symmetric: false, array: far("high"), arrayminus: far("low"), color: trace.line.color, thickness: 1.5 };
  }
  if (!outline.x.length) return [];
  const { xaxis, yaxis, legendgroup, meta } = trace;
  const fill = { fill: "toself", fillcolor: faint(trace.line.color), line: { width: 0 }, mode: "lines" };
  return [{ type: "scatter", ...outline, ...fill, xaxis, yaxis, legendgroup, showlegend: false, hoverinfo: "skip", meta: { ...meta, band: true } }];
}

function faint(color) {
  const parts = [1, 3, 5].map((start) => parseInt(color.slice(start, start + 2), 16));
  return `rgba(${parts.join(",")},0.18)`;
}

/** Fields of numbers in one scale of colours, at all steps; where they have both signs, white is 0. */
function heat(selection, theme, width) {
  const { quantity, view, runs, step, steps } = selection;
  const [across, up] = [scale(view.x, runs, width < NARROW ? 7 : 12, true), scale(view.y, runs, 14, true)];
  const { panels, height } = grid(runs.length, width, width < NARROW ? 260 : runs.length > 3 ? 240 : 340);
  const all = (steps.length ? steps : [undefined]).flatMap((step) => maps(selection, step));
  let [low, high] = ends(all.flatMap(({ rows }) => rows.flat().map((point) => point.mean)).filter(Number.isFinite));
  if (low > high) [low, high] = [0, 1];
  const signs = low < 0 && high > 0;
  if (signs) [low, high] = [-Math.max(-low, high), Math.max(-low, high)];
  const told = [];
  const data = maps(selection, step).map(({ run, own, xs, ys, rows }, i) => {
    const place = (y, x) => where({ ...own, [view.y]: y, [view.x]: x, ...(steps.length ? { step } : {}) });
    rows.forEach((row, j) => row.forEach((point, k) => told.push({ run: run.label, place: place(ys[j], xs[k]), ...point })));
    return {
      type: "heatmap", x: xs.map((label) => across.place(run, label)), y: ys.map((label) => up.place(run, label)), z: rows.map((row) => row.map((point) => point.mean)),
      xaxis: `x${id(i)}`, yaxis: `y${id(i)}`, coloraxis: "coloraxis", xgap: 1, ygap: 1, hoverinfo: "text", meta: { run: run.label, ...own },
      hovertext: rows.map((row, j) => row.map((point, k) => hover(selection, run, place(ys[j], xs[k]), point))),
    };
  });
  const layout = frame(panels, runs.map((run) => run.label), theme, across.axis, up.axis, height + 100, width);
  const shades = selection.known.shades.map((color, i, all) => [i / (all.length - 1), color]);
  const bar = { title: { text: wrapped(quantity.long_name + unit(quantity), 30), side: width < NARROW ? "top" : "right" }, thickness: 14, outlinewidth: 0 };
  Object.assign(bar, width < NARROW ? { orientation: "h", y: -80 / height, yanchor: "top" } : {});
  layout.coloraxis = { cmin: low, cmax: high, colorscale: signs ? [[0, "#2166ac"], [0.5, "#f7f7f7"], [1, "#b2182b"]] : shades, colorbar: bar };
  for (const [name, axis] of Object.entries(layout)) if (/^[xy]axis/.test(name)) axis.showgrid = false;
  return { data, layout, rows: told };
}

/** Queries and keys of a block, with the way of their means until this step; one scale at all steps. */
function plane(selection, theme, width) {
  const { quantity, runs, step, steps, chosen } = selection;
  const { panels, height } = grid(runs.length, width, width < NARROW ? 300 : runs.length > 3 ? 280 : 420);
  const layout = frame(panels, runs.map((run) => run.label), theme, { title: { text: "axis 1" } }, { title: { text: "axis 2" } }, height + 100, width);
  legend(layout, ["queries", "mean of the queries", "keys", "mean of the keys"], "", height, width);
  const [data, rows] = [[], []];
  const until = steps.filter((one) => one <= step).map((one) => planes(selection, one));
  const everywhere = steps.map((one) => planes(selection, one));
  runs.forEach((run, i) => {
    const axes = { xaxis: `x${id(i)}`, yaxis: `y${id(i)}` };
    const here = planes(selection, step)[i];
    here.kinds.forEach(({ kind, points, means }, k) => {
      const color = theme.dark ? ["#56B4E9", "#F0803C"][k] : ["#0072B2", "#D55E00"][k];
      const symbol = ["circle", "triangle-up"][k];
      const shared = { type: "scatter", ...axes, legendgroup: kind, hoverinfo: "text", meta: { run: run.label, kind } };
      const way = until.map((all) => all[i].kinds[k].means).filter((point) => point.every(Number.isFinite));
      const text = [plain(run.label), where({ block: chosen[0].chosen[0], step }), `mean of the ${kind}: ${means.map((x) => digits(x)).join(", ")}`, wrapped(quantity.formula), `<i>${wrapped(quantity.source)}</i>`].join("<br>");
      data.push(
        { ...shared, mode: "markers", x: points.map(([x]) => x), y: points.map(([, y]) => y), name: kind, showlegend: i === 0, marker: { color, symbol, size: 4, opacity: 0.45 }, hovertext: `${plain(run.label)}: ${kind}` },
        { ...shared, mode: "lines", x: way.map(([x]) => x), y: way.map(([, y]) => y), name: `way of their mean`, showlegend: false, hoverinfo: "skip", line: { color, width: 2 } },
        { ...shared, mode: "markers", x: [means[0]], y: [means[1]], name: `mean of the ${kind}`, showlegend: i === 0, marker: { color, symbol, size: 12, line: { color: theme.ink, width: 1.5 } }, hovertext: text },
      );
      means.forEach((value, axis) => rows.push({ run: run.label, place: `mean of the ${kind}, axis ${axis + 1}, ${said("step", step)}`, mean: value, low: NaN, high: NaN }));
    });
    const points = everywhere.flatMap((all) => all[i].kinds.flatMap((kind) => kind.points)).filter((point) => point.every(Number.isFinite));
    const [xs, ys] = [0, 1].map((axis) => ends([0, ...points.map((point) => point[axis])]));
    const half = 0.54 * Math.max(xs[1] - xs[0], ys[1] - ys[0]) || 1;
    for (const [name, [low, high]] of [[`xaxis${id(i)}`, xs], [`yaxis${id(i)}`, ys]]) {
      Object.assign(layout[name], { range: [(low + high) / 2 - half, (low + high) / 2 + half], zeroline: true, zerolinecolor: theme.muted });
    }
    Object.assign(layout[`yaxis${id(i)}`], { scaleanchor: `x${id(i)}`, constrain: "domain" });
    layout[`xaxis${id(i)}`].constrain = "domain";
  });
  return { data, layout, rows };
}

function figure(selection, theme, width) {
  const draw = selection.quantity.plane ? plane : selection.view.y ? heat : lines;
  const found = selection.runs.length ? draw(selection, theme, width) : { data: [], layout: frame([], [], theme, {}, {}, 300, width), rows: [] };
  return { ...found, ...titles(selection) };
}
