// Two reports: what differs, in numbers. All other views show both, side by side.

import {CAUSES, causeShare} from "../breakdown.js";
import {bytes, cycles, element, exact, percent, points, seconds, shortOrigin} from "../format.js";
import {asItem} from "../items.js";
import {friendlyName} from "../names.js";
import {inWords, panel} from "../parts.js";
import {exactly, linked} from "../store.js";
import {sortableTable} from "../table.js";
import {comparisonNotes, differingWork} from "../work.js";

const TELLING = 1e-9; // relative; less than that is no difference

/** Two reports, A and B, and what they are called. */
export function compareView(root, reports, store, labels) {
  const [a, b] = reports;
  const work = differingWork(a, b);
  root.append(
    headlinePanel(a, b, labels, work),
    element("div", { class: "columns" }, categoriesPanel(a, b, store), costsPanelOf(a, b, store)),
    ...[causeDeltasPanel(a, b, store, work)].filter(Boolean),
    operationsPanel(a, b, store, work),
  );
}

const BETTER = { work: 1, copies: -1, imbalance: -1, bubble: -1 };

/** `[what, value(report), text(value), which is better: 1 more, -1 less, 0 neither]`. */
const HEADLINES = [
  ["cycles of a call", (report) => report.cycles, cycles, -1],
  ["time of a call", (report) => report.seconds, seconds, -1],
  ["elements per second", (report) => report.throughput, cycles, 1],
  ["IPUs of a replica", (report) => report.num_ipus, exact, 0],
  ["replicas", (report) => report.replication_factor, exact, 0],
  ...CAUSES.map((cause) => [`${cause}, of all cycles`, (report) => causeShare(report, cause), percent, BETTER[cause] ?? 0]),
  ["the fullest tile", (report) => fullestTile(report), bytes, -1],
  ["instructions on the tile that has most", (report) => report.memory.most_code_bytes, bytes, -1],
  ["memory of all IPUs at their worst steps", (report) => sumOf(report.memory.peak_bytes), bytes, -1],
  ["streaming memory", (report) => sumOf(report.memory.remote_bytes), bytes, -1],
  ["steps", (report) => report.steps.count, exact, 0],
  ["computing that the general formula estimates", (report) => report.default_share, percent, 0],
];

/** What an element takes, where calls do not do as much; it is said before what a call takes. */
function eachHeadlines({ unit, calls }, a, b) {
  const of = (report) => calls[report === a ? 0 : 1];
  return [
    [`cycles of one ${unit}`, (report) => report.cycles / of(report), cycles, -1],
    [`time of one ${unit}`, (report) => report.seconds / of(report), seconds, -1],
    [`${unit}s of a call`, of, exact, 0],
  ];
}

function headlinePanel(a, b, labels, work) {
  const head = element(
    "tr",
    {},
    ["", "A", "B", "B − A", "B / A"].map((title, i) =>
      element("th", { scope: "col", class: i ? "numeric" : null, text: title }),
    ),
  );
  const each = work ? eachHeadlines(work, a, b) : [];
  // A call that does more takes longer, which is neither better nor worse.
  const ofCall = work ? HEADLINES.map((row, i) => (i < 2 ? [...row.slice(0, 3), 0] : row)) : HEADLINES;
  const rows = [...each, ...ofCall].map(([what, value, text, better]) => headlineRow(what, value(a), value(b), text, better));
  const names = [a, b].map((report, i) =>
    element("span", {
      class: "soft",
      text: `${"AB"[i]}: ${labels[i]}, ${report.num_ipus} × ${report.target.name}`,
    }),
  );
  const table = element(
    "table",
    { class: "plain-table", "data-table": "compare-headlines" },
    element("thead", {}, head),
    element("tbody", {}, fitsRow(a, b), rows),
  );
  const notes = comparisonNotes(a, b, work).map((note) => element("li", { text: note }));
  const list = notes.length ? element("ul", { class: "plain compare-notes", "data-notes": true }, notes) : null;
  return panel("Compare", names, list, element("div", { class: "table-scroll" }, table));
}

/** A title that says of what cycles are: of one element, where calls do not do as much. */
function perUnit(title, work) {
  return work ? `${title}, of one ${work.unit}` : title;
}

