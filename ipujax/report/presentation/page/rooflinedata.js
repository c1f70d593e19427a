// Operations below the roofs of a chip: what the report has of them, and the part of the model that colours each.

import {PART_TINTS, partTint} from "./palette.js";
import {placesOf, structuresOf} from "./structure.js";

/** The memories that bytes pass: `[resource, what FLOPs are told per, what moves there]`. */
const ROOFLINE_MEMORIES = [
  ["tile_memory", "byte on tiles", "read and written on tiles"],
  ["exchange", "byte exchanged", "exchanged between tiles"],
  ["streaming_memory", "byte streamed", "streamed"],
];

/** The roofs of a report, and its operations with floating-point operations as points below them. */
export class RooflineData {
  constructor(report) {
    const { roofs, points } = report.roofline;
    this.roofs = new Map(roofs.map((roof) => [roof.name, roof]));
    const computing = report.operations.filter(({ flops, cycles }) => flops && cycles); // in the order of the points
    this.points = computing.map((operation, i) => ({
      operation,
      attained: points.flops_per_second[i],
      roof: points.roof[i],
      units: this.roofs.get(points.units[i]),
      bound: this.roofs.get(points.bound[i]),
      bytes: { tile_memory: operation.bytes, exchange: points.exchange_bytes[i], streaming_memory: operation.remote_bytes },
    }));
    this.memories = ROOFLINE_MEMORIES.filter(([name]) => this.points.some(({ bytes }) => bytes[name] > 0));
    this.tintParts(report);
  }

  /** The roofs of units that some operation uses, the highest first. */
  usedUnits() {
    const used = new Set(this.points.map(({ units }) => units));
    return [...this.roofs.values()].filter((roof) => used.has(roof));
  }

  /** The points that pass some bytes of a memory, on one IPU or on all (-1). */
  shown(memory, ipu) {
    return this.points.filter(({ operation, bytes }) => bytes[memory] > 0 && (ipu < 0 || operation.ipu === ipu));
  }

  /** Gives points the part of the model that tells them apart first, and the parts their tints, as the timeline does. */
  tintParts(report) {
    const [structure] = structuresOf(report);
    const pathOf = (operation) => (structure ? placesOf(report, operation, structure).map(({ name }) => name) : []);
    const paths = this.points.map(({ operation }) => pathOf(operation));
    const deepest = paths.reduce((most, path) => Math.max(most, path.length), 0);
    let level = 0;
    while (level < deepest && new Set(paths.map((path) => path[level])).size < 2) level++;
    const names = new Set(report.operations.map((operation) => pathOf(operation)[level]).filter(Boolean));
    const tints = new Map([...names].map((name, number) => [name, partTint(number)]));
    this.points.forEach((point, i) => {
      point.part = paths[i][level] ?? "";
      point.colour = tints.get(point.part) ?? "part-many";
    });
    const shown = new Set(this.points.map(({ part }) => part));
    const used = [...tints].filter(([name]) => shown.has(name));
    this.parts = used.slice(0, PART_TINTS);
    this.moreParts = used.length - this.parts.length;
  }
}

/** FLOPs per byte of a memory; null without bytes. */
export function intensity({ operation, bytes }, memory) {
  return bytes[memory] > 0 ? operation.flops / bytes[memory] : null;
}
