// Each client's own data under each model: models as rows, or against the clients' label mix; one client is followed.
const OF_CLIENTS = {
  lambda_max: { name: "λ_max", unit: "λ_max", factor: 1, together: "lambda_1" },
  loss: { name: "loss", unit: "loss (nats)", factor: 1, together: "train_loss" },
  accuracy: { name: "accuracy", unit: "accuracy (%)", factor: 100, together: "train_accuracy" },
};
const clients = { quantity: "lambda_max", arranged: "models", chosen: null, hovered: null };
const withClients = () => visible().filter((s) => s.clients);

// Why a panel shows nothing of a model, or of all.
function absent(id, panel, left) {
  const without = page.subjects.filter((s) => !s[panel]);
  const reasons = without.filter((s) => s.missing[panel]).map((s) => `${s.label}: ${s.missing[panel]}`);
  if (without.length > reasons.length) reasons.push(left);
  byId(id).textContent = without.length ? `Not measured${without.length < page.subjects.length ? ` of ${counted(without.length, "model")}` : ""}: ${reasons.join("; ")}.` : "";
  return without.length === page.subjects.length;
}

function clientControls() {
  if (absent("clients-absent", "clients", "left out (--without clients)")) {
    byId("clients").hidden = true;
    return byId("clients-controls").remove();
  }
  const measured = page.subjects.filter((s) => s.clients);
  const there = Object.keys(OF_CLIENTS).filter((q) => measured.some((s) => s.clients[q]));
  choice("clients-quantity", "clients-quantity", there.map((q) => [q, OF_CLIENTS[q].name]), clients.quantity, (q) => { clients.quantity = q; drawClients(); });
  const ways = [["models", "by model"]];
  if (measured.some((s) => s.clients.effective_labels)) ways.push(["labels", "by label mix"]);
  choice("clients-arranged", "clients-arranged", ways, clients.arranged, (way) => { clients.arranged = way; drawClients(); });
  const ids = [...new Set(measured.flatMap((s) => s.clients.ids))].sort((a, b) => a - b);
  byId("client").append(element("option", { value: "" }, "none"), ...ids.map((id) => element("option", { value: id }, `client ${id}`)));
  byId("client").addEventListener("change", (event) => {
    clients.chosen = event.target.value === "" ? null : { id: Number(event.target.value), partition: null };
    follow();
  });
  byId("save-clients").addEventListener("click", () => save("fedscape-clients.csv", "text/csv", clientsCsv()));
}

function shareOfLabels(counts) {
  const total = counts.reduce((a, b) => a + b, 0);
  const some = counts.map((n, label) => [n, label]).filter(([n]) => n).sort((a, b) => b[0] - a[0]);
  const told = some.slice(0, 3).map(([n, label]) => `${label} (${Math.round((100 * n) / total)} %)`).join(", ");
  return `label${some.length > 1 ? "s" : ""} ${told}${some.length > 3 ? ` and ${some.length - 3} more` : ""}`;
}

function clientTold(s, i) {
  const c = s.clients, of = OF_CLIENTS[clients.quantity];
  const labels = c.label_counts ? `<br>${shareOfLabels(c.label_counts[i])}` : "";
  const error = clients.quantity === "lambda_max" ? ` ± ${figure(c.bounds[i], 1)}${c.converged[i] ? "" : ", NOT CONVERGED"}` : "";
  return `client ${c.ids[i]} of ${plain(s.label)}: ${folded(of.name)} ${figure(of.factor * c[clients.quantity][i])}${error}<br>${c.samples[i]} samples${labels}`;
}

// Where a client's point lies: [x, y].
function clientPlaces(s, row) {
  const c = s.clients, of = OF_CLIENTS[clients.quantity], n = c.ids.length;
  const values = c[clients.quantity].map((v) => (v === null ? null : of.factor * v));
  if (clients.arranged === "labels") return c.effective_labels.map((x, i) => [x, values[i]]);
  return values.map((x, i) => [x, row + (n > 1 ? 0.6 * (i / (n - 1) - 0.5) : 0)]);
}

function drawnClients() {
  return withClients().filter((s) => s.clients[clients.quantity] && (clients.arranged === "models" || s.clients.effective_labels));
}

function rulerOf(values, title) {
  if (!values.length || !values.every((v) => v > 0)) return axis(title);
  const ends = [Math.min(...values), Math.max(...values)].map(Math.log10), ticks = logTicks(ends);
  return axis(title, { type: "log", tickvals: ticks.tickvals.map((power) => 10 ** power), ticktext: ticks.ticktext });
}

