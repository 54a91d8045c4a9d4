"use strict";
// What is drawn is a function of the data and of the form: every change draws anew, the camera stays.
const data = JSON.parse(document.getElementById("data").textContent);
const form = document.getElementById("controls");
const plot = document.getElementById("plot");
const flat = data.surfaces.every(s => s.line);
const MAPS = {
  loss: [[0, "#440154"], [.13, "#482878"], [.25, "#3e4989"], [.38, "#31688e"], [.5, "#26828e"], [.63, "#1f9e89"],
    [.75, "#35b779"], [.88, "#6ece58"], [1, "#fde725"]],
  accuracy: [[0, "#00224e"], [.25, "#434e6c"], [.5, "#7d7c78"], [.75, "#bcae6c"], [1, "#fee838"]],
  lambda_max: [[0, "#000004"], [.25, "#51127c"], [.5, "#b73779"], [.75, "#fc8961"], [1, "#fcfdbf"]],
};
const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"];
const DASHES = ["solid", "dash", "dashdot", "dot", "longdash"];
const GRID = "#8C2D04";

const safe = text => String(text).replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");
// Titles of axes in space are short lines, or they run into each other and out of the picture.
const folded = text => text.length > 24 ? safe(text).replace(" (", "<br>(").replace(" of the ", " of the<br>") : safe(text);
const number = v => v === null ? "not finite" : String(Number(v.toPrecision(6)));

function choice(name, title, options, chosen) {
  const set = document.createElement("fieldset");
  set.innerHTML = `<legend>${safe(title)}</legend>`;
  for (const [value, text] of options) {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, {type: "radio", name, value, checked: value === chosen});
    label.append(input, " " + text);
    set.append(label);
  }
  form.append(set);
}

// Which of the data a plane shows: an index of data.splits.
const split = () => Number(value("split") || 0);

const value = name => form.elements[name] ? form.elements[name].value : null;

function controls() {
  if (!flat) choice("view", "view", [["relief", "relief"], ["map", "map"]], "relief");
  if (!flat && data.splits.length > 1) choice("split", "data", data.splits.map((split, k) => [String(k), split]), "0");
  if (data.quantities.length > 1) choice("quantity", "value", data.quantities.map(q => [q, data.words[q]]), "loss");
  if (data.log) choice("scale", "loss axis", [["linear", "linear"], ["log", "logarithmic"]], data.scale);
  if (!flat && data.surfaces.length > 1)
    data.surfaces.forEach((s, i) => choice("show" + i, s.label,
      [["solid", "solid"], ["grid", "grid"], ["off", "off"]], i === 0 ? "solid" : i === 1 ? "grid" : "off"));
  if (!flat) {
    const label = document.createElement("label"), input = document.createElement("input");
    Object.assign(input, {type: "range", name: "turn", min: 0, max: 360, step: 1, value: Math.round(degrees())});
    label.append("turn ", input);
    form.append(label);
    input.addEventListener("input", turn);
  }
  form.addEventListener("change", event => { if (event.target.name !== "turn") draw(); });
  form.addEventListener("submit", event => event.preventDefault());
}

// As a drag or the slider left it; the first view is from the front, a little to the side.
let camera = {eye: {x: 1.26, y: -1.8, z: 1.35}, center: {x: 0, y: 0, z: -.15}};
const degrees = () => (Math.atan2(camera.eye.y, camera.eye.x) * 180 / Math.PI + 360) % 360;

function turn() {
  const angle = value("turn") * Math.PI / 180, far = Math.hypot(camera.eye.x, camera.eye.y);
  camera = {...camera, eye: {x: far * Math.cos(angle), y: far * Math.sin(angle), z: camera.eye.z}};
  if (plot.layout.scene) Plotly.relayout(plot, {"scene.camera": camera});
}

// What is drawn of a value: within the scale, its decimal logarithm where that is asked for.
function height(v, quantity) {
  if (v === null) return null;
  if (quantity !== "loss" || value("scale") !== "log") return v;
  return Math.log10(Math.min(Math.max(v, data.log[0]), data.log[1]));
}

const heights = (s, quantity, k = split()) => s.values[k][quantity].map(row => row.map(v => height(v, quantity)));

