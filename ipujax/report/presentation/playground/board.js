// The grid of a schedule: what each IPU does when, and below the memory of each.

import {insideAxes} from "../page/axes.js";
import {Chart, showTooltip, ticksOf} from "../page/chart.js";
import {threeDigits} from "../page/format.js";
import {inkOn, phaseColour, themeColour} from "../page/palette.js";
import {hatching, paintRowLabels} from "../page/parts.js";
import {memoryOverTime} from "./bounds.js";
import {causeOf, whyIdle, whyThen} from "./reasons.js";

const LEFT = 46;
const RIGHT = 6;
const AXIS = 24;
const MEMORY = 84;
const PHASE_OF = { F: "fwd", B: "bwd", W: "wgt", R: "recompute", O: "offload", L: "load" };

/** A grid in an element; `say(text)` tells readers of the screen what the keyboard has come to. */
export class Board {
  constructor(root, say) {
    this.say = say;
    this.chosen = null; // the task under the pointer or the keyboard
    this.root = root;
    this.chart = null;
  }

  /** Shows a run: `{run, ipus, settings, splits, until (the end of the axis), limit, most (of memory)}`. */
  show(shown) {
    Object.assign(this, shown);
    this.chosen = null;
    this.rows = Array.from({ length: this.ipus }, () => []);
    for (const task of this.run.tasks) this.rows[task.ipu].push(task);
    const scale = 1 / this.settings.perIpu;
    this.memory = memoryOverTime(this.run.tasks, this.ipus, this.splits).map((steps) => steps.map(([time, held]) => [time, held * scale]));
    this.row = this.ipus > 8 ? 16 : 24;
    this.rowsHeight = this.ipus * this.row;
    const height = this.rowsHeight + AXIS + MEMORY;
    if (this.chart) {
      this.chart.setDomain([0, this.until]);
      this.chart.setHeight(height);
    } else this.build(height);
  }

  build(height) {
    this.chart = new Chart(this.root, {
      name: this.settings.schedule,
      label: `${this.settings.title}: what each IPU does when. Arrow keys go from task to task, Enter to what a task waited for.`,
      height,
      domain: [0, this.until],
      left: LEFT,
      right: RIGHT,
      fixed: true,
      draw: (ctx, view) => this.draw(ctx, view),
      hover: (x, y, view) => this.hover(x, y, view),
      click: (x, y, view) => this.click(x, y, view),
      key: (event) => this.key(event),
    });
    this.chart.canvas.addEventListener("pointerleave", () => this.choose(null));
    this.chart.canvas.addEventListener("blur", () => this.choose(null));
  }

  choose(task) {
    if (task === this.chosen) return;
    this.chosen = task;
    this.chart.draw();
  }

  // What is under the pointer

  hover(x, y, view) {
    const time = view.fromX(x);
    const ipu = Math.floor(y / this.row);
    if (time < 0 || time > this.until || x < LEFT) return this.nothing();
    if (ipu >= this.ipus) return y > this.rowsHeight + AXIS ? this.heldAt(time) : this.nothing();
    const next = this.rows[ipu].find((task) => task.end > time) ?? null;
    this.choose(next);
    if (next && next.start <= time) return whyThen(next, this.settings);
    return time > this.run.makespan ? ["all IPUs are done"] : whyIdle(ipu, next, this.settings);
  }

  nothing() {
    this.choose(null);
    return null;
  }

  heldAt(time) {
    this.choose(null);
    const held = this.memory.map((steps) => steps.findLast(([from]) => from <= time)?.[1] ?? 0);
    return [`at ${threeDigits(time)}: micro-batches held`, ...held.map((number, ipu) => `IPU ${ipu}: ${threeDigits(number)}`)];
  }

  click(x, y, view) {
    const { left, top } = this.chart.canvas.getBoundingClientRect();
    showTooltip(this.hover(x, y, view), left + x, top + y);
  }

  // The keyboard

  key({ key }) {
    const task = this.chosen;
    const moves = {
      ArrowRight: () => this.beside(task, 1),
      ArrowLeft: () => this.beside(task, -1),
      ArrowDown: () => this.across(task, 1),
      ArrowUp: () => this.across(task, -1),
      Home: () => this.rows[task?.ipu ?? 0][0],
      End: () => this.rows[task?.ipu ?? 0].at(-1),
      Enter: () => (task ? (causeOf(task) ?? task) : this.rows[0][0]),
    };
    if (!moves[key]) return false;
    this.goTo(moves[key]());
    return true;
  }

  beside(task, step) {
    if (!task) return this.rows[0][0];
    const row = this.rows[task.ipu];
    return row[Math.min(Math.max(row.indexOf(task) + step, 0), row.length - 1)];
  }

  across(task, step) {
    if (!task) return this.rows[0][0];
    const row = this.rows[Math.min(Math.max(task.ipu + step, 0), this.ipus - 1)];
    const distance = (other) => Math.abs(other.start - task.start);
    return row.reduce((best, other) => (distance(other) < distance(best) ? other : best));
  }

  goTo(task) {
    this.choose(task);
    const lines = whyThen(task, this.settings);
    this.say(lines.join("; "));
    const { left, top } = this.chart.canvas.getBoundingClientRect();
    const x = this.chart.view.toX((task.start + task.end) / 2);
    showTooltip(lines, left + x, top + (task.ipu + 1) * this.row - 8);
  }

  // Painting

