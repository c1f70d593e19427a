// How much a call of each of two programs does, and what one of the reports lacks.

import {text} from "./document.js";
import {counted, exact} from "./format.js";

const MOST_OF_CALL = 0.9; // so that what a loop does is what the call does

/** What a call does so many times: `{count, unit}`; null where nothing tells. */
export function workOf(report) {
  if (report.elements) return { count: report.elements, unit: "element" };
  const { kind, children, cycles, count } = report.program;
  const spent = (node) => cycles[node] * count[node];
  let node = kind.length - 1; // the root
  let runs = 1;
  while (["sequence", "execute"].includes(text(report, kind[node])) && children[node].length) {
    node = children[node].reduce((most, child) => (spent(child) > spent(most) ? child : most));
    runs *= count[node];
  }
  const looped = text(report, kind[node]) === "repeat" && count[node] > 1;
  const takes = runs * cycles[node] >= MOST_OF_CALL * report.cycles;
  return looped && takes ? { count: count[node], unit: "iteration" } : null;
}

/** By what cycles of A and B are divided where a call of one does more: `{unit, calls, replicas}`, or null. */
export function differingWork(a, b) {
  const works = [workOf(a), workOf(b)];
  const [one, other] = works;
  if (!one || !other || one.unit !== other.unit || one.count === other.count) return null;
  const shared = one.unit === "element" ? [a, b].map((report) => report.replication_factor) : [1, 1];
  return {
    unit: one.unit,
    calls: works.map((work) => work.count),
    replicas: works.map((work, i) => work.count / shared[i]),
  };
}

/** What must be known to compare two reports, as sentences. */
export function comparisonNotes(a, b, work) {
  const notes = [];
  if (a.name !== b.name) notes.push(`These are two programs: A is ${a.name || "unnamed"}, B is ${b.name || "unnamed"}.`);
  if (work) {
    const [one, other] = work.calls;
    notes.push(
      `B does ${+(other / one).toPrecision(3)} times the work of A: ${counted(other, work.unit)} a call, not ` +
        `${exact(one)}. Cycles below the first table are of one ${work.unit}.`,
    );
  }
  const parts = [
    ["pipeline", "a pipeline", "its rows have a dash, and Schedule shows one side"],
    ["host", "a recorded run of the host", "Host shows one side"],
  ];
  for (const [key, what, effect] of parts) {
    if (!a[key] !== !b[key]) notes.push(`Only ${a[key] ? "A" : "B"} has ${what}: ${effect}.`);
  }
  [a, b].forEach((report, i) => {
    const older = report.operations.some((operation) => operation.number === undefined);
    if (older) notes.push(`${"AB"[i]} is of an earlier ipujax: it does not tell which step is of which operation.`);
  });
  return notes;
}