// Between the points of the grid; null outside or beside a point without a value.
function at(s, z, x, y) {
  const cell = (along, v) => {
    if (v < along[0] || v > along[along.length - 1]) return null;
    let i = 0;
    while (i < along.length - 2 && v > along[i + 1]) i++;
    return [i, (v - along[i]) / (along[i + 1] - along[i])];
  };
  const column = cell(s.x, x), row = cell(s.y, y);
  if (!column || !row) return null;
  const [i, a] = column, [j, b] = row;
  const corners = [[(1 - a) * (1 - b), z[j][i]], [a * (1 - b), z[j][i + 1]], [(1 - a) * b, z[j + 1][i]], [a * b, z[j + 1][i + 1]]];
  return corners.some(([w, v]) => w > 0 && v === null) ? null : corners.reduce((sum, [w, v]) => sum + (w > 0 ? w * v : 0), 0);
}

function hover(s, j, i) {
  const lines = [`<b>${safe(s.label)}</b>`, `${safe(s.axes[0])}: ${number(s.x[i])}`];
  if (!s.line) lines.push(`${safe(s.axes[1])}: ${number(s.y[j])}`);
  else if (s.y.length > 1) lines.push(`line ${j + 1} of ${s.y.length}`);
  s.values.forEach((of, k) => {
    const error = name => of[name] ? ` ± ${number(of[name][j][i])}` : "", word = s.values.length > 1 ? data.splits[k] + " " : "";
    lines.push(`${word}loss: ${number(of.loss[j][i])}${error("loss_stderr")}`);
    if (of.accuracy) lines.push(`${word}accuracy: ${number(of.accuracy[j][i])} %${error("accuracy_stderr")}`);
  });
  if (s.values[0].lambda_max) lines.push(`λ_max: ${number(s.values[0].lambda_max[j][i])}`);
  lines.push(s.measured[j][i] ? "measured" : s.estimated ? `interpolated (estimated error of the loss ${safe(s.estimated)})` : "not measured");
  return lines.join("<br>");
}

const hovers = s => s.y.map((_, j) => s.x.map((_, i) => hover(s, j, i)));

// Ticks at 1, 2 and 5 of every decade, or at powers of ten where there are many.
function ticks(low, high) {
  const places = [], digits = high - low > 4 ? [1] : [1, 2, 5];
  for (let p = Math.floor(low); p <= high; p++)
    for (const d of digits) if (Math.log10(d) + p >= low && Math.log10(d) + p <= high) places.push(Math.log10(d) + p);
  if (places.length < 2) for (let k = 0; k <= 4; k++) places.push(low + (high - low) * k / 4);
  return {tickvals: places, ticktext: places.map(p => String(Number((10 ** p).toPrecision(3))))};
}

// One for all data, so that switching between them moves nothing but the surface.
function axis(quantity) {
  const log = quantity === "loss" && value("scale") === "log";
  const values = data.surfaces.flatMap(s => s.values.flatMap(of => of[quantity].flat())).filter(v => v !== null).map(v => height(v, quantity));
  const low = values.reduce((a, b) => Math.min(a, b), Infinity), high = values.reduce((a, b) => Math.max(a, b), -Infinity);
  const words = (flat ? data.common_labels : data.labels[split()])[quantity] + (log ? ", log scale" : "");
  return {words, title: safe(words), low, high, ticks: log ? ticks(low, high) : {}};
}

function models(s, z, scale, annotations) {
  const traces = [], above = .025 * (scale.high - scale.low);  // not half sunk into the surface
  const raised = points => points.map(([x, y]) => { const v = at(s, z, x, y); return v === null ? null : v + above; });
  if (s.trajectory) traces.push({type: "scatter3d", mode: "lines+markers", x: s.trajectory.map(p => p[0]),
    y: s.trajectory.map(p => p[1]), z: raised(s.trajectory), line: {color: "black", width: 5},
    marker: {size: 2.5, color: "white", line: {color: "black", width: 1}}, name: "trajectory", hovertemplate: "trajectory, model %{pointNumber}<extra></extra>"});
  const up = raised(s.marks.map(m => [m.x, m.y]));
  traces.push({type: "scatter3d", mode: "markers", x: s.marks.map(m => m.x), y: s.marks.map(m => m.y), z: up,
    text: s.marks.map(m => safe(m.label)), marker: {size: 6, color: "white", line: {color: "black", width: 2}},
    name: "models", hovertemplate: `%{text}<br>x %{x:.6g}, y %{y:.6g}<extra>${safe(s.label)}</extra>`});
  s.marks.forEach((m, k) => {
    if (m.label && s.marks.length > 1 && up[k] !== null) annotations.push({x: m.x, y: m.y, z: up[k], text: safe(m.label), ax: 25, ay: -30,
      bgcolor: "rgba(255,255,255,.8)", arrowhead: 0, arrowwidth: 1, standoff: 4});
  });
  return traces;
}

