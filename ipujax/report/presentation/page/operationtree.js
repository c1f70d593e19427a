// The nodes of a tree of operations: the parts of the model, with the sums of what is in them.

import {lineOf} from "./frames.js";
import {friendlyName} from "./names.js";
import {added, nested} from "./nesting.js";
import {operationGroups, together} from "./operationsums.js";
import {placesOf} from "./structure.js";

const NO_SCOPE = { key: "", name: "(no scope)", from: "", patch: null };

function unscopedLast(rows, by) {
  return by === "scope" ? [...rows.filter(({ scope }) => scope), ...rows.filter(({ scope }) => !scope)] : rows;
}

/**
 * Nodes for a `RowTree` of a report's operations in the parts of its model: `{kind, name, cycles, row (what
 * `operationGroups` gives of an operation, or `together` of a part), operation (an object, null for a part)}`.
 */
export function operationNodes(report, by, isByCycles) {
  const nodes = [];
  const rows = operationGroups(report.operations, "same").sort((a, b) => a.number - b.number);
  const leaves = unscopedLast(rows, by).map((row) => {
    const { cycles } = row;
    const origin = lineOf(report, row);
    const leaf = { kind: "operation", name: friendlyName(row), from: "", origin, count: 1, cycles, row, operation: row };
    const places = placesOf(report, row, by);
    return [added(nodes, { ...leaf, children: [] }), places.length || by !== "scope" ? places : [NO_SCOPE]];
  });
  const whole = (children) => ({ row: together(children.flatMap((child) => nodes[child].row.rows)) });
  const top = nested(nodes, leaves, by, whole);
  if (rows.length) {
    const all = together(report.operations);
    added(nodes, { kind: "all", name: "all operations", from: "", origin: "", count: 1, cycles: all.cycles, patch: null, row: all, operation: null, children: top });
  }
  if (isByCycles) for (const { children } of nodes) children.sort((a, b) => nodes[b].cycles - nodes[a].cycles);
  return nodes;
}
