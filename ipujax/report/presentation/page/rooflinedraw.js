// The roofline as a chart: FLOP/s against FLOPs per byte, both on logarithmic scales.

import {AXIS_FONT, paintNotes} from "./axes.js";
import {ticksOf} from "./chart.js";
import {rate} from "./format.js";
import {friendlyName} from "./names.js";
import {themeColour} from "./palette.js";
import {intensity} from "./rooflinedata.js";

export const ROOFLINE_LEFT = 76; // pixels for the axis of FLOP/s
export const ROOFLINE_BELOW = 40; // pixels for the axis of FLOPs per byte
const ROOM_ABOVE_ROOFS = 22; // pixels above the highest roof
const SMALLEST_DOT = 3;
const LARGEST_DOT = 15; // radius in pixels beside the smallest
const DOT_NAMES = 6; // the operations of most cycles have their names beside them
const NARROW_ROOFLINE = 560; // pixels, under which there are half as many names

/** Where points and roofs lie in a chart that shows points `shown` of a memory. */
export class RooflineScale {
  constructor(data, memory, shown, height) {
    this.memory = memory;
    this.height = height - ROOFLINE_BELOW;
    this.bandwidth = data.roofs.get(memory);
    this.units = data.usedUnits();
    const attained = shown.map((point) => Math.log10(point.attained));
    this.top = Math.log10(this.units[0].per_second);
    this.bottom = Math.min(...attained, this.top - 3) - 0.3;
    this.most = shown.reduce((most, { operation }) => Math.max(most, operation.cycles), 1);
    const across = shown.map((point) => Math.log10(intensity(point, memory)));
    const ridge = this.top - Math.log10(this.bandwidth.per_second);
    this.domain = [Math.min(...across, ridge - 1) - 0.3, Math.max(...across, ridge) + 0.8];
  }

  toY(logRate) {
    return this.height - ((logRate - this.bottom) / (this.top - this.bottom)) * (this.height - ROOM_ABOVE_ROOFS);
  }

  /** Where a point is, and how large: `{x, y, radius}`. */
  dot(point, view) {
    const { cycles } = point.operation;
    return {
      x: view.toX(Math.log10(intensity(point, this.memory))),
      y: this.toY(Math.log10(point.attained)),
      radius: SMALLEST_DOT + LARGEST_DOT * Math.sqrt(cycles / this.most),
    };
  }

  /** The smallest dot under a place, or null. */
  pointAt(points, x, y, view) {
    let found = null;
    let least = Infinity;
    for (const point of points) {
      const dot = this.dot(point, view);
      const far = Math.hypot(dot.x - x, dot.y - y);
      if (far > dot.radius + 3 || dot.radius >= least) continue;
      [found, least] = [point, dot.radius];
    }
    return found;
  }
}

/** Paints roofs, dots and axes. `tone(point)` is "exact", "linked", "other" or "" while nothing is selected. */
export function paintRoofline(ctx, view, scale, points, tone, perByte) {
  paintPowers(ctx, view, scale, perByte);
  ctx.save();
  ctx.beginPath();
  ctx.rect(view.left, 0, view.right - view.left, scale.height);
  ctx.clip();
  paintRoofs(ctx, view, scale);
  const bySize = [...points].sort((a, b) => b.operation.cycles - a.operation.cycles);
  for (const point of bySize) paintDot(ctx, scale.dot(point, view), point, tone(point));
  const names = view.width < NARROW_ROOFLINE ? DOT_NAMES / 2 : DOT_NAMES;
  paintNotes(ctx, view, [...roofNotes(view, scale), ...dotNotes(view, scale, bySize, names)]);
  ctx.restore();
}

function paintPowers(ctx, view, scale, perByte) {
  ctx.font = AXIS_FONT;
  ctx.textBaseline = "middle";
  ctx.textAlign = "right";
  for (const power of ticksOf(Math.ceil(scale.bottom), scale.top, 8).filter(Number.isInteger)) {
    const y = scale.toY(power);
    ctx.fillStyle = themeColour("line");
    ctx.fillRect(view.left, Math.round(y), view.right - view.left, 1);
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText(rate(10 ** power, "FLOP/s"), view.left - 6, y);
  }
  ctx.textAlign = "center";
  for (const power of ticksOf(view.lo, view.hi, view.width / 70).filter(Number.isInteger)) {
    const x = view.toX(power);
    if (x < view.left + 10 || x > view.right - 10) continue;
    ctx.fillStyle = themeColour("line");
    ctx.fillRect(Math.round(x), 0, 1, scale.height + 4);
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText(String(Number((10 ** power).toPrecision(3))), x, scale.height + 13);
  }
  ctx.fillText(`FLOPs per ${perByte}`, (view.left + view.right) / 2, scale.height + 31);
  ctx.textAlign = "left";
}

function paintRoofs(ctx, view, scale) {
  const slope = Math.log10(scale.bandwidth.per_second);
  ctx.lineWidth = 2;
  ctx.strokeStyle = themeColour("text-soft");
  const line = (fromX, fromY, toX, toY) => {
    ctx.beginPath();
    ctx.moveTo(view.toX(fromX), scale.toY(fromY));
    ctx.lineTo(view.toX(toX), scale.toY(toY));
    ctx.stroke();
  };
  line(scale.bottom - slope, scale.bottom, scale.top - slope, scale.top);
  for (const roof of scale.units) {
    const peak = Math.log10(roof.per_second);
    line(peak - slope, peak, Math.max(view.hi, scale.domain[1]), peak);
  }
}

/** What stands at roofs: those of units at their right ends, that of the memory at its foot. */
function roofNotes(view, scale) {
  const { title, per_second: bandwidth } = scale.bandwidth;
  const slope = Math.log10(bandwidth);
  const units = scale.units.map((roof) => (
    { text: `${roof.title}: ${rate(roof.per_second, "FLOP/s")}`, x: view.right - 4, y: scale.toY(Math.log10(roof.per_second)) - 9, after: false }));
  const foot = Math.max(view.lo + 0.02 * (view.hi - view.lo), scale.bottom - slope + 0.25);
  return [...units, { text: `${title}: ${rate(bandwidth, "B/s")}`, x: view.toX(foot) + 8, y: scale.toY(foot + slope) - 4, after: true }];
}

/** The names of the largest dots, each once, on the side where there is more room. */
function dotNotes(view, scale, bySize, count) {
  const largest = new Map();
  for (const point of bySize) {
    const text = friendlyName(point.operation);
    if (largest.size < count && !largest.has(text)) largest.set(text, point);
  }
  return [...largest].map(([text, point]) => {
    const { x, y, radius } = scale.dot(point, view);
    const after = x < (view.left + view.right) / 2;
    return { text, x: after ? x + radius + 4 : x - radius - 4, y, after };
  });
}

function paintDot(ctx, { x, y, radius }, { colour }, tone) {
  ctx.globalAlpha = tone === "other" ? 0.4 : 1;
  ctx.beginPath();
  ctx.arc(x, y, radius, 0, 2 * Math.PI);
  ctx.fillStyle = themeColour(colour);
  ctx.fill();
  const chosen = tone === "exact" || tone === "linked";
  ctx.lineWidth = tone === "exact" ? 3 : chosen ? 2 : 1;
  ctx.strokeStyle = themeColour(chosen ? "accent" : "text-soft");
  ctx.stroke();
  ctx.globalAlpha = 1;
}
