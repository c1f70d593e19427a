// Schedules whose stages go to the last IPU and back: lowering/schedules/v_blocks.py in JavaScript.

import {repeatBlocks} from "./blocks.js";

/** Stage s and the last but s share an IPU, which holds at most `memory` micro-batches. */
export function scheduleV(stages, microBatches, memory) {
  const ipus = Array.from({ length: stages }, (_, stage) => Math.min(stage, stages - 1 - stage));
  const ticks = repeatBlocks(ipus, 2 * memory, blocksOf(stages / 2), microBatches);
  if (!ticks) throw Object.assign(new RangeError("no such order"), { fix: `no order has room in memory for ${memory}` });
  return { ipus, ticks };
}

/** Blocks to try: those of the paper, for least memory and half of it, and others. */
function blocksOf(ipus) {
  const least = timesOfPasses(ipus, [1, 1, 1, 1]);
  const waiting = timesOfPasses(ipus, [1, 1, 1, 1], 0, 2);
  const half = timesOfPasses(ipus, [2, 1, 2, 1]);
  const early = timesOfPasses(ipus, [0, 0, 3, 0], 0, 3);
  const steep = timesOfPasses(ipus, [2, 3, 0, 1], 1);
  const lazily = (times) => ({ times, lazy: true });
  return [
    { times: fillWithWeights(least), lazy: false },
    lazily(fillWithWeights(least)),
    lazily(fillWithWeights(waiting)),
    lazily(addWeights(least, 1, 1)),
    lazily(addWeights(least, 7, 7)),
    lazily(addWeights(half, 1, 1)),
    lazily(addWeights(steep, 5, 1)),
    { times: addWeights(early, 1, 1), lazy: true, reserves: true },
  ];
}

/**
 * When a micro-batch goes to the last IPU and back, forward and then backward, as `[phase, stage, tick]`: `steps` are the
 * ticks from IPU to IPU in each of the four passes; it waits for `turn` on the last IPU, and for `pause` before its way back.
 */
function timesOfPasses(ipus, steps, turn = 0, pause = 0) {
  const stages = 2 * ipus;
  const passes = [
    { phase: "F", stageOf: (s) => s, wait: 0 },
    { phase: "F", stageOf: (s) => ipus + s, wait: 1 + turn },
    { phase: "B", stageOf: (s) => stages - 1 - s, wait: 1 + pause },
    { phase: "B", stageOf: (s) => ipus - 1 - s, wait: 1 + turn },
  ];
  let now = 0;
  return passes.flatMap(({ phase, stageOf, wait }, i) => {
    const begin = now + wait;
    now = begin + steps[i] * (ipus - 1);
    return Array.from({ length: ipus }, (_, s) => [phase, stageOf(s), begin + steps[i] * s]);
  });
}

const backwardTimes = (times) => new Map(times.filter(([phase]) => phase === "B").map(([, stage, time]) => [stage, time]));

/** Adds gradients of weights so many ticks after the backward tasks of each half of stages. */
function addWeights(times, early, late) {
  const half = times.length / 4;
  return [...times, ...[...backwardTimes(times)].map(([stage, time]) => ["W", stage, time + (stage < half ? early : late)])];
}

/** Adds gradients of weights in the first tick that no round has another task in. */
function fillWithWeights(times) {
  const stages = times.length / 2;
  const backward = backwardTimes(times);
  const filled = [...times];
  for (let ipu = 0; ipu < stages / 2; ipu++) {
    const own = [ipu, stages - 1 - ipu];
    const used = new Set(times.filter(([, stage]) => own.includes(stage)).map(([, , time]) => time % 6));
    for (const stage of own.sort((a, b) => backward.get(a) - backward.get(b))) {
      let time = backward.get(stage) + 1;
      while (used.has(time % 6)) time++;
      used.add(time % 6);
      filled.push(["W", stage, time]);
    }
  }
  return filled;
}
