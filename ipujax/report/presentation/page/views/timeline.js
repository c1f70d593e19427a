// What every IPU does when: a lane for each, from the whole call down to single steps.

import {Chart} from "../chart.js";
import {choice, pushButton} from "../controls.js";
import {fromRepeats} from "../document.js";
import {gapAt, nextStep, previousStep, stepAt, taskAt, tickTimes} from "../find.js";
import {cycles, element, exact} from "../format.js";
import {itemOf} from "../items.js";
import {lookByKind, lookByPhase, lookOfStrip, paintSteps, paintTasks, paintTimeAxis} from "../lanepaint.js";
import {kindChannels, laneShape, paintColumns, phaseChannels, wholeShape} from "../lanes.js";
import {kindColour, onTheme, phaseColour, themeColour} from "../palette.js";
import {inWords, legend, paintRowLabels, panel} from "../parts.js";
import {StepTexts} from "../steptexts.js";
import {exactly, linkable, linked, primitivesOf, relinked} from "../store.js";
import {LANE_KINDS, LANE_PHASES, Trace} from "../trace.js";

const LABELS_WIDTH = 52;
const AXIS_HEIGHT = 40;
const OVERVIEW_HEIGHT = 54;
const STRIP_HEIGHT = 8; // kinds below the tasks, where lanes show phases
const LANE_HEIGHTS = [20, 120]; // pixels, least and most
const ABOVE_LANES = 330; // pixels of the window that are not for lanes
const DIMMED = 0.2; // what is not selected
const WEAKER = 0.6; // what is only of the line that is selected
const GO_AROUND = 12; // how many times as long as a step is what is shown around it
const HOW_TO = "Wheel or + and − zoom, drag moves, a double click shows all. Click a step to find it in all views; with the "
  + "keyboard, arrow keys move, with Shift and up and down a cross that Enter clicks.";
const SNAP = 3; // pixels beside a step that still hit it

/** Lanes of all IPUs of a report. */
export function timelineView(root, report, store, scale) {
  if (!report.steps.count) {
    root.append(panel("Timeline", [], element("p", { class: "soft", text: "No IPU does anything that takes time." })));
    return;
  }
  new TimelineView(root, report, store, scale);
}

