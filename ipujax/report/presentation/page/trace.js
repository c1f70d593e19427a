// The steps of a report as lanes of IPUs: for each part of the program what it does on an IPU, never expanded.
//
// A lane list is what one node does on one IPU: items in the order of their starts, with sums of what is
// before each, so that what goes on in any range of time is found by halving, and not by counting. An item is
// a step, or runs of another list (`count` of them, `period` apart).

import {fromRuns} from "./document.js";
import {itemOf} from "./items.js";

/** What is summed: cycles by kind of step, and cycles of tasks by phase. */
export const LANE_KINDS = ["compute", "exchange", "sync", "inter_ipu", "host", "remote"];
export const LANE_PHASES = ["fwd", "bwd", "wgt", "update"];
export const LANE_CHANNELS = LANE_KINDS.length + LANE_PHASES.length;
const ANY_IPU = -1;

/** `{lanes: [list or null for each IPU], cycles, sumsWhere(test)}` of a report. */
export class Trace {
  constructor(report) {
    this.report = report;
    this.nodes = report.steps.nodes;
    this.lists = new Map(); // by lane: lists by node
    this.lanes = Array.from({ length: report.num_ipus }, (_, ipu) => this.listOf(report.steps.root, ipu));
    this.cycles = Math.max(report.cycles, ...this.lanes.map((lane) => lane?.span ?? 0), 1);
  }

  /** What a node does on an IPU, null if nothing; on any IPU, what it does altogether. */
  listOf(node, ipu) {
    if (!this.lists.has(ipu)) this.lists.set(ipu, new Array(this.nodes.length));
    const known = this.lists.get(ipu);
    if (known[node] === undefined) known[node] = this.build(this.nodes[node], ipu);
    return known[node];
  }

  build(node, ipu) {
    if (node.type === "block") return blockList(node, ipu);
    const items = [];
    if (node.type === "loop") this.add(items, node.body, ipu, 0, node.count, node.period);
    if (node.type === "on" && (ipu === ANY_IPU || ipu === node.ipu)) this.add(items, node.body, ANY_IPU, 0, 1, 0);
    if (node.type === "group")
      for (const [body, first, step, count] of node.parts) this.addPart(items, body, ipu, first, step, count);
    if (node.type === "tasks") for (const task of node.tasks) this.addTasks(items, task, ipu);
    return items.length ? itemList(items) : null;
  }

  add(items, body, ipu, start, count, period, task = null) {
    const list = this.listOf(body, ipu);
    if (list && count > 0) items.push({ start, list, count, period, span: (count - 1) * period + list.span, task });
  }

  addPart(items, body, ipu, first, step, count) {
    if (step > 0 || count === 1) return this.add(items, body, ipu, first, count, step);
    for (let i = 0; i < count; i++) this.add(items, body, ipu, first + i * step, 1, 0);
    return undefined;
  }

  addTasks(items, task, ipu) {
    if (!this.listOf(task.body, ipu)) return;
    const starts = fromRuns(task.starts);
    const microBatches = fromRuns(task.micro_batches);
    starts.forEach((start, i) => {
      const own = task.phase === null ? null : { stage: task.stage, phase: task.phase, microBatch: microBatches[i] };
      this.add(items, task.body, ipu, start, 1, 0, own);
    });
  }

  /**
   * Sums like those of each list, of those steps alone for which a test of what they are (`itemOf`) holds; for
   * `sumsOf(list)`. Cycles by phase are those of these steps in tasks.
   */
  sumsWhere(test) {
    const sums = new Map();
    const { strings } = this.report;
    const answers = new Map();
    const matches = ({ operation, origin, name }, i) => {
      const key = operation[i] >= 0 ? -1 - operation[i] : origin[i] * strings.length + name[i];
      if (!answers.has(key)) answers.set(key, test(itemOf(this.report, operation[i], origin[i], name[i])));
      return answers.get(key);
    };
    const sum = (list) => {
      if (!sums.has(list)) sums.set(list, chosenListSums(list, matches, sum));
      return sums.get(list);
    };
    for (const lane of this.lanes) if (lane) sum(lane);
    return sums;
  }
}

