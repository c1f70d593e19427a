// What every IPU does when: a lane for each, from the whole call down to single steps.

import {Chart} from "../chart.js";
import {choice, pushButton} from "../controls.js";
import {fromRepeats, text} from "../document.js";
import {nextStep, previousStep, stepAt, tickTimes} from "../find.js";
import {cycles, element, exact, seconds, shortOrigin} from "../format.js";
import {paintSteps, paintTasks, paintTimeAxis, stripColour} from "../lanepaint.js";
import {kindChannels, laneShape, paintColumns, phaseChannels, wholeShape} from "../lanes.js";
import {kindColour, onTheme, phaseColour, themeColour} from "../palette.js";
import {inWords, legend, paintRowLabels, panel} from "../parts.js";
import {linkable} from "../store.js";
import {LANE_KINDS, LANE_PHASES, Trace} from "../trace.js";

const LABELS_WIDTH = 52;
const AXIS_HEIGHT = 36;
const OVERVIEW_HEIGHT = 54;
const STRIP_HEIGHT = 8; // kinds below the tasks, where lanes show phases
const DIMMED = 0.22;
const GO_AROUND = 12; // how many times as long as a step is what is shown around it
const HOW_TO = "Wheel or + and − zoom, drag moves, a double click shows all. Click a step to find it in all views.";
const SNAP = 3; // pixels beside a step that still hit it

/** Lanes of all IPUs of a report. */
export function timelineView(root, report, store) {
  new TimelineView(root, report, store);
}

