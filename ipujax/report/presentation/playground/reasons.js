// Why a task starts when it does, in words.

import {threeDigits} from "../page/format.js";

const PHASES = {
  F: "forward",
  B: "backward",
  W: "gradient of weights",
  R: "forward again",
  O: "to host memory",
  L: "from host memory",
};

/** `B 3`, or `stage 5 B 3` where an IPU has several stages. */
export function shortName({ phase, stage, microBatch }, several) {
  return `${several ? `stage ${stage} ` : ""}${phase} ${microBatch}`;
}

/** Lines about a task: what it is, when it runs, and what it waited for. */
export function whyThen(task, settings) {
  const { ipu, phase, stage, microBatch, start, end } = task;
  return [
    `${PHASES[phase]} of micro-batch ${microBatch}`,
    `stage ${stage}, IPU ${ipu}, from ${threeDigits(start)} to ${threeDigits(end)}`,
    reason(task, settings),
  ];
}

/** Lines about a time in which an IPU has nothing to do before `next`, which is null after its last task. */
export function whyIdle(ipu, next, settings) {
  if (!next) return [`IPU ${ipu} is done`, "it has no tasks left, and waits for the others to end"];
  const free = next.previous?.end ?? 0;
  return [`IPU ${ipu} waits for ${threeDigits(next.start - free)}`, `next is ${shortName(next, settings.several)}`, reason(next, settings)];
}

/** The task that one waited for, or null if it was the first. */
export function causeOf({ previous, input, arrival, start }) {
  if (input && arrival === start && (previous?.end ?? 0) < start) return input;
  return previous ?? input;
}

function reason(task, { several, transfer }) {
  const { previous, input, arrival, start } = task;
  const name = (each) => shortName(each, several);
  const free = previous?.end ?? 0;
  if (!input && !previous) return "the first task: nothing is before it";
  if (!input) return `it has what it needs, and starts when ${name(previous)} has ended`;
  if (arrival < start) return `its input has been there since ${threeDigits(arrival)}; the schedule runs ${name(previous)} before it`;
  const delay = transfer[Math.min(task.stage, input.stage)];
  const way = delay ? `, and takes ${threeDigits(delay)} on the way` : "";
  const waited = start > free ? `waits ${threeDigits(start - free)} for` : "starts with the end of";
  return `${waited} ${name(input)} on IPU ${input.ipu}, which ends at ${threeDigits(input.end)}${way}`;
}
