"use strict";
// What is embedded, unpacked once; after that numbers are read by their labels.

let embedded = true; // whether layer 0 is an embedding: vectors of a file have none

/** The bytes of a <script> element that holds base64 of gzip. */
async function unpack(id) {
  const text = atob(document.getElementById(id).textContent);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("gzip"));
  return new Response(stream).arrayBuffer();
}

/** All words and layouts; each run with its numbers. */
async function load() {
  const known = JSON.parse(document.getElementById("known").textContent);
  embedded = known.embedded;
  await Promise.all(known.runs.map(async (run, number) => give(run, await unpack(`numbers-${number}`))));
  return known;
}

function give(run, buffer) {
  run.places = {};
  for (const [dim, labels] of Object.entries(run.labels)) {
    run.places[dim] = new Map(labels.map((label, place) => [label, place]));
  }
  for (const variable of Object.values(run.variables)) {
    variable.strides = [];
    let size = 1;
    for (const dim of [...variable.dims].reverse()) {
      variable.strides.unshift(size);
      size *= run.labels[dim].length;
    }
    const numbers = (offset) => new Float32Array(buffer, offset, size);
    variable.values = numbers(variable.offset);
    variable.excess = new Map((variable.nulls ?? []).map((model, i) => [model, numbers(variable.excess + 4 * size * i)]));
  }
}

/** The drawing library, which is embedded too. */
async function library() {
  const script = document.createElement("script");
  script.textContent = new TextDecoder().decode(await unpack("library"));
  document.head.append(script);
}

/** One number, at a label of each dimension, of a value or of its excess; NaN where the run has none. */
function number(run, name, place) {
  const variable = run.variables[name];
  const values = place.null === "none" ? variable.values : variable.excess.get(place.null);
  if (!values || (!variable.dims.includes("statistic") && place.statistic !== "mean")) return NaN;
  let index = 0;
  for (let i = 0; i < variable.dims.length; i++) {
    const here = run.places[variable.dims[i]].get(place[variable.dims[i]]);
    if (here === undefined) return NaN;
    index += here * variable.strides[i];
  }
  return values[index];
}

/** A mean and the ends of its interval. */
function interval(run, name, place) {
  const [mean, low, high] = ["mean", "low", "high"].map((statistic) => number(run, name, { ...place, statistic }));
  return { mean, low, high };
}

/** What the null model itself has: the value minus its excess. */
function ofNull(run, name, place, model) {
  const [own, excess] = ["none", model].map((taken) => number(run, name, { ...place, statistic: "mean", null: taken }));
  return own - excess;
}
