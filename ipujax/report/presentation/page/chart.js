// A canvas with an x axis: zoom, pan, hover, click, keyboard; what it shows is drawn by its owner.

import {element} from "./format.js";
import {onTheme, themeColour} from "./palette.js";

const ZOOM_STEP = 1.6;
const CROSS_STEP = 8; // pixels
const CLICK_SLACK = 4; // pixels that a pointer may move and still click
const SCROLL_REST = 300; // milliseconds after which a wheel no longer belongs to a page's scrolling

let chartTooltip = null;
let lastPageScroll = -Infinity;
addEventListener(
  "scroll",
  () => {
    lastPageScroll = performance.now();
  },
  { passive: true, capture: true },
);

/**
 * Options: `height` (pixels), `label` (said by screen readers), `name` (data-chart), `domain` `[lo, hi]`,
 * `draw(ctx, view)`, `hover(x, y, view)` (lines of a tooltip, or null), `click(x, y, view)`,
 * `drag(from, to, view)` (of a drag without Shift, in place of moving what is shown: points of the canvas; gives lines
 * of a tooltip, or null), `crossed(cross, view)` (the keyboard's cross has moved), `fixed` (no zoom), `least` (the narrowest range to zoom to), `moved(view)` (after zoom and pan),
 * `left` and `right` (pixels of the canvas beside the x axis' range), `row` (pixels that the arrow keys up and
 * down move the keyboard's cross by; Enter clicks there, in the middle without a cross).
 * A view is `{width, height, left, right, lo, hi, toX(value), fromX(pixel)}`, with pixels of the canvas; what is shown
 * lies between left and right.
 */
export class Chart {
  constructor(root, options) {
    this.options = { left: 0, right: 0, least: 1e-9, height: 120, row: 20, ...options };
    [this.lo, this.hi] = this.options.domain;
    this.width = 0;
    this.cross = null; // where the keyboard is
    this.canvas = element("canvas", {
      class: "chart",
      tabindex: 0,
      role: "img",
      "aria-label": this.options.label,
      "data-chart": this.options.name,
      style: { height: `${this.options.height}px` },
    });
    this.element = element("div", { class: "chart-box" }, this.canvas);
    if (!this.options.fixed) this.element.prepend(this.zoomButtons());
    root.append(this.element);
    this.listen();
  }

  get view() {
    const { left, right, height } = this.options;
    const { lo, hi, width } = this;
    const span = Math.max(width - left - right, 1);
    const scale = span / (hi - lo || 1);
    return {
      width,
      height,
      left,
      right: width - right,
      lo,
      hi,
      toX: (value) => left + (value - lo) * scale,
      fromX: (pixel) => lo + (pixel - left) / scale,
    };
  }

  /** Draws soon, once however often it is asked. */
  draw() {
    if (this.pending) return;
    this.pending = requestAnimationFrame(() => {
      this.pending = 0;
      this.drawNow();
    });
  }

  /** Shows a part of the domain. */
  show(lo, hi) {
    const [first, last] = this.options.domain;
    const span = Math.min(Math.max(hi - lo, this.options.least), last - first);
    const start = Math.min(Math.max(lo, first), last - span);
    if (start === this.lo && start + span === this.hi) return;
    this.lo = start;
    this.hi = start + span;
    this.options.moved?.(this.view);
    this.draw();
  }

  /** Another range is the whole. */
  setDomain(domain) {
    const whole = this.lo === this.options.domain[0] && this.hi === this.options.domain[1];
    this.options.domain = domain;
    this.show(whole ? domain[0] : this.lo, whole ? domain[1] : this.hi);
    this.draw();
  }

  /** Takes it off the page, and off what it listens to. */
  remove() {
    this.resizes.disconnect();
    this.forgetTheme();
    cancelAnimationFrame(this.pending);
    this.element.remove();
  }

  setHeight(height) {
    this.options.height = height;
    this.canvas.style.height = `${height}px`;
    this.draw();
  }

