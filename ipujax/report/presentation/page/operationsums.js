// Sums over operations, and groups of them.
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
 * Operations in groups by `"same"` (what several IPUs do alike), `"origin"`, `"primitive"` or `"ipu"`: their sums,
 * `name`, and what `together` gives.
 */
export function operationGroups(operations, by) {
  const groups = new Map();
  for (const operation of operations) {
    const key = groupKey(operation, by);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(operation);
  }
  return [...groups].map(([name, rows]) => (by === "same" ? { ...rows[0], ...together(rows) } : { ...together(rows), name }));
}

/** What operations are together: their sums, `ipu`, `ipus` (such as "0-3"), `tiles`, `source`, and they as `rows`. */
export function together(rows) {
  return {
    ...operationSums(rows),
    ipu: rows[0].ipu,
    number: rows[0].number,
    ipus: rangesText(rows.map((row) => row.ipu)),
    tiles: rows.reduce((most, row) => Math.max(most, row.tiles), 0),
    source: [...new Set(rows.map((row) => row.source))].join(", "),
    rows,
  };
}

function groupKey(operation, by) {
  if (by === "same") return operation.number >= 0 ? operation.number : `${operation.name}\n${operation.origin}`;
  if (by === "origin") return operation.origin;
  if (by === "ipu") return `IPU ${operation.ipu}`;
  return primitivesOf(operation.name);
}

/** Numbers as text, such as "0-2, 5". */
export function rangesText(numbers) {
  const sorted = [...new Set(numbers)].sort((a, b) => a - b);
  const ranges = [];
  for (const number of sorted) {
    const last = ranges.at(-1);
    if (last && last[1] === number - 1) last[1] = number;
    else ranges.push([number, number]);
  }
  return ranges.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(", ");
}
