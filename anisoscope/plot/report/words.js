// What is drawn, in words: titles, numbers, what a point says under the mouse.

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

/** For an axis. */
function measure({ quantity, model }) {
  return `${model === "none" ? "" : "excess: "}${quantity.long_name}${unit(quantity)}`;
}

function where(own) {
  return Object.entries(own).map(([dim, label]) => said(dim, label)).join(", ");
}

function titles({ known, state, quantity, view, chosen, model, positions, placed, step, steps, runs }) {
  const single = chosen.filter(({ chosen, labels }) => chosen.length === 1 && labels.length > 1);
  const excess = model === "none" ? "" : `excess over ${known.nulls[model]}`;
  const parts = [excess, ...single.map(({ dim, chosen }) => said(dim, chosen[0]))];
  if (steps.length) parts.push(said("step", step));
  if (placed) parts.push(known.positions[positions] ?? positions);
  const axes = view.y ? `: ${view.y} × ${named(view.x)}` : quantity.plane ? "" : ` over ${MANY[view.x] ?? named(view.x)}`;
  const bands = new Set(state.bands && !view.y ? runs.map((run) => run.variables[quantity.name].band).filter(Boolean) : []);
  const name = quantity.long_name[0].toUpperCase() + quantity.long_name.slice(1);
  return { title: `${name}${axes}, ${parts.filter(Boolean).join(", ")}`, band: bands.size ? `band: ${[...bands].join(" or ")}` : "" };
}

function hover({ quantity }, run, place, point) {
  const ends = Number.isFinite(point.low) ? ` (${digits(point.low)} to ${digits(point.high)})` : "";
  const lines = [plain(run.label), plain(place), `<b>${digits(point.mean)}</b>${ends}${plain(unit(quantity))}`];
  if (quantity.formula) lines.push(wrapped(quantity.formula));
  if (quantity.noise) lines.push(`noise floor: ${plain(quantity.noise)}`);
  if (quantity.source) lines.push(`<i>${wrapped(quantity.source)}</i>`);
  return lines.filter(Boolean).join("<br>");
}
