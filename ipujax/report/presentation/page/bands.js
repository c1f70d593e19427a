// A lane by where in the model its steps are: for each level of the model what it works on when, never expanded.
//
// The parts of a model are a tree: passes, in them named scopes, in these operations. The band of a list of a trace at a
// level of that tree is such a list again; its items are stretches, in which steps of one part follow each other
// without a break, or runs of other bands. Tasks and the runs of loops are never joined.

import {friendlyName, scopePath} from "./names.js";
import {endedList, LANE_CHANNELS} from "./trace.js";

const MOST_JOINED = 1024; // stretches of a list that are put among those of the list around it
const TOGETHER = 1; // cycles that may lie between steps without a break

/** Bands of one report: `{parts, depth (levels that there are), passes (their names)}`. */
export class Bands {
  constructor(report) {
    this.parts = []; // {level, name, tint (a number), pass, scope, operation (its number, of which there is one, or -1)}
    this.chains = new Map(); // by number of an operation: its part at each level
    this.known = []; // by level: bands by list
    const tints = new Map();
    const found = new Map();
    for (const operation of report.operations) {
      const { number = -1 } = operation;
      if (number >= 0 && !this.chains.has(number)) this.chains.set(number, this.chainOf(operation, found, tints));
    }
    this.depth = this.parts.reduce((most, part) => Math.max(most, part.level + 1), 0);
    this.passes = this.parts.filter((part) => part.level === 0 && part.name).map((part) => part.name);
  }

  /** The parts that an operation is in, outermost first, and itself. */
  chainOf(operation, found, tints) {
    const scopes = scopePath(operation);
    const pass = operation.direction ?? "";
    const chain = [];
    let path = "";
    for (const [level, name] of [pass, ...scopes, friendlyName(operation)].entries()) {
      const own = level > scopes.length ? operation.number : -1;
      path += `/${own < 0 ? name : own}`;
      if (!found.has(path)) {
        found.set(path, this.parts.length);
        const scope = scopes.slice(0, level).join("/");
        const [at, word] = own < 0 ? [level, name] : [scopes.length, scopes.at(-1) ?? name.split(" ")[0]];
        const tint = tintOf(at, word, tints);
        this.parts.push({ level, name, tint, pass, scope, operation: own });
      }
      chain.push(found.get(path));
    }
    return chain;
  }

  /** The band of a list at a level, null if nothing of it is in any part there. */
  of(list, level) {
    this.known[level] ??= new Map();
    const known = this.known[level];
    if (!known.has(list)) known.set(list, this.build(list, level));
    return known.get(list);
  }

  build(list, level) {
    const stretches = list.step ? this.ofSteps(list, level) : this.ofItems(list, level);
    return stretches.length ? bandList(stretches) : null;
  }

  ofSteps(list, level) {
    const stretches = [];
    list.step.operation.forEach((number, i) => {
      const part = this.chains.get(number)?.[level] ?? -1;
      if (part >= 0 && this.parts[part].name) addStretch(stretches, part, list.start[i], list.spans[i]);
    });
    return stretches;
  }

  ofItems(list, level) {
    const stretches = [];
    for (const item of list.items) {
      const band = this.of(item.list, level);
      if (!band) continue;
      if (item.task || item.count > 1 || band.items.length > MOST_JOINED) {
        stretches.push(runsOf(item, band, item.start));
        continue;
      }
      band.items.forEach((inner, i) => {
        const start = item.start + band.start[i];
        if (inner) stretches.push(runsOf(inner, inner.list, start));
        else stretches.push({ part: band.part[i], start, span: band.spans[i], item: null });
      });
    }
    return joined(stretches.sort((a, b) => a.start - b.start));
  }

  /** The parts that have only operations for whose numbers a test holds: a Uint8Array over parts. */
  partsWhere(test) {
    const chosen = new Uint8Array(this.parts.length).fill(1);
    for (const [number, chain] of this.chains) if (!test(number)) for (const part of chain) chosen[part] = 0;
    return chosen;
  }

  /** Sums of a band and of those inside it, of stretches of chosen parts alone, for `sumsOf(list)`. */
  static sumsOf(band, chosen, sums = new Map()) {
    if (sums.has(band)) return sums;
    for (const item of band.items) if (item) Bands.sumsOf(item.list, chosen, sums);
    return sums.set(band, bandSums(band, (part) => chosen[part], (inner) => sums.get(inner)));
  }
}

/** The number of a tint at a level: of a scope and its operations, the same in all passes, or of a kind of operation. */
function tintOf(level, name, tints) {
  if (!tints.has(level)) tints.set(level, new Map());
  const known = tints.get(level);
  if (!known.has(name)) known.set(name, known.size);
  return known.get(name);
}

/** Stretches, in the order of their starts, of which those of one part without a break between them are one. */
function joined(stretches) {
  const found = [];
  for (const next of stretches) {
    if (next.item) found.push(next);
    else addStretch(found, next.part, next.start, next.span);
  }
  return found;
}

/** Adds a stretch that begins no earlier than those before, or makes the last of them longer. */
function addStretch(stretches, part, start, span) {
  const last = stretches.at(-1);
  const end = last && last.start + last.span;
  if (last && !last.item && last.part === part && start < end + TOGETHER) last.span = Math.max(end, start + span) - last.start;
  else stretches.push({ part, start, span, item: null });
}

function runsOf({ count, period, task }, band, start) {
  return { part: -1, start, span: (count - 1) * period + band.span, item: { start, list: band, count, period, task } };
}

function bandList(stretches) {
  const list = endedList({
    step: null,
    items: stretches.map((stretch) => stretch.item),
    part: Int32Array.from(stretches, (stretch) => stretch.part),
    start: Float64Array.from(stretches, (stretch) => stretch.start),
    spans: Float64Array.from(stretches, (stretch) => stretch.span),
  });
  list.sums = bandSums(list, () => true, (inner) => inner.sums);
  return list;
}

/** Cycles in stretches of parts for which a test holds, all in the first channel. */
function bandSums(band, counts, sumsOf) {
  const sums = new Float64Array((band.items.length + 1) * LANE_CHANNELS);
  band.items.forEach((item, i) => {
    const inner = item && sumsOf(item.list);
    const own = item ? item.count * inner[inner.length - LANE_CHANNELS] : counts(band.part[i]) ? band.spans[i] : 0;
    sums[(i + 1) * LANE_CHANNELS] = sums[i * LANE_CHANNELS] + own;
  });
  return sums;
}