function blockList(block, ipu) {
  const single = !Array.isArray(block.ipu);
  if (single && ipu !== ANY_IPU && block.ipu !== ipu) return null;
  const rows = [];
  const starts = block.start ?? startsAfterEachOther(block.cycles);
  for (let i = 0; i < starts.length; i++) if (single || ipu === ANY_IPU || block.ipu[i] === ipu) rows.push(i);
  if (!rows.length) return null;
  rows.sort((a, b) => starts[a] - starts[b] || a - b);
  const column = (values) => Float64Array.from(rows, (row) => values[row]);
  const step = {
    kind: column(block.kind),
    name: column(block.name),
    origin: column(block.origin),
    operation: block.operation ? column(block.operation) : new Float64Array(rows.length).fill(-1),
  };
  return finishedList({ step, items: null, start: column(starts), spans: column(block.cycles) });
}

function startsAfterEachOther(cycles) {
  let next = 0;
  return cycles.map((length) => (next += length) - length);
}

function itemList(items) {
  items.sort((a, b) => a.start - b.start);
  const start = Float64Array.from(items, (item) => item.start);
  return finishedList({ step: null, items, start, spans: Float64Array.from(items, (item) => item.span) });
}

/** A list with the last end of the items up to each, its span, and that of its longest item. */
export function endedList(list) {
  const size = list.start.length;
  list.ends = new Float64Array(size);
  list.longest = 0;
  let last = 0;
  for (let i = 0; i < size; i++) {
    last = Math.max(last, list.start[i] + list.spans[i]);
    list.ends[i] = last;
    list.longest = Math.max(list.longest, list.spans[i]);
  }
  list.span = last;
  return list;
}

function finishedList(list) {
  endedList(list);
  list.sums = list.step ? stepSums(list, () => true) : itemSums(list, (inner) => inner.sums, (item) => item.span);
  return list;
}

function stepSums(list, counts) {
  const sums = new Float64Array((list.start.length + 1) * LANE_CHANNELS);
  for (let i = 0; i < list.start.length; i++) {
    sums.copyWithin((i + 1) * LANE_CHANNELS, i * LANE_CHANNELS, (i + 1) * LANE_CHANNELS);
    if (counts(i)) sums[(i + 1) * LANE_CHANNELS + list.step.kind[i]] += list.spans[i];
  }
  return sums;
}

/** Sums of items; `ofTask(item, sums)` says what counts for the phase of one that is a task. */
function itemSums(list, sumsOf, ofTask) {
  const sums = new Float64Array((list.items.length + 1) * LANE_CHANNELS);
  list.items.forEach((item, i) => {
    const own = sumsOf(item.list);
    const last = own.length - LANE_CHANNELS;
    const at = (i + 1) * LANE_CHANNELS;
    for (let c = 0; c < LANE_CHANNELS; c++) sums[at + c] = sums[at + c - LANE_CHANNELS] + item.count * own[last + c];
    if (item.task) sums[at + phaseChannel(item.task.phase)] += ofTask(item, own);
  });
  return sums;
}

function chosenListSums(list, matches, sum) {
  if (list.step) return stepSums(list, (i) => matches(list.step, i));
  const ofTask = (item, own) => item.count * kindsBetween(own, 0, own.length / LANE_CHANNELS - 1);
  return itemSums(list, sum, ofTask);
}

/** The channel of a phase. */
export function phaseChannel(phase) {
  return LANE_KINDS.length + LANE_PHASES.indexOf(phase);
}

/** The cycles of all kinds between two items of a list. */
export function kindsBetween(sums, from, to) {
  let cycles = 0;
  for (let c = 0; c < LANE_KINDS.length; c++) cycles += sums[to * LANE_CHANNELS + c] - sums[from * LANE_CHANNELS + c];
  return cycles;
}

/** The first item of a list that may end after a time that counts from the list's start. */
export function firstAfter(list, time) {
  return halve(list.start.length, (i) => list.ends[i] > time);
}

/** The first item of a list that starts at or after a time. */
export function firstFrom(list, time) {
  return halve(list.start.length, (i) => list.start[i] >= time);
}

function halve(size, holds) {
  let [low, high] = [0, size];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (holds(middle)) high = middle;
    else low = middle + 1;
  }
  return low;
}

/** Adds to `into` what lies in the sums of a list between two of its items, `times` times. */
export function addBetween(sums, from, to, times, into, at) {
  for (let c = 0; c < LANE_CHANNELS; c++)
    into[at + c] += times * (sums[to * LANE_CHANNELS + c] - sums[from * LANE_CHANNELS + c]);
}
