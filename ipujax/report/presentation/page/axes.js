// Axes of charts: numbers and titles beside and below what is painted, none of them cut off.

import {ticksOf} from "./chart.js";
import {bytes, exact} from "./format.js";
import {themeColour} from "./palette.js";

export const AXIS_FONT = "11px system-ui, sans-serif";
export const BYTES_WIDTH = 56; // pixels left of a chart, for the axis of bytes
export const NUMBERS_HEIGHT = 20; // pixels below a chart, for the axis of numbers
const TITLE_HEIGHT = 18; // at the top of the axis of bytes

/** A step of a scale of bytes that is easy to read: 1, 2 or 5 and zeros. */
function roundStep(about) {
  const power = 10 ** Math.floor(Math.log10(Math.max(1, about)));
  return [1, 2, 5, 10].map((factor) => factor * power).find((step) => step >= about * 0.8);
}

/** The values at which a chart of bytes up to `top` has lines. */
export function bytesTicks(top, small) {
  const step = roundStep(top / (small ? 2 : 4));
  return Array.from({ length: Math.ceil(top / step) }, (_, i) => i * step);
}

/** Paints the axis of bytes left of a chart of some height that shows them up to `top`. */
export function paintBytesAxis(ctx, view, height, top, small) {
  ctx.font = AXIS_FONT;
  ctx.textBaseline = "middle";
  ctx.fillStyle = themeColour("text-soft");
  ctx.textAlign = "left";
  ctx.fillText("bytes", 2, 8);
  ctx.textAlign = "right";
  for (const value of bytesTicks(top, small)) {
    const y = Math.min(height - (value / top) * height, height - 6);
    if (y > TITLE_HEIGHT + 6) ctx.fillText(value ? bytes(value) : "0", view.left - 6, y);
  }
}

/** Paints the axis of whole numbers, of what `title` says, below a chart that ends at `y`. */
export function paintNumbersAxis(ctx, view, y, title) {
  ctx.font = AXIS_FONT;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  ctx.fillStyle = themeColour("line");
  ctx.fillRect(view.left, y, view.right - view.left, 1);
  ctx.fillStyle = themeColour("text-soft");
  ctx.fillText(title, 2, y + NUMBERS_HEIGHT / 2 + 1);
  for (const tick of ticksOf(view.lo, Math.max(view.hi - 1, view.lo), view.width / 90)) {
    const x = view.toX(tick + 0.5);
    if (tick !== Math.round(tick) || x < view.left || x > view.right) continue;
    const half = ctx.measureText(exact(tick)).width / 2;
    ctx.fillRect(Math.round(x), y, 1, 3);
    ctx.fillText(exact(tick), Math.min(Math.max(x - half, view.left), view.right - 2 * half), y + NUMBERS_HEIGHT / 2 + 2);
  }
}

/** Paints inside of the axes alone. */
export function insideAxes(ctx, view, height, paint) {
  ctx.save();
  ctx.beginPath();
  ctx.rect(view.left, 0, view.right - view.left, height);
  ctx.clip();
  paint();
  ctx.restore();
}

/** Text with a rim in the colour of the page. */
function haloText(ctx, text, x, y) {
  ctx.lineWidth = 3;
  ctx.lineJoin = "round";
  ctx.strokeStyle = themeColour("panel");
  ctx.strokeText(text, x, y);
  ctx.fillStyle = themeColour("text");
  ctx.fillText(text, x, y);
}

/** Paints notes `{text, x, y (of their middles), after (right of x, else left)}`; those that would overlap others go below. */
export function paintNotes(ctx, view, notes) {
  ctx.font = AXIS_FONT;
  ctx.textBaseline = "middle";
  ctx.textAlign = "left";
  const placed = [];
  for (const { text, x, y, after } of notes) {
    const width = ctx.measureText(text).width;
    const left = Math.min(Math.max(after ? x : x - width, view.left + 2), view.right - width - 2);
    let at = Math.max(y, 8);
    const covers = (other) => left < other.right + 4 && other.left < left + width + 4 && Math.abs(other.at - at) < 14;
    for (let other = placed.find(covers); other; other = placed.find(covers)) at = other.at + 14;
    placed.push({ left, right: left + width, at });
    haloText(ctx, text, left, at);
  }
}