function fitsRow(a, b) {
  const verdict = (report) =>
    element("td", {
      class: report.memory.fits ? "numeric good" : "numeric bad",
      text: report.memory.fits ? "yes" : `lacks ${bytes(report.memory.missing_bytes)}`,
    });
  return element(
    "tr",
    { "data-row": "fits" },
    element("th", { scope: "row", text: "fits" }),
    verdict(a),
    verdict(b),
    element("td"),
    element("td"),
  );
}

function headlineRow(what, a, b, text, better) {
  const [known, other] = [a ?? null, b ?? null];
  if (known === null && other === null) return null;
  const shown = (value) => element("td", { class: "numeric", text: value === null ? "–" : text(value) });
  const both = known !== null && other !== null;
  const verdict = both ? verdictOf(other - known, better, known) : "";
  const ratio = both && known ? `${(other / known).toPrecision(3)}\u00a0×` : "–";
  return element(
    "tr",
    { "data-row": what },
    element("th", { scope: "row", text: what }),
    shown(known),
    shown(other),
    element("td", { class: `numeric ${verdict}`, text: both ? signed(other - known, text) : "–" }),
    element("td", { class: `numeric ${verdict}`, text: ratio }),
  );
}

/** The class of a difference: good, bad, or nothing where neither is better or nothing changed. */
function verdictOf(difference, better, scale) {
  if (!better || Math.abs(difference) <= TELLING * Math.abs(scale)) return "";
  return difference * better > 0 ? "good" : "bad";
}

function signed(difference, text) {
  if (!difference) return "0";
  const told = text === percent ? points : text;
  return `${difference > 0 ? "+" : "−"}${told(Math.abs(difference))}`;
}

function categoriesPanel(a, b, store) {
  const names = [...new Set([...Object.keys(a.memory.by_category), ...Object.keys(b.memory.by_category)])];
  const rows = names
    .map((name) => ({ name, a: a.memory.by_category[name] ?? 0, b: b.memory.by_category[name] ?? 0 }))
    .filter((row) => row.a || row.b);
  const box = panel("Memory by category", []);
  const table = sortableTable(
    box,
    [
      {
        title: "Category",
        value: (row) => row.name,
        text: (row) => inWords(row.name),
        colour: (row) => `var(--category-${row.name})`,
      },
      ...differenceColumns(rows, bytes),
    ],
    rows,
    {
      name: "compare-categories",
      sort: -2,
      filter: false,
      onclick: (row) => store.select({ category: row.name }),
      isSelected: (row) => row.name === store.selection.category,
    },
  );
  store.subscribe(() => table.refresh());
  return box;
}

function differenceColumns(rows, text) {
  const most = rows.reduce((largest, row) => Math.max(largest, row.a, row.b), 1e-12);
  const column = (side) => ({
    title: side.toUpperCase(),
    value: (row) => row[side],
    text: (row) => (row.missing === side ? "–" : text(row[side])),
    about: `Of report ${side.toUpperCase()}.`,
    numeric: true,
    bar: (row) => row[side] / most,
  });
  const change = {
    title: "B − A",
    value: (row) => Math.abs(row.b - row.a),
    text: (row) => signed(row.b - row.a, text),
    numeric: true,
    tone: (row) => verdictOf(row.b - row.a, -1, row.a || row.b),
  };
  return [change, column("a"), column("b")];
}

/** What takes most of the time in either: its share in A and in B. */
function costsPanelOf(a, b, store) {
  const costs = new Map();
  for (const [side, report] of [["a", a], ["b", b]]) {
    for (const cost of report.costs) {
      const key = `${cost.title}\n${cost.origin}`;
      if (!costs.has(key)) costs.set(key, { ...cost, a: 0, b: 0, missing: side === "a" ? "b" : "a" });
      const row = costs.get(key);
      if (row.missing === side) row.missing = null;
      row[side] += cost.share;
    }
  }
  const rows = [...costs.values()];
  const box = panel("What takes most of the time", [
    element("span", { class: "faint", text: "Shares of the cycles of all IPUs; a dash: not among the biggest." }),
  ]);
  const table = sortableTable(
    box,
    [
      { title: "Cost", value: (row) => row.title, search: (row) => row.origin, hint: (row) => row.detail, width: 26 },
      ...differenceColumns(rows, percent),
      { title: "Line", value: (row) => row.origin, text: (row) => shortOrigin(row.origin), hint: (row) => row.origin },
    ],
    rows,
    {
      name: "compare-costs",
      sort: -3,
      filter: false,
      onclick: (row) => store.pick(row),
      isSelected: (row) => linked(store.selection, row),
    },
  );
  store.subscribe(() => table.refresh());
  return box;
}

