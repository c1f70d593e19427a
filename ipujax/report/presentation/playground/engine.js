// The simulator of the page, without a page: what `schedules.simulate` gives, for every schedule that the page knows.

import {exactly, PHASES, runOrders} from "./clocks.js";
import {SCHEDULES} from "./orders.js";
import {tabulated} from "./tables.js";

const made = { ...SCHEDULES, ...tabulated(TABLES) };
const known = Object.fromEntries(NAMES.filter((name) => made[name]).map((name) => [name, made[name]]));
const plans = new Map();
const MOST_STAGES = 1024;
const MOST_MICRO_BATCHES = 100_000;

/** Refuses what a schedule does not have: a RangeError, whose `fix` says what it needs. */
function checkSizes(schedule, stages, microBatches) {
  const refuse = (fix) => {
    throw Object.assign(new RangeError(`${schedule} with ${stages} stages and ${microBatches} micro-batches: ${fix}`), { fix });
  };
  const isCount = (number, most) => Number.isInteger(number) && number >= 1 && number <= most;
  if (!Object.hasOwn(known, schedule)) throw new RangeError(`no schedule is named ${schedule}`);
  if (!isCount(stages, MOST_STAGES)) refuse(`use a whole number of stages from 1 to ${MOST_STAGES}`);
  if (!isCount(microBatches, MOST_MICRO_BATCHES)) refuse(`use a whole number of micro-batches from 1 to ${MOST_MICRO_BATCHES}`);
  const { perIpu = 1, setOf } = known[schedule];
  if (stages % perIpu) refuse(`the number of stages must be a multiple of ${perIpu}`);
  const multiple = setOf?.(stages) ?? 1;
  if (microBatches % multiple) refuse(`the number of micro-batches must be a multiple of ${multiple}`);
}

/** A time, or one for each of some stages, as a list of as many. */
function rowOf(name, value, count) {
  const row = Array.isArray(value) ? value : Array(count).fill(value);
  const isTime = (number) => typeof number === "number" && Number.isFinite(number) && number >= 0;
  if (row.length === count && row.every(isTime)) return row;
  throw new RangeError(`${name}: give one time, or ${count}, finite and none of them negative`);
}

/** The plan of a schedule, which is kept until other numbers are asked for: times do not change it. */
function planOf(schedule, stages, microBatches) {
  const numbers = `${stages} ${microBatches}`;
  if (plans.get(schedule)?.numbers !== numbers) plans.set(schedule, { numbers, plan: makePlan(schedule, stages, microBatches) });
  return plans.get(schedule).plan;
}

/** `{ipus, orders, needs, ticks (how many), slots (for each IPU, the most tasks in a tick)}` of a schedule. */
function makePlan(schedule, stages, microBatches) {
  checkSizes(schedule, stages, microBatches);
  const { ipus, orders, ticks, needs } = known[schedule].order(stages, microBatches);
  const count = Math.max(...ipus) + 1;
  if (orders) {
    const ends = runOrders({ ipus, orders }, () => 1n, () => 0n).map(({ end }) => Number(end));
    return { ipus, orders, ticks: Math.max(...ends), slots: Array(count).fill(1) };
  }
  const plan = { ipus, needs, orders: ipus.slice(0, count).map(() => []), ticks: ticks.length, slots: Array(count).fill(0) };
  for (const tasks of ticks) {
    const own = Array(count).fill(0);
    for (const task of tasks) {
      const ipu = task.ipu ?? ipus[task.stage];
      plan.orders[ipu].push(task);
      own[ipu]++;
    }
    own.forEach((number, ipu) => { plan.slots[ipu] = Math.max(plan.slots[ipu], number); });
  }
  return plan;
}

/** The most micro-batches of stages of an IPU whose forward task has run and the last of whose gradients has not. */
function mostInFlight(order, last) {
  let [now, most] = [0, 0];
  for (const { phase } of order) {
    now += Number(phase === "F") - Number(phase === last);
    most = Math.max(most, now);
  }
  return most;
}

/**
 * Runs a schedule. Times are one number, or an array of one for each stage (`transfer`: each but the last); R, O and L
 * take as long as F. Gives `{makespan, bubble, inFlightPerIpu}` as `simulate` does, `needs` (those that are not usual) and
 * `tasks`: `{ipu, phase, stage, microBatch, start, end, previous, input, arrival}`, of which `previous` and `input` are
 * others, or null.
 */
export function run({ schedule, stages, microBatches, forward = 1, backward = 1, weight = 1, transfer = 0 }) {
  const plan = planOf(schedule, stages, microBatches);
  const { splits = false } = known[schedule];
  const [F, B, W] = Object.entries({ forward, backward, weight }).map(([name, value]) => rowOf(name, value, stages));
  const delays = rowOf("transfer", transfer, stages - 1);
  const exact = exactly([F, B, W, F, F, F, delays].flat());
  const runs = runOrders(
    plan,
    ({ phase, stage }) => exact.whole[PHASES.indexOf(phase) * stages + stage],
    (from, to) => exact.whole[PHASES.length * stages + Math.min(from, to)],
  );
  const end = runs.reduce((latest, each) => (each.end > latest ? each.end : latest), 0n);
  const places = plan.ticks * plan.slots.reduce((sum, slots) => sum + slots, 0);
  return {
    makespan: exact.number(end),
    bubble: 1 - runs.length / places,
    inFlightPerIpu: plan.orders.map((order) => mostInFlight(order, splits ? "W" : "B")),
    needs: plan.needs ?? {},
    tasks: runs.map((each) => Object.assign(each, each.task, {
      start: exact.number(each.start),
      end: exact.number(each.end),
      arrival: exact.number(each.arrival),
    })),
  };
}

/** `run` without the tasks. */
export function simulate(settings) {
  const { makespan, bubble, inFlightPerIpu } = run(settings);
  return { makespan, bubble, inFlightPerIpu };
}

globalThis.playground = { names: Object.keys(known), simulate, run, schedules: known };
