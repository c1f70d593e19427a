// Paints what one IPU's memory holds at each step, and the lives of its largest tensors.
import {bytesTicks, insideAxes, paintBytesAxis, paintNotes} from "./axes.js";
import {bytes} from "./format.js";
import {categoryColour, inkOn, themeColour} from "./palette.js";
import {paintText, shortened} from "./parts.js";
import {paintLimitLine} from "./tiledraw.js";
import {fullestOf} from "./tiles.js";

export const LIFE_ROW = 12; // pixels of one bar
const WIDE_NOTES = 560; // pixels of a chart from which on its notes are whole sentences
const LIFE_LABEL = 40; // pixels of the narrowest bar with a label inside

/**
 * The curve, in the upper `height` pixels. `shown` is `{life, height, top, base (bytes always there that
 * are shown, or 0), capacity, always (bytes always there that are not shown, or 0), linked (a Uint8Array over steps, or
 * null), step (selected, or null), small}`.
 */
export function paintCurve(ctx, view, shown) {
  const toY = (value) => shown.height - (value / shown.top) * shown.height;
  insideAxes(ctx, view, shown.height, () => {
    ctx.fillStyle = themeColour("grid");
    for (const value of bytesTicks(shown.top, shown.small)) ctx.fillRect(view.left, Math.round(toY(value)), view.width, 1);
    if (shown.linked) paintLinkedSteps(ctx, view, shown);
    if (shown.base) {
      ctx.fillStyle = themeColour("line");
      ctx.fillRect(view.toX(0), toY(shown.base), view.toX(shown.life.steps) - view.toX(0), toY(0) - toY(shown.base));
    }
    paintStacks(ctx, stepColumns(view, shown.life), shown, toY);
    const notes = [...paintCapacity(ctx, view, shown, toY), ...paintMarks(ctx, view, shown, toY)];
    if (!shown.small) paintNotes(ctx, view, notes);
  });
  paintBytesAxis(ctx, view, shown.height, shown.top, shown.small);
}

/** What each column of pixels stands for: `{x, width, step}`, the fullest of its steps. */
function stepColumns(view, life) {
  const from = Math.max(0, Math.floor(view.lo));
  const to = Math.min(life.steps, Math.ceil(view.hi));
  const columns = [];
  if (to - from <= view.right - view.left) {
    for (let step = from; step < to; step++) {
      const x = view.toX(step);
      columns.push({ x, width: view.toX(step + 1) - x, step });
    }
    return columns;
  }
  for (let x = view.left; x < view.right; x++) {
    const step = liveStepAt(view, x, life);
    if (step >= 0) columns.push({ x, width: 1, step });
  }
  return columns;
}

/** The step that is drawn at a pixel; -1 if there is none. */
export function liveStepAt(view, x, life) {
  const first = Math.floor(view.fromX(x));
  if (x < view.left || first < 0 || first >= life.steps) return -1;
  const end = Math.min(life.steps, Math.max(first + 1, Math.floor(view.fromX(x + 1))));
  return fullestOf(life.bytes, first, end);
}

function paintStacks(ctx, columns, { life, base }, toY) {
  const height = new Float64Array(columns.length).fill(base);
  for (const part of life.parts) {
    ctx.fillStyle = categoryColour(part.name);
    ctx.beginPath();
    columns.forEach(({ x, width, step }, i) => {
      const value = part.bytes[step];
      if (!(value > 0)) return;
      ctx.rect(x, toY(height[i] + value), width + 0.3, toY(height[i]) - toY(height[i] + value));
      height[i] += value;
    });
    ctx.fill();
  }
  ctx.strokeStyle = themeColour("text");
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const { x, width, step } of columns) {
    const y = toY(base + life.bytes[step]);
    ctx.lineTo(x, y);
    ctx.lineTo(x + width, y);
  }
  ctx.stroke();
}

function paintLinkedSteps(ctx, view, { life, linked, height }) {
  for (const [from, to] of linkedRanges(view, life, linked)) {
    ctx.fillStyle = themeColour("select");
    ctx.fillRect(from, 0, to - from, height);
    ctx.fillStyle = themeColour("select-line");
    ctx.fillRect(from, 0, to - from, 4);
  }
}

