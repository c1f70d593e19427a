// Paints the shapes of lanes with their texts, and the axis of time below them.

import {ticksOf} from "./chart.js";
import {kindChannels, paintColumns, phaseChannels} from "./lanes.js";
import {inkOn, kindColour, themeColour} from "./palette.js";
import {paintText, phaseInWords} from "./parts.js";
import {LANE_KINDS} from "./trace.js";

const OUTLINE_WIDTH = 4; // pixels, under which a step has no outline
const LABEL_HEIGHT = 11; // of the lowest box that has room for a text
const NAMED_WIDTH = 24; // of the narrowest box that may have a name
const SMALL_ROW = 15; // pixels, under which texts are smaller
const SMALL_FONT = "10.5px";

/**
 * Steps with names, `nameOf(list, i)`, in a row `{top, height}`. `look` is `{channels (of columns, with colours),
 * colourOf(kind, phase), opacity, outlined}`.
 */
export function paintSteps(ctx, shape, { top, height }, { channels, colourOf, opacity, outlined }, nameOf) {
  ctx.globalAlpha = opacity;
  paintColumns(ctx, shape, channels, top, height);
  ctx.globalAlpha = 1;
  for (const { x, width, list, i, phase } of shape.boxes) {
    const colour = colourOf(LANE_KINDS[list.step.kind[i]], phase);
    const name = width > NAMED_WIDTH && height > LABEL_HEIGHT ? nameOf(list, i) : "";
    const box = { x, top, width: width > 4 ? width - 0.5 : width, height };
    paintBox(ctx, box, shape, colour, name, opacity);
    if (outlined && width > OUTLINE_WIDTH) paintOutline(ctx, box, shape);
  }
}

/** How steps look by kind, by the phase of their tasks, and in the strip below tasks. */
export function lookByKind(opacity, outlined = false) {
  return { channels: kindChannels(kindColour), colourOf: kindColour, opacity, outlined };
}

export function lookByPhase(colourOf, opacity, outlined = false) {
  return { channels: phaseChannels(colourOf), colourOf: (_, phase) => colourOf(phase), opacity, outlined };
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

/**
 * Tasks of a pipeline with their stages and micro-batches, in the colours of their phases, each second micro-batch in
 * another shade.
 */
export function paintTasks(ctx, shape, { top, height }, colourOf, opacity) {
  ctx.globalAlpha = opacity;
  paintColumns(ctx, shape, phaseChannels(colourOf), top, height);
  ctx.globalAlpha = 1;
  for (const { x, width, list, i } of shape.boxes) {
    const { task } = list.items[i];
    const box = { x, top, width: width > 4 ? width - 1 : width, height };
    paintBox(ctx, box, shape, colourOf(task.phase), "", opacity);
    if (task.microBatch % 2 === 1) paintBox(ctx, box, shape, themeColour("odd"), "", 1);
    paintTaskLabel(ctx, box, shape, task, opacity < 1 ? themeColour("text-soft") : inkOn(colourOf(task.phase)));
  }
}

/** In the middle of what can be seen of a task, the longest form of its name that has room; a number may be small. */
function paintTaskLabel(ctx, box, shape, { stage, phase, microBatch }, ink) {
  const [from, to] = seenOf(box, shape);
  if (to - from < 6 || box.height < LABEL_HEIGHT - 1) return;
  const where = stage === null ? phaseInWords(phase) : `stage ${stage} ${phaseInWords(phase)}`;
  const number = String(microBatch);
  const forms = microBatch < 0 ? [where] : [`${where}, micro-batch ${number}`, `micro-batch ${number}`, number];
  ctx.save();
  if (box.height < SMALL_ROW) ctx.font = ctx.font.replace(/[\d.]+px/, SMALL_FONT);
  let form = forms.find((own) => ctx.measureText(own).width <= to - from - 4);
  if (!form && microBatch >= 0) {
    ctx.font = ctx.font.replace(/[\d.]+px/, "9px");
    form = ctx.measureText(number).width <= to - from - 1 ? number : "";
  }
  ctx.fillStyle = ink;
  ctx.textAlign = "center";
  if (form) ctx.fillText(form, (from + to) / 2, box.top + box.height / 2 + 0.5);
  ctx.restore();
}

function paintBox(ctx, box, shape, colour, name, opacity) {
  ctx.globalAlpha = opacity;
  ctx.fillStyle = colour;
  ctx.fillRect(box.x, box.top, box.width, box.height);
  ctx.globalAlpha = 1;
  if (name) paintLabel(ctx, box, shape, name, opacity < 1 ? "" : colour);
}

/** From where to where a box can be seen. */
function seenOf(box, shape) {
  return [Math.max(box.x, shape.left), Math.min(box.x + box.width, shape.left + shape.width)];
}

/** A text in the part of a box that can be seen; on no colour, as on the page. */
function paintLabel(ctx, box, shape, name, colour) {
  const [from, to] = seenOf(box, shape);
  const font = ctx.font;
  if (box.height < SMALL_ROW) ctx.font = font.replace(/[\d.]+px/, SMALL_FONT);
  ctx.fillStyle = colour ? inkOn(colour) : themeColour("text-soft");
  const beside = Math.min(Math.max((to - from - ctx.measureText(name).width) / 2, 1), 4); // as much as there is room for
  paintText(ctx, name, from + beside, box.top + box.height / 2 + 0.5, to - from - 2 * beside);
  ctx.font = font;
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