function proportions() {
  const span = along => Math.max(...along) - Math.min(...along);
  const [x, y] = ["x", "y"].map(name => span(data.surfaces.flatMap(s => s[name]))), longest = Math.max(x, y);
  return data.to_scale ? {x: 1.2 * x / longest, y: 1.2 * y / longest, z: .8} : {x: 1.2, y: 1.2, z: .8};
}

function relief(quantity, scale) {
  const bar = {title: {text: scale.title, side: "right"}, len: .8, ...scale.ticks}, traces = [], annotations = [];
  data.surfaces.forEach((s, i) => {
    const shown = data.surfaces.length > 1 ? value("show" + i) : "solid";
    if (shown === "off") return;
    const z = heights(s, quantity);
    if (shown === "solid")
      traces.push({type: "surface", x: s.x, y: s.y, z, text: hovers(s), hoverinfo: "text", name: s.label, colorscale: MAPS[quantity],
        cmin: scale.low, cmax: scale.high, colorbar: bar, showscale: !traces.some(t => t.type === "surface"),
        lighting: {ambient: .75, diffuse: .45, specular: .05}});
    else {
      const x = [], y = [], up = [], text = [], h = hovers(s);
      const step = n => Math.max(1, Math.floor((n - 1) / 25));
      const point = (j, i) => { x.push(s.x[i]); y.push(s.y[j]); up.push(z[j][i]); text.push(h[j][i]); };
      const gap = () => { x.push(null); y.push(null); up.push(null); text.push(""); };
      for (let j = 0; j < s.y.length; j += step(s.y.length)) { s.x.forEach((_, i) => point(j, i)); gap(); }
      for (let i = 0; i < s.x.length; i += step(s.x.length)) { s.y.forEach((_, j) => point(j, i)); gap(); }
      traces.push({type: "scatter3d", mode: "lines", x, y, z: up, text, hoverinfo: "text", name: s.label,
        line: {color: GRID, width: 2}});
    }
    traces.push(...models(s, z, scale, annotations));
  });
  const titled = words => ({title: {text: folded(words), font: {size: 12}}, zeroline: false});
  const [across, up] = data.surfaces[0].axes;
  return [traces, {scene: {xaxis: titled(across), yaxis: titled(up), zaxis: {...titled(scale.words), range: [scale.low, scale.high], ...scale.ticks},
    aspectmode: "manual", aspectratio: proportions(), camera,
    annotations, uirevision: "camera"}}];
}

