// What can be known of a schedule without a formula: how long IPUs idle, and below which time no order can come.

/** For each IPU, from its first task to its last, the time without work; the longest is what papers call the bubble. */
export function longestBubble(tasks) {
  const ipus = new Map();
  for (const { ipu, start, end } of tasks) {
    const own = ipus.get(ipu) ?? { first: start, last: end, work: 0 };
    ipus.set(ipu, { first: Math.min(own.first, start), last: Math.max(own.last, end), work: own.work + end - start });
  }
  return Math.max(...[...ipus.values()].map(({ first, last, work }) => last - first - work));
}

/**
 * A time below which no order of these tasks on these IPUs ends. Before an IPU has work, a micro-batch passes the stages
 * before; after its last backward task, one passes them back, while at most the IPU's gradients of weights are left.
 * Where an IPU can hold `limit` stages of micro-batches, the times for which it holds them all must find room, too.
 * Where tasks have other `needs` than the usual ones, it is the most work of an IPU.
 */
export function lowerBound({ tasks, needs }, { forward, backward, weight, transfer }, splits, limit = Infinity) {
  if (Object.keys(needs).length) return mostWork(tasks);
  const place = (stage, microBatch) => microBatch * forward.length + stage;
  const placed = new Map(tasks.map(({ stage, ipu, microBatch }) => [place(stage, microBatch), ipu]));
  const passing = (row, stage, microBatch) => {
    let time = 0;
    for (let from = 0; from < stage; from++) {
      const moves = placed.get(place(from, microBatch)) !== placed.get(place(from + 1, microBatch));
      time += row[from] + (moves ? transfer[from] : 0);
    }
    return time;
  };
  const last = forward.length - 1;
  const held = (stage, microBatch) =>
    [forward, backward].reduce((sum, row) => sum + passing(row, last, microBatch) + row[last] - passing(row, stage, microBatch), 0) +
    (splits ? weight[stage] : 0);
  const passingBack = (stage, microBatch) => passing(backward, stage, microBatch) + (splits && stage ? weight[0] : 0);
  const ipus = new Map();
  for (const { ipu, stage, microBatch, phase, start, end } of tasks) {
    const own = ipus.get(ipu) ?? { head: Infinity, work: 0, late: 0, tail: Infinity, held: 0 };
    if (phase === "F") {
      own.head = Math.min(own.head, passing(forward, stage, microBatch));
      own.held += held(stage, microBatch);
    }
    if (phase === "B") own.tail = Math.min(own.tail, passingBack(stage, microBatch));
    own[phase === "W" ? "late" : "work"] += end - start;
    ipus.set(ipu, own);
  }
  const path = passing(forward, last, 0) + forward[last] + backward[last] + passingBack(last, 0);
  const bounds = [...ipus.values()].map(({ head, work, late, tail, held: room }) =>
    Math.max(head + work + Math.max(late, tail), head + room / limit + (splits ? 0 : tail)));
  return Math.max(path, ...bounds);
}

function mostWork(tasks) {
  const work = new Map();
  for (const { ipu, start, end } of tasks) work.set(ipu, (work.get(ipu) ?? 0) + end - start);
  return Math.max(...work.values());
}

/** How many results go from one IPU to another for each micro-batch. */
export function transfersPerMicroBatch(tasks, microBatches) {
  return tasks.filter(({ input }) => input !== null).length / microBatches;
}

/** The memory of each IPU over time: steps `[time, stages of micro-batches held]`. */
export function memoryOverTime(tasks, ipus, splits) {
  const steps = Array.from({ length: ipus }, () => [[0, 0]]);
  const last = splits ? "W" : "B";
  const stagesWith = (letter) => new Set(tasks.filter(({ phase }) => phase === letter).map(({ stage }) => stage));
  const [recomputed, offloaded] = [stagesWith("R"), stagesWith("O")];
  const pauseOf = (stage) => (recomputed.has(stage) ? "FR" : offloaded.has(stage) ? "OL" : "");
  const events = tasks.flatMap(({ ipu, stage, phase, start, end }) => [
    ...(phase === "F" || phase === pauseOf(stage)[1] ? [{ ipu, time: start, change: 1 }] : []),
    ...(phase === last || phase === pauseOf(stage)[0] ? [{ ipu, time: end, change: -1 }] : []),
  ]);
  events.sort((a, b) => a.time - b.time || a.change - b.change);
  for (const { ipu, time, change } of events) {
    const [before, held] = steps[ipu].at(-1);
    if (time === before) steps[ipu].pop();
    steps[ipu].push([time, held + change]);
  }
  return steps;
}
