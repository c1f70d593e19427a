// Two reports: what differs, in numbers. All other views show both, side by side.

import {CAUSES, causeShare} from "../breakdown.js";
import {bytes, cycles, element, exact, percent, pointsMore, seconds, shortOrigin, withSign} from "../format.js";
import {asItem} from "../items.js";
import {rangesText} from "../operationsums.js";
import {inWords, panel} from "../parts.js";
import {exactly, linked} from "../store.js";
import {sortableTable} from "../table.js";

const TELLING = 1e-9; // relative; less than that is no difference

/** Two reports, A and B, what belongs together in them (see `comparison.py`), and what they are called. */
export function compareView(root, reports, comparison, store, labels) {
  const [a, b] = reports;
  root.append(
    headlinePanel(a, b, comparison, labels),
    element("div", { class: "columns" }, categoriesPanel(a, b, store), costsPanelOf(a, b, comparison, store)),
    ...[causeDeltasPanel(a, b, comparison, store)].filter(Boolean),
    operationsPanel(a, b, comparison, store),
  );
}

/** `[what, value(report), text(value), which is better: 1 more, -1 less, 0 neither]`; first what a call takes. */
const CALL_HEADLINES = [
  ["cycles of a call", (report) => report.cycles, cycles, -1],
  ["time of a call", (report) => report.seconds, seconds, -1],
];
const HEADLINES = [
  ["IPUs of a replica", (report) => report.num_ipus, exact, 0],
  ["replicas", (report) => report.replication_factor, exact, 0],
  // A share that falls may be of a call that falls more: which is better, the causes' cycles tell.
  ...CAUSES.map((cause) => [`${cause}, of all cycles`, (report) => causeShare(report, cause), percent, 0]),
  ["the fullest tile", (report) => fullestTile(report), bytes, -1],
  ["instructions on the tile that has most", (report) => report.memory.most_code_bytes, bytes, -1],
  ["memory of all IPUs at their worst steps", (report) => sumOf(report.memory.peak_bytes), bytes, -1],
  ["streaming memory", (report) => sumOf(report.memory.remote_bytes), bytes, -1],
  ["steps", (report) => report.steps.count, exact, 0],
  ["computing that the general formula estimates", (report) => report.default_share, percent, 0],
];

/** What is better of times: nothing, where one of the calls computes more. */
function betterTime({ cycles_per_gigaflop: unequal }) {
  return unequal ? 0 : -1;
}

/** All rows; where calls do not do as much, first what a part takes that both do, and a whole call is not judged. */
function headlines({ work, cycles_per_gigaflop: each }, a, b) {
  const side = (report) => (report === a ? 0 : 1);
  const judged = ([what, value, text, better]) => [what, value, text, each ? 0 : better];
  const unit = work && [
    [`cycles of one ${work.unit}`, (report) => report.cycles / work.calls[side(report)], cycles, -1],
    [`time of one ${work.unit}`, (report) => report.seconds / work.calls[side(report)], seconds, -1],
    [`${work.unit}s of a call`, (report) => work.calls[side(report)], exact, 0],
  ];
  return [
    ...(each ? [["cycles of a forward GFLOP", (report) => each[side(report)], cycles, -1]] : []),
    ...(unit ?? []).map(judged),
    ...CALL_HEADLINES.map(([what, value, text]) => [what, value, text, work || each ? 0 : -1]),
    judged(throughputOf(a, b)),
    ...HEADLINES,
  ];
}

/** The headline of throughput: examples where both reports know them, otherwise elements. */
function throughputOf(a, b) {
  if (!a.batch_size || !b.batch_size) return ["elements a second", (report) => report.throughput, cycles, 1];
  return ["examples a second", (report) => report.throughput && report.throughput * report.batch_size, cycles, 1];
}

function headlinePanel(a, b, comparison, labels) {
  const titles = ["A", "B", "B − A", "B / A"].map((title) => element("th", { scope: "col", class: "numeric", text: title }));
  const head = element("tr", {}, element("td"), titles);
  const rows = headlines(comparison, a, b).map(([what, value, text, better]) => headlineRow(what, value(a), value(b), text, better));
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
  const notes = comparisonNotes(a, b, comparison).map((note) => element("li", { text: note }));
  const list = notes.length ? element("ul", { class: "plain compare-notes", "data-notes": true }, notes) : null;
  return panel("Compare", names, list, element("div", { class: "table-scroll" }, table));
}

