// The closed form of a schedule's bubble, as a number and as a text.

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
