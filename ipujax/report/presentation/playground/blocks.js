// Schedules that repeat a building block for each micro-batch: lowering/schedules/building_blocks.py in JavaScript.

import {inputsOf} from "./clocks.js";

const LOOK_AHEAD = 48; // tasks of an IPU's order that may run before its first one

/**
 * Follows blocks, and gives the ticks of the shortest; null if all need more memory. `places` are those of the stages,
 * `memory` is in stages of micro-batches, and a block is `{times: [[phase, stage, tick], ...], lazy}`.
 */
export function repeatBlocks(places, memory, blocks, microBatches) {
  const round = (3 * places.length) / new Set(places).size;
  const few = Math.min(microBatches, 2 * places.length + 2 * round);
  const found = blocks.map((block) => followBlock({ places, memory }, block, few, round)).filter((ticks) => ticks?.length);
  found.sort((a, b) => a.length - b.length);
  for (const ticks of found) {
    const repeated = repeatSteadyState(ticks, round, 3 * places.length, microBatches - few);
    if (repeated) return repeated;
  }
  return null;
}

const change = ({ phase }) => Number(phase === "F") - Number(phase === "W");
const nameOf = ({ phase, stage, microBatch }) => `${phase} ${stage} ${microBatch}`;

function followBlock({ places, memory }, { times, lazy }, microBatches, round) {
  const orders = ordersOfBlock(places, times, microBatches, round);
  if (orders.some((order) => needsMore(order, memory))) return null;
  const held = orders.map(() => 0);
  const done = new Set();
  const ticks = [];
  while (orders.some((order) => order.length)) {
    const chosen = orders.map((order, place) => chooseTask(order, held[place], done, { stages: places.length, memory, lazy }));
    const tick = chosen.filter(Boolean);
    if (!tick.length) return null; // what is needed next is out of sight
    chosen.forEach((task, place) => {
      if (!task) return;
      orders[place].splice(orders[place].indexOf(task), 1);
      held[place] += change(task);
    });
    for (const task of tick) done.add(nameOf(task));
    ticks.push(tick);
  }
  return ticks;
}

function ordersOfBlock(places, times, microBatches, round) {
  const orders = Array.from({ length: new Set(places).size }, () => []);
  for (const [phase, stage, time] of times)
    for (let microBatch = 0; microBatch < microBatches; microBatch++)
      orders[places[stage]].push({ time: time + round * microBatch, task: { phase, stage, microBatch } });
  const before = (a, b) =>
    a.time - b.time || a.task.phase.localeCompare(b.task.phase) || a.task.stage - b.task.stage || a.task.microBatch - b.task.microBatch;
  return orders.map((order) => order.sort(before).map(({ task }) => task));
}

/** The task that a place runs next, if it can run any. */
function chooseTask(order, heldBefore, done, { stages, memory, lazy }) {
  let [held, most, postponed] = [heldBefore, heldBefore, null];
  for (const task of order.slice(0, LOOK_AHEAD)) {
    const { phase, microBatch } = task;
    const inputs = inputsOf(task, stages);
    const hasRoom = phase !== "F" || most < memory;
    const isReady = hasRoom && inputs.every(([input, stage]) => done.has(nameOf({ phase: input, stage, microBatch })));
    if (isReady) {
      if (phase !== "W" || !lazy) return task;
      postponed ??= task;
    }
    held += change(task);
    most = Math.max(most, held);
  }
  return postponed;
}

function needsMore(order, memory) {
  let held = 0;
  return order.some((task) => {
    held += change(task);
    return held > memory;
  });
}

/** Runs a round of the steady state again for more micro-batches; null if there is none. */
function repeatSteadyState(ticks, round, kinds, more) {
  if (!more) return ticks;
  const later = (part, by) => part.map((tick) => tick.map((task) => ({ ...task, microBatch: task.microBatch + by })));
  for (let begin = 0; begin < ticks.length - round; begin++) {
    const steady = ticks.slice(begin, begin + round);
    const tasks = steady.flat();
    if (tasks.length !== kinds || new Set(tasks.map(({ phase, stage }) => `${phase} ${stage}`)).size !== kinds) continue;
    const rounds = Array.from({ length: more + 1 }, (_, number) => later(steady, number)).flat();
    return [...ticks.slice(0, begin), ...rounds, ...later(ticks.slice(begin + round), more)];
  }
  return null;
}