/** What must be known to compare two reports, as sentences. */
function comparisonNotes(a, b, { notes, work }) {
  const said = a.name === b.name ? [] : [`These are two programs: A is ${a.name || "unnamed"}, B is ${b.name || "unnamed"}.`];
  said.push(...notes);
  if (work) said.push(`Cycles below the first table are of one ${work.unit}.`);
  const parts = [
    ["pipeline", "a pipeline", "its rows have a dash, and Schedule shows one side"],
    ["host", "a recorded run of the host", "Host shows one side"],
  ];
  for (const [key, what, effect] of parts) {
    if (!a[key] !== !b[key]) said.push(`Only ${a[key] ? "A" : "B"} has ${what}: ${effect}.`);
  }
  [a, b].forEach((report, i) => {
    const older = report.operations.some((operation) => operation.number === undefined);
    if (older) said.push(`${"AB"[i]} is of an earlier ipujax: it does not tell which step is of which operation.`);
  });
  return said;
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
  if (!known && !other) return null;
  const shown = (value) => element("td", { class: "numeric", text: value === null ? "–" : text(value) });
  const both = known !== null && other !== null;
  const verdict = both ? verdictOf(other - known, better, known) : "";
  const ratio = both && known ? `${ratioText(other / known)}\u00a0×` : "–";
  return element(
    "tr",
    { "data-row": what },
    element("th", { scope: "row", text: what }),
    shown(known),
    shown(other),
    element("td", { class: `numeric ${verdict}`, text: both ? change(known, other, text) : "–" }),
    element("td", { class: `numeric ${verdict}`, text: ratio }),
  );
}

/** Three digits, as many as there are before the point: 0.500, 1.25, 1,234. */
function ratioText(ratio) {
  return ratio >= 999.5 ? exact(ratio) : ratio.toPrecision(3);
}

/** The class of a difference: good, bad, or nothing where neither is better or nothing changed. */
function verdictOf(difference, better, scale) {
  if (!better || Math.abs(difference) <= TELLING * Math.abs(scale)) return "";
  return difference * better > 0 ? "good" : "bad";
}