/** Ranges of pixels in which there are steps that are selected. */
function linkedRanges(view, life, linked) {
  const ranges = [];
  const end = Math.min(life.steps, Math.ceil(view.hi));
  for (let step = Math.max(0, Math.floor(view.lo)); step < end; step++) {
    if (!linked[step]) continue;
    const from = view.toX(step);
    const to = Math.max(view.toX(step + 1), from + 1.5);
    const before = ranges.at(-1);
    if (before && from <= before[1] + 0.5) before[1] = Math.max(before[1], to);
    else ranges.push([from, to]);
  }
  return ranges;
}

/** What all tiles can hold, as a line; gives the notes on it. */
function paintCapacity(ctx, view, { capacity, always, top }, toY) {
  if (capacity > top || capacity < 0) return [];
  const y = toY(capacity);
  paintLimitLine(ctx, view, y);
  const whole = `all tiles can hold ${bytes(capacity)}${always ? " beside what is always alive" : ""}`;
  return [{ text: view.width < WIDE_NOTES ? `limit ${bytes(capacity)}` : whole, x: view.right - 6, y: y - 9, after: false }];
}

/** The worst step and the selected one, as lines; gives the notes on them. */
function paintMarks(ctx, view, { life, step, base, always, height }, toY) {
  if (!life.steps) return [];
  const beside = always && view.width > WIDE_NOTES ? ` + ${bytes(always)} always alive` : "";
  const notes = [];
  const mark = (at, colour, before, dash) => {
    const x = view.toX(at + 0.5);
    if (x < view.left || x > view.right) return;
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.5;
    ctx.setLineDash(dash);
    ctx.beginPath();
    ctx.moveTo(x, 0);
    ctx.lineTo(x, height);
    ctx.stroke();
    ctx.setLineDash([]);
    const after = x < (view.left + view.right) / 2;
    const text = `${before}step ${at}: ${bytes(base + life.bytes[at])}${beside}`;
    notes.push({ text, x: x + (after ? 5 : -5), y: toY(base + life.bytes[at]) - 10, after });
  };
  mark(life.worst, themeColour("text-soft"), "worst ", [2, 3]);
  if (step !== null) mark(step, themeColour("accent"), "", []);
  return step === life.worst ? notes.slice(0, 1) : notes;
}

/**
 * Bars from first to last step, from `y` on. `lives` are `{first, last, category, label, linked}`.
 */
export function paintLives(ctx, view, lives, y) {
  ctx.font = "10.5px system-ui, sans-serif";
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  insideAxes(ctx, view, view.height, () => lives.forEach((life, row) => paintLife(ctx, view, life, y + row * LIFE_ROW)));
}

function paintLife(ctx, view, { first, last, category, label, linked }, y) {
  const from = Math.max(view.left, view.toX(first));
  const to = Math.min(view.right, Math.max(view.toX(last + 1), from + 2));
  ctx.fillStyle = categoryColour(category);
  ctx.fillRect(from, y + 1, to - from, LIFE_ROW - 2);
  if (linked) {
    ctx.strokeStyle = themeColour("text");
    ctx.lineWidth = 2;
    ctx.strokeRect(from + 1, y + 1, Math.max(1, to - from - 2), LIFE_ROW - 2);
  }
  const middle = y + LIFE_ROW / 2 + 0.5;
  const wide = ctx.measureText(label).width + 8;
  const [before, after] = [from - view.left, view.right - to];
  ctx.fillStyle = themeColour("text-soft");
  if (wide < after) ctx.fillText(label, to + 5, middle);
  else if (wide < before) ctx.fillText(label, from - wide + 3, middle);
  else if (to - from > LIFE_LABEL) {
    ctx.fillStyle = inkOn(categoryColour(category));
    paintText(ctx, label, from + 5, middle, to - from - 7);
  } else if (after > before) paintText(ctx, label, to + 5, middle, after - 8);
  else {
    const shown = shortened(ctx, label, before - 8);
    ctx.fillText(shown, from - 5 - ctx.measureText(shown).width, middle);
  }
}
