// What is chosen, on the screen and in the page's address.

const $ = (name) => document.getElementById(name);
const PAUSE = 700; // milliseconds a step stays while playing
const ON_PAPER = { paper: "#ffffff", ink: "#1b1b1b", muted: "#777777", grid: "#e8e8e8", dark: false, touch: false, font: "sans-serif" };
const state = { quantity: "", view: "", positions: "all", null: "none", bands: true, nulls: false, embedding: true, step: Infinity, runs: new Set(), picks: {} };
let known, selection, playing;

function theme() {
  const style = getComputedStyle(document.documentElement);
  const [paper, ink, muted, grid] = ["--paper", "--ink", "--muted", "--grid"].map((name) => style.getPropertyValue(name).trim());
  const touch = matchMedia("(pointer: coarse)").matches;
  return { paper, ink, muted, grid, touch, dark: matchMedia("(prefers-color-scheme: dark)").matches, font: "system-ui, sans-serif" };
}

function render() {
  selection = select(known, state);
  fillControls();
  const { data, layout, rows, title, band } = figure(selection, theme(), $("plot").clientWidth);
  Plotly.react($("plot"), data, layout, { displayModeBar: false, doubleClick: "reset" });
  $("title").textContent = title;
  $("plot").setAttribute("aria-label", `${title}; the numbers stand below`);
  fillNotes([band, ...notes()].filter(Boolean));
  describe();
  fillTable(rows, title);
}

function change(how) {
  how();
  render();
  keepAddress();
}

function keepAddress() {
  const { quantity, view, positions, model, step, steps } = selection;
  const words = new URLSearchParams({ quantity: quantity.name, view: view.key, positions, null: model, bands: Number(state.bands), nulls: Number(state.nulls), embedding: Number(state.embedding) });
  if (steps.length) words.set("step", step);
  for (const run of state.runs) words.append("run", run);
  for (const [dim, labels] of Object.entries(state.picks)) words.set(`pick_${dim}`, JSON.stringify(labels));
  try {
    history.replaceState(null, "", `#${words}`);
  } catch {
    // shown inside a frame that has no address of its own
  }
}

function readAddress() {
  const words = new URLSearchParams(location.hash.slice(1));
  for (const name of ["quantity", "view", "positions", "null"]) if (words.has(name)) state[name] = words.get(name);
  for (const name of ["bands", "nulls", "embedding"]) if (words.has(name)) state[name] = words.get(name) === "1";
  if (words.has("step")) state.step = Number(words.get("step"));
  if (words.has("run")) state.runs = new Set(words.getAll("run"));
  for (const [name, value] of words) {
    if (!name.startsWith("pick_")) continue;
    try {
      state.picks[name.slice(5)] = JSON.parse(value);
    } catch {
      // an address that was cut off
    }
  }
  if (!known.quantities.some((quantity) => quantity.name === state.quantity)) {
    state.quantity = (known.quantities.find((quantity) => quantity.name === "anisotropy") ?? known.quantities[0]).name;
  }
}

function play() {
  const going = playing !== undefined;
  clearInterval(playing);
  playing = undefined;
  if (!going) {
    const next = () => {
      const place = selection.steps.indexOf(selection.step) + 1;
      if (place >= selection.steps.length) return play();
      change(() => (state.step = selection.steps[place]));
    };
    if (selection.step === selection.steps.at(-1)) change(() => (state.step = selection.steps[0]));
    playing = setInterval(next, PAUSE);
  }
  $("play").textContent = going ? "Play" : "Pause";
}

/** What is shown, on white, between its title and its origin. */
async function svg() {
  const { data, layout, title, band } = figure(selection, ON_PAPER, 900);
  const address = await Plotly.toImage({ data, layout }, { format: "svg", width: layout.width, height: layout.height });
  const plot = new DOMParser().parseFromString(decodeURIComponent(address.slice(address.indexOf(",") + 1)), "image/svg+xml").documentElement;
  const head = [...broken(title, 95), ...broken(band, 95)];
  const foot = known.origin.flatMap((line) => broken(line, 150));
  const [above, below] = [20 + 20 * head.length, 16 + 13 * foot.length];
  const height = layout.height + above + below;
  const whole = drawn("svg", { width: layout.width, height, viewBox: `0 0 ${layout.width} ${height}`, "font-family": ON_PAPER.font });
  whole.append(drawn("rect", { width: "100%", height: "100%", fill: ON_PAPER.paper }));
  head.forEach((line, i) => whole.append(drawn("text", { x: 12, y: 24 + 20 * i, "font-size": 15, fill: ON_PAPER.ink }, line)));
  foot.forEach((line, i) => whole.append(drawn("text", { x: 12, y: above + layout.height + 14 + 13 * i, "font-size": 10, fill: ON_PAPER.muted }, line)));
  plot.setAttribute("y", above);
  whole.append(plot);
  return new XMLSerializer().serializeToString(whole);
}

function drawn(tag, attributes, text = "") {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.textContent = text;
  return made;
}

async function save() {
  const { quantity, view, steps, step } = selection;
  const parts = [known.title, quantity.name, view.key, steps.length ? `step_${step}` : ""];
  const address = URL.createObjectURL(new Blob([await svg()], { type: "image/svg+xml" }));
  element("a", "", { href: address, download: `${parts.filter(Boolean).join("_").replaceAll(/[^\w.-]+/g, "_")}.svg` }).click();
  setTimeout(() => URL.revokeObjectURL(address), 1000);
}

function listen() {
  for (const name of ["quantity", "view", "positions", "null"]) $(name).addEventListener("change", () => change(() => (state[name] = $(name).value)));
  for (const name of ["bands", "nulls", "embedding"]) $(name).addEventListener("change", () => change(() => (state[name] = $(name).checked)));
  $("step").addEventListener("input", () => change(() => (state.step = selection.steps[$("step").value])));
  $("play").addEventListener("click", play);
  $("save").addEventListener("click", save);
  $("numbers").addEventListener("toggle", render);
  $("controls").addEventListener("submit", (event) => event.preventDefault());
  addEventListener("hashchange", () => (readAddress(), render()));
  addEventListener("resize", () => $("plot").clientWidth !== $("plot").layout.width && render()); // not by a phone's bars
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", render);
}

async function start() {
  if (typeof DecompressionStream === "undefined") {
    throw Error("this browser is too old; Chrome 110, Firefox 115 or Safari 16.4 will do");
  }
  [known] = await Promise.all([load(), library()]);
  state.runs = new Set(known.runs.filter((run) => run.on).map((run) => run.label));
  readAddress();
  fillQuantities();
  listen();
  render();
  document.body.dataset.ready = "yes";
}

start().catch((error) => {
  $("notes").textContent = `The page cannot be drawn: ${error.message}`;
  throw error;
});
