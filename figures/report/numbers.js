"use strict";
// What the page is of, and how numbers are told.
const page = JSON.parse(document.getElementById("data").textContent);
const shown = new Set(page.subjects.map((_, i) => i));
const byId = (id) => document.getElementById(id);
const colour = (subject) => page.groups[subject.group].colour;
const MARKERS = ["circle", "square", "diamond", "triangle-down", "cross", "x", "triangle-up"];
const DASHES = ["solid", "dash", "dashdot", "dot", "longdash", "longdashdot", "5px 2px"];
// Colours come again after as many groups as there are marks and dashes: these are then others.
const among = (kinds, group) => kinds[(group + Math.floor(group / kinds.length)) % kinds.length];
const markerOf = (subject) => among(MARKERS, subject.group);
const dashOf = (group) => among(DASHES, group);
const counted = (number, noun) => `${number} ${noun}${number === 1 ? "" : "s"}`;

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children); // text stays text, whatever is in it
  return made;
}

function figure(value, digits = 4) {
  if (value === null || value === undefined) return "–";
  if (value === 0) return "0";
  const size = Math.abs(value);
  return size >= 1e5 || size < 1e-3 ? value.toExponential(digits - 1) : String(Number(value.toPrecision(digits)));
}

const percent = (value) => (value === null || value === undefined ? "–" : `${(100 * value).toFixed(2)} %`);

function within(value, error) {
  if (value === null || value === undefined) return "–";
  return error === null || error === undefined ? figure(value) : `${figure(value)} ± ${figure(error, 1)}`;
}

// Plotly reads some HTML in its texts: nothing in a name may be taken for it.
const plain = (text) => String(text).replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

// Subscripts of our own titles, in which they follow an underscore: as elements, and as letters where only text may stand.
const SUBSCRIPT = /(?<![A-Za-z])([λfpwHUε])_(max|[ij])(?![A-Za-z0-9])/gu;
function lowered(text) {
  return text.split(SUBSCRIPT).map((part, i) => (i % 3 === 2 ? element("sub", {}, part) : part));
}
const SMALL = { i: "ᵢ", j: "ⱼ", m: "ₘ", a: "ₐ", x: "ₓ" };
const inText = (text) => text.replaceAll(SUBSCRIPT, (_, letter, below) => letter + [...below].map((c) => SMALL[c]).join(""));

function save(name, kind, text) {
  const link = element("a", { href: URL.createObjectURL(new Blob([text], { type: kind })), download: name });
  link.click();
  URL.revokeObjectURL(link.href);
}

// Comma-separated values.
function table(head, rows) {
  const quoted = (value) => {
    const text = value === null || value === undefined ? "" : String(value);
    // A spreadsheet takes a text that begins so for a formula.
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n\r]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };
  return [head, ...rows].map((line) => line.map(quoted).join(",")).join("\n");
}

function choice(id, name, options, chosen, changed) {
  for (const [value, text] of options) {
    const input = element("input", { type: "radio", name, value });
    input.checked = value === chosen;
    input.addEventListener("change", () => changed(value));
    byId(id).append(element("label", {}, input, " ", ...lowered(text)));
  }
}
