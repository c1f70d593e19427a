// Paints lanes of a trace: what is wide enough as boxes, all else as columns of pixels whose height is a share.

import {addBetween, firstAfter, firstFrom, kindsBetween, LANE_CHANNELS, LANE_KINDS, LANE_PHASES, phaseChannel} from "./trace.js";

const NARROW = 2; // pixels; narrower things share columns
const CROWDED = 4; // of the narrowest things side by side, times as many are not looked at one by one

/**
 * What a range of time of one lane looks like: `columns`, cycles by channel for each pixel, and `boxes`,
 * `{x, width, list, i, start, phase (of the task around, or null)}` of steps, or of tasks if `byTask`. With `phases`,
 * steps count for the channel of their task's phase as well. `view` is that of a chart; what is narrower than `narrow` pixels is in columns.
 */
export function laneShape(lane, view, { byTask = false, phases = false, sumsOf = (list) => list.sums, narrow = NARROW } = {}) {
  const walk = new LaneWalk(view, byTask, phases, sumsOf, narrow);
  if (lane) walk.list(lane, 0);
  return walk;
}

class LaneWalk {
  constructor(view, byTask, phases, sumsOf, narrow) {
    this.least = narrow;
    this.left = Math.floor(view.toX(view.lo));
    this.width = Math.max(Math.ceil(view.toX(view.hi)) - this.left, 1);
    this.lo = view.lo;
    this.hi = view.hi;
    this.scale = this.width / (view.hi - view.lo);
    this.byTask = byTask;
    this.phases = phases;
    this.phase = null; // of the task that is walked through
    this.sumsOf = sumsOf;
    this.columns = new Float64Array(this.width * LANE_CHANNELS);
    this.boxes = [];
  }

  get cyclesPerPixel() {
    return 1 / this.scale;
  }

  x(time) {
    return (time - this.lo) * this.scale;
  }

  /** Whether there is anything to show of a list, between two of its items. */
  has(sums, from, to) {
    const [first, last] = this.byTask ? [LANE_KINDS.length, LANE_CHANNELS] : [0, LANE_KINDS.length];
    for (let c = first; c < last; c++) if (sums[to * LANE_CHANNELS + c] > sums[from * LANE_CHANNELS + c]) return true;
    return false;
  }

  /** Adds what lies between two items to a column. */
  add(sums, from, to, times, column) {
    addBetween(sums, from, to, times, this.columns, column * LANE_CHANNELS);
    if (!this.phases || this.phase === null) return;
    this.columns[column * LANE_CHANNELS + phaseChannel(this.phase)] += times * kindsBetween(sums, from, to);
  }

  list(list, offset) {
    const from = firstAfter(list, this.lo - offset);
    const to = firstFrom(list, this.hi - offset);
    const sums = this.sumsOf(list);
    if (from >= to || !this.has(sums, from, to)) return;
    const begin = Math.max(this.x(offset + list.start[from]), 0);
    const end = Math.min(this.x(offset + list.ends[to - 1]), this.width);
    if (to - from > (CROWDED / this.least) * Math.max(end - begin, 1)) this.crowd(list, sums, offset, from, to);
    else for (let i = from; i < to; i++) this.item(list, sums, i, offset);
  }

  /** Items of which many share a pixel: their sums by pixel, and those that are wide one by one. */
  crowd(list, sums, offset, from, to) {
    let i = from;
    while (i < to) {
      const column = Math.max(Math.floor(this.x(offset + list.start[i])), 0);
      const next = Math.min(Math.max(firstFrom(list, this.lo + (column + 1) / this.scale - offset), i + 1), to);
      if (column < this.width) this.add(sums, i, next, 1, column);
      i = next;
    }
    if (list.longest * this.scale < this.least) return;
    for (const wide of widest(list)) {
      if (list.spans[wide] * this.scale < this.least) break;
      if (wide >= from && wide < to) this.item(list, sums, wide, offset, true);
    }
  }

  item(list, sums, i, offset, again = false) {
    const start = offset + list.start[i];
    const span = list.spans[i];
    if (!this.has(sums, i, i + 1) || start + span <= this.lo) return;
    const item = list.items?.[i];
    const whole = !item || (this.byTask && item.task);
    if (again) this.takeBack(sums, i, start);
    if (span * this.scale < this.least) this.narrow(sums, i, start, span);
    else if (whole) {
      this.boxes.push({ x: this.left + this.x(start), width: span * this.scale, list, i, start, phase: this.phase });
    } else {
      const around = this.phase;
      this.phase = item.task?.phase ?? around;
      this.runs(item, start);
      this.phase = around;
    }
  }

  /** A wide item in a crowd is shown for itself, and must not stand in one column as well. */
  takeBack(sums, i, start) {
    const column = Math.max(Math.floor(this.x(start)), 0);
    if (column < this.width) this.add(sums, i, i + 1, -1, column);
  }

