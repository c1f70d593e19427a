// Paints the shapes of lanes with their texts, and the axis of time below them.

import {ticksOf} from "./chart.js";
import {kindChannels, paintColumns, phaseChannels} from "./lanes.js";
import {text} from "./document.js";
import {inkOn, kindColour, phaseColour, themeColour} from "./palette.js";
import {paintText} from "./parts.js";
import {LANE_KINDS} from "./trace.js";

const OUTLINE_WIDTH = 4; // pixels, under which a step has no outline
const LABEL_HEIGHT = 11; // of the lowest box that has room for a text

/**
 * Steps with their names. `look` is `{channels (of columns, with colours), colourOf(kind, phase), opacity, outlined}`.
 */
export function paintSteps(ctx, shape, report, top, height, { channels, colourOf, opacity = 1, outlined = false }) {
  ctx.globalAlpha = opacity;
  paintColumns(ctx, shape, channels, top, height);
  ctx.globalAlpha = 1;
  for (const { x, width, list, i, phase } of shape.boxes) {
    const colour = colourOf(LANE_KINDS[list.step.kind[i]], phase);
    const name = width > 40 && height > LABEL_HEIGHT ? text(report, list.step.name[i]) : "";
    const box = { x, top, width: width > 4 ? width - 0.5 : width, height };
    paintBox(ctx, box, shape, colour, name, opacity);
    if (outlined && width > OUTLINE_WIDTH) paintOutline(ctx, box, shape);
  }
}

/** How steps look by kind, by the phase of their tasks, and in the strip below tasks. */
export function lookByKind(opacity, outlined = false) {
  return { channels: kindChannels(kindColour), colourOf: kindColour, opacity, outlined };
}

export function lookByPhase(opacity, outlined = false) {
  return { channels: phaseChannels(phaseColour), colourOf: (_, phase) => phaseColour(phase), opacity, outlined };
}

export function lookOfStrip(opacity) {
  return { channels: kindChannels(stripColour), colourOf: stripColour, opacity, outlined: false };
}

function paintOutline(ctx, box, shape) {
  const from = Math.max(box.x, shape.left - 3);
  const to = Math.min(box.x + box.width, shape.left + shape.width + 3);
  ctx.strokeStyle = themeColour("text");
  ctx.lineWidth = 2;
  ctx.strokeRect(from + 1, box.top + 1, Math.max(to - from - 2, 1), box.height - 2);
}

/** Tasks of a pipeline with their stages and micro-batches, each second micro-batch in another shade. */
export function paintTasks(ctx, shape, top, height, opacity) {
  ctx.globalAlpha = opacity;
  paintColumns(ctx, shape, phaseChannels(phaseColour), top, height);
  ctx.globalAlpha = 1;
  for (const { x, width, list, i } of shape.boxes) {
    const { task } = list.items[i];
    const box = { x, top, width: width > 4 ? width - 1 : width, height };
    paintBox(ctx, box, shape, phaseColour(task.phase), "", opacity);
    if (task.microBatch % 2 === 1) paintBox(ctx, box, shape, themeColour("odd"), "", 1);
    if (width > 14) paintLabel(ctx, box, shape, taskLabel(ctx, task, width - 8), opacity < 1 ? "" : phaseColour(task.phase));
  }
}

function paintBox(ctx, box, shape, colour, name, opacity) {
  ctx.globalAlpha = opacity;
  ctx.fillStyle = colour;
  ctx.fillRect(box.x, box.top, box.width, box.height);
  ctx.globalAlpha = 1;
  if (name) paintLabel(ctx, box, shape, name, opacity < 1 ? "" : colour);
}

/** A text in the part of a box that can be seen; on no colour, as on the page. */
function paintLabel(ctx, box, shape, name, colour) {
  const from = Math.max(box.x, shape.left);
  const to = Math.min(box.x + box.width, shape.left + shape.width);
  ctx.fillStyle = colour ? inkOn(colour) : themeColour("text-soft");
  paintText(ctx, name, from + 4, box.top + box.height / 2 + 0.5, to - from - 7);
}

/** The longest of the forms of a task's name that has room: "stage 1 bwd, micro-batch 12", "s1 b12", "12". */
function taskLabel(ctx, { stage, phase, microBatch }, room) {
  const where = stage === null ? phase : `stage ${stage} ${phase}`;
  const short = stage === null ? phase : `s${stage} ${phase[0]}`;
  const forms =
    microBatch < 0 ? [where, short] : [`${where}, micro-batch ${microBatch}`, `${short}${microBatch}`, String(microBatch)];
  return forms.find((form) => ctx.measureText(form).width <= room) ?? "";
}

/** Below tasks, compute is told from all else, in colours that no phase has. */
function stripColour(kind) {
  return themeColour(kind === "compute" ? "strip-compute" : "strip-else");
}

/** Cycles, and below them the time, each at round numbers, from `left` on at a height of `top`. */
export function paintTimeAxis(ctx, view, left, top, hertz) {
  const most = view.width / 130;
  const marks = ticksOf(view.lo, view.hi, most);
  const step = marks.length > 1 ? marks[1] - marks[0] : 1;
  ctx.fillStyle = themeColour("grid");
  for (const mark of marks) ctx.fillRect(Math.round(view.toX(mark)), 0, 1, top + 4);
  const cyclesAt = marks.map((mark) => [view.toX(mark), axisCycles(mark, step, marks.at(-1))]);
  paintMarksOfAxis(ctx, view, cyclesAt, left, top + 12, "text-soft");
  const times = ticksOf(view.lo / hertz, view.hi / hertz, most);
  const between = times.length > 1 ? times[1] - times[0] : 1 / hertz;
  ctx.fillStyle = themeColour("text-faint");
  for (const time of times) ctx.fillRect(Math.round(view.toX(time * hertz)), top + 20, 1, 4);
  const timesAt = times.map((time) => [view.toX(time * hertz), axisSeconds(time, between, times.at(-1))]);
  paintMarksOfAxis(ctx, view, timesAt, left, top + 31, "text-faint");
}

function paintMarksOfAxis(ctx, view, marks, left, y, colour) {
  ctx.fillStyle = themeColour(colour);
  for (const [x, said] of marks) {
    ctx.textAlign = x < left + 30 ? "left" : x > view.width - 40 ? "right" : "center";
    if (x >= left) ctx.fillText(said, x, y);
  }
  ctx.textAlign = "left";
}

/** A mark with as many digits as tell it from the next, in the unit of the last. */
function axisCycles(mark, step, last) {
  const [size, unit] = last >= 1e9 ? [1e9, " G"] : last >= 1e6 ? [1e6, " M"] : last >= 1e3 ? [1e3, " k"] : [1, ""];
  if (!mark) return "0";
  return (mark / size).toFixed(digitsOf(step / size)) + unit;
}

function axisSeconds(time, step, last) {
  const [size, unit] = last >= 1 ? [1, "s"] : last >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  return `${(time / size).toFixed(digitsOf(step / size))} ${unit}`;
}

function digitsOf(step) {
  return Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
}
