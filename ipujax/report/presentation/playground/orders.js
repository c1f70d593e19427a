// The order of tasks of each IPU, schedule by schedule: the functions of lowering/schedules in JavaScript.

import {chimera} from "./chimera.js";
import {dualpipe, dualpipeV} from "./dualpipe.js";
import {range} from "./numbers.js";
import {scheduleV} from "./vblocks.js";

const [F, B, W] = ["F", "B", "W"];

const task = (phase, stage, microBatch) => ({ phase, stage, microBatch });
const onePerIpu = (stages) => range(stages);
const dealtOut = (stages) => range(stages).map((stage) => stage % (stages / 2));

/** The path of a micro-batch: all stages forward, then back. */
const passesOf = (stages) => [
  ...range(stages).map((stage) => [F, stage]),
  ...range(stages).map((stage) => [B, stages - 1 - stage]),
];

/** The three schedules of the IPU: sets of micro-batches start at fixed ticks, a path's length apart. */
function pathsInTicks(stages, microBatches, starts) {
  const passes = passesOf(stages);
  const ticks = range(passes.length * (microBatches / starts.length + 1)).map(() => []);
  for (const number of range(microBatches)) {
    const start = Math.floor(number / starts.length) * passes.length + starts[number % starts.length];
    passes.forEach(([phase, stage], i) => ticks[start + i].push(task(phase, stage, number)));
  }
  return { ipus: onePerIpu(stages), ticks };
}

/** One stage of one micro-batch at a time. */
function sequential(stages, microBatches) {
  const passes = passesOf(stages);
  const ticks = range(microBatches).flatMap((number) => passes.map((pass) => [task(...pass, number)]));
  return { ipus: onePerIpu(stages), ticks };
}

/** Each stage on all micro-batches before the next stage of its IPU. */
function breadthFirst(stages, microBatches, ipus) {
  const orders = ordersOf(ipus, () => []);
  for (const [phase, stage] of passesOf(stages))
    orders[ipus[stage]].push(...range(microBatches).map((number) => task(phase, stage, number)));
  return { ipus, orders };
}

const ordersOf = (ipus, order) => range(Math.max(...ipus) + 1).map(order);

/** In turn a task of each phase, each some micro-batches behind the first. */
function staggered(stages, microBatches, lagsOf) {
  const order = (stage) => {
    const lags = Object.entries(lagsOf(stage));
    const rounds = range(microBatches + Math.max(...lags.map(([, lag]) => lag)));
    return rounds.flatMap((round) =>
      lags
        .filter(([, lag]) => round >= lag && round - lag < microBatches)
        .map(([phase, lag]) => task(phase, stage, round - lag)),
    );
  };
  return { ipus: onePerIpu(stages), orders: range(stages).map(order) };
}

/** Forward passes ahead of each stage's first backward pass, then one of each in turn. */
function withLeads(stages, microBatches, leadOf) {
  return staggered(stages, microBatches, (stage) => ({ F: 0, B: Math.min(microBatches, leadOf(stage)) }));
}

/** Each stage is `lead` forward passes ahead of the next; later ones postpone more gradients of weights. */
function splitWithLeads(stages, microBatches, lead) {
  return staggered(stages, microBatches, (stage) => {
    const ahead = Math.min(microBatches, lead * (stages - 1 - stage));
    return { F: 0, B: ahead, W: ahead + Math.min(microBatches, lead * stage) };
  });
}

/** The segments of each sequence forward in order, and backward in reverse. */
function inSegments(stages, microBatches, segments) {
  const order = (stage) => {
    const lead = Math.min(microBatches, stages - 1 - stage + segments - 1);
    const backward = (i) => task(B, stage, i - (i % segments) + segments - 1 - (i % segments));
    const rest = range(microBatches).flatMap((i) => [...(lead + i < microBatches ? [task(F, stage, lead + i)] : []), backward(i)]);
    return [...range(lead).map((number) => task(F, stage, number)), ...rest];
  };
  return { ipus: onePerIpu(stages), orders: range(stages).map(order) };
}

const oneFOneB = (stages, microBatches) => withLeads(stages, microBatches, (stage) => stages - 1 - stage);

/** Sets of as many micro-batches as IPUs pass one stage of each IPU, then the other; later IPUs postpone more W. */
function interleavedInSets(stages, microBatches, splits) {
  const ipus = dealtOut(stages);
  const period = stages / 2;
  const length = 2 * microBatches;
  const orders = ordersOf(ipus, (_, ipu) => {
    const lag = Math.min(length, 2 * (period - 1 - ipu) + stages - period);
    const lags = [[F, 0], [B, lag], ...(splits ? [[W, lag + Math.min(length - lag, ipu)]] : [])];
    const numbered = (phase, i) => {
      const inSet = i % stages;
      const turn = Math.floor(inSet / period);
      const stage = ipu + (phase === F ? turn : 1 - turn) * period;
      return task(phase, stage, Math.floor(i / stages) * period + (inSet % period));
    };
    return range(2 * length).flatMap((i) =>
      lags.filter(([, behind]) => i >= behind && i - behind < length).map(([phase, behind]) => numbered(phase, i - behind)));
  });
  return { ipus, orders };
}

