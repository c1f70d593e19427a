// Schedules in which micro-batches come to an IPU from both ends: lowering/schedules/dualpipe_order.py in JavaScript.

import {range} from "./numbers.js";

const repeat = (steps, times) => range(times).flatMap(() => steps);

const [forwardNear, forwardFar] = [["F", "near"], ["F", "far"]];
const backwardNear = [["B", "near"], ["W", "near"]];
const backwardFar = [["B", "far"], ["W", "far"]];

/** With copies of the stages, in the other direction. `whole` is what there is with one stage or one micro-batch. */
export function dualpipe(stages, microBatches, whole) {
  if (stages === 1 || microBatches === 1) return whole(stages, microBatches);
  const isOdd = stages % 2;
  const counts = [Math.ceil(microBatches / 2), Math.floor(microBatches / 2)];
  const orders = range(stages).map((place) => {
    const isBehind = Number(place > Math.floor((stages - 1) / 2));
    const taskOf = (phase, end, number) => {
      const direction = Number(end === "far") ^ isBehind;
      return { phase, stage: direction ? stages - 1 - place : place, microBatch: 2 * number + direction };
    };
    return buildOrder(place + (isOdd && isBehind), stages + isOdd, { near: counts[isBehind], far: counts[1 - isBehind] }, taskOf);
  });
  return { ipus: range(stages), orders };
}

/** In a V: micro-batches come from the far end at the second stage of an IPU. */
export function dualpipeV(stages, microBatches) {
  const orders = range(stages / 2).map((place) => {
    const taskOf = (phase, end, microBatch) => ({ phase, stage: end === "far" ? stages - 1 - place : place, microBatch });
    return buildOrder(place, stages, { near: microBatches, far: microBatches }, taskOf);
  });
  return { ipus: range(stages).map((stage) => Math.min(stage, stages - 1 - stage)), orders };
}

function buildOrder(place, places, limits, taskOf) {
  const inner = Math.min(place, places - 1 - place) + 1; // pairs of micro-batches that meet here before any B
  const outer = places / 2 - inner; // IPUs between this one and the middle
  const steady = [forwardNear, ...backwardFar, forwardFar, ...backwardNear];
  const steps = [
    ...repeat([forwardNear], 2 * outer),
    ...repeat([forwardNear, forwardFar], inner),
    ...repeat([...backwardFar, forwardFar], outer),
    ...repeat(steady, Math.min(limits.near, limits.far) - (inner + 2 * outer)),
    ...repeat(steady, Math.abs(limits.near - limits.far)),
    ...repeat([...backwardFar, forwardFar, ...backwardNear], outer),
    ...lastSteps(inner, outer),
  ];
  const counts = {};
  return steps.flatMap(([phase, end]) => {
    const number = counts[phase + end] ?? 0;
    if (number === limits[end]) return [];
    counts[phase + end] = number + 1;
    return [taskOf(phase, end, number)];
  });
}

/** The steps after the last forward pass: half of the weights' gradients fill gaps. */
function lastSteps(inner, outer) {
  const ends = [...repeat(["far", "near"], inner), ...repeat(["near"], outer)];
  const postponed = ends.slice(inner).map((end) => ["W", end]);
  return [
    ...ends.slice(0, inner).flatMap((end) => [["B", end], ["W", end]]),
    ...ends.slice(inner, 2 * inner).map((end) => ["B", end]),
    ...postponed.slice(0, outer).flatMap((weights) => [weights, ["B", "near"]]),
    ...postponed.slice(outer),
  ];
}
