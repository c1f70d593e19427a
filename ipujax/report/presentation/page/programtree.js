// The nodes of a program's tree: its own, and the parts of the model that operations are in.

import {text} from "./document.js";
import {lineOf} from "./frames.js";
import {friendlyName} from "./names.js";
import {added, nested} from "./nesting.js";
import {placesOf} from "./structure.js";

const LEAST_TOGETHER = 4;

/**
 * Nodes for a `RowTree` of a report's program, operations put into passes and into parts of the model:
 * `{kind, name, raw (its name in the report), origin, ipu, count, cycles, operation (an object, or null), children}`, and
 * those of `nested`.
 */
export function programNodes(report, by) {
  const { program } = report;
  const operations = new Map(report.operations.map((operation) => [operation.number, operation]));
  const nodes = [];
  const numbers = []; // by those that nodes have in the report
  program.kind.forEach((kind, i) => {
    const operation = operations.get(program.operation?.[i] ?? -1) ?? null;
    const children = alikeTogether(nodes, program.children[i].map((child) => numbers[child]));
    numbers.push(added(nodes, {
      kind: text(report, kind),
      name: operation ? friendlyName(operation) : kernelName(nodes, children) || text(report, program.name[i]),
      raw: text(report, program.name[i]),
      origin: operation ? lineOf(report, operation) : text(report, program.origin[i]),
      ipu: program.ipu[i],
      count: program.count[i],
      cycles: program.cycles[i],
      from: "",
      operation,
      children: by && isTakenApart(nodes, children) ? byPass(report, nodes, children, by) : children,
    }));
  });
  return nodes;
}

/** Children, of which many that follow each other and are called the same (stores of one optimizer, say) are one. */
function alikeTogether(nodes, children) {
  const runs = [];
  for (const child of children) {
    const first = runs.at(-1)?.[0];
    if (first !== undefined && isAlike(nodes[first], nodes[child])) runs.at(-1).push(child);
    else runs.push([child]);
  }
  return runs.flatMap((run) => (run.length < LEAST_TOGETHER ? run : [togetherAs(nodes, run)]));
}

function isAlike(one, other) {
  return !one.operation && !one.children.length && one.kind === other.kind && one.raw === other.raw && one.ipu === other.ipu;
}

function togetherAs(nodes, run) {
  const cycles = run.reduce((sum, child) => sum + nodes[child].cycles * nodes[child].count, 0);
  return added(nodes, { ...nodes[run[0]], count: 1, cycles, from: `${run.length} of them`, children: run });
}

/** What people call a kernel: its operation that takes most, and how many more there are; "" for what is none. */
function kernelName(nodes, children) {
  const own = children.filter((child) => nodes[child].operation);
  if (!own.length) return "";
  const total = (child) => nodes[child].cycles * nodes[child].count;
  const most = own.reduce((top, child) => (total(child) > total(top) ? child : top));
  return own.length > 1 ? `${nodes[most].name} and ${own.length - 1} more` : nodes[most].name;
}

function isTakenApart(nodes, children) {
  return children.length > 1 && children.some((child) => nodes[child].operation);
}

/** Children in the passes that they belong to, where there are several, and inside of these in parts of the model. */
function byPass(report, nodes, children, by) {
  const passes = new Map();
  for (const child of children) {
    const { operation } = nodes[child];
    const pass = operation?.direction ?? "";
    if (!passes.has(pass)) passes.set(pass, []);
    passes.get(pass).push([child, operation ? placesOf(report, operation, by) : []]);
  }
  const own = new Set(passes.keys());
  own.delete("");
  if (own.size < 2) return nested(nodes, [...passes.values()].flat(), by);
  return [...passes].flatMap(([pass, leaves]) => {
    const inside = nested(nodes, leaves, by);
    return pass ? [passNode(nodes, pass, inside)] : inside;
  });
}

function passNode(nodes, pass, children) {
  const cycles = children.reduce((sum, child) => sum + nodes[child].cycles * nodes[child].count, 0);
  return added(nodes, { kind: "pass", name: pass, from: "", origin: "", ipu: -1, count: 1, cycles, patch: null, operation: null, children });
}
