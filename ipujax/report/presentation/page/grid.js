// The grid of a pipeline: what each IPU does in each tick, and how much of a range of ticks each phase fills.

import {fromRepeats, fromRuns} from "./document.js";

export const GRID_PHASES = ["fwd", "bwd", "wgt", "recompute", "offload", "load"];

/** `{ipus, ticks, tickCycles, tasks, slots, cellsAt(ipu, tick), filled(ipu, phase, from, to)}` of a report's pipeline. */
export class PipelineGrid {
  constructor(report) {
    const { pipeline } = report;
    this.ipus = report.num_ipus;
    this.ticks = pipeline.ticks;
    this.tickCycles = fromRepeats(pipeline.tick_cycles);
    this.stageCycles = new Map(pipeline.stage_cycles.map((own) => [`${own.stage} ${own.phase}`, own.cycles]));
    this.tasks = pipeline.tasks;
    this.rows = Array.from({ length: this.ipus }, () => Array.from({ length: this.ticks }, () => null));
    pipeline.tasks.forEach((task, i) => this.place(task, i, pipeline.stage_ipus[task.stage]));
    this.slots = this.rows.map(slotsOf);
    this.sums = this.rows.map((row, ipu) => this.sumsOf(row, ipu));
  }

  /** Cells hold lists: stages that share an IPU may share a tick. */
  place(task, number, ipus) {
    const ticks = fromRuns(task.ticks);
    const microBatches = fromRuns(task.micro_batches);
    for (const ipu of ipus) {
      ticks.forEach((tick, i) => {
        const cell = { task: number, stage: task.stage, phase: task.phase, microBatch: microBatches[i] };
        const row = this.rows[ipu];
        if (row[tick]) row[tick].push(cell);
        else row[tick] = [cell];
      });
    }
  }

  /** For each phase, how much of the cells before each tick tasks of it fill. */
  sumsOf(row, ipu) {
    return GRID_PHASES.map((phase) => {
      const sums = new Float64Array(row.length + 1);
      row.forEach((cells, tick) => {
        let own = 0;
        cells?.forEach((cell) => {
          own += cell.phase === phase ? 1 : 0;
        });
        sums[tick + 1] = sums[tick] + own / this.slots[ipu];
      });
      return sums;
    });
  }

  /** The tasks of a cell: a list of `{task, stage, phase, microBatch, slot}`, or null. */
  cellsAt(ipu, tick) {
    return this.rows[ipu]?.[tick] ?? null;
  }

  /** The share of an IPU's cells of a phase in a range of ticks. */
  filled(ipu, phase, from, to) {
    const sums = this.sums[ipu][phase];
    return (sums[to] - sums[from]) / Math.max(to - from, 1);
  }

  /** Cycles of one task of a stage and phase, or null. */
  cyclesOf(stage, phase) {
    return this.stageCycles.get(`${stage} ${phase}`) ?? null;
  }
}

/**
 * Into how many slots the cells of a row are divided: as many as tasks share one tick. Each task is told its
 * slot; where there are no more tasks of a row than slots, a task has the same slot in all ticks.
 */
function slotsOf(row) {
  const most = row.reduce((largest, cells) => Math.max(largest, cells?.length ?? 0), 1);
  const known = new Set();
  for (const cells of row) cells?.forEach((cell) => known.add(cell.task));
  const tasks = [...known].sort((a, b) => a - b);
  for (const cells of row) {
    cells?.forEach((cell, i) => {
      cell.slot = tasks.length <= most ? tasks.indexOf(cell.task) : i;
    });
  }
  return most;
}
