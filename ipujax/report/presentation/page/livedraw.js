// Paints what one IPU's memory holds at each step, and the lives of its largest tensors.
import {ticksOf} from "./chart.js";
import {bytes} from "./format.js";
import {categoryColour, themeColour} from "./palette.js";
import {TILE_FONT, haloText, paintLimitLine, paintScale} from "./tiledraw.js";
import {fullestOf} from "./tiles.js";

export const LIFE_ROW = 12; // pixels of one bar
const LIFE_LABEL = 40; // pixels of the narrowest bar with a label inside
export const STEP_AXIS = 18; // pixels of the marks under the curve

/**
 * The curve, in the upper `height` pixels. `shown` is `{life, height, top, base (bytes always there that
 * are shown, or 0), capacity, always (bytes always there that are not shown, or 0), linked (a Uint8Array over steps, or null), step, worst (whether to
 * mark it), small}`.
 */
export function paintCurve(ctx, view, shown) {
  const area = { ...view, height: shown.height };
  const columns = stepColumns(view, shown.life);
  const toY = (value) => shown.height - (value / shown.top) * shown.height;
  if (shown.linked) paintLinkedSteps(ctx, view, shown);
  if (shown.base) {
    ctx.fillStyle = themeColour("line");
    ctx.fillRect(view.toX(0), toY(shown.base), view.toX(shown.life.steps) - view.toX(0), toY(0) - toY(shown.base));
  }
  paintStacks(ctx, columns, shown, toY);
  paintCapacity(ctx, view, shown, toY);
  if (!shown.small) paintScale(ctx, area, shown.top);
  paintMarks(ctx, view, shown, toY);
}

/** What each column of pixels stands for: `{x, width, step}`, the fullest of its steps. */
function stepColumns(view, life) {
  const from = Math.max(0, Math.floor(view.lo));
  const to = Math.min(life.steps, Math.ceil(view.hi));
  const columns = [];
  if (to - from <= view.width) {
    for (let step = from; step < to; step++) {
      const x = view.toX(step);
      columns.push({ x, width: view.toX(step + 1) - x, step });
    }
    return columns;
  }
  for (let x = 0; x < view.width; x++) {
    const step = liveStepAt(view, x, life);
    if (step >= 0) columns.push({ x, width: 1, step });
  }
  return columns;
}

/** The step that is drawn at a pixel; -1 if there is none. */
export function liveStepAt(view, x, life) {
  const first = Math.floor(view.fromX(x));
  if (first < 0 || first >= life.steps) return -1;
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

function paintCapacity(ctx, view, { capacity, always, top, small }, toY) {
  if (capacity > top || capacity < 0) return;
  const y = toY(capacity);
  paintLimitLine(ctx, view, y);
  if (small) return;
  ctx.textAlign = "center";
  const said = `all tiles can hold ${bytes(capacity)}`;
  const whole = always ? `${said} beside what is always alive` : said;
  const short = ctx.measureText(whole).width > view.width - 40;
  haloText(ctx, short ? `limit ${bytes(capacity)}` : whole, view.width / 2, y - 3);
}

/** The worst step and the selected one. */
function paintMarks(ctx, view, { life, step, base, always, height, small }, toY) {
  if (!life.steps) return;
  const beside = always && view.width > 500 ? ` + ${bytes(always)} always alive` : "";
  const mark = (at, colour, label, dash) => {
    const x = view.toX(at + 0.5);
    if (x < 0 || x > view.width) return;
    ctx.strokeStyle = colour;
    ctx.lineWidth = 1.5;
    ctx.setLineDash(dash);
    ctx.beginPath();
    ctx.moveTo(x, 0);
    ctx.lineTo(x, height);
    ctx.stroke();
    ctx.setLineDash([]);
    if (small) return;
    const left = x < view.width / 2;
    ctx.font = TILE_FONT;
    ctx.textAlign = left ? "left" : "right";
    ctx.textBaseline = "bottom";
    const y = Math.max(16, toY(base + life.bytes[at]) - 4);
    haloText(ctx, label, x + (left ? 5 : -5), y);
  };
  const label = (at) => `step ${at}: ${bytes(base + life.bytes[at])}${beside}`;
  mark(life.worst, themeColour("text-soft"), `worst ${label(life.worst)}`, [2, 3]);
  if (step !== null) mark(step, themeColour("accent"), step === life.worst ? "" : label(step), []);
}

/** Numbers of steps under the curve. */
export function paintStepAxis(ctx, view, y) {
  ctx.font = TILE_FONT;
  ctx.textBaseline = "middle";
  ctx.textAlign = "center";
  ctx.fillStyle = themeColour("line");
  ctx.fillRect(0, y, view.width, 1);
  for (const tick of ticksOf(view.lo, view.hi, view.width / 90)) {
    if (tick !== Math.round(tick)) continue;
    const x = view.toX(tick + 0.5);
    if (x < 16 || x > view.width - 16) continue;
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText(String(tick), x, y + STEP_AXIS / 2 + 1);
  }
}

/**
 * Bars from first to last step, from `y` on. `lives` are `{first, last, category, label, linked}`.
 */
export function paintLives(ctx, view, lives, y) {
  ctx.font = "10.5px system-ui, sans-serif";
  ctx.textAlign = "left";
  ctx.textBaseline = "middle";
  lives.forEach((life, row) => paintLife(ctx, view, life, y + row * LIFE_ROW));
}

function paintLife(ctx, view, { first, last, category, label, linked }, y) {
  const from = Math.max(0, view.toX(first));
  const to = Math.min(view.width, Math.max(view.toX(last + 1), from + 2));
  ctx.fillStyle = categoryColour(category);
  ctx.fillRect(from, y + 1, to - from, LIFE_ROW - 2);
  if (linked) {
    ctx.strokeStyle = themeColour("text");
    ctx.lineWidth = 2;
    ctx.strokeRect(from + 1, y + 1, Math.max(1, to - from - 2), LIFE_ROW - 2);
  }
  ctx.fillStyle = themeColour("text-soft");
  const wide = ctx.measureText(label).width + 8;
  if (to + wide < view.width) ctx.fillText(label, to + 5, y + LIFE_ROW / 2 + 0.5);
  else if (from - wide > 0) ctx.fillText(label, from - wide + 3, y + LIFE_ROW / 2 + 0.5);
  else if (to - from > LIFE_LABEL) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(from, y, to - from, LIFE_ROW);
    ctx.clip();
    ctx.fillStyle = legibleOn(categoryColour(category));
    ctx.fillText(label, from + 5, y + LIFE_ROW / 2 + 0.5);
    ctx.restore();
  }
}

/** Black or white, whichever can be read on a colour such as `rgb(0, 114, 178)`. */
function legibleOn(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
  return 0.299 * red + 0.587 * green + 0.114 * blue > 115 ? "#10151b" : "#ffffff";
}
