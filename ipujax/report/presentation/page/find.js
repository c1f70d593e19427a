// Finding steps in the lanes of a trace: at a time, by selection, and by tick.

import {firstAfter, firstFrom, LANE_CHANNELS} from "./trace.js";

const MOST_TRIED = 1000; // items looked at before a time, in one list

/**
 * The step of a lane at a time, or the nearest within `slack` cycles:
 * `{kind, name, origin (texts' numbers), operation, start, cycles, task}`, or null.
 */
export function stepAt(list, time, slack, offset = 0, task = null) {
  let best = null;
  const last = firstFrom(list, time + slack - offset) - 1;
  for (let i = last; i >= 0 && i > last - MOST_TRIED && offset + list.ends[i] > time - slack; i--) {
    const found = list.step ? stepOfList(list, i, offset, task) : stepOfItem(list.items[i], time, slack, offset, task);
    if (found && (!best || distance(found, time) < distance(best, time))) best = found;
    if (best && distance(best, time) === 0) break;
  }
  return best && distance(best, time) <= slack ? best : null;
}

function stepOfItem(item, time, slack, offset, task) {
  const from = offset + item.start;
  const inside = item.task ?? task;
  if (item.count === 1) return stepAt(item.list, time, slack, from, inside);
  const run = Math.min(Math.max(Math.floor((time - from) / item.period), 0), item.count - 1);
  return stepAt(item.list, time, slack, from + run * item.period, inside);
}

function stepOfList(list, i, offset, task) {
  const { kind, name, origin, operation } = list.step;
  return {
    kind: kind[i],
    name: name[i],
    origin: origin[i],
    operation: operation[i],
    start: offset + list.start[i],
    cycles: list.spans[i],
    task,
  };
}

function distance(step, time) {
  return Math.max(step.start - time, time - step.start - step.cycles, 0);
}

/** The first step that starts after a time, of those that have a part in `sumsOf(list)`; or null. */
export function nextStep(list, sumsOf, time, offset = 0) {
  const sums = sumsOf(list);
  let best = null;
  for (let i = firstAfter(list, time - offset); i < list.start.length; i++) {
    if (best && offset + list.start[i] >= best.start) break;
    if (!hasPart(sums, i)) continue;
    const inside = (from) => nextStep(list.items[i].list, sumsOf, time, from);
    const found = list.step ? stepOfList(list, i, offset, null) : inRuns(list.items[i], time, offset, 1, inside);
    if (found && found.start > time && (!best || found.start < best.start)) best = found;
  }
  return best;
}

/** The last step that starts before a time, of those that have a part in `sumsOf(list)`; or null. */
export function previousStep(list, sumsOf, time, offset = 0) {
  const sums = sumsOf(list);
  let best = null;
  for (let i = firstFrom(list, time - offset) - 1; i >= 0; i--) {
    if (best && offset + list.ends[i] <= best.start) break;
    if (!hasPart(sums, i)) continue;
    const inside = (from) => previousStep(list.items[i].list, sumsOf, time, from);
    const found = list.step ? stepOfList(list, i, offset, null) : inRuns(list.items[i], time, offset, -1, inside);
    if (found && found.start < time && (!best || found.start > best.start)) best = found;
  }
  return best;
}

/** What `find` finds in the run of an item that a time falls into, or else in the one beside it. */
function inRuns(item, time, offset, direction, find) {
  const from = offset + item.start;
  const now = item.count === 1 ? 0 : Math.min(Math.max(Math.floor((time - from) / item.period), 0), item.count - 1);
  const beside = now + direction;
  const found = find(from + now * item.period);
  return found || beside < 0 || beside >= item.count ? found : find(from + beside * item.period);
}

function hasPart(sums, i) {
  for (let c = i * LANE_CHANNELS; c < (i + 1) * LANE_CHANNELS; c++) if (sums[c + LANE_CHANNELS] > sums[c]) return true;
  return false;
}

/** The task of a lane at a time: `{stage, phase, microBatch, start, cycles}`, or null. */
export function taskAt(lane, time) {
  const found = wholeAt(lane, time, (list, i) => list.items?.[i].task);
  return found && { ...found.list.items[found.i].task, start: found.start, cycles: found.cycles };
}

/** The stretch of a band (see bands.js) at a time: `{part, start, cycles}`, or null. */
export function stretchAt(band, time) {
  const found = wholeAt(band, time, (list, i) => !list.items[i]);
  return found && { part: found.list.part[found.i], start: found.start, cycles: found.cycles };
}

/** The outermost item of a list at a time that is one thing by a test: `{list, i, start, cycles}`, or null. */
function wholeAt(list, time, isWhole, offset = 0) {
  for (let i = firstFrom(list, time - offset) - 1; i >= 0 && offset + list.ends[i] > time; i--) {
    const start = offset + list.start[i];
    if (time >= start + list.spans[i]) continue;
    if (isWhole(list, i)) return { list, i, start, cycles: list.spans[i] };
    const item = list.items?.[i];
    if (!item) continue;
    const run = item.count === 1 ? 0 : Math.min(Math.floor((time - start) / item.period), item.count - 1);
    const found = wholeAt(item.list, time, isWhole, start + run * item.period);
    if (found) return found;
  }
  return null;
}

/** From when to when a lane does nothing around a time, in a call of so many cycles: `{start, cycles}`. */
export function gapAt(lane, time, whole) {
  const sumsOf = (list) => list.sums;
  const before = lane && previousStep(lane, sumsOf, time);
  const after = lane && nextStep(lane, sumsOf, time);
  const start = before ? before.start + before.cycles : 0;
  return { start, cycles: (after ? after.start : whole) - start };
}

/** When the ticks of the report's pipeline begin and end in its first run, as one array; null without one. */
export function tickTimes(report, tickCycles) {
  const begin = firstTask(report.steps, report.steps.root);
  if (begin === null) return null;
  const times = new Float64Array(tickCycles.length + 1).fill(begin);
  for (let i = 0; i < tickCycles.length; i++) times[i + 1] = times[i] + tickCycles[i];
  return times;
}

/** The start of the first task of a stage below a node; null if there is none. */
function firstTask(steps, number, known = new Map()) {
  if (known.has(number)) return known.get(number);
  const node = steps.nodes[number];
  const starts = [];
  const below = (body, start) => {
    const first = firstTask(steps, body, known);
    if (first !== null) starts.push(start + first);
  };
  if (node.type === "loop" || node.type === "on") below(node.body, 0);
  if (node.type === "group") for (const [body, start] of node.parts) below(body, start);
  if (node.type === "tasks") {
    for (const task of node.tasks) {
      if (task.stage !== null && task.phase !== "update") starts.push(task.starts[0][0]);
    }
  }
  known.set(number, starts.length ? starts.reduce((least, start) => Math.min(least, start)) : null);
  return known.get(number);
}
