// Measures ranges of time on a chart of lanes: by dragging, or from the keyboard's cross.

import {pushButton} from "./controls.js";
import {element} from "./format.js";
import {lengthText, measuredElement} from "./measure.js";
import {themeColour} from "./palette.js";

/** A ruler on a chart: `edgeOf(point, view)` is the time that a point stands for. `element` says what is measured. */
export class Ruler {
  constructor(trace, hertz, edgeOf) {
    this.trace = trace;
    this.hertz = hertz;
    this.edgeOf = edgeOf;
    this.range = null; // that is measured: {from, to}
    this.mark = null; // where the keyboard's measuring began
    this.element = element("div");
  }

  /** The chart's, once it is there. */
  on(chart) {
    this.chart = chart;
  }

  drag(from, to, view) {
    return this.measure(this.edgeOf(from, view), this.edgeOf(to, view));
  }

  crossed(cross, view) {
    if (this.mark !== null) this.measure(this.mark, this.edgeOf(cross, view));
  }

  /** Begins to measure at the keyboard's cross, or ends that. */
  toggleMark() {
    if (this.mark !== null) {
      this.mark = null;
      return;
    }
    if (!this.chart.cross) this.chart.moveCross(0, 0);
    this.mark = this.edgeOf(this.chart.cross, this.chart.view);
    this.measure(this.mark, this.mark);
  }

  /** Measures between two times; gives the length in words. */
  measure(one, other) {
    this.range = { from: Math.min(one, other), to: Math.max(one, other) };
    const zoom = pushButton("Zoom to it", "Show what is measured alone (z)", () => this.zoom());
    const close = pushButton("×", "Measure nothing (Esc)", () => this.forget());
    const some = this.range.to > this.range.from;
    this.element.replaceChildren(some ? measuredElement(this.trace, this.range, this.hertz, zoom, close) : "");
    this.chart.draw();
    return [lengthText(this.range, this.hertz)];
  }

  zoom() {
    if (this.range && this.range.to > this.range.from) this.chart.show(this.range.from, this.range.to);
  }

  forget() {
    this.range = null;
    this.mark = null;
    this.element.replaceChildren();
    this.chart.draw();
  }

  /** Paints the range over lanes of some height. */
  paint(ctx, view, height) {
    if (!this.range) return;
    const [x, to] = [view.toX(this.range.from), view.toX(this.range.to)];
    ctx.fillStyle = themeColour("measure");
    ctx.fillRect(x, 0, to - x, height);
    ctx.fillStyle = themeColour("accent");
    for (const edge of [x, to]) ctx.fillRect(Math.round(edge) - 1, 0, 2, height + 4);
  }
}
