// What is known of a schedule beforehand: the closed form of its bubble, and the shortest time of all orders.

import {OPTIMA} from "./optima.js";

/** `{value, text}` for the page's settings; null where there is none, or where it does not hold. */
export function formulaOf({ bubble, holds = () => true }, state) {
  const numbers = { p: state.stages, m: state.microBatches, F: state.forward, B: state.backward, W: state.weight };
  const isEqual = !state.own && state.transfer === 0;
  if (!bubble || !isEqual || numbers.m < numbers.p || !holds(numbers)) return null;
  return { value: bubble(numbers), text: textOf(bubble) };
}

/** `({ p, F }) => (p - 1) * F` as (p − 1) F. */
function textOf(bubble) {
  return String(bubble).split("=>")[1].trim().replaceAll(" * ", " ").replaceAll("-", "−");
}

/**
 * `{memory, time}`: the shortest time of all orders of a schedule's tasks on its IPUs, each with memory for so many
 * micro-batches; null where that has not been proven.
 */
export function optimumOf({ perIpu = 1, placement = perIpu === 1 ? "straight" : "", splits = false, cases }, state, memory) {
  const { stages: p, microBatches: m, forward: F, backward: B, weight: W } = state;
  const isEqual = !state.own && state.transfer === 0 && F === B && F === W;
  const row = OPTIMA[`${placement}${splits ? "Split" : ""} ${p} ${memory}`];
  if (!isEqual || cases || !row?.[m - 1]) return null;
  return { memory, time: (F * row[m - 1]) / perIpu };
}
