// The controls: made from what is known, set to what is chosen.

function element(tag, text = "", attributes = {}) {
  const made = document.createElement(tag);
  made.textContent = text;
  return Object.assign(made, attributes);
}

function option(value, words, chosen) {
  return element("option", words, { value, selected: value === chosen });
}

/** A box to tick, with its label. */
function box(words, checked, change) {
  const [label, input] = [element("label", "", { className: "check" }), element("input", "", { type: "checkbox", checked })];
  input.addEventListener("change", () => change(input.checked));
  label.append(input, ` ${words}`);
  return label;
}

function button(words, click) {
  const made = element("button", words, { type: "button" });
  made.addEventListener("click", click);
  return made;
}

function fillQuantities() {
  const groups = new Map();
  for (const quantity of known.quantities) {
    if (!groups.has(quantity.family)) groups.set(quantity.family, element("optgroup", "", { label: quantity.family }));
    groups.get(quantity.family).append(option(quantity.name, quantity.long_name, state.quantity));
  }
  $("quantity").replaceChildren(...groups.values());
}

/** The controls that depend on what is chosen in others. */
function fillControls() {
  const { quantity, view, nulls, model, positions, steps, step } = selection;
  $("quantity").value = quantity.name;
  $("view").replaceChildren(...views(quantity).map(({ key, words }) => option(key, words, view.key)));
  $("positions").replaceChildren(...union(known.runs, "positions").map((label) => option(label, known.positions[label] ?? label, positions)));
  const excess = nulls.map((null_) => option(null_, `excess over: ${known.nulls[null_] ?? null_}`, model));
  $("null").replaceChildren(option("none", "none: as measured", model), ...excess);
  $("bands").checked = state.bands;
  $("nulls").checked = state.nulls;
  $("nulls").disabled = !nulls.length || model !== "none" || Boolean(view.y);
  $("embedding").checked = state.embedding;
  $("embedding").disabled = !embedded || ![view.x, view.y].includes("layer");
  $("bands").disabled = Boolean(view.y || quantity.plane);
  $("positions").disabled = !selection.placed;
  $("null").disabled = !nulls.length;
  $("stepping").hidden = steps.length < 2;
  $("step").max = Math.max(steps.length - 1, 0);
  $("step").value = steps.indexOf(step);
  $("step").setAttribute("aria-valuetext", steps.length ? said("step", step) : "");
  $("step_said").textContent = steps.length ? step.toLocaleString("en") : "";
  fillRuns();
  fillPicks();
}

/** Boxes are made anew only where there are others: the one in use keeps the focus. */
function kept(place, key, make) {
  if (place.dataset.key === key) return;
  place.dataset.key = key;
  place.replaceChildren(...make());
}

function fillRuns() {
  const { quantity, runs } = selection;
  const turned = (run) => (on) => change(() => state.runs[on ? "add" : "delete"](run.label));
  kept($("runs"), "once", () => [element("legend", "Runs"), ...known.runs.map((run) => box(run.label, false, turned(run)))]);
  [...$("runs").querySelectorAll("label")].forEach((label, i) => {
    const run = known.runs[i];
    label.querySelector("input").checked = state.runs.has(run.label);
    label.classList.toggle("seed", !run.on);
    label.dataset.lacking = run.variables[quantity.name] ? "" : run.label === run.group ? " (not measured)" : " (not averaged)";
    label.classList.toggle("off", !runs.includes(run));
    label.style.setProperty("--run", theme().dark ? run.ink_on_dark : run.ink);
  });
}

function fillPicks() {
  const shown = selection.chosen.filter(({ labels }) => labels.length > 1);
  kept($("picks"), JSON.stringify(shown.map(({ dim, labels, single }) => [dim, labels, single])), () => shown.map(picker));
  for (const { dim, labels, chosen, single } of shown) {
    const inputs = $("picks").querySelectorAll(`[data-dim="${dim}"]`);
    if (single) inputs[0].value = labels.indexOf(chosen[0]);
    else inputs.forEach((input, i) => (input.checked = chosen.includes(labels[i])));
  }
}