/** What each cause takes more or less of on each IPU; nothing if one of the reports does not say it. */
function causeDeltasPanel(a, b, store, work) {
  if (!a.breakdown || !b.breakdown) return null;
  const [one, other] = work?.replicas ?? [1, 1];
  const causes = CAUSES.filter((cause) => [a, b].some((report) => report.breakdown[cause].some(Boolean)));
  const spent = (report, cause, ipu) => report.breakdown[cause][ipu] ?? 0;
  const rows = Array.from({ length: Math.max(a.num_ipus, b.num_ipus) }, (_, ipu) => ({
    ipu,
    change: causes.map((cause) => spent(b, cause, ipu) / other - spent(a, cause, ipu) / one),
  }));
  const box = panel(perUnit("Where the time goes: cycles, B − A", work), []);
  const table = sortableTable(
    box,
    [
      { title: "IPU", value: (row) => row.ipu, numeric: true, width: 7 },
      ...causes.map((cause, i) => ({
        title: cause,
        width: Math.max(cause.length + 3, 10),
        value: (row) => row.change[i],
        text: (row) => signed(row.change[i], cycles),
        numeric: true,
        tone: (row) => verdictOf(row.change[i], -1, 1),
      })),
    ],
    rows,
    {
      name: "compare-causes",
      filter: false,
      onclick: (row) => store.select({ ipu: row.ipu }),
      isSelected: (row) => row.ipu === store.selection.ipu,
    },
  );
  store.subscribe(() => table.refresh());
  return box;
}

function operationsPanel(a, b, store, work) {
  const rows = matchedOperations(a, b, work?.replicas ?? [1, 1]);
  const box = panel(perUnit("Operations that changed most", work), [
    element("span", { class: "faint", text: "Matched by name, line and IPU; a dash: not there." }),
  ]);
  const table = sortableTable(
    box,
    [
      { title: "Operation", value: (row) => row.called, hint: (row) => row.name, search: (row) => row.name, width: 30 },
      { title: "Pass", value: (row) => row.rows[0].direction ?? "", width: 10 },
      ...differenceColumns(rows, cycles).map((column) => ({ ...column, title: `${column.title} cycles` })),
      { title: "IPU", value: (row) => row.ipu, numeric: true },
      {
        title: "Runs",
        value: (row) => row.runs.b - row.runs.a,
        text: (row) => `${exact(row.runs.a)} → ${exact(row.runs.b)}`,
        numeric: true,
      },
      { title: "Line", value: (row) => row.origin, text: (row) => shortOrigin(row.origin), hint: (row) => row.origin,
        search: (row) => row.origin },
    ],
    rows,
    {
      name: "compare-operations",
      sort: -3,
      placeholder: "Filter operations",
      onclick: (row) => store.pick(asItem(row), { ipu: row.ipu }),
      isSelected: (row) => linked(store.selection, asItem(row)),
      isExact: (row) => exactly(store.selection, asItem(row)),
    },
  );
  store.subscribe(() => table.refresh());
  return box;
}

/** Operations of both reports with the cycles of each: `{name, origin, ipu, a, b, runs: {a, b}}`. */
function matchedOperations(a, b, [one, other]) {
  const matched = new Map();
  for (const [side, report, divisor] of [
    ["a", a, one],
    ["b", b, other],
  ]) {
    for (const operation of report.operations) {
      const key = JSON.stringify([operation.name, operation.origin, operation.ipu]);
      if (!matched.has(key))
        matched.set(key, {
          name: operation.name,
          called: friendlyName(operation),
          origin: operation.origin,
          ipu: operation.ipu,
          number: operation.number,
          rows: [],
          a: 0,
          b: 0,
          runs: { a: 0, b: 0 },
          missing: side === "a" ? "b" : "a",
        });
      const row = matched.get(key);
      if (row.missing === side) row.missing = null;
      row.rows.push(operation);
      row[side] += operation.cycles / divisor;
      row.runs[side] += operation.runs;
    }
  }
  return [...matched.values()];
}

function fullestTile(report) {
  return report.memory.tile_peak_bytes.flat().reduce((most, [value]) => Math.max(most, value), 0);
}

function sumOf(numbers) {
  return numbers.reduce((sum, own) => sum + own, 0);
}
