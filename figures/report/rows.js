// Names of rows: long ones without their middles, but for the part in which they differ; all in full below the picture.
const ALIKE_AT_LEAST = 6; // fewer letters cannot hold a beginning and a difference

function shared(names) { // how many letters all have in common at their beginnings, and at the ends of what is left
  const least = Math.min(...names.map((name) => name.length)), first = names[0];
  let head = 0, tail = 0;
  while (head < least && names.every((name) => name[head] === first[head])) head += 1;
  while (tail < least - head && names.every((name) => name.at(-1 - tail) === first.at(-1 - tail))) tail += 1;
  return [head, tail];
}

// Names of which each is there once, as texts of at most so many letters, no two of them the same.
function shortened(names, most) {
  const lead = Math.ceil(0.6 * (most - 1)), texts = new Map(), alike = new Map();
  for (const name of names) {
    const letters = [...name], long = letters.length > most;
    const text = long ? `${letters.slice(0, lead).join("")}…${letters.slice(lead + 1 - most).join("")}` : name;
    alike.set(text, [...(alike.get(text) || []), name]);
  }
  for (const [text, group] of alike) {
    if (group.length === 1) texts.set(group[0], text);
    else for (const [name, other] of most < ALIKE_AT_LEAST ? group.map((same) => [same, text]) : apart(group, most)) texts.set(name, other);
  }
  if (new Set(texts.values()).size === texts.size) return texts;
  return new Map(names.map((name, i) => [name, `${i + 1}: ${[...name].slice(-Math.max(1, most - 4)).join("")}`])); // there is no room to tell them apart otherwise
}

// Names that are the same without their middles: a beginning, and the part in which they differ with what fits before it.
function apart(group, most) {
  const names = group.map((name) => [...name]), [same, tail] = shared(names);
  const lead = Math.floor(0.3 * most), room = most - lead - 2;
  const word = names[0].lastIndexOf(" ", same - 1) + 1, head = word > Math.max(lead, same - room / 2) ? word : same; // 0.05, not 5
  const longest = Math.max(...names.map((name) => name.length - head - tail));
  const from = Math.max(lead, head - Math.max(0, room - longest));
  const parts = names.map((name) => name.slice(from, name.length - tail).join("")), short = longest > room ? shortened(parts, room) : null;
  return names.map((name, i) => {
    const begin = name.slice(0, lead).join("") + (from > lead ? "…" : "");
    return [group[i], begin + (short ? short.get(parts[i]) : parts[i]) + (tail ? "…" : "")];
  });
}

const rowTexts = (names) => shortened([...new Set(names)], narrow() ? 15 : 40);

// The axis of a picture whose rows have names; `more` tells what stands behind each, `last` are rows of ours below them.
function rowAxis(names, more = () => "", last = []) {
  const texts = rowTexts(names);
  const ticktext = [...names.map((name, row) => plain(texts.get(name)) + more(row)), ...last];
  return axis("", { tickvals: ticktext.map((_, row) => row), ticktext, range: [ticktext.length - 0.45, -0.55], zeroline: false, fixedrange: true, tickfont: { size: 12 } });
}

// Names that are not whole in the picture: in full under the pointer, and in a list below, which paper has too.
function tellNames(id, names) {
  const cut = [...rowTexts(names)].filter(([name, text]) => name !== text);
  byId(`${id}-names`).hidden = !cut.length;
  byId(`${id}-names`).querySelector("dl").replaceChildren(...cut.flatMap(([name, text]) => [element("dt", {}, text), element("dd", {}, name)]));
  const plot = byId(id);
  plot.rowNames = names;
  if (plot.dataset.names) return;
  plot.dataset.names = "told";
  plot.on("plotly_afterplot", () => titleRows(plot));
  titleRows(plot);
}

function titleRows(plot) {
  for (const text of plot.querySelectorAll(".yaxislayer-above .ytick text")) {
    text.querySelector("title")?.remove(); // that of another row, where rows have moved
    const name = plot.rowNames[text.__data__.x];
    if (name === undefined) continue;
    const title = document.createElementNS("http://www.w3.org/2000/svg", "title");
    title.textContent = name;
    text.append(title);
    text.style.pointerEvents = "all";
  }
}