class TimelineView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.trace = new Trace(report);
    this.hertz = report.target.clock_hz;
    const phases = this.trace.lanes.some(
      (lane) => lane && LANE_PHASES.some((_, i) => laneTotal(lane, LANE_KINDS.length + i)),
    );
    this.byPhase = phases;
    this.lane = laneHeight(report.num_ipus);
    this.ticks = report.pipeline && tickTimes(report, fromRepeats(report.pipeline.tick_cycles));
    this.build(root, phases);
    store.subscribe((selection, changed) => this.selected(changed));
    this.selected(["name", "tick"]);
  }

  build(root, phases) {
    const colours = choice(
      "Colour by",
      [
        ["kind", "kind"],
        ["phase", "phase"],
      ],
      this.byPhase ? "phase" : "kind",
      (key) => this.colourBy(key),
    );
    this.legend = element("div");
    const box = panel("Timeline", [this.legend, phases ? colours.root : null].filter(Boolean));
    root.append(box);
    this.overview = new Chart(box, {
      name: "timeline-overview",
      label: "The whole call: what all IPUs do together, and the part that is shown below",
      height: OVERVIEW_HEIGHT,
      domain: [0, this.trace.cycles],
      fixed: true,
      left: LABELS_WIDTH,
      draw: (ctx, view) => this.drawOverview(ctx, view),
      click: (x, y, view) => this.centre(view.fromX(x)),
    });
    this.chart = new Chart(box, {
      name: "timeline",
      label: `Steps of all IPUs over ${exact(this.trace.cycles)} cycles. Arrow keys move, plus and minus zoom.`,
      height: this.report.num_ipus * this.lane + AXIS_HEIGHT,
      domain: [0, this.trace.cycles],
      least: 16,
      left: LABELS_WIDTH,
      draw: (ctx, view) => this.drawLanes(ctx, view),
      hover: (x, y, view) => this.hover(x, y, view),
      click: (x, y, view) => this.click(x, y, view),
      moved: () => this.overview.draw(),
      key: (event) => this.key(event),
    });
    this.note = element("span", { class: "faint" });
    this.steppers = element(
      "span",
      { class: "controls" },
      pushButton("◀", "The last step before that is selected (p)", () => this.go(true)),
      pushButton("▶", "The next step that is selected (n)", () => this.go(false)),
    );
    box.append(element("div", { class: "controls below" }, this.steppers, this.note));
    onTheme(() => {
      this.shares = null;
    });
    this.showLegend();
  }

  colourBy(key) {
    this.byPhase = key === "phase";
    this.shares = null;
    this.showLegend();
    this.chart.draw();
    this.overview.draw();
  }

  showLegend() {
    const used = LANE_KINDS.filter((kind) => this.report.busy_cycles[kind]?.some(Boolean));
    const kinds = used.map((kind) => [inWords(kind), `kind-${kind}`]);
    const seen = LANE_PHASES.filter((_, i) =>
      this.trace.lanes.some((lane) => lane && laneTotal(lane, LANE_KINDS.length + i)),
    );
    const phases = seen.map((phase) => [phase, `phase-${phase}`]);
    const strip = [
      ["below: compute", "strip-compute"],
      ["all else", "strip-else"],
    ];
    this.legend.replaceChildren(legend(this.byPhase ? [...phases, ...strip] : kinds));
  }

  selected(changed) {
    const { selection } = this.store;
    if (changed.includes("origin") || changed.includes("name")) {
      this.link(selection);
    }
    if (changed.includes("tick") && selection.tick !== null && this.ticks) this.showTick(selection.tick);
    this.chart.draw();
    this.overview.draw();
  }

  /** Finds what belongs to a selection; where nothing does, all is shown as without one. */
  link(selection) {
    const sums = linkable(selection) ? this.trace.linkedSums(selection) : null;
    const total = sums ? this.trace.lanes.reduce((sum, lane) => sum + (lane ? kindTotal(sums.get(lane)) : 0), 0) : 0;
    this.linkedSums = total ? sums : null;
    this.linkedShape = null;
    this.steppers.hidden = !total;
    const found = total
      ? `What is selected takes ${cycles(total)} cycles, all IPUs together.`
      : "No step belongs to what is selected.";
    this.note.textContent = sums ? found : HOW_TO;
  }

  key(event) {
    if (event.key !== "n" && event.key !== "p") return false;
    this.go(event.key === "p");
    return true;
  }

  /** Goes to the next step that is selected, or the last before, seen from the middle of what is shown. */
  go(back) {
    if (!this.linkedSums) return;
    const middle = (this.chart.lo + this.chart.hi) / 2;
    const now =
      this.at && Math.abs(this.at.start + this.at.cycles / 2 - middle) <= (this.chart.hi - this.chart.lo) / 2
        ? this.at.start
        : middle;
    const find = back ? previousStep : nextStep;
    const found = this.trace.lanes
      .map((lane) => lane && find(lane, (list) => this.linkedSums.get(list), now))
      .filter(Boolean);
    if (!found.length) return;
    this.at = found.reduce((best, step) => ((back ? step.start > best.start : step.start < best.start) ? step : best));
    const half = Math.min((this.chart.hi - this.chart.lo) / 2, this.at.cycles * GO_AROUND);
    const centre = this.at.start + this.at.cycles / 2;
    this.chart.show(centre - half, centre + half);
  }

  /** Shows a tick with what is around it, unless it can be seen. */
  showTick(tick) {
    const [from, to] = [this.ticks[tick], this.ticks[tick + 1]];
    const { lo, hi } = this.chart;
    const span = to - from;
    if (from >= lo && to <= hi && span > (hi - lo) / 60) return;
    this.chart.show(from - 3 * span, to + 3 * span);
  }

  centre(time) {
    const half = (this.chart.hi - this.chart.lo) / 2;
    this.chart.show(time - half, time + half);
  }

  drawLanes(ctx, view) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(LABELS_WIDTH, 0, view.width - LABELS_WIDTH, view.height);
    ctx.clip();
    this.drawTick(ctx, view);
    paintTimeAxis(ctx, view, LABELS_WIDTH, this.report.num_ipus * this.lane, this.hertz);
    this.trace.lanes.forEach((lane, ipu) => this.drawLane(ctx, view, lane, ipu * this.lane + 2));
    ctx.restore();
    const rows = this.trace.lanes.map((_, ipu) => ({ label: `IPU ${ipu}`, key: ipu, y: (ipu + 0.5) * this.lane }));
    paintRowLabels(ctx, rows, (ipu) => ipu === this.store.selection.ipu);
  }

  drawLane(ctx, view, lane, top) {
    const height = this.lane - 4;
    ctx.fillStyle = themeColour("bubble");
    ctx.fillRect(LABELS_WIDTH, top, view.width - LABELS_WIDTH, height);
    if (!lane) return;
    const dim = this.linkedSums ? DIMMED : 1;
    if (this.byPhase) {
      const upper = height - STRIP_HEIGHT;
      paintTasks(ctx, laneShape(lane, view, { byTask: true }), top, upper - 1, dim);
      paintSteps(ctx, laneShape(lane, view), this.report, top + upper, STRIP_HEIGHT, stripColour, dim);
    } else paintSteps(ctx, laneShape(lane, view), this.report, top, height, kindColour, dim);
    if (!this.linkedSums) return;
    const shape = laneShape(lane, view, { sumsOf: (list) => this.linkedSums.get(list) });
    paintSteps(ctx, shape, this.report, top, height, kindColour, 1);
  }

  drawTick(ctx, view) {
    const { tick } = this.store.selection;
    if (tick === null || !this.ticks || tick + 1 >= this.ticks.length) return;
    const [x, to] = [view.toX(this.ticks[tick]), view.toX(this.ticks[tick + 1])];
    ctx.fillStyle = themeColour("select");
    ctx.fillRect(x, 0, Math.max(to - x, 2), view.height);
    ctx.strokeStyle = themeColour("select-line");
    ctx.lineWidth = 1;
    ctx.strokeRect(x, 0.5, Math.max(to - x, 2), view.height - 1);
  }

  drawOverview(ctx, view) {
    const height = OVERVIEW_HEIGHT - 12;
    this.shares = this.shares?.width === view.width ? this.shares : this.shareOfAll(view);
    ctx.fillStyle = themeColour("bubble");
    ctx.fillRect(LABELS_WIDTH, 2, view.width - LABELS_WIDTH, height);
    const channels = this.byPhase ? phaseChannels(phaseColour) : kindChannels(kindColour);
    paintColumns(ctx, this.shares.shape, channels, 2, height);
    ctx.fillStyle = themeColour("text-faint");
    ctx.fillText("all", 2, 2 + height / 2);
    if (this.linkedSums) this.drawMarks(ctx, view, height + 4);
    const { lo, hi } = this.chart ?? view;
    const [from, to] = [view.toX(lo), view.toX(hi)];
    ctx.fillStyle = themeColour("veil");
    ctx.fillRect(LABELS_WIDTH, 2, from - LABELS_WIDTH, height);
    ctx.fillRect(to, 2, view.width - to, height);
    ctx.strokeStyle = themeColour("accent");
    ctx.lineWidth = 2;
    ctx.strokeRect(from + 1, 2, Math.max(to - from - 2, 2), height);
  }

  /** Where in the call there is anything of what is selected. */
  drawMarks(ctx, view, top) {
    if (this.linkedShape?.width !== view.width) {
      const shape = wholeShape(this.trace.lanes, view, { sumsOf: (list) => this.linkedSums.get(list) });
      this.linkedShape = { width: view.width, shape };
    }
    const { shape } = this.linkedShape;
    const channels = shape.columns.length / shape.width;
    ctx.fillStyle = themeColour("select-line");
    for (let x = 0; x < shape.width; x++) {
      const here = shape.columns.subarray(x * channels, (x + 1) * channels).some((own) => own > 0);
      if (here) ctx.fillRect(shape.left + x, top, 1, 5);
    }
  }

  /** What all IPUs do together, by pixel of the overview. */
  shareOfAll(view) {
    const ipus = this.trace.lanes.length;
    const shape = wholeShape(this.trace.lanes, view, { byTask: this.byPhase });
    for (let i = 0; i < shape.columns.length; i++) shape.columns[i] /= ipus;
    return { width: view.width, shape };
  }

  stepUnder(x, y, view) {
    const ipu = Math.floor(y / this.lane);
    const lane = this.trace.lanes[ipu];
    if (x < LABELS_WIDTH || ipu >= this.report.num_ipus) return { ipu: null, step: null };
    const slack = (SNAP * (view.hi - view.lo)) / view.width;
    return { ipu, step: lane ? stepAt(lane, view.fromX(x), slack) : null };
  }

  hover(x, y, view) {
    const { ipu, step } = this.stepUnder(x, y, view);
    if (ipu === null) return null;
    if (!step) return [`IPU ${ipu} waits`, `at cycle ${exact(view.fromX(x))}`];
    const { task } = step;
    const micro = task && task.microBatch >= 0 ? `, micro-batch ${task.microBatch}` : "";
    const origin = text(this.report, step.origin);
    return [
      text(this.report, step.name) || inWords(LANE_KINDS[step.kind]),
      `${inWords(LANE_KINDS[step.kind])} on IPU ${ipu}`,
      `${exact(step.cycles)} cycles, ${seconds(step.cycles / this.hertz)}`,
      `from cycle ${exact(step.start)}, ${seconds(step.start / this.hertz)}`,
      ...(task ? [`${task.stage === null ? "" : `stage ${task.stage}, `}${task.phase}${micro}`] : []),
      ...(origin ? [shortOrigin(origin)] : []),
    ];
  }

  click(x, y, view) {
    const { ipu, step } = this.stepUnder(x, y, view);
    if (x < LABELS_WIDTH && y < this.report.num_ipus * this.lane) this.store.select({ ipu: Math.floor(y / this.lane) });
    else if (step)
      this.store.select({ origin: text(this.report, step.origin) || null, name: text(this.report, step.name), ipu });
  }
}

function laneTotal(lane, channel) {
  const last = lane.start.length * (lane.sums.length / (lane.start.length + 1));
  return lane.sums[last + channel];
}

function kindTotal(sums) {
  const channels = LANE_KINDS.length + LANE_PHASES.length;
  return sums.subarray(sums.length - channels, sums.length - LANE_PHASES.length).reduce((sum, part) => sum + part, 0);
}

/** Pixels: few IPUs have more room, and many still fit on a screen. */
function laneHeight(ipus) {
  if (ipus <= 2) return 52;
  if (ipus <= 8) return 34;
  return ipus <= 24 ? 26 : 20;
}