  draw(ctx, view) {
    insideAxes(ctx, view, view.height, () => {
      const hatched = hatching(ctx);
      for (let ipu = 0; ipu < this.ipus; ipu++) {
        ctx.fillStyle = hatched;
        ctx.fillRect(LEFT, ipu * this.row + 1, view.toX(this.run.makespan) - LEFT, this.row - 2);
        for (const task of this.rows[ipu]) this.drawTask(ctx, view, task);
      }
      this.drawCauses(ctx, view);
      this.drawMemory(ctx, view);
    });
    const labels = this.rows.map((_, ipu) => ({ label: `IPU ${ipu}`, key: ipu, y: (ipu + 0.5) * this.row }));
    paintRowLabels(ctx, labels, (ipu) => ipu === this.chosen?.ipu);
    this.drawTimeAxis(ctx, view);
    this.drawMemoryAxis(ctx, view);
  }

  box(view, { ipu, start, end }) {
    const x = view.toX(start);
    const width = view.toX(end) - x;
    return [x, ipu * this.row + 1, Math.max(width - (width > 5 ? 1 : 0), 0), this.row - 2];
  }

  drawTask(ctx, view, task) {
    const [x, y, width, height] = this.box(view, task);
    const colour = phaseColour(PHASE_OF[task.phase]);
    ctx.fillStyle = colour;
    ctx.fillRect(x, y, width, height);
    const ink = inkOn(colour);
    if (this.settings.several && task.stage >= this.ipus) {
      ctx.fillStyle = ink; // later stages of an IPU have a mark
      ctx.fillRect(x, y, width, 3);
    }
    const label = String(task.microBatch);
    ctx.font = `${this.row > 20 ? 12 : 10}px ${getComputedStyle(document.body).fontFamily}`;
    if (ctx.measureText(label).width > width - 2) return;
    ctx.fillStyle = ink;
    ctx.textAlign = "center";
    ctx.fillText(label, x + width / 2, y + height / 2 + 1);
    ctx.textAlign = "left";
  }

  /** Frames what is chosen, and joins it with all that it waited for, one after the other. */
  drawCauses(ctx, view) {
    if (!this.chosen) return;
    ctx.strokeStyle = themeColour("text");
    ctx.lineWidth = 1.5;
    ctx.setLineDash([3, 2]);
    const seen = new Set();
    for (let task = this.chosen; task && !seen.has(task); task = causeOf(task)) {
      seen.add(task);
      const before = causeOf(task);
      if (!before || before.ipu === task.ipu) continue;
      ctx.beginPath();
      ctx.moveTo(view.toX(before.end), (before.ipu + 0.5) * this.row);
      ctx.lineTo(view.toX(task.start), (task.ipu + 0.5) * this.row);
      ctx.stroke();
    }
    ctx.setLineDash([]);
    for (const task of seen) {
      ctx.lineWidth = task === this.chosen ? 3 : 1.5;
      const [x, y, width, height] = this.box(view, task);
      ctx.strokeRect(x + 1, y + 1, Math.max(width - 2, 1), height - 2);
    }
  }

  drawMemory(ctx, view) {
    const bottom = view.height - 3;
    const top = this.rowsHeight + AXIS + 14;
    const toY = (held) => bottom - (held / this.most) * (bottom - top);
    const peaks = this.memory.map((steps) => Math.max(...steps.map(([, held]) => held)));
    const fullest = this.chosen?.ipu ?? peaks.indexOf(Math.max(...peaks));
    for (const [ipu, steps] of this.memory.entries()) if (ipu !== fullest) this.drawSteps(ctx, view, steps, toY, false);
    this.drawSteps(ctx, view, this.memory[fullest], toY, true);
    if (!this.limit) return;
    const y = toY(this.limit);
    ctx.fillStyle = themeColour("bad");
    ctx.fillRect(LEFT, y - 1, view.width, 2);
  }

  drawSteps(ctx, view, steps, toY, bold) {
    ctx.beginPath();
    ctx.moveTo(view.toX(0), toY(0));
    steps.forEach(([time, held], i) => {
      ctx.lineTo(view.toX(time), toY(i ? steps[i - 1][1] : 0));
      ctx.lineTo(view.toX(time), toY(held));
    });
    ctx.strokeStyle = themeColour(bold ? "accent" : "phase-none");
    ctx.globalAlpha = bold ? 1 : 0.45;
    ctx.lineWidth = bold ? 2 : 1;
    ctx.stroke();
    if (bold) {
      ctx.globalAlpha = 0.12;
      ctx.fillStyle = themeColour("accent");
      ctx.fill();
    }
    ctx.globalAlpha = 1;
  }

  drawTimeAxis(ctx, view) {
    const y = this.rowsHeight + 2;
    ctx.fillStyle = themeColour("line");
    ctx.fillRect(view.left, y, view.right - view.left, 1);
    ctx.font = `11px ${getComputedStyle(document.body).fontFamily}`;
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText(this.settings.unit, 2, y + 11);
    ctx.textAlign = "center";
    for (const tick of ticksOf(0, this.until, view.width / 70)) {
      const x = view.toX(tick);
      if (x > view.right - 8) continue;
      ctx.fillRect(Math.round(x), y, 1, 4);
      ctx.fillText(threeDigits(tick), Math.max(x, view.left + 4), y + 12);
    }
    ctx.textAlign = "left";
  }

  drawMemoryAxis(ctx, view) {
    const top = this.rowsHeight + AXIS + 14;
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText("memory", 2, top - 6);
    ctx.textAlign = "right";
    ctx.fillText(threeDigits(this.most), LEFT - 5, top + 8);
    ctx.fillText("0", LEFT - 5, view.height - 8);
    ctx.textAlign = "left";
    if (this.limit && this.limit <= this.most) {
      ctx.fillStyle = themeColour("bad");
      ctx.textAlign = "right";
      const bottom = view.height - 3;
      ctx.fillText(`limit ${this.limit}`, view.right - 2, Math.max(bottom - (this.limit / this.most) * (bottom - top) - 8, top - 6));
      ctx.textAlign = "left";
    }
  }
}