function map(quantity, scale) {
  const shown = data.surfaces.filter((s, i) => data.surfaces.length < 2 || value("show" + i) !== "off");
  const traces = [], layout = {annotations: []};
  shown.forEach((s, k) => {
    const n = k ? String(k + 1) : "", width = .92 / shown.length;
    const place = {xaxis: "x" + n, yaxis: "y" + n};
    traces.push({type: "heatmap", x: s.x, y: s.y, z: heights(s, quantity), text: hovers(s), hoverinfo: "text", ...place,
      colorscale: MAPS[quantity], zmin: scale.low, zmax: scale.high, name: s.label, showscale: k === 0,
      colorbar: {title: {text: scale.title, side: "right"}, ...scale.ticks}});
    const dots = {type: "scatter", hoverinfo: "skip", showlegend: false, ...place};
    if (s.estimated) {
      const measured = s.y.flatMap((y, j) => s.x.filter((_, i) => s.measured[j][i]).map(x => [x, y]));
      traces.push({...dots, mode: "markers", x: measured.map(p => p[0]), y: measured.map(p => p[1]),
        marker: {color: "white", size: 3.5, line: {color: "black", width: .7}}, name: "measured"});
    }
    if (s.trajectory) for (const [color, width] of [["black", 5], ["white", 2.5]])  // seen on every colour
      traces.push({...dots, mode: "lines+markers", x: s.trajectory.map(p => p[0]), y: s.trajectory.map(p => p[1]),
        line: {color, width}, marker: {color: "black", size: 4}, name: "trajectory"});
    traces.push({...dots, mode: s.marks.length > 1 ? "markers+text" : "markers", x: s.marks.map(m => m.x), y: s.marks.map(m => m.y),
      text: s.marks.map(m => safe(m.label)), textposition: "top center", textfont: {color: "black", shadow: "0 0 3px white, 0 0 3px white, 0 0 3px white"},
      marker: {size: 9, color: "white", line: {color: "black", width: 2}}, name: "models"});
    layout["xaxis" + n] = {title: {text: safe(s.axes[0])}, domain: [k / shown.length, k / shown.length + width], anchor: "y" + n};
    layout["yaxis" + n] = {title: {text: k ? "" : safe(s.axes[1])}, showticklabels: k === 0, anchor: "x" + n,
      ...(data.to_scale ? {scaleanchor: "x" + n, constrain: "domain"} : {})};
    layout["xaxis" + n].constrain = "domain";
    layout["xaxis" + n].zeroline = layout["yaxis" + n].zeroline = false;
    if (shown.length > 1) layout.annotations.push({text: safe(s.label), x: k / shown.length + width / 2, y: 1.02, xref: "paper",
      yref: "paper", showarrow: false, yanchor: "bottom"});
  });
  return [traces, layout];
}

function lines(quantity, scale) {
  const traces = [], shapes = [], annotations = [];
  const both = data.splits.length > 1;
  data.surfaces.forEach((s, i) => data.splits.forEach((word, k) => (quantity === "lambda_max" && k ? [] : heights(s, quantity, k)).forEach((z, j) => traces.push({
    type: "scatter", mode: "lines+markers", x: s.x, y: z, text: hovers(s)[j], hoverinfo: "text", legendgroup: i + word,
    name: safe(s.label) + (both ? ", " + word : ""), showlegend: j === 0,
    line: {color: COLOURS[i % 7], dash: both ? ["solid", "dash"][k] : DASHES[i % 5]},
    marker: {size: 5, symbol: s.measured[j].map(m => m ? i % 5 : (i % 5) + 100)}}))));
  const marks = data.surfaces.flatMap(s => s.marks).filter((m, k, all) => m.label && all.findIndex(o => o.x === m.x && o.label === m.label) === k);
  for (const mark of marks) {
    shapes.push({type: "line", x0: mark.x, x1: mark.x, y0: 0, y1: 1, yref: "paper", line: {color: "#666", dash: "dot", width: 1}});
    annotations.push({text: safe(mark.label), x: mark.x, y: 1, yref: "paper", yanchor: "bottom", showarrow: false});
  }
  return [traces, {shapes, annotations, showlegend: both || data.surfaces.length > 1, xaxis: {title: {text: safe(data.surfaces[0].axes[0])}, zeroline: false},
    yaxis: {title: {text: scale.title}, zeroline: false, ...scale.ticks}}];
}

function draw() {
  if (form.elements.turn) form.elements.turn.parentElement.hidden = value("view") === "map";
  const quantity = value("quantity") || "loss", scale = axis(quantity);
  const [traces, layout] = (flat ? lines : value("view") === "map" ? map : relief)(quantity, scale);
  Object.assign(layout, {margin: {l: 60, r: 20, t: 50, b: 50}, hovermode: "closest", showlegend: layout.showlegend || false,
    font: {family: "system-ui, sans-serif"}, uirevision: "page"});
  return Plotly.react(plot, traces, layout, {responsive: true, displaylogo: false, plotlyServerURL: "",
    modeBarButtonsToRemove: ["sendChartToCloud", "sendDataToCloud"]});
}

controls();
draw();
// A drag turns the slider too, so that the next touch of it does not jump.
plot.on("plotly_relayout", change => {
  if (!change["scene.camera"]) return;
  camera = change["scene.camera"];
  form.elements.turn.value = Math.round(degrees());
});
