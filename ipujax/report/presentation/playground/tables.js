// Schedules that are not in orders.js, such as a user's own: their ticks, as texts, for some numbers of stages and micro-batches.

const LABEL = /^(\d+)([FBWROL])(\d+)$/;

/** Entries as those of `SCHEDULES`, by name, of `{name, title, splits, cases: [{stages, microBatches, ipus, copies, pattern, needs, ticks}]}`. */
export function tabulated(schedules) {
  return Object.fromEntries(schedules.map((own) => [own.name, { ...own, order: (...sizes) => readCase(own, ...sizes) }]));
}

function readCase({ name, cases }, stages, microBatches) {
  const alike = cases.filter((each) => each.stages === stages);
  const found = alike.find((each) => each.microBatches === microBatches);
  if (!found) {
    const list = (key, of) => [...new Set(of.map((each) => each[key]))].join(", ") || "none";
    const fix = alike.length
      ? `with ${stages} stages this page has it for these numbers of micro-batches: ${list("microBatches", alike)}`
      : `this page has it for these numbers of stages: ${list("stages", cases)}`;
    throw Object.assign(new RangeError(`${name}: ${fix}`), { fix });
  }
  return { ipus: found.ipus, needs: found.needs, ticks: found.ticks.split("|").map((tick) => tick.split(" ").filter(Boolean).map((label) => readLabel(label, found))) };
}

/** The task of a label, on the IPU of its stage in the copy of its micro-batch. */
function readLabel(label, { copies, pattern }) {
  const [, stage, phase, microBatch] = LABEL.exec(label);
  const ipu = copies[pattern[microBatch % pattern.length]][stage];
  return { phase, stage: Number(stage), microBatch: Number(microBatch), ipu };
}