/** How much more b is than a, with a sign; of shares in points. */
function change(a, b, text) {
  return text === percent ? pointsMore(b, a) : withSign(b - a, text);
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
      ...differenceColumns(rows, bytes, -1),
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

/** The change, then A and B; `better` is 1 for more, -1 for less and 0 for neither. */
function differenceColumns(rows, text, better) {
  const most = rows.reduce((largest, row) => Math.max(largest, row.a, row.b), 1e-12);
  const column = (side) => ({
    title: side.toUpperCase(),
    value: (row) => row[side],
    text: (row) => (row.missing === side ? "–" : text(row[side])),
    about: `Of report ${side.toUpperCase()}.`,
    numeric: true,
    bar: (row) => row[side] / most,
  });
  const difference = {
    title: "B − A",
    value: (row) => Math.abs(row.b - row.a),
    text: (row) => (row.unknown ? "–" : change(row.a, row.b, text)),
    numeric: true,
    tone: (row) => verdictOf(row.b - row.a, better, row.a || row.b),
  };
  return [difference, column("a"), column("b")];
}

/** Rows of both reports that belong together, and the sums of what they take: `{title, rows, a, b, missing}`. */
function pairedRows(pairs, all, value) {
  return pairs.map(([title, ...members]) => {
    const sides = members.map((numbers, side) => numbers.map((number) => all[side][number]));
    const [a, b] = sides.map((rows, side) => rows.reduce((sum, row) => sum + value(row, side), 0));
    const missing = ["a", "b"].find((_, side) => !sides[side].length) ?? null;
    return { title, rows: sides.flat(), sides, a, b, missing };
  });
}

/** What takes most of the time in either: its share in A and in B. */
function costsPanelOf(a, b, comparison, store) {
  const pairs = pairedRows(comparison.costs, [a.costs, b.costs], (cost) => cost.share);
  const rows = pairs.map((pair) => ({ ...pair, ...originAndName(pair), unknown: pair.missing }));
  const box = panel("What takes most of the time", [
    element("span", { class: "faint", text: "Shares of the cycles of all IPUs; a dash: not among the biggest." }),
  ]);
  const table = sortableTable(
    box,
    [
      { title: "Cost", value: (row) => row.title, search: (row) => row.origin, hint: (row) => row.rows[0].detail },
      ...differenceColumns(rows, percent, 0),
      pairedLineColumn(),
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

/** What is selected with a row of several: the line and the name of the first. */
function originAndName({ rows: [{ origin, name }] }) {
  return { origin, name };
}

/** The line of a row's parts, or the lines where the reports have different ones. */
function pairedLineColumn() {
  const lines = (row, text) => [...new Set(row.rows.map(({ origin }) => text(origin)))].join(" → ");
  return { title: "Line", value: (row) => lines(row, shortOrigin), hint: (row) => lines(row, String), search: (row) => lines(row, String) };
}

/** What each cause takes more or less of on each IPU; nothing if one of the reports does not say it. */
function causeDeltasPanel(a, b, comparison, store) {
  if (!a.breakdown || !b.breakdown) return null;
  const { work } = comparison;
  const [one, other] = work?.replicas ?? [1, 1];
  const causes = CAUSES.filter((cause) => [a, b].some((report) => report.breakdown[cause].some(Boolean)));
  const spent = (report, cause, ipu) => report.breakdown[cause][ipu] ?? 0;
  const changes = (ipus) => causes.map((cause) => {
    const [before, after] = [a, b].map((report) => ipus.reduce((sum, ipu) => sum + spent(report, cause, ipu), 0));
    return after / other - before / one;
  });
  const ipus = [...Array(Math.max(a.num_ipus, b.num_ipus)).keys()];
  const rows = ipus.map((ipu) => ({ ipu, change: changes([ipu]), better: a.num_ipus === b.num_ipus ? betterTime(comparison) : 0 }));
  if (rows.length > 1) rows.unshift({ ipu: null, change: changes(ipus), better: betterTime(comparison) });
  const box = panel(perUnit("Where the time goes: cycles, B − A", work), []);
  const table = sortableTable(
    box,
    [
      { title: "IPU", value: (row) => row.ipu ?? -1, text: (row) => row.ipu ?? "all", numeric: true, width: 7 },
      ...causes.map((cause, i) => ({
        title: cause,
        width: Math.max(cause.length + 3, 10),
        value: (row) => row.change[i],
        text: (row) => withSign(row.change[i], cycles),
        numeric: true,
        tone: (row) => verdictOf(row.change[i], row.better, 1),
      })),
    ],
    rows,
    {
      name: "compare-causes",
      filter: false,
      onclick: (row) => store.select({ ipu: row.ipu }),
      isSelected: (row) => row.ipu !== null && row.ipu === store.selection.ipu,
    },
  );
  store.subscribe(() => table.refresh());
  return box;
}

function operationsPanel(a, b, comparison, store) {
  const { work, operations } = comparison;
  const divisors = work?.replicas ?? [1, 1];
  const pairs = pairedRows(operations, [a.operations, b.operations], (row, side) => row.cycles / divisors[side]);
  const rows = pairs.map((pair) => ({ ...pair, ...facts(pair) }));
  const box = panel(perUnit("Operations that changed most, in cycles", work), [
    element("span", { class: "faint", text: "Paired by scope, line, pass and kind; a dash: not there." }),
  ]);
  const columns = [
    { title: "Operation", value: (row) => row.title, hint: (row) => row.names, search: (row) => row.names },
    ...differenceColumns(rows, cycles, betterTime(comparison)),
    { title: "Pass", value: (row) => row.direction, width: 10 },
    { title: "Scope", value: (row) => row.scope, missing: rows.every((row) => !row.scope) },
    { title: "IPU", value: (row) => row.ipus, numeric: true },
    { title: "Runs", value: (row) => row.runs, numeric: true },
    pairedLineColumn(),
  ];
  const table = sortableTable(
    box,
    columns.filter((column) => !column.missing),
    rows,
    {
      name: "compare-operations",
      sort: -2,
      placeholder: "Filter operations",
      onclick: (row) => store.pick(asItem(row), { ipu: row.ipu }),
      isSelected: (row) => linked(store.selection, asItem(row)),
      isExact: (row) => exactly(store.selection, asItem(row)),
    },
  );
  store.subscribe(() => table.refresh());
  return box;
}

/** What a pair of operations is: where it runs and how often, in A and in B where that differs. */
function facts(pair) {
  const { rows, sides } = pair;
  const { scope, number, direction } = rows[0];
  const ipusOf = (side) => rangesText(side.map(({ ipu }) => ipu));
  const runsOf = (side) => exact(sumOf(side.map(({ runs }) => runs)));
  const both = (of) => [...new Set(sides.map(of))].map((text) => text || "–").join(" → ");
  const ipus = new Set(rows.map(({ ipu }) => ipu));
  const names = [...new Set(rows.map(({ name }) => name))].join("\n");
  return { ...originAndName(pair), names, scope: scope ?? "", number, direction: direction ?? "",
    ipu: ipus.size === 1 ? rows[0].ipu : null, ipus: both(ipusOf), runs: both(runsOf) };
}

function fullestTile(report) {
  return report.memory.tile_peak_bytes.flat().reduce((most, [value]) => Math.max(most, value), 0);
}

function sumOf(numbers) {
  return numbers.reduce((sum, own) => sum + own, 0);
}
