// Who is alive when on one IPU: a report's liveness in typed arrays, unpacked once.
import {text} from "./document.js";
import {operationOf} from "./items.js";
import {friendlyName} from "./names.js";

const lifetimeCache = new WeakMap();

/**
 * One IPU's steps and tensors: `{steps, bytes, temporary, parts, worst, first, last, size, order, always}`.
 * `parts` are `{name, bytes}` by category, of each step, and add up to `bytes`; work space is among
 * the temporaries. `order` holds the tensors that come and go, largest first; `always` is what code
 * and tensors that never go take together.
 */
export function lifetimes(report, ipu) {
  if (!lifetimeCache.has(report)) lifetimeCache.set(report, []);
  const known = lifetimeCache.get(report);
  known[ipu] ??= unpackLifetimes(report, ipu);
  return known[ipu];
}

function unpackLifetimes(report, ipu) {
  const {steps, tensors, worst} = report.liveness[ipu];
  const size = Float64Array.from(tensors.bytes);
  const first = Int32Array.from(tensors.first);
  const order = Int32Array.from(size.keys()).filter((i) => first[i] >= 0);
  order.sort((a, b) => size[b] - size[a] || a - b);
  const last = Int32Array.from(tensors.last);
  const bytes = Float64Array.from(steps.bytes);
  const temporary = Float64Array.from(steps.temporary);
  const categories = tensors.category.map((number) => text(report, number));
  const parts = partsOfSteps({ temporary, first, last, size, order, categories });
  return {
    steps: bytes.length, bytes, temporary, parts, worst, first, last, size, order,
    always: report.memory.always_live_bytes[ipu],
  };
}

/** What the bytes of each step are, by category. */
function partsOfSteps({ temporary, first, last, size, order, categories }) {
  const steps = temporary.length;
  const changes = new Map([["temporaries", new Float64Array(steps + 1)]]);
  for (const i of order) {
    if (last[i] < first[i]) continue;
    if (!changes.has(categories[i])) changes.set(categories[i], new Float64Array(steps + 1));
    const change = changes.get(categories[i]);
    change[first[i]] += size[i];
    change[last[i] + 1] -= size[i];
  }
  const parts = [...changes].map(([name, change]) => ({ name, bytes: runningSums(change, steps) }));
  temporary.forEach((space, step) => { parts[0].bytes[step] += space; });
  return inCategoryOrder(parts).filter((part) => part.bytes.some((held) => held > 0));
}

function runningSums(change, steps) {
  const sums = new Float64Array(steps);
  let sum = 0;
  for (let i = 0; i < steps; i++) sums[i] = sum += change[i];
  return sums;
}

/** Work space on top, as it comes and goes fastest. */
function inCategoryOrder(parts) {
  const order = ["variables", "constants", "fifos", "activations", "temporaries"];
  return parts.sort((a, b) => order.indexOf(a.name) - order.indexOf(b.name));
}

/** What a step of an IPU's memory is called: as its operation is, if it has one. */
export function liveStepName(report, ipu, step) {
  const { name, operation } = report.liveness[ipu].steps;
  if (step >= name.length) return "";
  const said = text(report, name[step]);
  const known = operationOf(report, operation?.[step] ?? -1) ?? report.operations.find((move) => move.name === said);
  return known ? friendlyName(known) : said;
}

/** The tensors alive at a step, largest first; with `always`, those too that never go. */
export function aliveAt(life, step, always) {
  const alive = [];
  for (let i = 0; i < life.size.length; i++) {
    if (life.first[i] < 0 ? always : life.first[i] <= step && step <= life.last[i]) alive.push(i);
  }
  return alive.sort((a, b) => life.size[b] - life.size[a] || a - b);
}

/** The largest tensors that live between two steps, at most `most`, in the order of their births. */
export function largestBetween(life, from, to, most) {
  const found = [];
  for (const i of life.order) {
    if (life.first[i] <= to && life.last[i] >= from) found.push(i);
    if (found.length === most) break;
  }
  return found.sort((a, b) => life.first[a] - life.first[b] || life.last[a] - life.last[b]);
}
