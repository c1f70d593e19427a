// What every IPU does when: a lane for each, from the whole call down to single steps.

import {insideAxes} from "../axes.js";
import {PASS_PHASES} from "../bandpaint.js";
import {Bands} from "../bands.js";
import {Chart} from "../chart.js";
import {ChosenSteps} from "../chosen.js";
import {choice, pushButton} from "../controls.js";
import {fromRepeats} from "../document.js";
import {gapAt, nextStep, previousStep, stepAt, stretchAt, taskAt, tickTimes} from "../find.js";
import {element, exact} from "../format.js";
import {itemOf} from "../items.js";
import {IterationControls, mainLoop} from "../iterations.js";
import {paintTimeAxis} from "../lanepaint.js";
import {LanePainter, coloursOf, laneLayout} from "../lanerows.js";
import {kindChannels, phaseChannels} from "../lanes.js";
import {Overview} from "../overview.js";
import {kindColour, themeColour} from "../palette.js";
import {inWords, legend, paintRowLabels, panel, phaseInWords} from "../parts.js";
import {rememberChoice, rememberedChoice} from "../remember.js";
import {Ruler} from "../ruler.js";
import {StepTexts} from "../steptexts.js";
import {relinked} from "../store.js";
import {LANE_KINDS, LANE_PHASES, Trace} from "../trace.js";

const LABELS_WIDTH = 52;
const AXIS_HEIGHT = 40;
const ABOVE_LANES = 330; // pixels of the window that are not for lanes
const GO_AROUND = 12; // how many times as long as a step is what is shown around it
const HOW_TO = "Drag to measure; drag in the strip above to zoom, or with Shift to move. Click to find a part or a step in all "
  + "views. Keys: M measures, Z zooms to it, B folds the parts; ? lists all.";