  narrow(sums, i, start, span) {
    const x = Math.max(this.x(start), 0);
    const column = Math.floor(x);
    if (column >= this.width) return;
    const share = Math.min(1, (column + 1 - x) / Math.max(span * this.scale, 1e-9));
    this.add(sums, i, i + 1, share, column);
    if (share < 1 && column + 1 < this.width) this.add(sums, i, i + 1, 1 - share, column + 1);
  }

  /** The runs of an item: each for itself if they are wide, else so many for each pixel. */
  runs(item, start) {
    if (item.count === 1) return this.list(item.list, start);
    const { period, list, count } = item;
    const first = Math.max(0, Math.floor((this.lo - start - list.span) / period));
    const last = Math.min(count, Math.ceil((this.hi - start) / period));
    if (period * this.scale >= this.least) {
      for (let run = first; run < last; run++) this.list(list, start + run * period);
      return undefined;
    }
    const sums = this.sumsOf(list);
    const size = sums.length / LANE_CHANNELS - 1;
    const [begin, end] = [Math.max(this.x(start), 0), Math.min(this.x(start + count * period), this.width)];
    for (let column = Math.floor(begin); column < end; column++) {
      const part = Math.min(column + 1, end) - Math.max(column, begin);
      this.add(sums, 0, size, part / this.scale / period, column);
    }
    return undefined;
  }
}

/** The items of a list, the longest first. */
function widest(list) {
  list.widest ??= Uint32Array.from(list.start.keys()).sort((a, b) => list.spans[b] - list.spans[a]);
  return list.widest;
}

/** Paints shares of columns from below, each `[channel, colour]` of `channels` on top of the one before. */
export function paintColumns(ctx, shape, channels, top, height, whole = shape.cyclesPerPixel) {
  const { columns, width, left } = shape;
  const image = new ImageData(width, height);
  const pixels = new Uint32Array(image.data.buffer);
  const colours = channels.map(([channel, colour]) => [channel, packedColour(colour)]);
  for (let x = 0; x < width; x++) {
    let y = height;
    let exactly = height;
    for (const [channel, colour] of colours) {
      const cycles = columns[x * LANE_CHANNELS + channel];
      if (cycles <= 0) continue;
      exactly -= (cycles / whole) * height;
      const to = Math.max(Math.min(Math.round(exactly), y - (y === height ? 1 : 0)), 0);
      while (y > to) pixels[--y * width + x] = colour;
    }
  }
  ctx.drawImage(canvasOf(image), left, top, width, height);
}

/** What several lanes do together, all in columns: their sums. Options as for `laneShape`. */
export function wholeShape(lanes, view, options) {
  const [first, ...others] = lanes.map((lane) => laneShape(lane, view, options));
  spreadBoxes(first);
  for (const other of others) {
    spreadBoxes(other);
    other.columns.forEach((value, i) => {
      first.columns[i] += value;
    });
  }
  return first;
}

/** Adds the boxes of a shape to the columns that they cover. */
function spreadBoxes(shape) {
  for (const { x, width, list, i } of shape.boxes) {
    const task = list.items?.[i].task;
    const channel = task ? LANE_KINDS.length + LANE_PHASES.indexOf(task.phase) : list.step.kind[i];
    const from = Math.max(x - shape.left, 0);
    const to = Math.min(x + width - shape.left, shape.width);
    for (let column = Math.floor(from); column < to; column++) {
      const part = Math.min(column + 1, to) - Math.max(column, from);
      shape.columns[column * LANE_CHANNELS + channel] += part * shape.cyclesPerPixel;
    }
  }
  shape.boxes.length = 0;
}

let columnCanvas = null;

function canvasOf(image) {
  columnCanvas ??= document.createElement("canvas");
  columnCanvas.width = image.width; // also clears
  columnCanvas.height = image.height;
  columnCanvas.getContext("2d").putImageData(image, 0, 0);
  return columnCanvas;
}

const packedColours = new Map();

/** A colour such as `rgb(1, 2, 3)` as a pixel of an ImageData. */
function packedColour(colour) {
  if (!packedColours.has(colour)) {
    const [red, green, blue] = colour.match(/[\d.]+/g).map(Number);
    packedColours.set(colour, ((255 << 24) | (blue << 16) | (green << 8) | red) >>> 0);
  }
  return packedColours.get(colour);
}

/** Channels of phases, for `paintColumns`. */
export function phaseChannels(colourOf) {
  return LANE_PHASES.map((phase, i) => [LANE_KINDS.length + i, colourOf(phase)]);
}

/** Channels of kinds of steps. */
export function kindChannels(colourOf) {
  return LANE_KINDS.map((kind, i) => [i, colourOf(kind)]);
}
