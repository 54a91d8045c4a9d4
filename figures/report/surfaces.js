// Surfaces side by side on one scale; reliefs are turned together.
const QUANTITIES = { loss: ["loss", "loss (nats)", 1], accuracy: ["accuracy", "accuracy (%)", 100], lambda_max: ["λ_max", "λ_max", 1] };
const MOST_RELIEFS = 8; // a browser has so many drawing contexts of WebGL at once, about twice over
const surface = { quantity: "loss", view: "relief", scale: "log" };
let camera = { eye: { x: 1.75, y: -1.75, z: 1.05 }, center: { x: 0, y: 0, z: -0.12 } };
let turning = false;
// What is drawn of a model: x, y, and the values by row; λ_max has a coarser grid of its own.
function heights(s, quantity) {
  const from = quantity === "lambda_max" ? s.curvature_map : s.surface;
  return from && from[quantity] ? { x: from.x, y: from.y, z: from[quantity] } : null;
}
const withSurface = () => visible().filter((s) => heights(s, surface.quantity));

function canRelief() {
  const canvas = document.createElement("canvas");
  return Boolean(canvas.getContext("webgl") || canvas.getContext("webgl2"));
}

function surfaceControls() {
  const there = Object.keys(QUANTITIES).filter((q) => page.subjects.some((s) => heights(s, q)));
  if (!there.length) {
    byId("surface-told").textContent = "No surfaces were measured (--without surfaces).";
    byId("grid").hidden = true;
    return byId("surface-controls").remove();
  }
  surface.quantity = there[0];
  if (!canRelief()) surface.view = "map";
  choice("quantity-choice", "quantity", there.map((q) => [q, QUANTITIES[q][0]]), surface.quantity, (q) => { surface.quantity = q; drawSurfaces(); });
  choice("view-choice", "view", [["relief", "relief"], ["map", "map"]], surface.view, (v) => { surface.view = v; drawSurfaces(); });
  choice("scale-choice", "scale", [["log", "logarithmic"], ["linear", "linear"]], surface.scale, (v) => { surface.scale = v; drawSurfaces(); });
}

function drawSurfaces() {
  if (byId("grid").hidden) return;
  const [, title, factor] = QUANTITIES[surface.quantity];
  const relief = surface.view === "relief";
  const subjects = relief ? withSurface().slice(0, MOST_RELIEFS) : withSurface();
  const left = withSurface().length - subjects.length;
  const fields = subjects.map((s) => heights(s, surface.quantity));
  const values = fields.flatMap((f) => f.z.flat()).filter((v) => v !== null);
  const logarithmic = surface.scale === "log" && surface.quantity !== "accuracy" && values.every((v) => v > 0);
  const told = (v) => (v === null ? null : logarithmic ? Math.log10(v) : factor * v);
  const range = values.length ? [told(Math.min(...values)), told(Math.max(...values))] : [0, 1];
  byId("surface-told").textContent =
    `${counted(subjects.length, "model")} on one scale${logarithmic ? " (logarithmic)" : ""}` +
    (left ? `; ${left} more as maps, or untick some in the table` : "");
  byId("grid").querySelectorAll(".plot").forEach((plot) => Plotly.purge(plot));
  const ticks = logarithmic ? logTicks(range) : {};
  byId("grid").replaceChildren();
  subjects.forEach((s, k) => {
    const plot = element("div", { class: "plot", role: "group", "aria-label": `${title} around ${s.label}` });
    byId("grid").append(element("figure", {}, element("figcaption", {}, s.label), plot));
    const data = {
      x: fields[k].x, y: fields[k].y, z: fields[k].z.map((row) => row.map(told)), colorscale: "Viridis",
      customdata: fields[k].z.map((row) => row.map((v) => (v === null ? null : factor * v))),
      hovertemplate: "(%{x:.3g}, %{y:.3g}): %{customdata:.4g}<extra></extra>",
      showscale: k === 0, colorbar: { title: { text: folded(title), side: "right" }, thickness: 12, len: 0.8, ...ticks },
    };
    const [xt, yt] = ["first direction", "second direction"];
    if (relief) {
      const small = { tickfont: { size: 10 }, nticks: 4 };
      const scene = {
        camera, aspectmode: "cube", xaxis: axis("1st direction", small), yaxis: axis("2nd direction", small),
        zaxis: axis(folded(title), { range, ...small, ...ticks }),
      };
      for (const each of [scene.xaxis, scene.yaxis, scene.zaxis]) each.title.font = { size: 11 };
      Plotly.newPlot(plot, [{ ...data, type: "surface", cmin: range[0], cmax: range[1] }],
        layout({ scene, margin: { l: 0, r: 0, t: 0, b: 0 } }, "relief"), OPTIONS);
      plot.on("plotly_relayout", (change) => turnAll(plot, change));
    } else {
      Plotly.newPlot(plot, [{ ...data, type: "heatmap", zmin: range[0], zmax: range[1] },
        { x: [0], y: [0], mode: "markers", marker: { symbol: "cross-thin", size: 11, line: { width: 2, color: "#fff" } }, hoverinfo: "skip", showlegend: false }],
        layout({ xaxis: axis(xt), yaxis: axis(yt, { scaleanchor: "x" }), margin: { l: 50, r: 10, t: 5, b: 45 } }, "relief"), OPTIONS);
    }
  });
}

function turnAll(source, change) {
  if (turning || !change["scene.camera"]) return;
  turning = true;
  camera = change["scene.camera"];
  const others = [...byId("grid").querySelectorAll(".plot")].filter((plot) => plot !== source);
  Promise.all(others.map((plot) => Plotly.relayout(plot, { "scene.camera": camera }))).finally(() => { turning = false; });
}
