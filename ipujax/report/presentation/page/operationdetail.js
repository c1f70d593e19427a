// What an operation is, at length: its primitive, its numbers, and how the user's code comes to it.

import {counted, cycles, element, exact, percent, seconds} from "./format.js";
import {frameOf, framesOf, shortFunction} from "./frames.js";
import {friendlyName} from "./names.js";
import {passChip} from "./passchip.js";

const MOST_PATHS = 3;

/** Lines about an operation, or about one that several IPUs do alike (a row of `operationGroups`), and what is said of it. */
export function operationDetail(report, store, row, facts) {
  const name = friendlyName(row);
  const primitive = row.name === name ? "" : row.name;
  const said = [primitive, row.scope && `in ${row.scope}`, ...facts].filter(Boolean).join(" · ");
  return [
    element("p", {}, element("b", { text: name }), passChip(row.direction)),
    element("p", { class: "soft", text: said }),
    ...callPaths(report, store, row.rows ?? [row]),
  ];
}

/** What is said of an operation of a call. */
export function operationFacts(report, row) {
  const each = row.cycles / Math.max(row.runs, 1);
  return [
    `IPU ${row.ipus ?? row.ipu}`,
    ...runFacts(report, row.runs, each),
    row.cycles ? `${percent(row.exchange_cycles / row.cycles)} of it exchange` : "",
    `on ${counted(row.tiles, "tile")}`,
  ];
}

/** What is said of a part of a program: how often it runs, and what that takes. */
export function partFacts(report, { ipu, cycles: each }, runs) {
  return [ipu < 0 ? "" : `IPU ${ipu}`, ...runFacts(report, runs, each)];
}

function runFacts(report, runs, each) {
  const total = runs * each;
  const took = `${seconds(total / report.target.clock_hz)}, ${percent(total / Math.max(report.cycles, 1))} of the call`;
  if (runs === 1) return ["runs once", `${cycles(total)} cycles, ${took}`];
  return [`runs ${exact(runs)} times in a call`, `${cycles(each)} cycles each`, `${cycles(total)} cycles in all, ${took}`];
}

function callPaths(report, store, operations) {
  const paths = new Map(operations.map((operation) => [JSON.stringify(operation.call_path), framesOf(report, operation)]));
  const shown = [...paths.values()].slice(0, MOST_PATHS).map((frames) => callPath(store, frames));
  const more = paths.size - shown.length;
  return more > 0 ? [...shown, element("p", { class: "faint", text: `and ${more} more ways to it` })] : shown;
}

/** The user's frames, each of which leads to its line. */
function callPath(store, frames) {
  const links = frames.map((frame) => {
    const { place, name } = frameOf(frame) ?? { place: frame, name: "" };
    const file = place.slice(place.lastIndexOf("/") + 1);
    return element("button", {
      class: "frame", type: "button", title: `${frame}: show this line`, "data-frame": frame,
      onclick: () => store.open("source", { origin: frame }),
    }, file, name ? element("span", { class: "soft", text: ` ${shortFunction(name)}` }) : null);
  });
  return element("p", { class: "call-path" }, links);
}
