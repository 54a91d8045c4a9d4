// Local against global: means over the clients with their errors, and tables over their pairs.
const local = { titles: new Map(), quantity: null, model: 0, map: null };
const withAlignment = () => visible().filter((s) => s.alignment);
const BLUE_RED = [[0, "#2166ac"], [0.25, "#92c5de"], [0.5, "#f7f7f7"], [0.75, "#f4a582"], [1, "#b2182b"]];

function alignmentControls() {
  const measured = page.subjects.filter((s) => s.alignment);
  if (absent("alignment-absent", "alignment", measured.length ? "not in what --alignment gave" : "measure it with fedscape alignment, and give the folder that it writes with --alignment")) {
    for (const id of ["means", "pairs"]) byId(id).hidden = true;
    for (const id of ["alignment-controls", "pairs-controls", "means-table"]) byId(id).remove();
    return;
  }
  const titles = local.titles = new Map(measured.flatMap((s) => Object.entries(s.alignment.titles)));
  local.quantity = titles.has("overlap_with_global") ? "overlap_with_global" : titles.keys().next().value;
  byId("mean").append(...[...titles].map(([name, title]) => element("option", { value: name }, inText(title))));
  byId("mean").value = local.quantity;
  byId("mean").addEventListener("change", (event) => { local.quantity = event.target.value; drawMeans(); });
  local.model = page.subjects.indexOf(measured[0]);
  byId("pairs-model").append(...measured.map((s) => element("option", { value: page.subjects.indexOf(s) }, s.label)));
  byId("pairs-model").addEventListener("change", (event) => { local.model = Number(event.target.value); drawPairs(); });
  const maps = new Map(measured.flatMap((s) => s.alignment.maps.map((m) => [m.name, m.title])));
  if (maps.size) {
    local.map = maps.keys().next().value;
    byId("pairs-map").append(...[...maps].map(([name, title]) => element("option", { value: name }, inText(title))));
    byId("pairs-map").addEventListener("change", (event) => { local.map = event.target.value; drawPairs(); });
  } else {
    byId("pairs").hidden = true;
    byId("pairs-controls").remove();
  }
  byId("save-alignment").addEventListener("click", () => save("fedscape-alignment.csv", "text/csv", alignmentCsv()));
  meansTable(measured);
}

function meanTold(m) {
  if (!m || m.value === null) return "–";
  const errors = [[m.stderr, " (clients)"], [m.measurement_error, ""]].filter(([e]) => e).map(([e, of]) => ` ± ${figure(e, 1)}${of}`).join("");
  return `${figure(m.value)}${errors}${m.stderr === null ? " (sampling error unknown)" : ""}`;
}

function meansTable(measured) {
  const head = element("tr", {}, element("th", { scope: "col" }, "quantity"), ...measured.map((s) => element("th", { scope: "col" }, s.label)));
  const rows = [...local.titles].map(([name, title]) => element("tr", {}, element("th", { scope: "row" }, ...lowered(title)),
    ...measured.map((s) => element("td", {}, meanTold(s.alignment.rounds.at(-1).means[name])))));
  byId("means-rows").append(element("thead", {}, head), element("tbody", {}, ...rows));
}

const errorOf = (m) => (m.stderr || 0) + (m.measurement_error || 0);

// A little more than the numbers that are drawn along x.
function padded(traces) {
  const ends = traces.flatMap((t) => t.x.flatMap((x, i) => (t.error_x ? [x - t.error_x.array[i], x + t.error_x.array[i]] : [x]))).filter((v) => v !== null);
  if (!ends.length) return undefined;
  const low = Math.min(...ends), high = Math.max(...ends), more = 0.04 * (high - low) || 0.1 * Math.abs(high) || 1;
  return [low - more, high + more];
}