  /** Zooms around a value: in if `factor` is more than 1. */
  zoom(factor, around = (this.lo + this.hi) / 2) {
    const span = Math.max((this.hi - this.lo) / factor, this.options.least);
    const share = (around - this.lo) / (this.hi - this.lo || 1);
    this.show(around - share * span, around + (1 - share) * span);
  }

  pan(share) {
    const shift = share * (this.hi - this.lo);
    this.show(this.lo + shift, this.hi + shift);
  }

  all() {
    this.show(...this.options.domain);
  }

  drawNow() {
    const width = this.element.clientWidth;
    if (!width) return;
    this.width = width;
    const ratio = window.devicePixelRatio || 1;
    const { height } = this.options;
    const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
    if (this.canvas.width !== across || this.canvas.height !== down) {
      this.canvas.width = across;
      this.canvas.height = down;
    }
    const ctx = this.canvas.getContext("2d");
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, height);
    ctx.font = `12px ${getComputedStyle(document.body).fontFamily}`;
    ctx.textBaseline = "middle";
    this.options.draw(ctx, this.view);
    if (this.cross) this.drawCross(ctx, width, height);
  }

  drawCross(ctx, width, height) {
    const { x, y } = this.cross;
    ctx.fillStyle = themeColour("accent");
    ctx.fillRect(Math.round(x), 0, 1, height);
    ctx.fillRect(0, Math.round(y), width, 1);
  }

  listen() {
    const { canvas } = this;
    this.resizes = new ResizeObserver(() => this.draw());
    this.resizes.observe(this.element);
    this.forgetTheme = onTheme(() => this.draw());
    canvas.addEventListener("pointerdown", (event) => this.press(event));
    canvas.addEventListener("pointermove", (event) => this.move(event));
    canvas.addEventListener("pointerup", (event) => this.release(event));
    canvas.addEventListener("pointercancel", () => {
      this.drag = null;
    });
    canvas.addEventListener("pointerleave", hideTooltip);
    canvas.addEventListener("keydown", (event) => this.key(event));
    canvas.addEventListener("blur", () => this.leaveCross());
    canvas.addEventListener("dblclick", () => this.all());
    if (!this.options.fixed) {
      canvas.classList.add("zooms");
      canvas.addEventListener("wheel", (event) => this.wheel(event), { passive: false });
    }
  }

  press(event) {
    if (event.button !== 0) return;
    this.leaveCross();
    const own = Boolean(this.options.drag) && !event.shiftKey;
    this.drag = { x: event.offsetX, y: event.offsetY, lo: this.lo, hi: this.hi, moved: false, own };
    this.canvas.setPointerCapture(event.pointerId);
  }

  move(event) {
    if (!this.drag) {
      const lines = this.options.hover?.(event.offsetX, event.offsetY, this.view);
      showTooltip(lines, event.clientX, event.clientY);
      return;
    }
    const shift = event.offsetX - this.drag.x;
    const far = Math.max(Math.abs(shift), Math.abs(event.offsetY - this.drag.y));
    this.drag.moved ||= far > CLICK_SLACK;
    if (!this.drag.moved) return;
    if (this.drag.own) {
      const to = { x: event.offsetX, y: event.offsetY };
      showTooltip(this.options.drag(this.drag, to, this.view), event.clientX, event.clientY);
      return;
    }
    if (this.options.fixed) return;
    hideTooltip();
    const { lo, hi } = this.drag;
    const moved = (shift * (hi - lo)) / Math.max(this.width - this.options.left - this.options.right, 1);
    this.show(lo - moved, hi - moved);
  }

  release(event) {
    const clicked = this.drag && !this.drag.moved;
    this.drag = null;
    if (clicked) this.options.click?.(event.offsetX, event.offsetY, this.view);
  }

  wheel(event) {
    const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
    const scrolling = performance.now() - lastPageScroll < SCROLL_REST && !event.ctrlKey;
    const [lo, hi] = this.options.domain;
    const whole = this.lo <= lo && this.hi >= hi;
    if (scrolling || (whole && (sideways || event.deltaY > 0))) return;
    event.preventDefault();
    hideTooltip();
    const amount = (sideways && event.deltaX) || event.deltaY;
    if (sideways) this.pan(amount / Math.max(this.width, 1));
    else this.zoom(Math.exp(-amount / 300), this.view.fromX(event.offsetX));
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (this.options.key?.(event) || this.crossKey(event)) return event.preventDefault();
    const actions = {
      ArrowLeft: () => this.pan(-0.1),
      ArrowRight: () => this.pan(0.1),
      "+": () => this.zoom(ZOOM_STEP),
      "=": () => this.zoom(ZOOM_STEP),
      "-": () => this.zoom(1 / ZOOM_STEP),
      Home: () => this.all(),
      0: () => this.all(),
    };
    if (this.options.fixed || !actions[event.key]) return undefined;
    event.preventDefault();
    return actions[event.key]();
  }

  /** Moves the cross, or clicks where it is; false for keys that do neither. */
  crossKey(event) {
    const sideways = event.shiftKey || this.options.fixed ? { ArrowLeft: -CROSS_STEP, ArrowRight: CROSS_STEP } : {};
    const { row } = this.options;
    const [dx, dy] = [sideways[event.key] ?? 0, { ArrowUp: -row, ArrowDown: row }[event.key] ?? 0];
    if (dx || dy) this.moveCross(dx, dy);
    else if (event.key === "Enter") {
      this.cross ??= this.middle();
      this.options.click?.(this.cross.x, this.cross.y, this.view);
      this.draw();
    } else return false;
    return true;
  }

  middle() {
    return { x: (this.options.left + this.width - this.options.right) / 2, y: this.options.row / 2 };
  }

  moveCross(dx, dy) {
    const { left, right, height } = this.options;
    const from = this.cross ?? { ...this.middle(), y: this.middle().y - dy };
    const x = Math.min(Math.max(from.x + dx, left), this.width - right - 1);
    this.cross = { x, y: Math.min(Math.max(from.y + dy, 0), height - 1) };
    this.options.crossed?.(this.cross, this.view);
    const { left: across, top } = this.canvas.getBoundingClientRect();
    showTooltip(this.options.hover?.(this.cross.x, this.cross.y, this.view), across + x, top + this.cross.y);
    this.draw();
  }

  leaveCross() {
    if (!this.cross) return;
    this.cross = null;
    hideTooltip();
    this.draw();
  }

  zoomButtons() {
    const button = (label, title, onclick) =>
      element("button", { class: "zoom", type: "button", text: label, title, "aria-label": title, onclick });
    return element(
      "div",
      { class: "zoom-buttons" },
      button("+", "Zoom in", () => this.zoom(ZOOM_STEP)),
      button("−", "Zoom out", () => this.zoom(1 / ZOOM_STEP)),
      button("↔", "Show all", () => this.all()),
    );
  }
}

