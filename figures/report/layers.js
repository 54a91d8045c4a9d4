// λ_max of each layer's block, the layers in the order of the network from top to bottom.
function layerControls() {
  if (absent("layers-absent", "layers", "left out (--without layers)")) {
    byId("layers").hidden = true;
    return byId("layers-controls").remove();
  }
  byId("save-layers").addEventListener("click", () => save("fedscape-layers.csv", "text/csv", layersCsv()));
}

function drawLayers() {
  if (byId("layers").hidden) return;
  const subjects = visible().filter((s) => s.layers);
  const sizes = new Map();
  for (const s of subjects) s.layers.names.forEach((name, i) => { if (!sizes.has(name)) sizes.set(name, s.layers.parameters[i]); });
  const names = [...sizes.keys()], labels = named(subjects);
  const groups = [...new Set(subjects.map((s) => s.group))], step = Math.min(0.16, 0.7 / Math.max(groups.length, 1));
  const every = subjects.flatMap((s) => [...s.layers.lambda_max, s.scores.lambda_1]).filter((v) => v !== null);
  const traces = subjects.map((s, k) => {
    const off = (groups.indexOf(s.group) - (groups.length - 1) / 2) * step;
    const told = s.layers.names.map((name, i) => `${plain(s.label)}, ${plain(name || "the model")} (${s.layers.parameters[i].toLocaleString("en")} parameters): ` +
      `${figure(s.layers.lambda_max[i])} ± ${figure(s.layers.bounds[i], 1)}${s.layers.converged[i] ? "" : ", NOT CONVERGED"}`);
    return {
      ...labels[k], mode: "markers", x: [...s.layers.lambda_max, s.scores.lambda_1], y: [...s.layers.names.map((name) => names.indexOf(name) + off), names.length + off],
      text: [...told, `${plain(s.label)}, whole model: λ1 = ${figure(s.scores.lambda_1)}`], hovertemplate: "%{text}<extra></extra>",
      error_x: { type: "data", array: [...s.layers.bounds, s.scores.lambda_1_error], thickness: 1.5, width: 3 },
      marker: {
        color: inked(s), size: 9, opacity: 0.9, line: { width: 0.5, color: variable("--ink") },
        symbol: [...s.layers.converged, s.spectrum.converged[0]].map((sound) => (sound ? markerOf(s) : "x-thin-open")),
      },
    };
  });
  const rows = names.map((name) => name || "the model"), more = (row) => (narrow() ? "" : ` · ${sizes.get(names[row]).toLocaleString("en")} parameters`);
  const height = 110 + (rows.length + 1) * (rows.length > 24 ? 20 : 32);
  byId("layers").style.height = `${height}px`;
  Plotly.react("layers", traces, layout({
    xaxis: rulerOf(every, folded("λ_max of the layer's block of the Hessian")), yaxis: rowAxis(rows, more, ["<b>whole model</b>"]), height, hovermode: "closest", margin: { l: 20, r: 15, t: 15, b: 50 },
    shapes: [{ type: "line", xref: "paper", x0: 0, x1: 1, y0: names.length - 0.5, y1: names.length - 0.5, line: { color: variable("--rule"), width: 1 } }],
  }), OPTIONS);
  tellNames("layers", rows);
}

function layersCsv() {
  const rows = page.subjects.filter((s) => s.layers).flatMap(({ label, layers: l }) => l.names.map((name, i) => [label, i + 1, name, l.parameters[i], l.lambda_max[i], l.bounds[i], l.converged[i]]));
  return table(["model", "place", "layer", "parameters", "lambda_max", "error_bound", "converged"], rows);
}
