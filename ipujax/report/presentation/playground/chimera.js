// Chimera, whose odd micro-batches go through copies of the stages, from the last IPU to the first:
// lowering/schedules/chimera.py in JavaScript.

import {range} from "./numbers.js";

/** `whole` is what there is without two directions: with one stage or one micro-batch. */
export function chimera(stages, microBatches, whole) {
  if (stages === 1 || microBatches === 1) return whole(stages, microBatches);
  return { ipus: range(stages), orders: range(stages).map((place) => orderOfPlace(place, stages, microBatches)) };
}

function orderOfPlace(place, stages, microBatches) {
  const unit = 2 * Math.max(Math.floor(stages / 2), 1);
  const timed = range(microBatches).flatMap((microBatch) => {
    const direction = microBatch % 2;
    const stage = direction ? stages - 1 - place : place;
    const index = Math.floor(microBatch / 2) % (unit / 2);
    const start = 2 * unit * Math.floor(microBatch / unit) + 2 * index;
    const at = (phase, tick) => ({ tick, direction, task: { phase, stage, microBatch } });
    return [at("F", start + stage), at("B", start + 2 * stages - 1 - stage)];
  });
  const before = (a, b) => a.tick - b.tick || a.task.phase.localeCompare(b.task.phase) || a.direction - b.direction;
  return timed.sort(before).map(({ task }) => task);
}
