// What is chosen, as numbers: which runs, which axes, which places, and the curves and maps that follow.

const DEPTHS = ["layer", "block"];
const MANY = { layer: "layers", block: "blocks", head: "heads", step: "training" };

function named(dim) {
  return dim.replaceAll("_", " ");
}

function said(dim, label) {
  if (dim === "step") return `step ${label.toLocaleString("en")}`;
  return `${named(dim)} ${label}${dim === "layer" && label === 0 && embedded ? " (embedding)" : ""}`;
}

/** A view has one axis `x`, or two; all other dimensions are chosen from. */
function views(quantity) {
  if (quantity.plane) return [{ key: "plane", words: "on two axes, step by step" }];
  const depth = quantity.dims.find((dim) => DEPTHS.includes(dim));
  const over = quantity.dims.map((x) => ({ key: `over ${x}`, x, words: `over ${MANY[x] ?? named(x)}` }));
  const others = depth ? quantity.dims.filter((dim) => dim !== depth) : [];
  const maps = others.map((x) => ({ key: `map ${x}`, x, y: depth, words: `heat map: ${depth} × ${named(x)}` }));
  return [...over, ...maps];
}

/** Labels that any of these runs has, in order. */
function union(runs, dim) {
  const labels = [...new Set(runs.flatMap((run) => run.labels[dim] ?? []))];
  return labels.every((label) => typeof label === "number") ? labels.sort((a, b) => a - b) : labels;
}

/**
 * The runs that are on and have the quantity. Seeds that are drawn together have nothing of single heads: their single
 * seeds stand in for them.
 */
function runsShown(known, state, quantity) {
  const has = (run) => run.variables[quantity.name] && (!quantity.plane || run.variables[quantity.plane[1]]);
  const lacking = known.runs.filter((run) => state.runs.has(run.label) && !has(run)).map((run) => run.group);
  const standIn = (run) => lacking.includes(run.group) && !known.runs.some((r) => r.group === run.group && r !== run && state.runs.has(r.label) && has(r));
  return known.runs.filter((run) => has(run) && (state.runs.has(run.label) || standIn(run)));
}

/** Dimensions to choose from, with their labels and those chosen: else of the first all, of any further one its first. */
function choices(state, quantity, view, runs) {
  const taken = quantity.plane ? ["step", "vector", "axis"] : ["step", view.x, view.y];
  const single = Boolean(quantity.plane || view.y);
  let whole = !single;
  return quantity.dims.filter((dim) => !taken.includes(dim)).map((dim) => {
    const labels = union(runs, dim);
    const picked = state.picks[dim]?.filter((label) => labels.includes(label));
    const usual = whole ? labels : labels.slice(0, 1);
    const none = !picked || (!picked.length && (single || state.picks[dim].length)); // none of these is here
    if (labels.length > 1) whole = false;
    return { dim, labels, chosen: none ? usual : single ? picked.slice(0, 1) : picked, single };
  });
}

/** Whether the step is chosen by the slider. */
function stepped(quantity, view) {
  return quantity.dims.includes("step") && view.x !== "step";
}

/** Labels on an axis: the embedding may be far from all blocks and flatten them. */
function along({ state }, run, dim) {
  return run.labels[dim].filter((label) => dim !== "layer" || label !== 0 || state.embedding);
}

/** All places that the choices allow. */
function product(chosen) {
  return chosen.reduce((places, { dim, chosen }) => places.flatMap((place) => chosen.map((label) => ({ ...place, [dim]: label }))), [{}]);
}

/** Curves over view.x, one for each run, choice and, where asked for, null model. */
function curves(selection, step) {
  const { runs, quantity, view, chosen, positions, model } = selection;
  const found = [];
  for (const run of runs) {
    for (const own of product(chosen)) {
      if (Object.entries(own).some(([dim, label]) => !run.places[dim].has(label))) continue;
      const at = (label) => ({ positions, null: model, step, ...own, [view.x]: label });
      const labels = along(selection, run, view.x);
      found.push({ run, own, model: "", labels, points: labels.map((label) => interval(run, quantity.name, at(label))) });
      for (const model of selection.beside) {
        const points = labels.map((label) => ({ mean: ofNull(run, quantity.name, at(label), model), low: NaN, high: NaN }));
        if (points.some((point) => Number.isFinite(point.mean))) found.push({ run, own, model, labels, points });
      }
    }
  }
  return found;
}

/** For each run a field of numbers over view.y and view.x. */
function maps(selection, step) {
  const { runs, quantity, view, chosen, positions, model } = selection;
  const own = product(chosen)[0];
  return runs.map((run) => {
    const [ys, xs] = [view.y, view.x].map((dim) => along(selection, run, dim));
    const at = (y, x) => ({ positions, null: model, step, ...own, [view.y]: y, [view.x]: x });
    return { run, own, xs, ys, rows: ys.map((y) => xs.map((x) => interval(run, quantity.name, at(y, x)))) };
  });
}

/** For each run its queries and keys at a step, and the means of either. */
function planes(selection, step) {
  const { runs, quantity, chosen } = selection;
  return runs.map((run) => {
    const kinds = quantity.plane.map((name) => {
      const points = run.labels.vector.map((vector) =>
        run.labels.axis.map((axis) => number(run, name, { null: "none", statistic: "mean", step, block: chosen[0].chosen[0], vector, axis })),
      );
      const means = [0, 1].map((axis) => mean(points.map((point) => point[axis]).filter(Number.isFinite)));
      return { kind: name.startsWith("query") ? "queries" : "keys", points, means };
    });
    return { run, kinds };
  });
}

function mean(values) {
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}

/** Everything that a figure is made from. What was chosen and is not there gives way to what is. */
function select(known, state) {
  const quantity = known.quantities.find((one) => one.name === state.quantity);
  const all = views(quantity);
  const view = all.find((one) => one.key === state.view) ?? all[0];
  const runs = runsShown(known, state, quantity);
  const chosen = choices(state, quantity, view, runs);
  const nulls = Object.keys(known.nulls).filter((model) => runs.some((run) => run.variables[quantity.name].nulls?.includes(model)));
  const model = nulls.includes(state.null) ? state.null : "none";
  const labels = union(known.runs, "positions");
  const positions = labels.includes(state.positions) ? state.positions : labels[0];
  const placed = runs.some((run) => run.variables[quantity.name].dims.includes("positions"));
  const beside = state.nulls && model === "none" && !view.y ? nulls : [];
  const steps = stepped(quantity, view) ? union(runs, "step") : [];
  const step = steps.filter((one) => one <= state.step).at(-1) ?? steps[0];
  return { known, state, quantity, view, runs, chosen, nulls, model, beside, positions, placed, steps, step };
}
