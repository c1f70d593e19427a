// What of the lanes belongs to a selection: its steps, and the parts of the model that they are in.

import {Bands} from "./bands.js";
import {cycles} from "./format.js";
import {operationItem, operationOf} from "./items.js";
import {friendlyName} from "./names.js";
import {exactly, linkable, linked, primitivesOf} from "./store.js";
import {LANE_KINDS, LANE_PHASES} from "./trace.js";

/** What belongs to a selection, `linked`, and of that the very thing that is selected, `exact`: each may be null. */
export class ChosenSteps {
  constructor(trace, bands, selection) {
    this.trace = trace;
    this.bands = bands;
    this.selection = selection;
    this.asked = linkable(selection);
    this.linked = this.asked ? this.found((item) => linked(selection, item), () => true) : null;
    this.exact = this.linked && this.found((item) => exactly(selection, item), (ipu) => this.onChosen(ipu));
  }

  /** `{total (cycles), sumsOf(list), bandSumsOf(band)}` of steps for which a test of what they are holds, or null. */
  found(test, counts) {
    const sums = this.trace.sumsWhere(test);
    const total = this.trace.lanes.reduce(
      (sum, lane, ipu) => sum + (lane && counts(ipu) ? kindTotal(sums.get(lane)) : 0), 0);
    if (!total) return null;
    const parts = this.bands.partsWhere((number) => test(operationItem(this.trace.report, number)));
    const known = new Map();
    const bandSumsOf = (band) => Bands.sumsOf(band, parts, known).get(band);
    return { total, sumsOf: (list) => sums.get(list), bandSumsOf };
  }

  onChosen(ipu) {
    const chosen = this.selection.ipu;
    return chosen === null || chosen === ipu;
  }

  /** What the very thing that is selected does on an IPU, or else what its line does; or null. */
  strongest(ipu) {
    return this.exact && !this.onChosen(ipu) ? null : this.exact ?? this.linked;
  }

  /** What is said of it below the lanes; "" where nothing was asked for. */
  said() {
    const { name, origin, operation } = this.selection;
    if (!this.asked) return "";
    if (!this.linked) return "No step belongs to what is selected.";
    const [total, own] = [this.linked.total, this.exact?.total];
    if (!own || own === total) return `What is selected takes ${cycles(total)} cycles, all IPUs together.`;
    const all = `${origin ? "its line" : "what is like it"} ${cycles(total)}, all IPUs together`;
    const known = operationOf(this.trace.report, operation ?? -1);
    const shapeless = !known && name.includes("[");
    const told = shapeless ? `Steps of ${primitivesOf(name)}, whatever its shape, take` : `${known ? friendlyName(known) : name} takes`;
    return `${told} ${cycles(own)} cycles (outlined), ${all}.`;
  }
}

function kindTotal(sums) {
  const channels = LANE_KINDS.length + LANE_PHASES.length;
  return sums.subarray(sums.length - channels, sums.length - LANE_PHASES.length).reduce((sum, part) => sum + part, 0);
}
