// The schedule of a pipeline: which micro-batch each IPU works on in each tick, and how long ticks take.

import {insideAxes, paintNumbersAxis} from "../axes.js";
import {causeShare} from "../breakdown.js";
import {Chart} from "../chart.js";
import {cycles, element, exact, percent, seconds} from "../format.js";
import {term} from "../glossary.js";
import {GRID_PHASES, PipelineGrid} from "../grid.js";
import {inkOn, phaseColour, themeColour} from "../palette.js";
import {figure, hatching, legend, paintRowLabels, panel, phaseInWords} from "../parts.js";
import {sortableTable} from "../table.js";

const GRID_LEFT = 56;
const GRID_AXIS = 24;
const TICK_BARS = 72;
const CELL_NARROW = 4; // pixels, under which cells are shown as shares

/** The pipeline of a report. */
export function scheduleView(root, report, store) {
  if (!report.pipeline) {
    root.append(panel("Schedule", [], element("p", { class: "soft", text: "This program has no pipeline." })));
    return;
  }
  new ScheduleView(root, report, store);
}

class ScheduleView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.grid = new PipelineGrid(report);
    const slots = Math.max(...this.grid.slots);
    this.row = report.num_ipus > 24 ? 16 : slots > 1 ? 16 * slots : 24;
    this.longest = this.grid.tickCycles.reduce((most, own) => Math.max(most, own), 1);
    this.rowsHeight = report.num_ipus * this.row;
    root.append(this.figures());
    this.build(root);
    this.table(root);
    store.subscribe((_, changed) => this.selected(changed));
  }

  figures() {
    const { pipeline } = this.report;
    return panel(
      `Schedule: ${pipeline.schedule}`,
      [],
      element(
        "div",
        { class: "figures" },
        figure(exact(pipeline.stages), "stages"),
        figure(exact(pipeline.micro_batches), "micro-batches of a run"),
        figure(exact(pipeline.ticks), "ticks"),
        this.report.breakdown &&
          figure(
            percent(causeShare(this.report, "bubble")),
            element("span", {}, "of all cycles of a call is ", term("bubble")),
          ),
        figure(
          percent(pipeline.bubble_fraction),
          "of the places of the grid are empty",
          "IPUs and ticks without a task, whatever ticks take: the bubble fraction",
        ),
        figure(
          cycles(pipeline.cycles),
          "cycles of a run",
          `${exact(pipeline.cycles)} cycles, without the weight update`,
        ),
      ),
    );
  }

  build(root) {
    const used = GRID_PHASES.filter((phase) => this.grid.tasks.some((task) => task.phase === phase));
    const bubble = element("span", {}, element("span", { class: "swatch bubble" }), "empty place");
    const words = legend(used.map((phase) => [phaseInWords(phase), `phase-${phase}`]));
    words.append(bubble);
    const box = panel("Ticks", [words]);
    root.append(box);
    this.chart = new Chart(box, {
      name: "schedule",
      label: `Micro-batches on ${this.grid.ipus} IPUs in ${this.grid.ticks} ticks. Arrow keys move, plus and minus zoom.`,
      height: this.rowsHeight + GRID_AXIS + TICK_BARS,
      domain: [0, this.grid.ticks],
      least: Math.min(4, this.grid.ticks),
      left: GRID_LEFT,
      row: this.row,
      draw: (ctx, view) => this.draw(ctx, view),
      hover: (x, y, view) => this.hover(x, y, view),
      click: (x, y, view) => this.click(x, y, view),
    });
    box.append(
      element("p", {
        class: "faint",
        text: "Below: how long each tick takes; its slowest IPU sets it. Click a cell to find the tick in the timeline.",
      }),
    );
  }

  table(root) {
    const rows = this.report.pipeline.stage_cycles.map((own) => ({
      ...own,
      ipus: this.report.pipeline.stage_ipus[own.stage] ?? [],
    }));
    const most = rows.reduce((largest, row) => Math.max(largest, row.cycles), 1);
    const box = panel("Stages", []);
    root.append(box);
    const stages = sortableTable(
      box,
      [
        { title: "Stage", value: (row) => row.stage, numeric: true },
        { title: "Phase", value: (row) => phaseInWords(row.phase), width: 16, colour: (row) => `var(--phase-${row.phase})` },
        { title: "IPUs", value: (row) => row.ipus[0] ?? -1, text: (row) => row.ipus.join(", ") },
        {
          title: "Cycles of a task",
          value: (row) => row.cycles,
          text: (row) => exact(row.cycles),
          numeric: true,
          bar: (row) => row.cycles / most,
        },
        {
          title: "Time",
          value: (row) => row.cycles,
          text: (row) => seconds(row.cycles / this.report.target.clock_hz),
          numeric: true,
        },
      ],
      rows,
      {
        name: "stages",
        height: 320,
        filter: false,
        onclick: (row) => row.ipus.length && this.store.select({ ipu: row.ipus[0] }),
        isSelected: (row) => this.store.selection.ipu !== null && row.ipus.includes(this.store.selection.ipu),
      },
    );
    this.store.subscribe(() => stages.refresh());
  }

  selected(changed) {
    const { tick } = this.store.selection;
    if (changed.includes("tick") && tick !== null && (tick < this.chart.lo || tick + 1 > this.chart.hi)) {
      const half = (this.chart.hi - this.chart.lo) / 2;
      this.chart.show(tick - half, tick + half);
    }
    this.chart.draw();
  }

  draw(ctx, view) {
    const width = view.toX(1) - view.toX(0);
    insideAxes(ctx, view, view.height, () => {
      ctx.fillStyle = hatching(ctx);
      for (let ipu = 0; ipu < this.grid.ipus; ipu++)
        ctx.fillRect(GRID_LEFT, ipu * this.row + 1, view.width, this.row - 2);
      if (width < CELL_NARROW) this.drawShares(ctx, view);
      else this.drawCells(ctx, view, width);
      this.drawBars(ctx, view, width);
      this.drawSelection(ctx, view);
    });
    const labels = Array.from({ length: this.grid.ipus }, (_, ipu) => ({
      label: `IPU ${ipu}`,
      key: ipu,
      y: (ipu + 0.5) * this.row,
    }));
    paintRowLabels(ctx, labels, (ipu) => ipu === this.store.selection.ipu);
    this.drawAxis(ctx, view);
  }

  visible(view) {
    return [Math.max(Math.floor(view.lo), 0), Math.min(Math.ceil(view.hi), this.grid.ticks)];
  }

  drawCells(ctx, view, width) {
    const [from, to] = this.visible(view);
    const gap = width > 8 ? 1 : 0;
    ctx.textAlign = "center";
    for (let ipu = 0; ipu < this.grid.ipus; ipu++) {
      for (let tick = from; tick < to; tick++) {
        const cells = this.grid.cellsAt(ipu, tick);
        const high = (this.row - 2) / this.grid.slots[ipu];
        cells?.forEach((cell) =>
          this.drawCell(ctx, cell, view.toX(tick), ipu * this.row + 1 + cell.slot * high, width - gap, high),
        );
      }
    }
    ctx.textAlign = "left";
  }

  drawCell(ctx, cell, x, y, width, height) {
    const colour = phaseColour(cell.phase);
    ctx.fillStyle = colour;
    ctx.fillRect(x, y, width, height);
    const label = width > 34 ? `${cell.phase[0].toUpperCase()} ${cell.microBatch}` : String(cell.microBatch);
    if (height < 10 || ctx.measureText(label).width > width - 2) return;
    ctx.fillStyle = inkOn(colour);
    ctx.fillText(label, x + width / 2, y + height / 2 + 0.5);
  }

  /** Where cells are narrower than can be told apart: how much of them each phase fills, from above. */
  drawShares(ctx, view) {
    const pixels = [];
    for (let x = GRID_LEFT; x < view.width; x++) {
      const from = Math.min(Math.max(Math.floor(view.fromX(x)), 0), this.grid.ticks - 1);
      pixels.push({ x, from, to: Math.min(Math.max(Math.floor(view.fromX(x + 1)), from + 1), this.grid.ticks) });
    }
    for (let ipu = 0; ipu < this.grid.ipus; ipu++) this.drawShareRow(ctx, ipu, pixels);
  }

  /** Neighbouring pixels that look alike are painted at once. */
  drawShareRow(ctx, ipu, pixels) {
    const room = this.row - 2;
    const heights = ({ from, to }) =>
      GRID_PHASES.map((_, i) => Math.round(2 * room * this.grid.filled(ipu, i, from, to)) / 2);
    let [begin, shown] = [0, heights(pixels[0])];
    for (let i = 1; i <= pixels.length; i++) {
      const next = i < pixels.length ? heights(pixels[i]) : null;
      if (next?.every((height, phase) => height === shown[phase])) continue;
      this.drawShare(ctx, pixels[begin].x, i - begin, ipu * this.row + 1, shown);
      [begin, shown] = [i, next];
    }
  }

  drawShare(ctx, x, width, top, heights) {
    let y = top;
    GRID_PHASES.forEach((phase, i) => {
      ctx.fillStyle = phaseColour(phase);
      ctx.fillRect(x, y, width, heights[i]);
      y += heights[i];
    });
  }

  drawBars(ctx, view, width) {
    const bottom = view.height - 2;
    const room = TICK_BARS - 8;
    ctx.fillStyle = themeColour("phase-none");
    const bar = (x, wide, own) =>
      ctx.fillRect(x, bottom - (own / this.longest) * room, wide, (own / this.longest) * room);
    const [first, last] = this.visible(view);
    if (width >= 2) {
      for (let tick = first; tick < last; tick++)
        bar(view.toX(tick), width - (width > 4 ? 1 : 0), this.grid.tickCycles[tick] ?? 0);
      return;
    }
    for (let x = GRID_LEFT; x < view.width; x++) {
      const from = Math.max(Math.floor(view.fromX(x)), first);
      const to = Math.min(Math.max(Math.floor(view.fromX(x + 1)), from + 1), last);
      bar(
        x,
        1,
        this.grid.tickCycles.subarray(from, to).reduce((most, own) => Math.max(most, own), 0),
      );
    }
  }

  drawSelection(ctx, view) {
    const { tick, ipu } = this.store.selection;
    if (tick === null) return;
    const [x, to] = [view.toX(tick), view.toX(tick + 1)];
    ctx.strokeStyle = themeColour("text");
    ctx.lineWidth = 1;
    ctx.strokeRect(x - 0.5, 0.5, Math.max(to - x, 2), view.height - 1);
    ctx.lineWidth = 2;
    if (ipu !== null && ipu < this.grid.ipus)
      ctx.strokeRect(x, ipu * this.row + 1, Math.max(to - x - 1, 2), this.row - 2);
  }

  drawAxis(ctx, view) {
    paintNumbersAxis(ctx, view, this.rowsHeight + 2, "tick");
    ctx.fillText("cycles", 2, view.height - TICK_BARS / 2);
    ctx.textAlign = "right";
    ctx.fillText(cycles(this.longest), GRID_LEFT - 6, view.height - TICK_BARS + 8);
    ctx.fillText("0", GRID_LEFT - 6, view.height - 7);
    ctx.textAlign = "left";
  }

  cellUnder(x, y, view) {
    const tick = Math.floor(view.fromX(x));
    const ipu = Math.floor(y / this.row);
    if (x < GRID_LEFT || tick < 0 || tick >= this.grid.ticks) return null;
    return { tick, ipu: ipu < this.grid.ipus ? ipu : null, cells: this.grid.cellsAt(ipu, tick) };
  }

  hover(x, y, view) {
    const under = this.cellUnder(x, y, view);
    if (!under) return null;
    const own = this.grid.tickCycles[under.tick] ?? 0;
    const lines = [`tick ${under.tick}: ${cycles(own)} cycles, ${seconds(own / this.report.target.clock_hz)}`];
    if (under.ipu === null) return lines;
    if (!under.cells) return [...lines, `IPU ${under.ipu}: no task`];
    return [...lines, ...under.cells.map((cell) => this.cellText(cell, under.ipu))];
  }

  cellText(cell, ipu) {
    const own = this.grid.cyclesOf(cell.stage, cell.phase);
    const long = own === null ? "" : `, ${cycles(own)} cycles`;
    return `IPU ${ipu}: stage ${cell.stage} ${phaseInWords(cell.phase)}, micro-batch ${cell.microBatch}${long}`;
  }

  click(x, y, view) {
    const under = this.cellUnder(x, y, view);
    if (under) this.store.select({ tick: under.tick, ...(under.ipu === null ? {} : { ipu: under.ipu }) });
    else if (x < GRID_LEFT && y < this.rowsHeight) this.store.select({ ipu: Math.floor(y / this.row) });
  }
}