/** Of a dimension one label, or any of them. */
function picker({ dim, labels, single }) {
  const words = labels.map((label) => (dim === "layer" && label === 0 && embedded ? "0 (embedding)" : String(label)));
  if (single) {
    const select = element("select", "", { id: `pick_${dim}` });
    select.dataset.dim = dim;
    select.append(...words.map((said, i) => option(i, said)));
    select.addEventListener("change", () => change(() => (state.picks[dim] = [labels[select.value]])));
    const row = element("div", "", { className: "row" });
    row.append(element("label", MANY[dim] ? dim : named(dim), { htmlFor: select.id }), select);
    return row;
  }
  const now = () => selection.chosen.find((one) => one.dim === dim).chosen;
  const boxes = labels.map((label, i) => {
    const turned = (on) => change(() => (state.picks[dim] = labels.filter((one) => (one === label ? on : now().includes(one)))));
    const made = box(words[i], false, turned);
    made.querySelector("input").dataset.dim = dim;
    return made;
  });
  const set = element("fieldset", "", { className: "labels" });
  const whole = (words, chosen) => button(words, () => change(() => (state.picks[dim] = chosen)));
  set.append(element("legend", MANY[dim] ?? named(dim)), ...boxes, whole("All", labels), whole("None", []));
  return set;
}

function notes() {
  const { quantity, runs, steps, step } = selection;
  const found = quantity.plane ? ["Shares of the squared lengths: of each axis over all steps, of both axes at this step. Lines: the way of the means."] : [];
  const away = runs.filter((run) => steps.length && !run.places.step.has(step)).map((run) => run.label);
  if (away.length) found.push(`No checkpoint of step ${step.toLocaleString("en")}: ${away.join(", ")}.`);
  const lacking = known.runs.filter((run) => state.runs.has(run.label) && !run.variables[quantity.name]);
  for (const run of lacking) {
    const seeds = runs.filter((one) => one.group === run.group).map((one) => one.label);
    found.push(seeds.length ? `${run.label}: not averaged for single heads; shown are ${seeds.join(", ")}.` : `Not measured: ${run.label}.`);
  }
  if (!runs.length && !lacking.length) found.push("No run is switched on.");
  return found;
}

/** Only where they are others: they are read aloud. */
function fillNotes(texts) {
  kept($("notes"), JSON.stringify(texts), () => texts.map((text) => element("span", text)));
}

function describe() {
  const { quantity } = selection;
  const facts = { Quantity: quantity.long_name, Formula: quantity.formula, Source: quantity.source, "Noise floor": quantity.noise, [`In ${quantity.file}`]: (quantity.plane ?? [quantity.name]).join(", ") };
  const pairs = Object.entries(facts).filter(([, text]) => text);
  $("about").replaceChildren(...pairs.flatMap(([name, text]) => [element("dt", name), element("dd", text)]));
}

/** Every number that is drawn, for those who cannot see the plot or want to copy it. */
const ROWS = 2000;
function fillTable(rows, title) {
  const table = $("numbers").querySelector("table");
  if (!$("numbers").open) return;
  const head = element("tr");
  head.append(...["run", "place", "value", "low", "high"].map((name) => element("th", name, { scope: "col" })));
  table.tHead.replaceChildren(head);
  table.caption.textContent = rows.length > ROWS ? `${title}: the first ${ROWS} of ${rows.length} numbers; results.csv has all` : title;
  table.tBodies[0].replaceChildren(
    ...rows.slice(0, ROWS).map(({ run, place, mean, low, high }) => {
      const row = element("tr");
      row.append(...[run, place, digits(mean, 6), digits(low, 6), digits(high, 6)].map((text) => element("td", text)));
      return row;
    }),
  );
}
