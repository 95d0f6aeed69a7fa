// Where things lie: axes, panels, legends, and scales that hold at all steps.

const NARROW = 700; // pixels, as in page.css

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
    const words = dim === "layer" && embedded ? " (0 = embedding)" : "";
    if (lasts.size > 1) return { place: (run, label) => label / run.labels[dim].at(-1), axis: { title: { text: `relative depth${words}` } } };
    return { place: (_, label) => label, axis: ticked(`${dim}${words}`, thin(room), thin(room)) };
  }
  const places = new Map(labels.map((label, i) => [label, i]));
  const words = dim === "step" ? "training step (a column each)" : named(dim);
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
      text: `<b>${wrapped(name, ((panels[i].x[1] - panels[i].x[0]) * (width - 80)) / 8)}</b>`, align: "left", showarrow: false, xref: "paper", yref: "paper", xanchor: "left", yanchor: "bottom", x: panels[i].x[0], y: panels[i].y[1],
    })),
  };
  panels.forEach((panel, i) => {
    layout[`xaxis${id(i)}`] = { ...line, ...x, domain: panel.x, anchor: `y${id(i)}`, title: panel.lowest ? x.title : undefined };
    layout[`yaxis${id(i)}`] = { ...line, ...y, domain: panel.y, automargin: panel.left, anchor: `x${id(i)}`, title: panel.left ? y.title : undefined };
  });
  return layout;
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

let last = {};
/** What depends on all steps is computed once, while only the step changes. */
function atAllSteps(selection, compute) {
  const { quantity, view, runs, chosen, beside, positions, model, steps, state } = selection;
  const places = [runs.map((run) => run.label), chosen.map((one) => one.chosen), positions, model, beside];
  const key = JSON.stringify([quantity.name, view.key, ...places, state.bands, state.embedding]);
  if (last.key !== key) last = { key, found: (steps.length ? steps : [undefined]).map(compute) };
  return last.found;
}

function ends(values) {
  return values.reduce(([low, high], value) => [Math.min(low, value), Math.max(high, value)], [Infinity, -Infinity]);
}
