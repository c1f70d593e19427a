// What is said of steps, tasks, parts of the model and waiting of a timeline, on hovering: the biggest thing first.

import {stretchAt, taskAt} from "./find.js";
import {text} from "./document.js";
import {cycles, exact, seconds, shortOrigin} from "./format.js";
import {friendlyName} from "./names.js";
import {inWords, phaseInWords} from "./parts.js";
import {firstPart} from "./store.js";
import {LANE_KINDS} from "./trace.js";

/** Lines of tooltips for one report, whose lanes have bands (see bands.js). */
export class StepTexts {
  constructor(report, bands) {
    this.report = report;
    this.bands = bands;
    this.hertz = report.target.clock_hz;
    this.operations = new Map();
    for (const operation of report.operations) this.operations.set(operation.number, operation);
  }

  /** What a step is of, in the words of the model: its operation, or in older reports the step's own name. */
  nameOf({ operation, name }) {
    const known = this.operations.get(operation);
    return known ? friendlyName(known) : text(this.report, name);
  }

  /** What a step does for its operation: `exchange`, or the kernel that computes. */
  workOf({ kind, name }) {
    const whole = text(this.report, name);
    const kernel = whole.slice(firstPart(whole).length + 1);
    return LANE_KINDS[kind] === "compute" && kernel ? kernel : inWords(LANE_KINDS[kind]);
  }

  /** A step, from the task that it is in down to itself. */
  step(step, ipu, lane, time) {
    const origin = shortOrigin(text(this.report, step.origin));
    const around = this.around(lane, time);
    const known = this.operations.has(step.operation);
    const work = `${this.workOf(step)}, ${cycles(step.cycles)} cycles`;
    const own = known ? `its step ${work}` : `${this.nameOf(step) || inWords(LANE_KINDS[step.kind])}: ${work}`;
    return [...around, own, this.when(step, ipu), origin].filter(Boolean);
  }

  task(task, ipu, lane, time) {
    const inside = this.around(lane, time).slice(1);
    return [this.sized(taskText(task), task), this.when(task, ipu), ...(inside.length ? [`here: ${inside.at(-1)}`] : [])];
  }

  /** A stretch of a part of the model, after what it is in. */
  stretch(stretch, ipu, lane, time) {
    const { level } = this.bands.parts[stretch.part];
    return [...this.around(lane, time, level), this.when(stretch, ipu)];
  }

  waiting(gap, ipu) {
    return [this.sized(`IPU ${ipu} waits`, gap), this.when(gap, ipu)];
  }

  /** The task or pass, the scope and the operation at a time, each with its cycles; of the model, down to a level. */
  around(lane, time, level = this.bands.depth - 1) {
    const task = taskAt(lane, time);
    const stretches = [];
    for (let own = 0; own <= level; own++) {
      const band = this.bands.of(lane, own);
      const stretch = band && stretchAt(band, time);
      if (stretch) stretches.push({ ...stretch, ...this.bands.parts[stretch.part] });
    }
    const pass = stretches.find((own) => own.level === 0);
    const scope = stretches.findLast((own) => own.level > 0 && own.operation < 0);
    const operation = stretches.find((own) => own.operation >= 0);
    return [
      task ? this.sized(taskText(task), task) : pass && this.sized(pass.name, pass),
      scope && this.sized(scope.scope.replaceAll("/", " > "), scope),
      operation && this.sized(operation.name, operation),
    ].filter(Boolean);
  }

  sized(name, { cycles: long }) {
    return `${name}, ${cycles(long)} cycles`;
  }

  when({ start, cycles: long }, ipu) {
    return `IPU ${ipu}: ${seconds(long / this.hertz)}, from ${seconds(start / this.hertz)} (cycle ${exact(start)})`;
  }
}

function taskText({ stage, phase, microBatch }) {
  const where = stage === null ? phaseInWords(phase) : `stage ${stage} ${phaseInWords(phase)}`;
  return microBatch < 0 ? where : `${where}, micro-batch ${microBatch}`;
}
