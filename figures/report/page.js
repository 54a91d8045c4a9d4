// Put together.
function drawPictures() {
  drawCurves();
  drawEigenvalues();
  drawDensity();
  drawSurfaces();
  drawClients();
  drawLayers();
  drawMeans();
  drawPairs();
}

function told(value) {
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}

function origin(s) {
  const facts = {
    file: s.file, "SHA-256 of model": s.digest, model: s.model, data: s.data, spectrum: `${s.spectrum.data}, ${s.spectrum.dtype} on ${s.spectrum.device}, ` +
      `${s.spectrum.products} products in ${figure(s.spectrum.seconds, 3)} s`,
    surface: s.surface ? `${s.surface.x.length} × ${s.surface.y.length} points, ${s.surface.normalisation}, seed ${s.surface.seed}, ${s.surface.samples} ${s.surface.split} samples` : "none",
    ...Object.fromEntries(Object.entries(s.algorithm).map(([name, value]) => [`algorithm: ${name}`, told(value)])),
    ...Object.fromEntries(Object.entries(s.settings).map(([name, value]) => [`setting: ${name}`, told(value)])),
    versions: Object.entries(s.versions).map(([name, version]) => `${name} ${version}`).join(", "),
    remarks: s.remarks.join("; ") || "none",
  };
  const list = element("dl");
  for (const [name, value] of Object.entries(facts)) list.append(element("dt", {}, name), element("dd", {}, String(value)));
  return element("details", {}, element("summary", {}, `${s.label}: ${s.file}, model ${s.digest.slice(0, 12)}`), list);
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  byId("theme").setAttribute("aria-pressed", String(dark));
  drawPictures();
}

// On paper nothing scrolls: a legend that is cut stands below its picture instead, with as many lines as it has.
function wholeLegend(chart) {
  const edge = chart.getBoundingClientRect().left + chart._fullLayout.width, room = chart.querySelector(".legend .bg").getBoundingClientRect();
  const isCut = ({ right, bottom }) => right > edge + 1 || bottom > room.bottom + 1;
  const lines = [...chart.querySelectorAll(".legend .traces")];
  if (!lines.some((line) => isCut(line.querySelector(".legendtext").getBoundingClientRect()))) return;
  chart.after(element("ul", { class: "key" }, ...lines.map((line) => {
    const sample = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    sample.setAttribute("viewBox", "0 -8 40 16");
    sample.append(line.querySelector(".layers").cloneNode(true));
    return element("li", {}, sample, line.querySelector(".legendtext").textContent);
  })));
  Plotly.relayout(chart, { showlegend: false });
}

// On paper: light, as wide as a page, the explanations open.
let shownBefore = null;
function forPaper() {
  const closed = [...document.querySelectorAll("main details:not([open])")].filter((each) => !each.closest("#origins, #means-table"));
  shownBefore = { dark: document.documentElement.dataset.theme === "dark", closed };
  for (const each of closed) each.open = true;
  paper = true;
  setTheme(false);
  for (const chart of document.querySelectorAll(".chart:has(.legend .bg)")) wholeLegend(chart);
}

function forScreen() {
  for (const each of shownBefore.closed) each.open = false;
  for (const each of document.querySelectorAll(".key")) each.remove();
  paper = false;
  setTheme(shownBefore.dark);
}

byId("command").textContent = page.command;
byId("origins").append(...page.subjects.map(origin));
drawHead();
drawRows();
curveControls();
surfaceControls();
clientControls();
layerControls();
alignmentControls();
byId("filter").addEventListener("input", drawRows);
byId("width").addEventListener("input", drawDensity);
byId("save-json").addEventListener("click", () => save("fedscape-report.json", "application/json", JSON.stringify(page, null, 1)));
byId("save-csv").addEventListener("click", () => save("fedscape-report.csv", "text/csv", csv()));
byId("save-spectra").addEventListener("click", () => save("fedscape-spectra.csv", "text/csv", spectraCsv()));
byId("theme").addEventListener("click", () => setTheme(document.documentElement.dataset.theme !== "dark"));
window.addEventListener("beforeprint", forPaper);
window.addEventListener("afterprint", forScreen);
setTheme(window.matchMedia("(prefers-color-scheme: dark)").matches);
