// The loop that a program spends its time in, and the controls that show one of its iterations after the other.

import {pushButton} from "./controls.js";
import {cycles, element, exact} from "./format.js";

const MAIN_LOOP_SHARE = 0.75; // of an IPU's time that the loop takes; what takes less is a part of a step
const LEAST_STEP_WIDTH = 8; // pixels
const SHOWN_SHARE = 0.01; // of an iteration that counts as shown

/** The outermost loop in which IPUs spend most of their time: `{start, period, count}`; null if there is none. */
export function mainLoop(lanes) {
  const found = lanes.filter(Boolean).map((lane) => loopIn(lane, 0, lane.span * MAIN_LOOP_SHARE));
  return found.filter(Boolean).reduce((best, loop) => (best && best.period >= loop.period ? best : loop), null);
}

function loopIn(list, offset, least) {
  const item = list.items?.find(({ span }) => span >= least);
  if (!item) return null;
  const start = offset + item.start;
  return item.count > 1 ? { start, period: item.period, count: item.count } : loopIn(item.list, start, least);
}

/** Buttons for the iterations of a loop; `choose(number)` is called with that of one, from 1 on, or null for all. */
export class IterationControls {
  constructor({ start, period, count }, choose) {
    Object.assign(this, { start, period, count, choose });
    this.first = 0; // of the iterations that are shown, and what lies behind the last one
    this.behind = count;
    this.previous = pushButton("◀", "The previous step of the loop ([)", () => this.go(-1));
    this.next = pushButton("▶", "The next step of the loop (])", () => this.go(1));
    this.text = element("span", { class: "iteration", role: "status" });
    const all = pushButton("All steps", "The whole call (0)", () => choose(null));
    this.element = element("div", { class: "controls iterations" }, this.previous, this.text, this.next, all);
  }

  /** The range of an iteration, or of the nearest one that there is. */
  rangeOf(number) {
    const from = this.start + (Math.min(Math.max(number, 1), this.count) - 1) * this.period;
    return [from, from + this.period];
  }

  /** Says which iterations a range of time is of. */
  show(lo, hi) {
    const slack = this.period * SHOWN_SHARE;
    this.first = Math.max(Math.floor((lo + slack - this.start) / this.period), 0);
    this.behind = Math.min(Math.max(Math.ceil((hi - slack - this.start) / this.period), this.first + 1), this.count);
    const isOne = this.behind === this.first + 1;
    const numbers = isOne ? exact(this.behind) : `${exact(this.first + 1)} to ${exact(this.behind)}`;
    this.text.textContent = `${isOne ? "step" : "steps"} ${numbers} of ${exact(this.count)}`;
    this.previous.disabled = this.first === 0;
    this.next.disabled = this.behind === this.count;
  }

  /** Whether iterations are too narrow for anything in them to be read. */
  isCrowded(view) {
    return view.toX(this.period) - view.toX(0) < LEAST_STEP_WIDTH;
  }

  /** What all iterations are, in words. */
  get inWords() {
    return `${exact(this.count)} steps of ${cycles(this.period)} cycles`;
  }

  /** Goes to the iteration before those that are shown, or to the one behind them. */
  go(steps) {
    const number = steps < 0 ? this.first : this.behind + 1;
    if (number >= 1 && number <= this.count) this.choose(number);
  }
}