/**
 * The schedules by their names. `title` is what people say; `order(stages, microBatches)` gives `{ipus: the IPU of each
 * stage, orders: of each IPU}`, or `ticks` in place of orders: lists of tasks. `splits` says that W are tasks of their own,
 * `perIpu` how many stages an IPU has; the number of micro-batches is a multiple of `setOf(stages)`. `bubble` is
 * the time that an IPU at most idles between its first and last task: the closed form for p IPUs, m >= p micro-batches,
 * equal stages without transfers, and F, B and W as long as an IPU works on a micro-batch in each; `holds` is when.
 */
export const SCHEDULES = {
  grouped: {
    title: "Grouped",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W),
    setOf: (stages) => 2 * stages,
    order: (stages, microBatches) => pathsInTicks(stages, microBatches, range(2 * stages)),
  },
  interleaved: {
    title: "Interleaved",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W),
    setOf: (stages) => stages,
    order: (stages, microBatches) => pathsInTicks(stages, microBatches, range(stages).map((i) => 2 * i)),
  },
  sequential: {
    title: "Sequential",
    bubble: ({ p, m, F, B, W }) => (p - 1) * m * (F + B + W),
    order: sequential,
  },
  gpipe: {
    title: "GPipe",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W),
    order: (stages, microBatches) => breadthFirst(stages, microBatches, onePerIpu(stages)),
  },
  one_f_one_b: {
    title: "1F1B",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W),
    order: oneFOneB,
  },
  eager_one_f_one_b: {
    title: "Eager 1F1B",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W),
    order: (stages, microBatches) => withLeads(stages, microBatches, (stage) => 2 * (stages - 1 - stage)),
  },
  seq_one_f_one_b: {
    title: "Seq1F1B",
    setOf: () => 2,
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W),
    order: (stages, microBatches) => inSegments(stages, microBatches, 2),
  },
  interleaved_one_f_one_b: {
    title: "Interleaved 1F1B",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W) / 2,
    perIpu: 2,
    setOf: (stages) => stages / 2,
    order: (stages, microBatches) => interleavedInSets(stages, microBatches, false),
  },
  looped_bfs: {
    title: "Looped BFS",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B + W) / 2,
    perIpu: 2,
    order: (stages, microBatches) => breadthFirst(stages, microBatches, dealtOut(stages)),
  },
  zero_bubble: {
    title: "Zero bubble",
    splits: true,
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B - W),
    holds: ({ F, W }) => W <= F,
    order: (stages, microBatches) => splitWithLeads(stages, microBatches, 1),
  },
  zero_bubble_h1: {
    title: "ZB-H1",
    splits: true,
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B - W),
    holds: ({ F, W }) => W <= F,
    order: (stages, microBatches) => splitWithLeads(stages, microBatches, 1),
  },
  zero_bubble_h2: {
    title: "ZB-H2",
    splits: true,
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B - 2 * W),
    holds: ({ p, m, F, B, W }) => m >= 2 * p - 1 && 2 * W <= F + B && W <= F,
    order: (stages, microBatches) => splitWithLeads(stages, microBatches, microBatches >= 2 * stages - 1 ? 2 : 1),
  },
  interleaved_zero_bubble: {
    title: "Interleaved ZB",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B - W) / 2,
    holds: ({ F, W }) => W <= F,
    perIpu: 2,
    splits: true,
    setOf: (stages) => stages / 2,
    order: (stages, microBatches) => interleavedInSets(stages, microBatches, true),
  },
  zbv: {
    title: "ZBV",
    perIpu: 2,
    splits: true,
    placement: "v",
    order: (stages, microBatches) => scheduleV(stages, microBatches, stages / 2),
  },
  v_half: {
    title: "V-Half",
    perIpu: 2,
    splits: true,
    placement: "v",
    order: (stages, microBatches) => scheduleV(stages, microBatches, Math.floor((stages / 2 + 2) / 2)),
  },
  v_min: {
    title: "V-Min",
    perIpu: 2,
    splits: true,
    placement: "v",
    order: (stages, microBatches) => scheduleV(stages, microBatches, Math.floor((stages / 2 + 4) / 3)),
  },
  dualpipe_v: {
    title: "DualPipeV",
    perIpu: 2,
    splits: true,
    placement: "v",
    bubble: ({ p, F, B, W }) => (p - 1) * (F + B - W) / 2,
    holds: ({ p, m, F, B, W }) => m >= 2 * p && F === B && W <= F,
    order: dualpipeV,
  },
  chimera: {
    title: "Chimera",
    placement: "both ways",
    bubble: ({ p, F, B, W }) => (p / 2 - 1) * (F + B + W),
    holds: ({ p, m, F, B, W }) => p % 2 === 0 && m % p === 0 && F === B + W,
    order: (stages, microBatches) => chimera(stages, microBatches, oneFOneB),
  },
  dualpipe: {
    title: "DualPipe",
    placement: "both ways",
    splits: true,
    bubble: ({ p, F, B, W }) => (p / 2 - 1) * (F + B - W),
    holds: ({ p, m, F, B, W }) => p % 2 === 0 && m % 2 === 0 && m >= 2 * p && F === B && W <= F,
    order: (stages, microBatches) => dualpipe(stages, microBatches, (...sizes) => splitWithLeads(...sizes, 1)),
  },
};
