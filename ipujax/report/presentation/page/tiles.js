// What lies on which tile: a report's memory, unpacked once for each IPU.
import {fromRepeats, text} from "./document.js";
import {itemOf, makes} from "./items.js";

const TILE_CATEGORIES = [
  "variables", "constants", "activations", "fifos", "temporaries",
  "vertex_code", "vertex_state", "control_code", "exchange_code", "stack",
];
const NAMED_BY_PATH = /(argument|loop variable|stream-in)$/; // what has a name of the user's needs no such words
const tileCache = new WeakMap();

/** The categories that a report has any bytes of, in a fixed order. */
export function usedCategories(report) {
  return TILE_CATEGORIES.filter((name) => report.memory.by_category[name] > 0);
}

/** One IPU's tiles: `{tiles, peak, parts: [{name, bytes}], worst}`, bytes as Float64Array. */
export function tileMemory(report, ipu) {
  if (!tileCache.has(report)) tileCache.set(report, []);
  const known = tileCache.get(report);
  known[ipu] ??= unpackTiles(report, ipu);
  return known[ipu];
}

function unpackTiles(report, ipu) {
  const peak = fromRepeats(report.memory.tile_peak_bytes[ipu]);
  const packed = report.memory.tile_categories[ipu];
  const parts = usedCategories(report)
    .filter((name) => packed[name])
    .map((name) => ({ name, bytes: fromRepeats(packed[name]) }));
  return { tiles: peak.length, peak, parts, worst: fullestOf(peak, 0, peak.length) };
}

/** The bytes on each tile that are shown: of one category, or the peak of all. */
export function shownBytes(memory, category) {
  if (category === null) return memory.peak;
  const part = memory.parts.find(({ name }) => name === category);
  return part ? part.bytes : new Float64Array(memory.tiles);
}

/** The index of the largest of `values[from..to)`; the first of them if there are several. */
export function fullestOf(values, from, to) {
  let best = from;
  for (let i = from + 1; i < to; i++) if (values[i] > values[best]) best = i;
  return best;
}

/** How many tiles of an IPU hold more than a tile can. */
export function countOver(memory, limit) {
  let over = 0;
  for (const bytes of memory.peak) if (bytes > limit) over += 1;
  return over;
}

/** The i-th of numbers in the `repeats` notation. */
function repeatAt(repeats, i) {
  for (const [value, count] of repeats) {
    if (i < count) return value;
    i -= count;
  }
  return 0;
}

/** The tensors on a tile at a step of its IPU, largest first. */
export function tensorsOnTile(report, ipu, tile, step) {
  const { tensors, mappings } = report.liveness[ipu];
  const here = mappings.map((mapping) => repeatAt(mapping, tile));
  const found = [];
  for (let i = 0; i < tensors.name.length; i++) {
    const bytes = here[tensors.mapping[i]];
    if (!bytes || !isAliveAt(tensors, i, step)) continue;
    found.push({
      ...tensorItem(report, report.liveness[ipu], i),
      category: text(report, tensors.category[i]),
      bytes,
      total: tensors.bytes[i],
    });
  }
  return found.sort((a, b) => b.bytes - a.bytes);
}

function isAliveAt({ first, last }, i, step) {
  return first[i] < 0 || (first[i] <= step && step <= last[i]);
}

/**
 * A tensor as what can be selected: `{origin, name, made}`, the primitive that makes it (`maker`) and the `scope` of that,
 * `operation` of the step at which it begins to live, if that is what makes it, and its `shape` and `owner` in words.
 */
export function tensorItem(report, { tensors, steps }, i) {
  const { maker, origin } = tensorMaker(report, tensors, i);
  const made = `${maker} ${text(report, tensors.name[i])}`;
  const at = tensors.first[i];
  const step = at < 0 ? null : itemOf(report, steps.operation?.[at] ?? -1, steps.origin[at], steps.name[at]);
  const own = step?.origin === origin && makes(step.name, made);
  const { operation } = own ? step : {};
  const path = tensorPath(report, tensors, i);
  const shape = text(report, tensors.name[i]);
  const name = path ? `${path} ${shape}` : shape;
  const scope = (tensors.scope ? text(report, tensors.scope[i]) : own && step.scope) || undefined;
  return { origin, name, made, maker, operation, scope, shape, owner: tensorOwner(report, tensors, i, path, maker) };
}

/** What a tensor belongs to: what the user calls it, and what makes it in words (older reports: the primitive). */
function tensorOwner(report, tensors, i, path, maker) {
  const label = (tensors.label && text(report, tensors.label[i])) || maker;
  if (path && NAMED_BY_PATH.test(label)) return path;
  return [path, label].filter(Boolean).join(", ");
}

/** What the user calls a tensor, if that is known. */
function tensorPath(report, tensors, i) {
  const argument = tensors.value[i] < 0 ? undefined : report.arguments[String(tensors.value[i])];
  return (tensors.path && text(report, tensors.path[i])) || argument;
}

/**
 * What makes a tensor, and the user's line of that: `{maker, origin}`. What waits in a fifo has the number of
 * the value that comes in, so that the operation that makes it may be known.
 */
function tensorMaker(report, tensors, i) {
  const maker = text(report, tensors.operation[i]);
  const origin = text(report, tensors.origin[i]);
  if (text(report, tensors.category[i]) !== "fifos") return { maker, origin };
  const first = makersOf(report).get(tensors.value[i]);
  return first ? { maker: `${maker}, ${first.operation}`, origin: origin || first.origin } : { maker, origin };
}

const makerCache = new WeakMap();

/** By the number of a value, the operation that makes it and its line. */
function makersOf(report) {
  if (!makerCache.has(report)) {
    const makers = new Map();
    for (const { tensors } of report.liveness) {
      for (let i = 0; i < tensors.value.length; i++) {
        const [value, operation] = [tensors.value[i], text(report, tensors.operation[i])];
        const own = value >= 0 && text(report, tensors.category[i]) !== "fifos";
        const better = !makers.has(value) || makers.get(value).operation === "copy";
        if (own && better) makers.set(value, { operation, origin: text(report, tensors.origin[i]) });
      }
    }
    makerCache.set(report, makers);
  }
  return makerCache.get(report);
}

/**
 * Bytes on each tile, at the worst step of an IPU, of the tensors for which a test of
 * them (`tensorItem`) holds; null if there are none.
 */
export function linkedOnTiles(report, ipu, test) {
  const { tensors, mappings, worst } = report.liveness[ipu];
  const uses = new Map();
  for (let i = 0; i < tensors.name.length; i++) {
    if (!isAliveAt(tensors, i, worst) || !test(tensorItem(report, report.liveness[ipu], i))) continue;
    uses.set(tensors.mapping[i], (uses.get(tensors.mapping[i]) ?? 0) + 1);
  }
  if (!uses.size) return null;
  const sum = new Float64Array(tileMemory(report, ipu).tiles);
  for (const [mapping, count] of uses) {
    fromRepeats(mappings[mapping]).forEach((held, tile) => { sum[tile] += count * held; });
  }
  return sum;
}
