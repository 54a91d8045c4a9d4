// Training curves, eigenvalues, densities.
let curve = null;
const CURVES = [["test_accuracy", "test accuracy"], ["test_loss", "test loss"], ["train_loss", "training loss"]];
const variable = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
const OPTIONS = { responsive: true, displaylogo: false, modeBarButtonsToRemove: ["lasso2d", "select2d"] };
const narrow = () => window.innerWidth < 640;
const visible = () => page.subjects.filter((_, i) => shown.has(i));

function axis(title, more = {}) {
  return { title: { text: title }, gridcolor: variable("--grid"), zerolinecolor: variable("--rule"), automargin: true, ...more };
}

let paper = false; // whether it is drawn for a printer
const FEW_GROUPS = 8;
// Names above the picture; of many groups beside it, where they take no height from it, and none where there is no room.
function legend() {
  if (new Set(visible().map((s) => s.group)).size <= FEW_GROUPS) return { legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 } };
  return narrow() && !paper ? { showlegend: false } : { legend: { font: { size: 11 } } };
}

const PAPER = { chart: 700, relief: 340, square: 480 };

function layout(more = {}, size = "chart") {
  return {
    ...(paper ? { width: PAPER[size] } : { autosize: true }),
    paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    font: { color: variable("--ink"), family: "system-ui, sans-serif", size: 13 },
    margin: { l: 60, r: 15, t: 15, b: 50 },
    ...legend(),
    hoverlabel: { namelength: -1 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: variable("--soft"), activecolor: variable("--ink") },
    ...more,
  };
}

// A title with subscripts below the line; a long one in two lines.
function folded(text, most = narrow() ? 34 : Infinity) {
  const middle = text.length > most ? text.indexOf(" ", text.length / 2) : -1;
  const lines = middle < 0 ? [text] : [text.slice(0, middle), text.slice(middle + 1)];
  return lines.map((line) => plain(line).replaceAll(SUBSCRIPT, "$1<sub>$2</sub>")).join("<br>");
}

// Black does not show on a dark page.
const inked = (subject) => (colour(subject) === "#000000" ? variable("--ink") : colour(subject));

// As a legend names a group: on a narrow screen, which would cut it, with what tells it from the others.
function groupName(group) {
  const { label } = page.groups[group];
  return plain(narrow() && !paper ? shortened([...new Set(page.groups.map((g) => g.label))], 34).get(label) : label);
}

// The legend names each group once.
function named(subjects) {
  const seen = new Set();
  return subjects.map((s) => {
    const first = !seen.has(s.group);
    seen.add(s.group);
    return { name: groupName(s.group), legendgroup: String(s.group), showlegend: first };
  });
}

// Round numbers between two powers of ten, by their logarithms.
function logTicks([low, high]) {
  const all = [];
  for (let p = Math.floor(low); p <= Math.ceil(high); p += 1) for (const d of [1, 2, 5]) all.push(d * 10 ** p);
  let values = all.filter((v) => Math.log10(v) >= low - 0.1 && Math.log10(v) <= high + 0.1);
  const inside = () => values.filter((v) => Math.log10(v) >= low && Math.log10(v) <= high).length;
  if (inside() < 4) {
    const fine = [-1, 0].flatMap((p) => [1, 2, 3, 4, 5, 6, 7, 8, 9].map((d) => d * 10 ** (Math.floor(high) + p))).filter((v) => Math.log10(v) >= low - 0.03 && Math.log10(v) <= high + 0.03);
    if (fine.length <= 8) values = fine;
  }
  if (inside() < 3 && high > low) { // less than an octave or so: equal steps
    const rough = (10 ** high - 10 ** low) / 4, power = 10 ** Math.floor(Math.log10(rough));
    const step = power * [1, 2, 5, 10].find((n) => n * power >= rough), first = Math.ceil(10 ** low / step);
    values = Array.from({ length: Math.floor(10 ** high / step) - first + 1 }, (_, i) => (first + i) * step);
  }
  if (values.length > 8) values = values.filter((v) => Number.isInteger(Number(Math.log10(v).toFixed(9))));
  if (narrow() && values.length > 5) values = values.filter((v) => [1, 2, 3, 5, 7].includes(Number(v.toExponential().split("e")[0])));
  return { tickvals: values.map(Math.log10), ticktext: values.map((v) => figure(v)) };
}

function curveControls() {
  const there = CURVES.filter(([name]) => page.subjects.some((s) => s.curves[name].some((v) => v !== null)));
  if (!there.length) {
    byId("curves-absent").textContent = "No training was recorded: the models lie in no run directories.";
    byId("curves").hidden = true;
    return byId("curves-controls").remove();
  }
  [[curve]] = there;
  choice("curve-choice", "curve", there, curve, (name) => { curve = name; drawCurves(); });
  byId("save-curves").addEventListener("click", () => save("fedscape-training.csv", "text/csv", curvesCsv()));
}

