// The table of the models: sorted by a heading, filtered by words, ticked into the pictures.
const COLUMNS = [
  ["model", (s) => s.label, (s) => s.label],
  ["seed", (s) => s.seed, (s) => String(s.seed)],
  ["round", (s) => s.round, (s) => String(s.round)],
  ["test accuracy", (s) => s.scores.test_accuracy, (s) => percent(s.scores.test_accuracy)],
  ["test loss", (s) => s.scores.test_loss, (s) => figure(s.scores.test_loss)],
  ["measured loss", (s) => s.scores.train_loss, (s) => figure(s.scores.train_loss)],
  ["λ1", (s) => s.scores.lambda_1, (s) => within(s.scores.lambda_1, s.scores.lambda_1_error)],
  ["λ1/λ5", (s) => s.scores.ratio, (s) => within(s.scores.ratio, s.scores.ratio_error)],
  ["trace", (s) => s.scores.trace, (s) => within(s.scores.trace, s.scores.trace_error)],
];
const order = { column: -1, up: true };

function compared(a, b) {
  if (a === b) return 0;
  if (a === null || a === undefined) return 1; // what was not measured is last, either way
  if (b === null || b === undefined) return -1;
  const less = typeof a === "string" ? a.localeCompare(b, "en", { numeric: true }) : a - b;
  return order.up ? less : -less;
}

function rowsInOrder() {
  const wanted = byId("filter").value.trim().toLowerCase();
  const rows = page.subjects
    .map((subject, i) => [subject, i])
    .filter(([s]) => {
      const facts = Object.entries({ ...s.settings, ...s.algorithm, seed: s.seed, round: s.round, file: s.file });
      const text = [s.label, ...facts.map(([name, value]) => `${name.replaceAll("_", " ")} ${told(value)}`)].join("\n");
      return text.toLowerCase().includes(wanted);
    });
  if (order.column >= 0) rows.sort(([a], [b]) => compared(COLUMNS[order.column][1](a), COLUMNS[order.column][1](b)));
  return rows;
}

function drawHead() {
  const cells = COLUMNS.map(([name], i) => {
    const button = element("button", { type: "button" }, name);
    const cell = element("th", { scope: "col", "aria-sort": "none" }, button);
    button.addEventListener("click", () => {
      order.up = order.column === i ? !order.up : true;
      order.column = i;
      drawRows();
    });
    return cell;
  });
  const first = element("th", { scope: "col" }, "shown");
  byId("table").append(element("thead", {}, element("tr", {}, first, ...cells)), element("tbody"));
}

function drawRows() {
  const rows = rowsInOrder();
  byId("table").querySelectorAll("thead th[aria-sort]").forEach((cell, i) => {
    cell.setAttribute("aria-sort", i !== order.column ? "none" : order.up ? "ascending" : "descending");
  });
  byId("table").querySelector("tbody").replaceChildren(
    ...rows.map(([subject, i]) => {
      const box = element("input", { type: "checkbox", "aria-label": `show ${subject.label}` });
      box.checked = shown.has(i);
      box.addEventListener("change", () => {
        if (box.checked) shown.add(i);
        else shown.delete(i);
        drawPictures();
      });
      const cells = COLUMNS.map(([name, , told]) => {
        const cell = element(name === "model" ? "th" : "td", name === "model" ? { scope: "row" } : {});
        if (name === "model") {
          const swatch = element("span", { class: "swatch", "aria-hidden": "true" });
          swatch.style.background = colour(subject);
          cell.append(swatch);
        }
        cell.append(told(subject));
        return cell;
      });
      return element("tr", {}, element("td", {}, box), ...cells);
    }),
  );
  byId("count").textContent = `${rows.length} of ${counted(page.subjects.length, "model")}`;
}

function csv() {
  const names = Object.keys(page.subjects[0].scores);
  return table(["model", "seed", "round", "file", "digest", ...names], page.subjects.map((s) => [s.label, s.seed, s.round, s.file, s.digest, ...names.map((n) => s.scores[n])]));
}
