// When every task starts and ends if it starts as soon as its IPU and its inputs are there, exactly.

export const PHASES = "FBWROL";

/** Finite numbers as whole ones, of which sums are exact: `{whole: BigInts, number(sum)}`, the latter rounded once. */
export function exactly(numbers) {
  const parts = numbers.map((number) => {
    let bits = 0;
    for (; !Number.isInteger(number); number *= 2) bits++;
    return { value: BigInt(number), bits };
  });
  const most = Math.max(...parts.map(({ bits }) => bits));
  return {
    whole: parts.map(({ value, bits }) => value << BigInt(most - bits)),
    number: (sum) => Number(sum) * 2 ** -most,
  };
}

/** The tasks of the same micro-batch that a task waits for, as `[phase, stage]`: those in `needs`, as `{"2R": ["2F"]}`, or the usual ones. */
export function inputsOf({ phase, stage }, stages, needs = {}) {
  const given = needs[`${stage}${phase}`];
  if (given) return given.map((label) => [label.at(-1), Number(label.slice(0, -1))]);
  if (phase === "F") return stage ? [["F", stage - 1]] : [];
  if (phase === "W") return [["B", stage]];
  return stage === stages - 1 ? [["F", stage]] : [["F", stage], ["B", stage + 1]];
}

/**
 * Runs the orders of IPUs: for each task, in the order in which they can run,
 * `{task, ipu, start, end, previous (run before it on its IPU), input (the last one to arrive from elsewhere), arrival}`.
 * `duration(task)` and `delay(from, to)` between stages on other IPUs are BigInts.
 */
export function runOrders({ ipus, orders, needs }, duration, delay) {
  const stages = ipus.length;
  const done = new Map();
  const runs = [];
  const queues = orders.map((order, ipu) => ({ ipu, order, next: 0, last: null }));
  const key = (phase, stage, microBatch) => PHASES.length * (microBatch * stages + stage) + PHASES.indexOf(phase);
  const advance = (queue) => {
    const { ipu, order, next } = queue;
    if (next === order.length) return false;
    const task = order[next];
    const inputs = inputsOf(task, stages, needs).map(([phase, stage]) => done.get(key(phase, stage, task.microBatch)));
    if (inputs.includes(undefined)) return false;
    const run = { task, ipu, previous: queue.last, input: null, arrival: 0n };
    for (const input of inputs.filter((each) => each.ipu !== ipu)) {
      const arrival = input.end + delay(input.task.stage, task.stage);
      if (run.input === null || arrival > run.arrival) Object.assign(run, { input, arrival });
    }
    const free = queue.last?.end ?? 0n;
    run.start = run.arrival > free ? run.arrival : free;
    run.end = run.start + duration(task);
    done.set(key(task.phase, task.stage, task.microBatch), run);
    runs.push(run);
    queue.last = run;
    queue.next++;
    return true;
  };
  for (let moved = true; moved; ) {
    moved = false;
    for (const queue of queues) while (advance(queue)) moved = true;
  }
  if (queues.some(({ order, next }) => next < order.length)) throw new Error("IPUs wait for one another");
  return runs;
}
