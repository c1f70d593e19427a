// What goes on in a range of time, measured: how long it is, and what IPUs do in it.

import {cycles, element, exact, percent, seconds} from "./format.js";
import {inWords} from "./parts.js";
import {addBetween, firstAfter, firstFrom, LANE_CHANNELS, LANE_KINDS} from "./trace.js";

/** The cycles of a lane between two times by kind of step, and by phase: an array by channel. */
function cyclesBetween(lane, from, to) {
  const sums = new Float64Array(LANE_CHANNELS);
  addUntil(lane, to, 1, sums);
  addUntil(lane, from, -1, sums);
  return sums;
}

/** Adds what a list does before a time, `times` times. */
function addUntil(list, time, times, into) {
  const ended = firstAfter(list, time);
  const begun = firstFrom(list, time);
  addBetween(list.sums, 0, ended, times, into, 0);
  for (let i = ended; i < begun; i++) {
    const item = list.items?.[i];
    const since = time - list.start[i];
    if (since >= list.spans[i]) addBetween(list.sums, i, i + 1, times, into, 0);
    else if (item) addRunsUntil(item, since, times, into);
    else into[list.step.kind[i]] += times * since;
  }
}

function addRunsUntil({ list, count, period }, time, times, into) {
  if (count === 1) return addUntil(list, time, times, into);
  const ended = Math.min(Math.max(Math.floor((time - list.span) / period) + 1, 0), count);
  const begun = Math.min(Math.ceil(time / period), count);
  addBetween(list.sums, 0, list.start.length, times * ended, into, 0);
  for (let run = ended; run < begun; run++) addUntil(list, time - run * period, times, into);
  return undefined;
}

/** How long a range is, in words. */
export function lengthText({ from, to }, hertz) {
  return `${cycles(to - from)} cycles, ${seconds((to - from) / hertz)}`;
}

/** What is said of a range `{from, to}` of a trace; `actions` are buttons. */
export function measuredElement(trace, range, hertz, ...actions) {
  const length = range.to - range.from;
  const whole = length * trace.lanes.length;
  const totals = LANE_KINDS.map(() => 0);
  for (const lane of trace.lanes) {
    const own = lane && cyclesBetween(lane, range.from, range.to);
    if (own) LANE_KINDS.forEach((_, kind) => { totals[kind] += own[kind]; });
  }
  const parts = LANE_KINDS.map((kind, i) => ({ kind, total: totals[i] })).filter(({ total }) => total > 0);
  const waiting = whole - totals.reduce((sum, total) => sum + total, 0);
  if (waiting > 0) parts.push({ kind: "waiting", total: waiting });
  const colour = (kind) => ({ background: `var(--kind-${kind})` });
  return element("div", { class: "measured", "data-measured": true, role: "status" },
    element("div", { class: "controls" },
      element("strong", { text: lengthText(range, hertz) }),
      element("span", { class: "faint", text: `from cycle ${exact(range.from)}, ${seconds(range.from / hertz)}` }),
      ...actions),
    element("div", { class: "tile-bar" }, parts.map(({ kind, total }) =>
      element("span", { style: { ...colour(kind), width: `${(100 * total) / whole}%` } }))),
    element("div", { class: "legend" }, parts.map(({ kind, total }) =>
      element("span", { "data-kind": kind }, element("span", { class: "swatch", style: colour(kind) }),
        `${inWords(kind)} ${cycles(total)}, ${percent(total / whole)}`))),
    element("p", { class: "faint", text: trace.lanes.length > 1 ? "Cycles of all IPUs together." : null }));
}
