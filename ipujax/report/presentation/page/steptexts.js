// What is said of steps, tasks and waiting of a timeline, on hovering.

import {text} from "./document.js";
import {cycles, exact, seconds, shortOrigin} from "./format.js";
import {inWords} from "./parts.js";
import {firstPart, primitivesOf} from "./store.js";
import {LANE_KINDS} from "./trace.js";

const MOST_TITLES = 3; // operations that a step may belong to and that are all named

/** Lines of tooltips for one report. */
export class StepTexts {
  constructor(report) {
    this.report = report;
    this.hertz = report.target.clock_hz;
    this.operations = new Map();
    for (const operation of report.operations) {
      const key = operationKey(operation.origin, primitivesOf(firstPart(operation.name)), operation.ipu);
      if (!this.operations.has(key)) this.operations.set(key, []);
      this.operations.get(key).push(operation);
    }
  }

  /** The operations that a step may be of, by name: one, or several of a line that only differ in shape. */
  titlesOf(step, ipu) {
    const name = text(this.report, step.name);
    const known = this.operations.get(operationKey(text(this.report, step.origin), firstPart(name), ipu)) ?? [];
    const possible = known.filter(
      (operation) =>
        step.cycles <= (1.001 * operation.cycles) / Math.max(operation.runs, 1) &&
        !(step.task?.phase === "fwd" && operation.name.endsWith(", backward")),
    );
    return [...new Set(possible.map((operation) => operation.name))].filter((title) => title !== name);
  }

  step(step, ipu) {
    const { report } = this;
    const name = text(report, step.name) || inWords(LANE_KINDS[step.kind]);
    const origin = text(report, step.origin);
    const titles = this.titlesOf(step, ipu);
    const one = titles.length === 1;
    const several = titles.length > 1 && titles.length <= MOST_TITLES ? `one of ${titles.join("; ")}` : "";
    return [
      one ? titles[0] : name,
      one ? `its step ${name}` : several,
      `${inWords(LANE_KINDS[step.kind])} on IPU ${ipu}`,
      ...this.times(step),
      step.task ? `in ${taskText(step.task)}` : "",
      shortOrigin(origin),
    ].filter(Boolean);
  }

  task(task, ipu, step) {
    const here = step ? this.step(step, ipu)[0] : "";
    return [taskText(task), `on IPU ${ipu}`, ...this.times(task), ...(here ? [`here: ${here}`] : [])];
  }

  waiting(gap, ipu) {
    return [`IPU ${ipu} waits`, ...this.times(gap)];
  }

  times({ start, cycles: long }) {
    return [
      `${cycles(long)} cycles, ${seconds(long / this.hertz)}`,
      `from cycle ${exact(start)}, ${seconds(start / this.hertz)}`,
    ];
  }
}

function operationKey(origin, primitives, ipu) {
  return `${ipu} ${primitives} ${origin}`;
}

function taskText({ stage, phase, microBatch }) {
  const parts = [stage === null ? "" : `stage ${stage}`, phase, microBatch < 0 ? "" : `micro-batch ${microBatch}`];
  return parts.filter(Boolean).join(", ");
}
