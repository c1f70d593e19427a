// All schedules at the present settings, of which one chooses some to see.

import {element, percent, threeDigits} from "../page/format.js";

/** `{root, show(entries, shown)}`, of entries `{name, title, idle, memory, fits, why}`; `toggle(name)` is called on a choice. */
export function familyList(toggle) {
  const body = element("tbody");
  const root = element("table", { class: "family" },
    element("thead", {}, element("tr", {}, ["Schedule", "Idle", "Memory"].map((text) => element("th", { scope: "col", text })))), body);
  const rows = new Map();
  const rowOf = (name, title) => {
    if (!rows.has(name)) {
      const box = element("input", { type: "checkbox", value: name, onchange: () => toggle(name) });
      const cells = [element("td"), element("td")];
      const row = element("tr", {}, element("th", { scope: "row" }, element("label", {}, box, title)), cells);
      rows.set(name, { box, cells, row });
      body.append(row);
    }
    return rows.get(name);
  };
  const show = (entries, shown) => {
    const most = { idle: 1, memory: Math.max(1, ...entries.map(({ memory }) => memory ?? 0)) };
    for (const { name, title, why, idle, memory, fits } of entries) {
      const { box, cells, row } = rowOf(name, title);
      box.checked = shown.includes(name);
      row.classList.toggle("off", Boolean(why));
      row.title = why ?? "";
      if (why) cells.forEach((cell) => cell.replaceChildren("–"));
      else {
        cells[0].replaceChildren(bar(idle / most.idle), element("span", { text: percent(idle) }));
        cells[1].replaceChildren(bar(memory / most.memory, !fits), element("span", { text: threeDigits(memory), class: fits ? null : "bad" }));
      }
    }
  };
  return { root, show };
}

function bar(share, bad = false) {
  return element("span", { class: bad ? "bar over" : "bar", style: { width: `${100 * share}%` } });
}