function drawClients() {
  if (byId("clients").hidden) return;
  const subjects = drawnClients(), of = OF_CLIENTS[clients.quantity], byModel = clients.arranged === "models";
  const labels = named(subjects);
  const every = subjects.flatMap((s) => s.clients[clients.quantity]).filter((v) => v !== null).map((v) => of.factor * v);
  const whole = subjects.map((s) => s.scores[of.together]);
  const title = byModel ? folded(`${of.unit} on a client's own training data`) : folded(of.unit);
  const ruler = clients.quantity === "accuracy" ? axis(title) : rulerOf([...every, ...(byModel ? whole.filter((v) => v !== null) : [])], title);
  const traces = [];
  subjects.forEach((s, row) => {
    const points = clientPlaces(s, row);
    if (byModel) traces.push({
      type: "box", orientation: "h", x: points.map(([x]) => x), y0: row, width: 0.72, boxpoints: false, hoverinfo: "skip",
      line: { color: variable("--soft"), width: 1 }, fillcolor: "rgba(128,128,128,0.13)", showlegend: false, whiskerwidth: 0,
    });
    traces.push({
      ...labels[row], ...(byModel ? { showlegend: false } : {}), mode: "markers", x: points.map(([x]) => x), y: points.map(([, y]) => y),
      customdata: s.clients.ids.map((id) => ({ id, partition: s.clients.partition })), text: s.clients.ids.map((_, i) => clientTold(s, i)), hovertemplate: "%{text}<extra></extra>",
      marker: {
        color: inked(s), size: narrow() || s.clients.ids.length > 50 ? 5 : 7, opacity: 0.85, line: { width: 0.5, color: variable("--paper") },
        symbol: s.clients.converged.map((sound) => (sound || clients.quantity !== "lambda_max" ? markerOf(s) : "x-thin-open")),
      },
    });
  });
  if (byModel) traces.push({
    mode: "markers", x: whole.map((v) => (v === null ? null : of.factor * v)), y: subjects.map((_, row) => row), showlegend: false,
    marker: { symbol: "line-ns", size: subjects.length > 12 ? 11 : 20, line: { width: 3, color: variable("--ink") } },
    text: subjects.map((s) => `${plain(s.label)}, ${plain(s.spectrum.data)} together: ${figure(of.factor * s.scores[of.together])}`), hovertemplate: "%{text}<extra></extra>",
  });
  traces.push({ mode: "lines+markers", x: [], y: [], showlegend: false, hoverinfo: "skip", line: { color: variable("--ink"), width: 2 },
    marker: { symbol: "circle-open", size: 12, color: variable("--ink"), line: { width: 2 } } });
  const plot = byId("clients");
  const rows = subjects.length * (subjects.length > 12 ? 24 : 40);
  const height = byModel ? Math.max(190, 90 + rows) : 400;
  plot.style.height = `${height}px`;
  const more = byModel
    ? { xaxis: ruler, yaxis: rowAxis(subjects.map((s) => s.label)), margin: { l: 20, r: 15, t: 10, b: 50 } }
    : { xaxis: axis(folded("effective number of labels of the client")), yaxis: ruler };
  Plotly.react(plot, traces, layout({ ...more, height, hovermode: "closest" }), OPTIONS);
  tellNames("clients", byModel ? subjects.map((s) => s.label) : []);
  if (!plot.dataset.linked) {
    plot.dataset.linked = "yes";
    plot.on("plotly_hover", ({ points: [point] }) => { if (point.customdata) { clients.hovered = point.customdata; follow(); } });
    plot.on("plotly_unhover", () => { clients.hovered = null; follow(); });
  }
  byId("clients-told").textContent = byModel ? `Dots: clients. Box: the middle half of them, with the median. Thick mark: over ${subjects.length ? subjects[0].spectrum.data : "all samples"} together.` : "Each dot is a client under a model.";
  follow();
}

// A line through one client under every model; clients of another partition are other clients.
function follow() {
  const wanted = clients.hovered || clients.chosen, plot = byId("clients");
  const x = [], y = [], told = [];
  if (wanted) {
    const subjects = drawnClients();
    for (const partition of new Set(subjects.map((s) => s.clients.partition))) {
      if (wanted.partition !== null && wanted.partition !== partition) continue;
      subjects.forEach((s, row) => {
        const i = s.clients.partition === partition ? s.clients.ids.indexOf(wanted.id) : -1;
        if (i < 0) return;
        const [px, py] = clientPlaces(s, row)[i];
        x.push(px); y.push(py);
        told.push(`${s.label}: ${figure(OF_CLIENTS[clients.quantity].factor * s.clients[clients.quantity][i])}`);
      });
      x.push(null); y.push(null);
    }
  }
  byId("client-told").textContent = clients.chosen && !clients.hovered ? (told.length ? `Client ${wanted.id}. ${told.join("; ")}.` : `Client ${wanted.id} is in none of these models.`) : "";
  const last = plot.data.length - 1;
  if (plot.data[last].x.length || x.length) Plotly.restyle(plot, { x: [x], y: [y] }, [last]);
}

function clientsCsv() {
  const labels = Math.max(0, ...page.subjects.map((s) => (s.clients && s.clients.label_counts ? s.clients.label_counts[0].length : 0)));
  const head = ["model", "client", "partition", "samples", "lambda_max", "error_bound", "converged", "loss", "accuracy", "effective_labels"];
  const rows = page.subjects.filter((s) => s.clients).flatMap(({ label, clients: c }) => c.ids.map((id, i) => [
    label, id, c.partition, c.samples[i], c.lambda_max[i], c.bounds[i], c.converged[i], c.loss[i], c.accuracy && c.accuracy[i],
    c.effective_labels && c.effective_labels[i], ...Array.from({ length: labels }, (_, k) => (c.label_counts ? (c.label_counts[i][k] ?? 0) : null)),
  ]));
  return table([...head, ...Array.from({ length: labels }, (_, k) => `label_${k}`)], rows);
}