class TimelineView {
  constructor(root, report, store, scale) {
    this.report = report;
    this.store = store;
    this.scale = scale;
    this.trace = new Trace(report);
    this.texts = new StepTexts(report);
    this.hertz = report.target.clock_hz;
    const phases = this.trace.lanes.some(
      (lane) => lane && LANE_PHASES.some((_, i) => laneTotal(lane, LANE_KINDS.length + i)),
    );
    this.byPhase = phases;
    this.lane = laneHeight(report.num_ipus);
    this.ticks = report.pipeline && tickTimes(report, fromRepeats(report.pipeline.tick_cycles));
    this.build(root, phases);
    scale.subscribe(() => this.rescale());
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
      domain: this.domain(),
      fixed: true,
      left: LABELS_WIDTH,
      draw: (ctx, view) => this.drawOverview(ctx, view),
      click: (x, y, view) => this.centre(view.fromX(x)),
    });
    this.chart = new Chart(box, {
      name: "timeline",
      label: `Steps of all IPUs over ${exact(this.trace.cycles)} cycles. Arrow keys move, plus and minus zoom.`,
      height: this.report.num_ipus * this.lane + AXIS_HEIGHT,
      domain: this.domain(),
      least: 16,
      left: LABELS_WIDTH,
      row: this.lane,
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

  /** From the start of the call to its end, or to that of the longer one beside it. */
  domain() {
    return [0, Math.max(this.trace.cycles, ...this.scale.reportsWith(this.report).map((report) => report.cycles))];
  }

  rescale() {
    this.shares = null;
    this.linkedShape = null;
    this.overview.setDomain(this.domain());
    this.chart.setDomain(this.domain());
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
    const phases = seen.map((phase) => [`${phase} task`, `phase-${phase}`]);
    const strip = [
      ["in the strip below: compute", "strip-compute"],
      ["exchange and all else", "strip-else"],
    ];
    const entries = this.byPhase ? [...phases, ...strip] : kinds;
    this.legend.replaceChildren(legend([...entries, ["waiting", "bubble"]]));
  }

  selected(changed) {
    const { selection } = this.store;
    if (relinked(changed) || changed.includes("ipu")) this.link(selection);
    if (changed.includes("tick") && selection.tick !== null && this.ticks) this.showTick(selection.tick);
    this.chart.draw();
    this.overview.draw();
  }

  /** Finds what belongs to a selection; where nothing does, all is shown as without one. */
  link(selection) {
    const chosen = linkable(selection);
    const sums = chosen ? this.trace.sumsWhere((item) => linked(selection, item)) : null;
    const total = sums ? this.totalOf(sums, () => true) : 0;
    this.linkedSums = total ? sums : null;
    const exact = total ? this.trace.sumsWhere((item) => exactly(selection, item)) : null;
    const own = exact ? this.totalOf(exact, (ipu) => this.onChosen(ipu)) : 0;
    this.exactSums = own ? exact : null;
    this.linkedShape = null;
    this.steppers.hidden = !total;
    this.note.textContent = chosen ? foundText(total, own, selection) : HOW_TO;
  }

  totalOf(sums, counts) {
    return this.trace.lanes.reduce((sum, lane, ipu) => sum + (lane && counts(ipu) ? kindTotal(sums.get(lane)) : 0), 0);
  }

  onChosen(ipu) {
    const chosen = this.store.selection.ipu;
    return chosen === null || chosen === ipu;
  }

  /** What the very thing that is selected does on an IPU, or else what its line does: `sumsOf(list)`, or null. */
  strongest(ipu) {
    const sums = this.exactSums ?? this.linkedSums;
    return sums && (!this.exactSums || this.onChosen(ipu)) ? (list) => sums.get(list) : null;
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
      .map((lane, ipu) => lane && this.strongest(ipu) && find(lane, this.strongest(ipu), now))
      .filter(Boolean);
    if (!found.length) return;
    this.at = found.reduce((best, step) => ((back ? step.start > best.start : step.start < best.start) ? step : best));
    const half = Math.min((this.chart.hi - this.chart.lo) / 2, this.at.cycles * GO_AROUND);
    const centre = this.at.start + this.at.cycles / 2;
    this.chart.show(centre - half, centre + half);
  }

  /** Shows a tick with what is around it, unless it can be seen. */
  showTick(tick) {
    if (tick + 1 >= this.ticks.length) return;
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
    const fitting = laneHeight(this.report.num_ipus);
    if (fitting !== this.lane) {
      this.lane = fitting;
      this.chart.options.row = fitting;
      this.chart.setHeight(this.report.num_ipus * fitting + AXIS_HEIGHT); // which draws again
      return;
    }
    ctx.save();
    ctx.beginPath();
    ctx.rect(LABELS_WIDTH, 0, view.width - LABELS_WIDTH, view.height);
    ctx.clip();
    this.drawTick(ctx, view);
    paintTimeAxis(ctx, view, LABELS_WIDTH, this.report.num_ipus * this.lane, this.hertz);
    this.trace.lanes.forEach((lane, ipu) => this.drawLane(ctx, view, lane, ipu));
    ctx.restore();
    const rows = this.trace.lanes.map((_, ipu) => ({ label: `IPU ${ipu}`, key: ipu, y: (ipu + 0.5) * this.lane }));
    paintRowLabels(ctx, rows, (ipu) => ipu === this.store.selection.ipu);
  }

  drawLane(ctx, view, lane, ipu) {
    const [top, height] = [ipu * this.lane + 2, this.lane - 4];
    ctx.fillStyle = themeColour("bubble");
    ctx.fillRect(LABELS_WIDTH, top, this.endIn(view) - LABELS_WIDTH, height);
    if (!lane) return;
    this.paintLane(ctx, view, lane, top, this.linkedSums ? DIMMED : 1);
    if (this.linkedSums) {
      const sumsOf = (list) => this.linkedSums.get(list);
      this.paintChosen(ctx, view, lane, top, sumsOf, this.exactSums ? WEAKER : 1, false);
    }
    if (this.exactSums && this.onChosen(ipu)) this.paintChosen(ctx, view, lane, top, this.strongest(ipu), 1, true);
  }

  paintLane(ctx, view, lane, top, opacity) {
    const height = this.lane - 4;
    const shape = laneShape(lane, view);
    if (!this.byPhase) return paintSteps(ctx, shape, this.report, top, height, lookByKind(opacity));
    const upper = height - STRIP_HEIGHT;
    paintTasks(ctx, laneShape(lane, view, { byTask: true }), top, upper - 1, opacity);
    paintSteps(ctx, shape, this.report, top + upper, STRIP_HEIGHT, lookOfStrip(opacity));
    return undefined;
  }

  /** Steps that are selected, in the colours of the legend. */
  paintChosen(ctx, view, lane, top, sumsOf, opacity, outlined) {
    const height = this.lane - 4;
    const shape = laneShape(lane, view, { sumsOf, phases: this.byPhase });
    if (!this.byPhase) return paintSteps(ctx, shape, this.report, top, height, lookByKind(opacity, outlined));
    const upper = height - STRIP_HEIGHT;
    paintSteps(ctx, shape, this.report, top, upper - 1, lookByPhase(opacity, outlined));
    paintSteps(ctx, shape, this.report, top + upper, STRIP_HEIGHT, lookOfStrip(opacity));
    return undefined;
  }

  /** Where the call ends: the other report's may be longer. */
  endIn(view) {
    return Math.min(view.width, Math.max(view.toX(this.trace.cycles), LABELS_WIDTH));
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
    ctx.fillRect(LABELS_WIDTH, 2, this.endIn(view) - LABELS_WIDTH, height);
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
      const lanes = this.trace.lanes.filter((_, ipu) => this.strongest(ipu));
      const shape = wholeShape(lanes, view, { sumsOf: (list) => (this.exactSums ?? this.linkedSums).get(list) });
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
    const lane = this.trace.lanes[ipu];
    const inBand = this.byPhase && y - ipu * this.lane < this.lane - 2 - STRIP_HEIGHT;
    const task = inBand && lane && !this.linkedSums ? taskAt(lane, view.fromX(x)) : null;
    if (task) return this.texts.task(task, ipu, step);
    if (step) return this.texts.step(step, ipu);
    const time = Math.max(view.fromX(x), 0);
    return time < this.trace.cycles ? this.texts.waiting(gapAt(lane, time, this.report.cycles), ipu) : null;
  }

  click(x, y, view) {
    const { ipu, step } = this.stepUnder(x, y, view);
    if (x < LABELS_WIDTH && y < this.report.num_ipus * this.lane) this.store.select({ ipu: Math.floor(y / this.lane) });
    else if (step) this.store.pick(itemOf(this.report, step.operation, step.origin, step.name), { ipu });
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

/** What is said below the lanes of a selection. */
function foundText(total, own, { name, origin, operation }) {
  if (!total) return "No step belongs to what is selected.";
  if (!own || own === total) return `What is selected takes ${cycles(total)} cycles, all IPUs together.`;
  const all = `${origin ? "its line" : "what is like it"} ${cycles(total)}, all IPUs together`;
  const told = operation === null && name.includes("[") ? `Steps of ${primitivesOf(name)}, whatever its shape, take` : `${name} takes`;
  return `${told} ${cycles(own)} cycles (outlined), ${all}.`;
}

/** Pixels: lanes use the height of the window. */
function laneHeight(ipus) {
  const [least, most] = LANE_HEIGHTS;
  return Math.round(Math.min(Math.max((innerHeight - ABOVE_LANES) / ipus, least), most));
}
