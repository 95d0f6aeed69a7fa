// Curves with their bands.

const DASHES = ["solid", "dash", "dot", "dashdot", "longdash", "longdashdot"];
const NULL_DASHES = { gaussian: "dot", shuffled: "dash", untrained: "dashdot" };

/** One scale at all steps. Intervals that reach far would flatten the curves: they are cut off at the edge. */
function reach(selection) {
  const all = atAllSteps(selection, (step) => curves(selection, step)).flat();
  const points = all.flatMap((curve) => curve.points).filter((point) => Number.isFinite(point.mean));
  if (!points.length) return undefined;
  const [low, high] = ends(points.map((point) => point.mean));
  const room = high - low || Math.abs(high) || 1;
  const bands = selection.state.bands ? points.flatMap((point) => [point.low, point.high]).filter(Number.isFinite) : [];
  const [least, most] = ends([low, high, ...bands]);
  return [Math.max(least, low - 0.6 * room) - 0.05 * room, Math.min(most, high + 0.6 * room) + 0.05 * room];
}

/**
 * How curves are told apart: by run; where several labels are chosen, by those, with a panel for each run. A legend has
 * colours first, then what dashes mean: the labels of a second dimension, and null models.
 */
function looks({ chosen, known, beside }, theme) {
  const [by, second] = chosen.filter((one) => one.chosen.length > 1);
  const dashes = new Map(second ? second.chosen.map((label, i) => [said(second.dim, label), DASHES[i % DASHES.length]]) : []);
  for (const model of beside) dashes.set(known.nulls[model], NULL_DASHES[model] ?? "dot");
  return {
    by: by?.dim,
    dashes,
    of({ run, own, model }) {
      const place = by ? by.labels.indexOf(own[by.dim]) / Math.max(by.labels.length - 1, 1) : 0;
      const shade = known.shades[Math.round((theme.dark ? 0.2 + 0.8 * place : place) * (known.shades.length - 1))];
      const color = by ? shade : theme.dark ? run.ink_on_dark : run.ink;
      const dash = model ? dashes.get(known.nulls[model]) : second ? dashes.get(said(second.dim, own[second.dim])) : "solid";
      return { color, dash, name: by ? String(own[by.dim]) : run.label, symbol: by ? "circle" : run.symbol };
    },
  };
}

function lines(selection, theme, width) {
  const { known, view, runs, step, steps, state } = selection;
  const look = looks(selection, theme);
  const axis = scale(view.x, runs);
  const count = look.by ? runs.length : 1;
  const tall = width < NARROW ? 280 : count > 3 ? 260 : 380;
  const { panels, height } = grid(count, width, tall);
  const [traces, bands, rows, told] = [[], [], [], new Set()];
  for (const curve of curves(selection, step)) {
    const { run, own, model, labels, points } = curve;
    const { color, dash, name, symbol } = look.of(curve);
    const axes = look.by ? id(runs.indexOf(run)) : "";
    const x = labels.map((label) => axis.place(run, label));
    const places = labels.map((label) => where({ ...own, [view.x]: label, ...(steps.length ? { step } : {}) }) + (model ? `, ${known.nulls[model]}` : ""));
    const trace = {
      type: "scatter", mode: "lines+markers", x, y: points.map((point) => point.mean), xaxis: `x${axes}`, yaxis: `y${axes}`,
      name: plain(name), legendgroup: name, showlegend: !model && !told.has(name), hoverinfo: "text", meta: { run: run.label, ...own, model },
      hovertext: points.map((point, i) => hover(selection, run, places[i], point)),
      line: { color, dash, width: model ? 1.2 : 2 }, marker: { color, symbol, size: model ? 4 : 7 },
    };
    if (!model) told.add(name);
    if (state.bands && !model) bands.push(...band(x, points, trace));
    traces.push(trace);
    points.forEach((point, i) => rows.push({ run: run.label, place: places[i], ...point }));
  }
  for (const [name, dash] of look.dashes) {
    traces.push({ type: "scatter", mode: "lines", x: [null], y: [null], name: plain(name), hoverinfo: "skip", meta: {}, line: { color: theme.muted, dash, width: 1.6 } });
  }
  const words = broken(measure(selection), tall / 7.6);
  const y = { title: { text: words.map(plain).join("<br>"), standoff: 8 + 18 * (words.length - 1) }, range: reach(selection), zeroline: selection.model !== "none", zerolinecolor: theme.muted };
  const layout = frame(panels, look.by ? runs.map((run) => run.label) : [], theme, axis.axis, y, height + 100, width);
  const names = [...told, ...look.dashes.keys()];
  legend(layout, names, look.by, height, width);
  return { data: [...bands, ...traces], layout, rows };
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
