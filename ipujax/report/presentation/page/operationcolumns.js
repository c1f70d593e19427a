// Columns of tables of operations, and of groups of them.

import {lineColumn, nameColumn, numberColumn} from "./columns.js";
import {bytes, cycles, percent, shortOrigin} from "./format.js";
import {framesOf, lineOf, pathText} from "./frames.js";
import {meaning} from "./glossary.js";
import {friendlyName} from "./names.js";
import {passChip} from "./passchip.js";

/** The columns of operations, each of one IPU or of several that do it alike. */
export function operationColumns(report, rows) {
  const hasScopes = report.operations.some(({ scope }) => scope);
  return [
    ...nameColumns(rows),
    ...shareColumns(report, rows),
    { ...lineColumn(15, (row) => lineOf(report, row)), ...calledBy(report), about: "The user's line. Hovering tells the calls that lead there." },
    ...(hasScopes ? [{ title: "scope", value: (row) => row.scope ?? "", width: 16,
      about: "The named scopes around it, outermost first, the name of an operator included." }] : []),
    ipuColumn(),
    ...costColumns(),
    { ...numberColumn("tiles", (row) => row.tiles, String, 7), about: "The most tiles of an IPU that it uses." },
    { title: "formula", value: (row) => (row.source === "default" ? "general" : "own"), width: 9,
      about: `Whether its cycles come from a formula of its own or from the general one: ${meaning("general formula")}.` },
  ];
}

/** The columns of the operations of a line: how much they take, and how they are called from there on. */
export function lineOperationColumns(report, rows, below) {
  const called = { title: "called here", value: below, width: 22, about: "The lines that it comes to from this one." };
  const scope = { title: "scope", value: (row) => row.scope ?? "", width: 22 };
  return [
    ...nameColumns(rows),
    ...shareColumns(report, rows),
    ...[called, scope].filter((column) => rows.some((row) => column.value(row))),
    ipuColumn(),
    ...costColumns(),
  ];
}

/** The columns of groups: of a line, a primitive or an IPU. */
export function groupColumns(report, rows, title) {
  const line = { text: (row) => shortOrigin(row.name) || "(no line)", hint: (row) => row.name, search: (row) => row.name };
  return [
    { ...nameColumn(title), ...(title === "line" ? line : {}) },
    ...shareColumns(report, rows),
    numberColumn("operations", (row) => row.rows.length, String, 12),
    { title: "IPUs", value: (row) => row.ipus, width: 10 },
    ...costColumns(),
  ];
}

/** What operations are called, and their passes. */
function nameColumns(rows) {
  const name = { ...nameColumn("operation"), value: friendlyName, hint: (row) => row.name, search: (row) => row.name };
  const chip = (row) => passChip(row.direction);
  const pass = { title: "pass", value: (row) => row.direction ?? "", text: () => "", search: (row) => row.direction ?? "", chip, width: 11 };
  return rows.some((row) => row.direction) ? [name, pass] : [name];
}

/** How hovering over an operation's line, and the filter, tell the calls that lead there. */
function calledBy(report) {
  const paths = (row) => [...new Set((row.rows ?? [row]).map((own) => pathText(framesOf(report, own))))];
  return { hint: (row) => paths(row).join("\n"), search: (row) => `${row.origin} ${paths(row).join(" ")}` };
}

function ipuColumn() {
  return { title: "IPU", value: (row) => row.ipu, text: (row) => row.ipus ?? String(row.ipu), numeric: true, width: 6,
    about: "The IPUs that run it; numbers are sums over them." };
}

function shareColumns(report, rows) {
  const all = report.num_ipus * report.cycles;
  const most = rows.reduce((top, row) => Math.max(top, row.cycles), 1);
  return [
    { ...numberColumn("cycles", (row) => row.cycles, cycles, 10), bar: (row) => row.cycles / most,
      about: "Cycles of all its runs in a call." },
    { ...numberColumn("share", (row) => row.cycles / all, percent, 8), about: "Of the cycles of all IPUs in a call." },
  ];
}

/** How tables of these columns are sorted at first: most cycles first. */
export function mostFirst(columns) {
  return -1 - columns.findIndex(({ title }) => title === "cycles");
}

/** The other columns that operations and groups of them have. */
function costColumns() {
  return [
    { ...numberColumn("runs", (row) => row.runs, cycles, 7), about: "How often it runs in a call." },
    { ...numberColumn("exchange", exchanged, percent, 11), about: "The share of its cycles that is exchange." },
    { ...numberColumn("bytes", (row) => row.bytes, bytes, 9), about: "Read and written by all runs." },
    { ...numberColumn("FLOPs", (row) => row.flops || null, cycles, 8), about: "Of all runs." },
    { ...numberColumn("of peak", (row) => row.flop_utilisation, percent, 9),
      about: "FLOPs, of the most that the units of the IPU can do." },
  ];
}

/** The share of the cycles of an operation, or of several, that is exchange. */
export function exchanged(row) {
  return row.cycles ? row.exchange_cycles / row.cycles : 0;
}