function drawMeans() {
  if (byId("means").hidden) return;
  const subjects = withAlignment(), labels = named(subjects);
  const title = local.titles.get(local.quantity);
  const one = subjects.every((s) => s.alignment.rounds.length === 1);
  const traces = subjects.flatMap((s, k) => {
    const found = s.alignment.rounds.map((r) => [r.round, r.means[local.quantity]]).filter(([, m]) => m && m.value !== null);
    const values = found.map(([, m]) => m.value), errors = { type: "data", array: found.map(([, m]) => errorOf(m)), thickness: 2, width: 5 };
    const marker = { color: inked(s), size: 9, symbol: markerOf(s), line: { width: 0.5, color: variable("--ink") } };
    const text = found.map(([round, m]) => `${plain(s.label)}, round ${round}: ${meanTold(m)}<br>${figure(m.low)} to ${figure(m.high)} over ${m.count} clients or pairs`);
    const common = { ...labels[k], marker, text, hovertemplate: "%{text}<extra></extra>" };
    const ends = found.flatMap(([, m]) => [m.low, m.high, null]);
    const range = { mode: "lines", line: { color: inked(s), width: 1 }, opacity: 0.7, hoverinfo: "skip", showlegend: false, legendgroup: labels[k].legendgroup };
    if (one) return [{ ...range, x: ends, y: found.flatMap(() => [k, k, null]) }, { ...common, mode: "markers", x: values, y: found.map(() => k), error_x: errors, showlegend: false }];
    return [{ ...range, x: found.flatMap(([round]) => [round, round, null]), y: ends },
      { ...common, mode: "lines+markers", x: found.map(([round]) => round), y: values, error_y: errors, line: { color: inked(s), dash: dashOf(s.group) } }];
  });
  const height = one ? Math.max(190, 90 + subjects.length * (subjects.length > 12 ? 22 : 34)) : 400;
  byId("means").style.height = `${height}px`;
  const axes = one
    ? { xaxis: axis(folded(title), { range: padded(traces) }), yaxis: rowAxis(subjects.map((s) => s.label)), margin: { l: 20, r: 15, t: 10, b: 50 } }
    : { xaxis: axis("communication round"), yaxis: axis(folded(title, 36)) };
  Plotly.react("means", traces, layout({ ...axes, height, hovermode: "closest" }), OPTIONS);
  tellNames("means", one ? subjects.map((s) => s.label) : []);
}

function drawPairs() {
  if (byId("pairs").hidden) return;
  const s = page.subjects[local.model], map = s.alignment.maps.find((m) => m.name === local.map);
  byId("alignment-notes").replaceChildren(...s.alignment.notes.map((note) => element("li", { class: "care" }, `${s.label}: ${note}`)));
  byId("pairs-told").replaceChildren(...(map ? [`${s.label}, round ${s.alignment.round}: ${map.clients.length} of ${s.alignment.clients_with_data} clients, ${s.alignment.ordered}; ` +
    `K = ${s.alignment.asked.top}, ${s.alignment.asked.ascent}, ρ = ${figure(s.alignment.asked.rho)}. Cells: `, ...lowered(map.label), "."] : [`${s.label}: this table was not measured.`]));
  if (!map) return Plotly.purge("pairs");
  // One scale for all models, so that they compare.
  const all = page.subjects.flatMap((other) => (other.alignment ? other.alignment.maps : [])).filter((m) => m.name === map.name)
    .flatMap((m) => m.values.flat()).filter((v) => v !== null);
  const far = Math.max(...all.map(Math.abs)) || 1, signed = map.ends ? map.ends[0] < 0 : all.some((v) => v < 0);
  const [zmin, zmax] = map.ends || (signed ? [-far, far] : [0, far]);
  const names = map.clients.map(String), n = names.length;
  const side = { type: "category", showgrid: false, tickangle: 0, nticks: 12, constrain: "domain" };
  Plotly.react("pairs", [{
    type: "heatmap", x: names, y: names, z: map.values, zmin, zmax, colorscale: signed ? BLUE_RED : "Viridis", xgap: n > 40 ? 0 : 1, ygap: n > 40 ? 0 : 1,
    ...(n <= 10 && !narrow() ? { texttemplate: "%{z:.2g}" } : {}),
    hovertemplate: "i = %{y}, j = %{x}: %{z:.4g}<extra></extra>", colorbar: { thickness: 12 },
  }], layout({ xaxis: axis("client j", side), yaxis: axis("client i", { ...side, autorange: "reversed", scaleanchor: "x" }), margin: { l: 50, r: 10, t: 10, b: 50 } }, "square"), OPTIONS);
}

function alignmentCsv() {
  const columns = ["value", "stderr", "measurement_error", "low", "high", "count", "left_out"];
  const rows = page.subjects.filter((s) => s.alignment).flatMap(({ label, alignment: a }) => a.rounds.flatMap((r) => Object.entries(r.means).map(([name, m]) => [label, r.round, name, ...columns.map((c) => m[c])])));
  return table(["model", "round", "quantity", ...columns], rows);
}