const SNAP = 3; // pixels beside a step that still hit it
const SNAP_EDGE = 5; // pixels beside a beginning or an end from which a measured range begins or ends there
const PARTS_KEY = "timeline-parts";

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
    this.bands = new Bands(report);
    this.texts = new StepTexts(report, this.bands);
    this.painter = new LanePainter(this.bands, this.texts);
    this.hertz = report.target.clock_hz;
    this.phases = LANE_PHASES.filter((_, i) =>
      this.trace.lanes.some((lane) => lane && laneTotal(lane, LANE_KINDS.length + i)),
    );
    this.byPhase = this.phases.length > 0;
    this.inParts = this.bands.depth > 0 && rememberedChoice(PARTS_KEY) !== "folded";
    this.ruler = new Ruler(this.trace, this.hertz, (point, view) => this.edge(point, view));
    this.chosen = new ChosenSteps(this.trace, this.bands, store.selection);
    this.layout = this.fittingLayout();
    this.ticks = report.pipeline && tickTimes(report, fromRepeats(report.pipeline.tick_cycles));
    this.build(root);
    scale.subscribe(() => this.rescale());
    store.subscribe((selection, changed) => this.selected(changed));
    this.showIteration(1);
    this.selected(["name", "tick", "iteration"]);
  }

  build(root) {
    this.legend = element("div");
    const box = panel("Timeline", [this.legend, ...this.controls()]);
    root.append(box);
    const loop = mainLoop(this.trace.lanes);
    this.iterations = loop && new IterationControls(loop, (number) => this.chooseIteration(number));
    this.overview = new Overview(box, {
      trace: this.trace,
      domain: this.domain(),
      left: LABELS_WIDTH,
      shown: () => this.chart,
      show: (lo, hi) => this.chart.show(lo, hi),
      look: () => this.overviewLook(),
    });
    this.chart = new Chart(box, {
      name: "timeline",
      label: `Steps of all IPUs over ${exact(this.trace.cycles)} cycles. Arrow keys move, plus and minus zoom.`,
      height: this.lanesHeight() + AXIS_HEIGHT,
      domain: this.domain(),
      least: 16,
      left: LABELS_WIDTH,
      row: this.rowStep(),
      draw: (ctx, view) => this.drawLanes(ctx, view),
      hover: (x, y, view) => this.hover(x, y, view),
      click: (x, y, view) => this.click(x, y, view),
      drag: (from, to, view) => this.ruler.drag(from, to, view),
      crossed: (cross, view) => this.ruler.crossed(cross, view),
      moved: () => this.moved(),
      key: (event) => this.key(event),
    });
    if (this.iterations) this.chart.element.prepend(this.iterations.element);
    this.note = element("span", { class: "faint" });
    this.steppers = element(
      "span",
      { class: "controls" },
      pushButton("◀", "The last step before that is selected (p)", () => this.go(true)),
      pushButton("▶", "The next step that is selected (n)", () => this.go(false)),
    );
    this.ruler.on(this.chart);
    box.append(this.ruler.element, element("div", { class: "controls below" }, this.steppers, this.note));
    this.arrange();
  }

  controls() {
    this.colours = choice(
      "Colour by",
      [
        ["kind", "kind"],
        ["phase", "phase"],
      ],
      this.byPhase ? "phase" : "kind",
      (key) => this.colourBy(key),
    ).root;
    this.fold = pushButton("", "The parts of the model in each lane, down to operations (b)", () => this.foldParts());
    return [this.colours, this.bands.depth ? this.fold : null].filter(Boolean);
  }

  foldParts() {
    this.inParts = !this.inParts;
    rememberChoice(PARTS_KEY, this.inParts ? "open" : "folded");
    this.arrange();
  }

  /** Shows controls, legend and lanes anew. */
  arrange() {
    this.fold.textContent = this.inParts ? "Fold parts" : "Show parts";
    this.fold.setAttribute("aria-expanded", String(this.inParts));
    this.colours.hidden = this.inParts || !this.phases.length;
    this.showLegend();
    this.layout = this.fittingLayout();
    this.chart.draw();
    this.overview.change();
  }

  /** From the start of the call to its end, or to that of the longer one beside it. */
  domain() {
    return [0, Math.max(this.trace.cycles, ...this.scale.reportsWith(this.report).map((report) => report.cycles))];
  }

  rescale() {
    this.overview.chart.setDomain(this.domain());
    this.overview.change();
    this.chart.setDomain(this.domain());
  }

  colourBy(key) {
    this.byPhase = key === "phase";
    this.arrange();
  }

  showLegend() {
    const used = LANE_KINDS.filter((kind) => this.report.busy_cycles[kind]?.some(Boolean));
    const kinds = used.map((kind) => [inWords(kind), `kind-${kind}`]);
    const phasesAs = (colour) => this.phases.map((phase) => [phaseInWords(phase), `${colour}-${phase}`]);
    const known = Object.entries(PASS_PHASES).filter(([pass]) => this.bands.passes.includes(pass));
    const passes = known.map(([pass, phase]) => [pass, `pass-${phase}`]);
    const strip = [
      ["in the strip below: compute", "strip-compute"],
      ["exchange and all else", "strip-else"],
    ];
    const byTask = this.byPhase ? [...phasesAs("phase"), ...strip] : kinds;
    const entries = this.inParts ? [...(this.phases.length ? phasesAs("pass") : passes), ...kinds] : byTask;
    if (this.inParts) entries.push(["a tint for each scope, in all passes", "part-0"]);
    this.legend.replaceChildren(legend([...entries, ["waiting", "bubble"]]));
  }

  selected(changed) {
    const { selection } = this.store;
    if (relinked(changed) || changed.includes("ipu")) this.link(selection);
    if (changed.includes("iteration")) this.showIteration(selection.iteration);
    if (changed.includes("tick") && selection.tick !== null && this.ticks) this.showTick(selection.tick);
    this.chart.draw();
    this.overview.change();
  }

  /** Finds what belongs to a selection; where nothing does, all is shown as without one. */
  link(selection) {
    this.chosen = new ChosenSteps(this.trace, this.bands, selection);
    this.steppers.hidden = !this.chosen.linked;
    this.note.textContent = this.chosen.said() || HOW_TO;
  }

  /** Selects an iteration of the loop, or shows the whole call. */
  chooseIteration(number) {
    if (number === null) return this.chart.all();
    this.showIteration(number);
    return this.store.select({ iteration: number });
  }

  showIteration(number) {
    if (this.iterations && number !== null) this.chart.show(...this.iterations.rangeOf(number));
  }

  moved() {
    this.overview.chart.draw();
    this.iterations?.show(this.chart.lo, this.chart.hi);
    const [first, last] = this.domain();
    const isAll = this.chart.lo <= first && this.chart.hi >= last;
    if (isAll && this.store.selection.iteration !== null) this.store.select({ iteration: null });
  }

  key(event) {
    const actions = {
      "[": () => this.iterations?.go(-1),
      "]": () => this.iterations?.go(1),
      n: () => this.go(false),
      p: () => this.go(true),
      b: () => this.bands.depth && this.foldParts(),
      m: () => this.ruler.toggleMark(),
      z: () => this.ruler.zoom(),
      Escape: () => this.ruler.forget(),
    };
    const known = Object.hasOwn(actions, event.key) && (event.key !== "Escape" || this.ruler.range);
    if (!known) return false;
    event.stopPropagation(); // lest Escape unselects as well
    actions[event.key]();
    return true;
  }

  /** Goes to the next step that is selected, or the last before, seen from the middle of what is shown. */
  go(back) {
    if (!this.chosen.linked) return;
    const middle = (this.chart.lo + this.chart.hi) / 2;
    const now =
      this.at && Math.abs(this.at.start + this.at.cycles / 2 - middle) <= (this.chart.hi - this.chart.lo) / 2
        ? this.at.start
        : middle;
    const find = back ? previousStep : nextStep;
    const found = this.trace.lanes
      .map((lane, ipu) => lane && this.chosen.strongest(ipu) && find(lane, this.chosen.strongest(ipu).sumsOf, now))
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

  /** The time at a point, or the nearest beginning or end of what is near it. */
  edge({ x, y }, view) {
    const time = Math.min(Math.max(view.fromX(x), 0), this.trace.cycles);
    const { lane, row } = this.under(Math.max(x, LABELS_WIDTH), y, view);
    if (!lane) return time;
    const slack = (SNAP_EDGE * (view.hi - view.lo)) / (view.right - view.left);
    const near = [time - slack, time, time + slack].map((at) => this.thingAt(lane, row, at, view)).filter(Boolean);
    const edges = [0, this.trace.cycles, ...near.flatMap(({ start, cycles }) => [start, start + cycles])];
    const distance = (edge) => Math.abs(edge - time);
    const nearest = edges.reduce((best, edge) => (distance(edge) < distance(best) ? edge : best), Infinity);
    return distance(nearest) <= slack ? nearest : time;
  }

  fittingLayout() {
    const look = this.inParts ? "parts" : this.byPhase ? "phase" : "kind";
    return laneLayout(look, innerHeight - ABOVE_LANES, this.trace, this.bands, this.phases.length > 0);
  }

  lanesHeight() {
    return this.report.num_ipus * this.layout.lane;
  }

  /** How far the arrow keys move the cross: from row to row, or from lane to lane. */
  rowStep() {
    return this.inParts ? this.layout.rows[0].height + 1 : this.layout.lane;
  }

  drawLanes(ctx, view) {
    this.layout = this.fittingLayout();
    this.chart.options.row = this.rowStep();
    if (view.height !== this.lanesHeight() + AXIS_HEIGHT) {
      this.chart.setHeight(this.lanesHeight() + AXIS_HEIGHT); // which draws again
      return;
    }
    insideAxes(ctx, view, view.height, () => {
      this.drawTick(ctx, view);
      paintTimeAxis(ctx, view, LABELS_WIDTH, this.lanesHeight(), this.hertz);
      this.trace.lanes.forEach((lane, ipu) => this.drawLane(ctx, view, lane, ipu));
      this.drawSteps(ctx, view);
      this.ruler.paint(ctx, view, this.lanesHeight());
    });
    const { lane: high } = this.layout;
    const rows = this.trace.lanes.map((_, ipu) => ({ label: `IPU ${ipu}`, key: ipu, y: (ipu + 0.5) * high }));
    paintRowLabels(ctx, rows, (ipu) => ipu === this.store.selection.ipu);
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText("cycles", 2, this.lanesHeight() + 12);
    ctx.fillStyle = themeColour("text-faint");
    ctx.fillText("time", 2, this.lanesHeight() + 31);
  }

  drawLane(ctx, view, lane, ipu) {
    const top = ipu * this.layout.lane;
    ctx.fillStyle = themeColour("bubble");
    for (const row of this.layout.rows) {
      const waits = row.kind !== "part" || row.level === 0;
      if (waits) ctx.fillRect(LABELS_WIDTH, top + row.top, this.endIn(view) - LABELS_WIDTH, row.height);
    }
    if (lane) this.painter.paint(ctx, view, this.layout, lane, ipu, top, this.chosen);
  }

  /** Says how many steps there are where each is too narrow to be seen. */
  drawSteps(ctx, view) {
    if (!this.inParts || !this.iterations?.isCrowded(view)) return;
    ctx.fillStyle = themeColour("text");
    ctx.textAlign = "center";
    const { top, height } = this.layout.rows[0];
    const middle = (LABELS_WIDTH + this.endIn(view)) / 2;
    for (const ipu of this.trace.lanes.keys()) ctx.fillText(this.iterations.inWords, middle, ipu * this.layout.lane + top + height / 2);
    ctx.textAlign = "left";
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

  overviewLook() {
    const channels = this.byPhase ? phaseChannels(coloursOf(this.layout.look)) : kindChannels(kindColour);
    return { byTask: this.byPhase, channels, chosen: this.chosen };
  }

  /** What a point is on: `{ipu, lane, row, thing (a step, task or stretch, or null), time}`; null beside the lanes. */
  under(x, y, view) {
    const ipu = Math.floor(y / this.layout.lane);
    const lane = this.trace.lanes[ipu];
    if (x < LABELS_WIDTH || ipu >= this.report.num_ipus) return { ipu: null };
    const inLane = y - ipu * this.layout.lane;
    const row = this.layout.rows.findLast(({ top }) => inLane >= top) ?? this.layout.rows[0];
    const time = view.fromX(x);
    return { ipu, lane, row, time, thing: lane ? this.thingAt(lane, row, time, view) : null };
  }

  thingAt(lane, row, time, view) {
    if (row.kind === "tasks") return taskAt(lane, time);
    if (row.kind !== "part") return this.stepNear(lane, time, view);
    const band = this.bands.of(lane, row.level);
    return band && stretchAt(band, time);
  }

  stepNear(lane, time, view) {
    return stepAt(lane, time, (SNAP * (view.hi - view.lo)) / view.width);
  }

  hover(x, y, view) {
    const { ipu, lane, row, time, thing } = this.under(x, y, view);
    if (ipu === null) return null;
    const within = thing && Math.min(Math.max(time, thing.start), thing.start + thing.cycles - 1e-6);
    if (thing && row.kind === "tasks") return this.texts.task(thing, ipu, lane, within);
    if (thing && row.kind === "part") return this.texts.stretch(thing, ipu, lane, within);
    if (thing) return this.texts.step(thing, ipu, lane, within);
    const waits = time >= 0 && time < this.trace.cycles && !(lane && stepAt(lane, time, 0));
    return waits ? this.texts.waiting(gapAt(lane, time, this.report.cycles), ipu) : null;
  }

  click(x, y, view) {
    const { ipu, lane, row, time, thing } = this.under(x, y, view);
    if (ipu === null) {
      if (x < LABELS_WIDTH && y < this.lanesHeight()) this.store.select({ ipu: Math.floor(y / this.layout.lane) });
      return;
    }
    const part = row.kind === "part" && row.level > 0 && thing ? this.bands.parts[thing.part] : null;
    if (part && part.operation < 0) return this.store.select({ scope: part.scope, ipu });
    const step = lane && this.stepNear(lane, time, view);
    if (step) this.store.pick(itemOf(this.report, step.operation, step.origin, step.name), { ipu });
  }
}

function laneTotal(lane, channel) {
  const last = lane.start.length * (lane.sums.length / (lane.start.length + 1));
  return lane.sums[last + channel];
}
