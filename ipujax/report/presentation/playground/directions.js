// Schedules whose odd micro-batches go through copies of the stages, from the last IPU to the first, in JavaScript:
// lowering/schedules/chimera.py and dualpipe.py.

import {repeatBlocks} from "./blocks.js";

const numbersTo = (end) => Array.from({ length: end }, (_, i) => i);

/** `whole` is what there is without two directions: with one stage or one micro-batch. */
export function chimera(stages, microBatches, whole) {
  if (stages === 1 || microBatches === 1) return whole(stages, microBatches);
  return { ipus: numbersTo(stages), orders: numbersTo(stages).map((place) => orderOfPlace(place, stages, microBatches)) };
}

function orderOfPlace(place, stages, microBatches) {
  const unit = 2 * Math.max(Math.floor(stages / 2), 1);
  const timed = numbersTo(microBatches).flatMap((microBatch) => {
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

export function dualpipe(stages, microBatches, whole) {
  if (stages === 1 || microBatches === 1) return whole(stages, microBatches);
  const places = [...numbersTo(stages), ...numbersTo(stages).reverse()];
  const times = places.flatMap((_, number) => {
    const backward = 2 * stages - 1 - (number % stages);
    return [["F", number, number % stages], ["B", number, backward], ["W", number, backward + 1]];
  });
  const pairs = Math.ceil(microBatches / 2);
  const ticks = repeatBlocks(places, stages + 1, [{ times, lazy: true }], pairs, 2);
  if (!ticks) throw Object.assign(new RangeError("no such order"), { fix: "use fewer stages" });
  const apart = ({ phase, stage, microBatch }) => {
    const direction = Math.floor(stage / stages);
    return { phase, stage: stage % stages, microBatch: 2 * microBatch + direction, ipu: places[stage] };
  };
  const own = ticks.map((tick) => tick.map(apart).filter((task) => task.microBatch < microBatches));
  return { ipus: numbersTo(stages), ticks: own };
}
