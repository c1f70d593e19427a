// Sums over operations, and groups of them.
import {text} from "./document.js";
import {primitivesOf} from "./store.js";

/** The sums of operations or of groups: `count` of operations, `runs`, `cycles`, `exchange_cycles`, `bytes`, `flops`,
 * and `flop_utilisation` weighted by the cycles of those that have one, or null. */
export function operationSums(rows) {
  const sums = { count: 0, runs: 0, cycles: 0, exchange_cycles: 0, bytes: 0, flops: 0 };
  let used = 0;
  let rated = 0;
  for (const row of rows) {
    sums.count += row.rows ? row.rows.length : 1;
    sums.runs += row.runs;
    sums.cycles += row.cycles;
    sums.exchange_cycles += row.exchange_cycles;
    sums.bytes += row.bytes;
    sums.flops += row.flops;
    if (row.flop_utilisation === null) continue;
    const weight = row.rated_cycles ?? row.cycles;
    used += row.flop_utilisation * weight;
    rated += weight;
  }
  return { ...sums, rated_cycles: rated, flop_utilisation: rated ? used / rated : null };
}

/**
 * Operations in groups by `"same"` (name, line and scope, over all IPUs), `"origin"`, `"scope"`, `"primitive"` or
 * `"ipu"`: their sums, `name`, `origin`, `scope`, `ipu`, `ipus` (such as "0-3"), `tiles`, `source` and `rows`.
 */
export function operationGroups(operations, by) {
  const groups = new Map();
  for (const operation of operations) {
    const key = groupKey(operation, by);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(operation);
  }
  return [...groups].map(([name, rows]) => ({
    ...operationSums(rows),
    name: by === "same" ? rows[0].name : name,
    origin: rows[0].origin,
    scope: scopeOf(rows[0]),
    ipu: rows[0].ipu,
    number: rows[0].number,
    ipus: rangesText(rows.map((row) => row.ipu)),
    tiles: rows.reduce((most, row) => Math.max(most, row.tiles), 0),
    source: [...new Set(rows.map((row) => row.source))].join(", "),
    rows,
  }));
}

function groupKey(operation, by) {
  if (by === "same") return `${operation.name}\n${operation.origin}\n${scopeOf(operation)}`;
  if (by === "scope") return scopeOf(operation);
  if (by === "origin") return operation.origin;
  if (by === "ipu") return `IPU ${operation.ipu}`;
  return primitivesOf(operation.name);
}

/** The pass that an operation, or a group of them, is of, and the user's frames that lead there, the outermost first. */
export function calledFrom(report, row) {
  const way = (frames) => frames.map((number) => text(report, number)).join(" > ");
  const ways = (row.rows ?? [row]).map(({ call_path: frames, direction, origin }) =>
    [direction, frames?.length ? way(frames) : origin].filter(Boolean).join(": "));
  return [...new Set(ways)].join("\n");
}

/** The named scopes around an operation, or "": reports of earlier versions have none. */
export function scopeOf(operation) {
  return operation.scope ?? "";
}

/** Numbers as text, such as "0-2, 5". */
function rangesText(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const ranges = [];
  for (const number of sorted) {
    const last = ranges.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(", ");
}
