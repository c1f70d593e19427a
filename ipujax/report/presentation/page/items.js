// What a selection can be of, and what can belong to it: operations by their numbers, and all that has a line and a name.

import {text} from "./document.js";
import {framesOf, placeOf} from "./frames.js";

const itemCache = new WeakMap();

/**
 * What a step, a node of the program or the like is, for `linked` and `exactly`: the operation of the number that it
 * has, `{origin, name, operation, scope, lines}`, or else, with -1 or in reports of earlier versions, its line and name
 * (texts). `lines` are those of its call path.
 */
export function itemOf(report, operation, origin, name) {
  return operationItems(report).get(operation) ?? { origin: text(report, origin), name: text(report, name) };
}

/** The operation of a number as such an item. */
export function operationItem(report, number) {
  return operationItems(report).get(number);
}

/** An operation of a report, or a row of several that have one name and line, as such an item. */
export function asItem({ origin, name, scope, number, ipu, rows = null }) {
  const alike = !rows || rows.every((row) => row.number === number);
  return { origin, name, scope, operation: alike ? number : undefined, ipu };
}

/** Whether an operation of a name, such as `mul sub float16[8], backward`, makes what is called `sub float16[8]`. */
export function makes(name, made) {
  return ` ${name.replace(/, backward$/, "")}`.endsWith(` ${made}`);
}

/** An operation of a report, or a row of what several IPUs do alike, as such an item with the lines of its call path. */
export function rowItem(report, row) {
  return operationItem(report, row.number) ?? asItem(row);
}

/** The operation of a number, of that IPU of those that do it where it takes most; undefined if there is none. */
export function operationOf(report, number) {
  return number >= 0 ? report.operations.find((operation) => operation.number === number) : undefined;
}

function operationItems(report) {
  if (!itemCache.has(report)) {
    const items = new Map();
    for (const operation of report.operations) {
      const { origin, name, scope, number = -1 } = operation;
      const lines = new Set(framesOf(report, operation).map(placeOf));
      if (number >= 0) items.set(number, { origin, name, scope, operation: number, lines });
    }
    itemCache.set(report, items);
  }
  return itemCache.get(report);
}

/**
 * Gives the operations of a second report the numbers of those of the first that they are paired with, in order, and the
 * others numbers of their own, so that what is selected in one of them is selected in both. `pairs` are `[title, rows of
 * the first, rows of the second]`.
 */
export function numberAlike(first, second, pairs) {
  const numbers = new Map([[-1, -1]]);
  for (const [, own, others] of pairs) {
    const free = numbersOf(first, own);
    for (const number of numbersOf(second, others)) {
      if (free.length && !numbers.has(number)) numbers.set(number, free.shift());
    }
  }
  let next = first.operations.reduce((most, { number = -1 }) => Math.max(most, number + 1), 0);
  for (const { number = -1 } of second.operations) {
    if (!numbers.has(number)) numbers.set(number, next++);
  }
  const renumbered = (column) => column?.map((number) => numbers.get(number));
  for (const operation of second.operations) operation.number = numbers.get(operation.number);
  second.program.operation = renumbered(second.program.operation);
  for (const { steps } of second.liveness) steps.operation = renumbered(steps.operation);
  for (const node of second.steps.nodes) node.operation = renumbered(node.operation);
}

/** The numbers of the operations in these rows of a report, ascending. */
function numbersOf({ operations }, rows) {
  const numbers = new Set(rows.map((row) => operations[row].number ?? -1));
  numbers.delete(-1);
  return [...numbers].sort((a, b) => a - b);
}
