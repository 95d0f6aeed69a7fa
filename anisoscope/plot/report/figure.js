// Maps in colours, planes, and the choice between all that can be drawn: traces and layout for Plotly, numbers as rows.

/** Fields of numbers in one scale of colours, at all steps; where they have both signs, white is 0. */
function heat(selection, theme, width) {
  const { view, runs, step, steps } = selection;
  const [across, up] = [scale(view.x, runs, width < NARROW ? 7 : 12, true), scale(view.y, runs, 14, true)];
  const { panels, height } = grid(runs.length, width, width < NARROW ? 260 : runs.length > 3 ? 240 : 340);
  const all = atAllSteps(selection, (step) => maps(selection, step)).flat();
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
  const bar = { title: { text: wrapped(measure(selection), 30), side: width < NARROW ? "top" : "right" }, thickness: 14, outlinewidth: 0 };
  Object.assign(bar, width < NARROW ? { orientation: "h", y: -80 / height, yanchor: "top" } : {});
  layout.coloraxis = { cmin: low, cmax: high, colorscale: signs ? [[0, "#2166ac"], [0.5, "#f7f7f7"], [1, "#b2182b"]] : shades, colorbar: bar };
  for (const [name, axis] of Object.entries(layout)) if (/^[xy]axis/.test(name)) axis.showgrid = false;
  return { data, layout, rows: told };
}

/** Queries and keys of a block, with the way of their means until this step; one scale at all steps. */
function plane(selection, theme, width) {
  const { quantity, runs, step, steps, chosen } = selection;
  const { panels, height } = grid(runs.length, width, width < NARROW ? 300 : runs.length > 3 ? 280 : 420);
  const names = runs.map((run) => `${run.label}${shares(run, chosen[0].chosen[0], step)}`);
  const layout = frame(panels, names, theme, { title: { text: "axis 1" } }, { title: { text: "axis 2" } }, height + 100, width);
  legend(layout, ["queries", "mean of the queries", "keys", "mean of the keys"], "", height, width);
  const [data, rows] = [[], []];
  const everywhere = atAllSteps(selection, (one) => planes(selection, one));
  const until = everywhere.slice(0, steps.indexOf(step) + 1);
  runs.forEach((run, i) => {
    const axes = { xaxis: `x${id(i)}`, yaxis: `y${id(i)}` };
    const here = until.at(-1)[i];
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

/** Of the squared lengths of queries and keys: what each axis has over all steps, and both have at this one. */
function shares(run, block, step) {
  const share = (name, place) => (run.variables[name] ? number(run, name, { null: "none", statistic: "mean", block, ...place }) : NaN);
  const [one, two, both] = [share("projection_share", { axis: 1 }), share("projection_share", { axis: 2 }), share("projection_kept", { step })];
  const percent = (value) => (Number.isFinite(value) ? `${Math.round(100 * value)} %` : "–");
  return ` (axes ${percent(one)} and ${percent(two)}, at this step ${percent(both)})`;
}

function figure(selection, theme, width) {
  const draw = selection.quantity.plane ? plane : selection.view.y ? heat : lines;
  const found = selection.runs.length ? draw(selection, theme, width) : { data: [], layout: frame([], [], theme, {}, {}, 300, width), rows: [] };
  return { ...found, ...titles(selection) };
}
