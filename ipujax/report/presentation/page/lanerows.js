// Lanes as rows, one above the other: tasks or passes, the parts of the model down to operations, and steps.

import {NARROW_PART, paintBand} from "./bandpaint.js";
import {laneShape} from "./lanes.js";
import {lookByKind, lookByPhase, lookOfStrip, paintSteps, paintTasks} from "./lanepaint.js";
import {passColour, phaseColour} from "./palette.js";

const ROW_HEIGHTS = [14, 24]; // pixels of a row, least and most
const LANE_HEIGHTS = [20, 120]; // of lanes without parts
const LANE_GAP = 4;
const STRIP_HEIGHT = 8; // kinds below the tasks, where lanes show phases
const DIMMED = 0.2; // what is not selected
const WEAKER = 0.6; // what is only of the line that is selected

/**
 * How lanes look: `{look ("parts", "phase" or "kind"), lane (pixels from one to the next), rows}`; a row is `{kind ("tasks",
 * "part", "steps" or "strip"), level (of a part), top (in its lane), height}`. In parts there is a row for as many levels
 * as have room; `height` is that of all lanes.
 */
export function laneLayout(look, height, trace, bands, hasTasks) {
  const fitting = height / trace.lanes.length;
  if (look !== "parts") {
    const lane = Math.round(clamped(fitting, LANE_HEIGHTS));
    const inside = lane - LANE_GAP;
    if (look === "kind") return { look, lane, rows: [{ kind: "steps", top: 2, height: inside }] };
    const tasks = { kind: "tasks", top: 2, height: inside - STRIP_HEIGHT - 1 };
    return { look, lane, rows: [tasks, { kind: "strip", top: 2 + inside - STRIP_HEIGHT, height: STRIP_HEIGHT }] };
  }
  const first = hasTasks ? [{ kind: "tasks" }] : bands.passes.length ? [{ kind: "part", level: 0 }] : [];
  const levels = Array.from({ length: Math.max(bands.depth - 1, 0) }, (_, i) => ({ kind: "part", level: i + 1 }));
  const [least, most] = ROW_HEIGHTS;
  const room = Math.max(Math.floor((fitting - LANE_GAP) / least) - first.length - 1, 1);
  const rows = [...first, ...levels.slice(0, room), { kind: "steps" }];
  const own = Math.floor(clamped((fitting - LANE_GAP) / rows.length, [least, most]));
  rows.forEach((row, i) => Object.assign(row, { top: 2 + i * own, height: own - 1 }));
  return { look, lane: rows.length * own + LANE_GAP, rows };
}

function clamped(value, [least, most]) {
  return Math.min(Math.max(value, least), most);
}

/** The colours of tasks: softer where steps below them have the colours of their kinds. */
export function coloursOf(look) {
  return look === "parts" ? passColour : phaseColour;
}

/** Paints what one IPU does: `lane` of a trace, from `top` on, and in it what is chosen (a ChosenSteps). */
export class LanePainter {
  constructor(bands, texts) {
    this.bands = bands;
    this.texts = texts;
  }

  paint(ctx, view, layout, lane, ipu, top, chosen) {
    for (const row of layout.rows) {
      const place = { ...row, top: top + row.top, look: layout.look };
      this.row(ctx, view, lane, place, chosen.linked ? DIMMED : 1);
      if (chosen.linked) this.found(ctx, view, lane, place, chosen.linked, chosen.exact ? WEAKER : 1, false);
      if (chosen.exact && chosen.onChosen(ipu)) this.found(ctx, view, lane, place, chosen.exact, 1, true);
    }
  }

  row(ctx, view, lane, row, opacity) {
    if (row.kind === "tasks") paintTasks(ctx, laneShape(lane, view, { byTask: true }), row, coloursOf(row.look), opacity);
    else if (row.kind === "part") this.part(ctx, view, lane, row, opacity);
    else this.steps(ctx, laneShape(lane, view), row, row.kind === "strip" ? lookOfStrip(opacity) : lookByKind(opacity));
  }

  /** What is selected, in the colours of the legend. */
  found(ctx, view, lane, row, { sumsOf, bandSumsOf }, opacity, outlined) {
    if (row.kind === "part") return this.part(ctx, view, lane, row, opacity, bandSumsOf);
    const shape = laneShape(lane, view, { sumsOf, phases: row.kind === "tasks" });
    if (row.kind === "tasks") return this.steps(ctx, shape, row, lookByPhase(coloursOf(row.look), opacity, outlined));
    return this.steps(ctx, shape, row, row.kind === "strip" ? lookOfStrip(opacity) : lookByKind(opacity, outlined));
  }

  part(ctx, view, lane, row, opacity, sumsOf = (list) => list.sums) {
    const band = this.bands.of(lane, row.level);
    if (band) paintBand(ctx, laneShape(band, view, { sumsOf, narrow: NARROW_PART }), this.bands, row, opacity);
  }

  /** Steps; below the operations that they are of, they are called by what they do. */
  steps(ctx, shape, row, look) {
    const { texts } = this;
    const ofStep = ({ step }, i) => ({ kind: step.kind[i], name: step.name[i], operation: step.operation[i] });
    const named = row.look === "parts" && row.kind === "steps" ? (step) => texts.workOf(step) : (step) => texts.nameOf(step);
    paintSteps(ctx, shape, row, look, (list, i) => named(ofStep(list, i)));
  }
}
