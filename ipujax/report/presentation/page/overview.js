// The strip above the lanes: what all IPUs do together in the whole call, and which part of it is shown below.

import {Chart} from "./chart.js";
import {paintColumns, wholeShape} from "./lanes.js";
import {onTheme, themeColour} from "./palette.js";

const STRIP_HEIGHTS = { whole: 54, lanes: 42 };

/**
 * A chart of lanes that shows a part of another: `shown()` is its range, `show(lo, hi)` changes it. `look()` says how lanes
 * look: `{byTask, channels (with colours), chosen (a ChosenSteps)}`.
 */
export class Overview {
  constructor(root, { trace, domain, left, shown, show, look }) {
    Object.assign(this, { trace, shown, look });
    this.chart = new Chart(root, {
      name: "timeline-overview",
      label: "The whole call: what all IPUs do together, and the part that is shown below",
      height: STRIP_HEIGHTS.whole,
      domain,
      fixed: true,
      left,
      draw: (ctx, view) => this.paint(ctx, view),
      click: (x, y, view) => {
        const { lo, hi } = shown();
        const time = view.fromX(x);
        show(time - (hi - lo) / 2, time + (hi - lo) / 2);
      },
      drag: (from, to, view) => {
        const ends = [view.fromX(from.x), view.fromX(to.x)];
        show(Math.min(...ends), Math.max(...ends));
      },
    });
    onTheme(() => this.change());
  }

  /** Paints soon, and computes anew what has changed. */
  change() {
    this.shares = null;
    this.marks = null;
    this.chart.draw();
  }

  paint(ctx, view) {
    const { byTask, channels, chosen } = this.look();
    const height = STRIP_HEIGHTS.lanes;
    if (this.shares?.width !== view.width) this.shares = { width: view.width, shape: this.shareOfAll(view, byTask) };
    ctx.fillStyle = themeColour("bubble");
    const end = Math.min(view.right, Math.max(view.toX(this.trace.cycles), view.left));
    ctx.fillRect(view.left, 2, end - view.left, height);
    paintColumns(ctx, this.shares.shape, channels, 2, height);
    ctx.fillStyle = themeColour("text-faint");
    ctx.fillText("all", 2, 2 + height / 2);
    if (chosen.linked) this.paintMarks(ctx, view, chosen, height + 4);
    this.paintShown(ctx, view, height);
  }

  paintShown(ctx, view, height) {
    const { lo, hi } = this.shown();
    const [from, to] = [view.toX(lo), view.toX(hi)];
    ctx.fillStyle = themeColour("veil");
    ctx.fillRect(view.left, 2, from - view.left, height);
    ctx.fillRect(to, 2, view.right - to, height);
    ctx.strokeStyle = themeColour("accent");
    ctx.lineWidth = 2;
    ctx.strokeRect(from + 1, 2, Math.max(to - from - 2, 2), height);
  }

  /** Where in the call there is anything of what is selected. */
  paintMarks(ctx, view, chosen, top) {
    if (this.marks?.width !== view.width) {
      const lanes = this.trace.lanes.filter((_, ipu) => chosen.strongest(ipu));
      const { sumsOf } = chosen.exact ?? chosen.linked;
      this.marks = { width: view.width, shape: wholeShape(lanes, view, { sumsOf }) };
    }
    const { shape } = this.marks;
    const channels = shape.columns.length / shape.width;
    ctx.fillStyle = themeColour("select-line");
    for (let x = 0; x < shape.width; x++) {
      const here = shape.columns.subarray(x * channels, (x + 1) * channels).some((own) => own > 0);
      if (here) ctx.fillRect(shape.left + x, top, 1, 5);
    }
  }

  /** What all IPUs do together, by pixel. */
  shareOfAll(view, byTask) {
    const shape = wholeShape(this.trace.lanes, view, { byTask });
    for (let i = 0; i < shape.columns.length; i++) shape.columns[i] /= this.trace.lanes.length;
    return shape;
  }
}