function drawCurves() {
  if (byId("curves").hidden) return;
  const subjects = visible().filter((s) => s.curves[curve].some((value) => value !== null));
  const scale = curve === "test_accuracy" ? 100 : 1;
  const traces = [];
  const groups = [...new Set(subjects.map((s) => s.group))];
  for (const group of groups) {
    const mine = subjects.filter((s) => s.group === group);
    const line = { color: inked(mine[0]), dash: dashOf(group) };
    for (const s of mine) {
      const points = s.curves.round.map((x, i) => [x, s.curves[curve][i]]).filter(([, y]) => y !== null);
      traces.push({
        x: points.map(([x]) => x), y: points.map(([, y]) => scale * y), mode: "lines", legendgroup: String(group),
        name: mine.length > 1 ? plain(s.label) : groupName(group), showlegend: mine.length === 1,
        opacity: mine.length > 1 ? 0.35 : 1, line: { ...line, width: mine.length > 1 ? 1 : 2 },
      });
    }
    if (mine.length > 1) {
      const means = new Map();
      for (const s of mine) s.curves.round.forEach((x, i) => means.set(x, [...(means.get(x) || []), s.curves[curve][i]]));
      const whole = [...means].filter(([, ys]) => ys.length === mine.length && ys.every((y) => y !== null)).sort((a, b) => a[0] - b[0]);
      traces.push({
        x: whole.map(([x]) => x), y: whole.map(([, ys]) => (scale * ys.reduce((a, b) => a + b)) / ys.length), mode: "lines",
        legendgroup: String(group), name: `${groupName(group)}, mean of ${mine.length}`, line: { ...line, width: 3 },
      });
    }
  }
  const text = CURVES.find(([name]) => name === curve)[1] + (scale === 100 ? " (%)" : " (nats)");
  Plotly.react("curves", traces, layout({ xaxis: axis("communication round"), yaxis: axis(text) }), OPTIONS);
}

function drawEigenvalues() {
  const subjects = visible();
  const labels = named(subjects);
  const all = subjects.flatMap((s) => s.spectrum.values);
  const traces = subjects.flatMap((s, k) => {
    const ranks = s.spectrum.values.map((_, i) => i + 1);
    const points = {
      ...labels[k], x: ranks, y: s.spectrum.values, mode: "markers", text: s.spectrum.names.map((n) => `${plain(s.label)}, ${n}`),
      error_y: { type: "data", array: s.spectrum.bounds, thickness: 1.5 },
      marker: { color: inked(s), symbol: markerOf(s), size: 8, line: { width: 0.5, color: variable("--ink") } },
      hovertemplate: "%{text}: %{y:.5g}<extra></extra>",
    };
    const doubtful = ranks.filter((_, i) => !s.spectrum.converged[i]);
    const crosses = {
      x: doubtful, y: doubtful.map((i) => s.spectrum.values[i - 1]), mode: "markers", name: "not converged", legendgroup: String(s.group),
      showlegend: false, marker: { symbol: "x-thin", size: 13, line: { width: 2, color: variable("--ink") } }, hoverinfo: "skip",
    };
    return doubtful.length ? [points, crosses] : [points];
  });
  const kind = all.every((value) => value > 0) ? "log" : "linear";
  const ends = [Math.min(...all), Math.max(...all)].map(Math.log10);
  const y = axis("eigenvalue of the Hessian", kind === "log" ? { type: "log", ...logTicks(ends) } : {});
  if (kind === "log") y.tickvals = y.tickvals.map((power) => 10 ** power);
  Plotly.react("eigenvalues", traces, layout({ xaxis: axis("rank", { dtick: 1 }), yaxis: y }), OPTIONS);
}

function drawDensity() {
  const subjects = visible().filter((s) => s.density);
  const labels = named(subjects);
  const widths = page.subjects.filter((s) => s.density).map((s) => s.density.width).sort((a, b) => a - b);
  const factor = 2 ** Number(byId("width").value);
  const width = widths[Math.floor(widths.length / 2)] * factor;
  byId("width-told").textContent = `σ = ${figure(width, 3)} (${figure(factor, 3)} times the usual)`;
  const places = page.subjects.flatMap((s) => (s.density ? [...s.density.nodes, ...s.density.atoms] : []));
  const low = Math.min(...places) - 4 * width, high = Math.max(...places) + 4 * width;
  const grid = Array.from({ length: 801 }, (_, i) => low + ((high - low) * i) / 800);
  const kernel = (t, at) => Math.exp(-0.5 * ((t - at) / width) ** 2) / (width * Math.sqrt(2 * Math.PI));
  const traces = subjects.map((s, k) => ({
    ...labels[k], x: grid, mode: "lines", line: { color: inked(s), width: 1.5, dash: dashOf(s.group) },
    text: grid.map(() => plain(s.label)), hovertemplate: "%{text}: %{y:.3g} at %{x:.4g}<extra></extra>",
    y: grid.map((t) => {
      let sum = 0;
      s.density.nodes.forEach((at, j) => { sum += s.density.weights[j] * kernel(t, at); });
      for (const at of s.density.atoms) sum += s.density.share * kernel(t, at);
      return Math.max(sum, 1e-12);
    }),
  }));
  const top = Math.log10(Math.max(1e-12, ...traces.flatMap((trace) => trace.y)));
  const y = axis("density", { type: "log", range: [Math.max(-8, top - 7), top + 0.3], exponentformat: "power" });
  Plotly.react("density", traces, layout({ xaxis: axis("eigenvalue of the Hessian"), yaxis: y }), OPTIONS);
}

function curvesCsv() {
  const names = CURVES.map(([name]) => name);
  return table(["model", "round", ...names], page.subjects.flatMap((s) => s.curves.round.map((round, i) => [s.label, round, ...names.map((name) => s.curves[name][i])])));
}

function spectraCsv() {
  const rows = page.subjects.flatMap(({ label, spectrum: e }) => e.values.map((value, i) => [label, e.names[i], value, e.bounds[i], e.converged[i], e.low && e.low[i], e.high && e.high[i]]));
  return table(["model", "eigenvalue", "value", "error_bound", "converged", "low", "high"], rows);
}