/** Shows lines near a point of the window, or nothing without lines. The first is a title. */
export function showTooltip(lines, x, y) {
  if (!lines) return hideTooltip();
  if (!chartTooltip) {
    chartTooltip = element("div", { class: "tooltip", role: "tooltip" });
    document.body.append(chartTooltip);
  }
  chartTooltip.replaceChildren(...lines.map((line) => element("div", { text: line })));
  chartTooltip.hidden = false;
  const { width, height } = chartTooltip.getBoundingClientRect();
  const left = x + 14 + width > innerWidth ? Math.max(x - 14 - width, 4) : x + 14;
  const top = y + 14 + height > innerHeight ? Math.max(y - 14 - height, 4) : y + 14;
  chartTooltip.style.transform = `translate(${left}px, ${top}px)`;
  return undefined;
}

/** Hides the tooltip. */
export function hideTooltip() {
  if (chartTooltip) chartTooltip.hidden = true;
}

/** Round numbers of a range for the marks of an axis, at most about `most` of them. */
export function ticksOf(lo, hi, most) {
  const raw = (hi - lo) / Math.max(most, 1);
  if (!(raw > 0)) return [lo];
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.9999);
  const ticks = [];
  for (let tick = Math.ceil(lo / step - 1e-9) * step; tick <= hi + step * 1e-9; tick += step) {
    ticks.push(Math.abs(tick) < step * 1e-6 ? 0 : tick);
  }
  return ticks;
}
