// Paints the shapes of lanes with their texts, and the axis of time below them.

import {ticksOf} from "./chart.js";
import {kindChannels, paintColumns, phaseChannels} from "./lanes.js";
import {text} from "./document.js";
import {inkOn, phaseColour, themeColour} from "./palette.js";
import {paintText} from "./parts.js";
import {LANE_KINDS} from "./trace.js";

const LABEL_HEIGHT = 11; // of the lowest box that has room for a text

/** Steps with their names; `opacity` below 1 dims them. */
export function paintSteps(ctx, shape, report, top, height, colourOf, opacity) {
  ctx.globalAlpha = opacity;
  paintColumns(ctx, shape, kindChannels(colourOf), top, height);
  ctx.globalAlpha = 1;
  for (const { x, width, list, i } of shape.boxes) {
    const colour = colourOf(LANE_KINDS[list.step.kind[i]]);
    const name = width > 40 && height > LABEL_HEIGHT ? text(report, list.step.name[i]) : "";
    paintBox(ctx, { x, top, width: width > 4 ? width - 0.5 : width, height }, shape, colour, name, opacity);
  }
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
    if (width > 14) paintLabel(ctx, box, shape, taskLabel(task, width), opacity < 1 ? "" : phaseColour(task.phase));
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

function taskLabel({ stage, phase, microBatch }, width) {
  if (width < 110) return microBatch < 0 ? phase : String(microBatch);
  const where = stage === null ? phase : `stage ${stage} ${phase}`;
  return microBatch < 0 ? where : `${where}, micro-batch ${microBatch}`;
}

/** Below tasks, compute is told from all else, in colours that no phase has. */
export function stripColour(kind) {
  return themeColour(kind === "compute" ? "strip-compute" : "strip-else");
}

/** Cycles, and the time that they take, from `left` on at a height of `top`. */
export function paintTimeAxis(ctx, view, left, top, hertz) {
  const marks = ticksOf(view.lo, view.hi, view.width / 130);
  const step = marks.length > 1 ? marks[1] - marks[0] : 1;
  for (const mark of marks) {
    const x = Math.round(view.toX(mark));
    ctx.fillStyle = themeColour("grid");
    ctx.fillRect(x, 0, 1, top + 4);
    ctx.textAlign = x < left + 30 ? "left" : x > view.width - 40 ? "right" : "center";
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText(axisCycles(mark, step), x, top + 12);
    ctx.fillStyle = themeColour("text-faint");
    ctx.fillText(axisSeconds(mark / hertz, step / hertz), x, top + 27);
  }
  ctx.textAlign = "left";
}

/** A mark with as many digits as tell it from the next. */
function axisCycles(mark, step) {
  const [size, unit] = mark >= 1e9 ? [1e9, " G"] : mark >= 1e6 ? [1e6, " M"] : mark >= 1e3 ? [1e3, " k"] : [1, ""];
  return (mark / size).toFixed(digitsOf(step / size)) + unit;
}

function axisSeconds(time, step) {
  const [size, unit] = time >= 1 ? [1, "s"] : time >= 1e-3 ? [1e-3, "ms"] : [1e-6, "µs"];
  return `${(time / size).toFixed(digitsOf(step / size / 2))} ${unit}`;
}

function digitsOf(step) {
  return Math.min(9, Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)));
}
