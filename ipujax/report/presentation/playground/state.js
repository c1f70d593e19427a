// What one plays with, and its place in the address: `#stages=4&microBatches=8&schedules=gpipe,one_f_one_b`.

export const SLIDERS = [
  { name: "stages", title: "Stages", least: 1, most: 16, step: 1, about: "one on each IPU; schedules with two stages on an IPU cut each in half" },
  { name: "microBatches", title: "Micro-batches", least: 1, most: 64, step: 1, about: "parts of a batch that pass the stages one after the other" },
  { name: "forward", title: "F forward", phase: "fwd", least: 0, most: 4, step: 0.25, about: "time of a stage's forward pass" },
  { name: "backward", title: "B inputs", phase: "bwd", least: 0, most: 4, step: 0.25, about: "time for the gradient of a stage's inputs" },
  { name: "weight", title: "W weights", phase: "wgt", least: 0, most: 4, step: 0.25, about: "time for the gradient of a stage's weights: part of B where a schedule does not split it off" },
  { name: "transfer", title: "Transfer", least: 0, most: 4, step: 0.25, about: "time on the way to another IPU, which works meanwhile" },
  { name: "memory", title: "Memory", least: 0, most: 32, step: 1, about: "micro-batches that fit on an IPU" },
];

const FIRST = {
  ...{ stages: 4, microBatches: 8, forward: 1, backward: 1, weight: 1, transfer: 0, memory: 0 },
  schedules: ["gpipe", "one_f_one_b", "zero_bubble_h1"],
  own: false,
};

/** The state that an address asks for, over what the page begins with; what it does not say, or says wrongly, stays. */
export function stateOf(hash, start, names) {
  const asked = new URLSearchParams(hash.replace(/^#/, ""));
  const state = { ...FIRST, ...start };
  for (const { name, least, most } of SLIDERS) {
    const value = Number(asked.get(name) ?? Number.NaN);
    if (Number.isFinite(value)) state[name] = Math.min(Math.max(value, least), Math.max(most, start[name] ?? 0));
  }
  for (const name of ["stages", "microBatches", "memory"]) state[name] = Math.round(state[name]);
  if (asked.has("schedules")) state.schedules = asked.get("schedules").split(",");
  state.schedules = [...new Set(state.schedules)].filter((name) => names.includes(name));
  if (asked.has("times")) state.own = asked.get("times") === "own";
  return state;
}

/** The address of a state. */
export function hashOf(state) {
  const parts = SLIDERS.map(({ name }) => `${name}=${state[name]}`);
  return `#${parts.join("&")}&times=${state.own ? "own" : "equal"}&schedules=${state.schedules.join(",")}`;
}

/**
 * Settings of the simulator, with `unit`, what times are called. Where an IPU has several stages, each is a part of one
 * of the state's. Of a model's own times the sliders say how often they are taken, and transfers are in its mean F.
 */
export function settingsOf(state, schedule, { perIpu = 1, splits = false }, model) {
  const stages = state.stages * perIpu;
  const own = state.own ? model : null;
  const row = (name) => inParts(own ? own[name].map((time) => time * state[name]) : Array(state.stages).fill(state[name]), stages);
  const [forward, inputs, weight] = [row("forward"), row("backward"), row("weight")];
  const backward = splits ? inputs : inputs.map((time, stage) => time + weight[stage]);
  const transfer = Array(stages - 1).fill(state.transfer * (own ? meanOf(own.forward) : 1));
  return { schedule, stages, microBatches: state.microBatches, forward, backward, weight, transfer, unit: own?.unit ?? "time" };
}

/** Times of the same work in more or fewer stages. */
function inParts(times, count) {
  if (count >= times.length) return times.flatMap((time) => Array(count / times.length).fill((time * times.length) / count));
  const size = times.length / count;
  return Array.from({ length: count }, (_, i) => times.slice(i * size, (i + 1) * size).reduce((sum, time) => sum + time, 0));
}

const meanOf = (times) => times.reduce((sum, time) => sum + time, 0) / times.length;
