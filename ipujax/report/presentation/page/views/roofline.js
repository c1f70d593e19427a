// The roofline: what operations attain of the chip's peaks, by the FLOPs that they do with each byte.

import {Chart} from "../chart.js";
import {nameColumn, numberColumn} from "../columns.js";
import {choice, ipuChoice} from "../controls.js";
import {cycles, element, percent, rate, threeDigits} from "../format.js";
import {rowItem} from "../items.js";
import {friendlyName} from "../names.js";
import {operationDetail, operationFacts} from "../operationdetail.js";
import {legend, panel} from "../parts.js";
import {passChip} from "../passchip.js";
import {intensity, RooflineData} from "../rooflinedata.js";
import {paintRoofline, ROOFLINE_BELOW, ROOFLINE_LEFT, RooflineScale} from "../rooflinedraw.js";
import {exactly, linkable, linked, relinked} from "../store.js";
import {sortableTable} from "../table.js";

const ROOFLINE_HEIGHT = 420 + ROOFLINE_BELOW;
const ROOFLINE_NOTE = "A dot is an operation on one IPU, larger the more cycles it takes. No dot can be above the line of the memory or "
  + "above that of its units; how far it is below tells what is left. Both scales are logarithmic.";

/** The roofline of a report, linked with what is selected elsewhere. */
export function rooflineView(root, report, store) {
  new RooflineView(root, report, store);
}

class RooflineView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.data = new RooflineData(report);
    [[this.memory]] = this.data.memories;
    this.ipu = -1;
    const memories = this.data.memories.map(([name]) => [name, this.data.roofs.get(name).title]);
    const memory = choice("Bytes of", memories, this.memory, (chosen) => { this.memory = chosen; this.arrange(); });
    const ipu = ipuChoice(report, this.ipu, (chosen) => { this.ipu = chosen; this.arrange(); });
    this.place = element("div");
    this.details = element("div", { class: "tree-details" });
    root.append(panel("Roofline", [memory.root, ipu.root],
      element("p", { class: "soft table-note", text: ROOFLINE_NOTE }), this.place, this.partLegend(), this.details));
    this.arrange();
    this.tables(root);
    store.subscribe((_, changed) => this.selected(changed));
  }

  partLegend() {
    const { parts, moreParts } = this.data;
    if (!parts.length) return null;
    const repeated = moreParts ? element("span", { class: "soft", text: `${moreParts} more have these colours again` }) : null;
    return element("div", { class: "controls" }, legend(parts), repeated);
  }

  /** Builds the chart anew for a memory and an IPU. */
  arrange() {
    this.chart?.remove();
    this.points = this.data.shown(this.memory, this.ipu);
    this.scale = new RooflineScale(this.data, this.memory, this.points, ROOFLINE_HEIGHT);
    const [, perByte] = this.data.memories.find(([name]) => name === this.memory);
    this.chart = new Chart(this.place, {
      name: "roofline",
      label: `Operations by FLOPs per ${perByte} and FLOP/s. The table below says the same.`,
      height: ROOFLINE_HEIGHT,
      left: ROOFLINE_LEFT,
      right: 8,
      least: 0.5,
      domain: this.scale.domain,
      draw: (ctx, view) => paintRoofline(ctx, view, this.scale, this.points, (point) => this.tone(point), perByte),
      hover: (x, y, view) => this.hint(this.scale.pointAt(this.points, x, y, view)),
      click: (x, y, view) => this.choose(this.scale.pointAt(this.points, x, y, view)),
    });
    this.chart.draw();
  }

  hint(point) {
    if (!point) return null;
    const { operation } = point;
    return [
      friendlyName(operation),
      [`IPU ${operation.ipu}`, operation.direction, point.part && `in ${point.part}`].filter(Boolean).join(", "),
      `${rate(point.attained, "FLOP/s")}, ${this.ofRoof(point)}`,
      ...this.data.memories.filter(([name]) => point.bytes[name] > 0).map(([name, perByte]) =>
        `${threeDigits(intensity(point, name))} FLOPs per ${perByte}`),
      `${cycles(operation.cycles)} cycles, ${percent(operation.cycles / this.report.cycles)} of the call`,
    ];
  }

  ofRoof({ attained, roof, bound }) {
    return `${percent(attained / roof)} of its lowest roof, ${bound.title}`;
  }

  choose(point) {
    if (!point) return;
    const { operation } = point;
    this.describe(point);
    this.own = true;
    this.store.pick(rowItem(this.report, operation), { ipu: operation.ipu });
    this.own = false;
  }

  describe(point) {
    const facts = [...operationFacts(this.report, point.operation), `${rate(point.attained, "FLOP/s")}, ${this.ofRoof(point)}`];
    this.details.replaceChildren(...operationDetail(this.report, this.store, point.operation, facts));
  }

  isLinked({ operation }) {
    return linked(this.store.selection, rowItem(this.report, operation));
  }

  isExact({ operation }) {
    return exactly(this.store.selection, { ...rowItem(this.report, operation), ipu: operation.ipu });
  }

  tone(point) {
    if (!linkable(this.store.selection)) return "";
    if (this.isExact(point)) return "exact";
    return this.isLinked(point) ? "linked" : "other";
  }

  tables(root) {
    const operations = element("div");
    const peaks = element("div");
    root.append(panel("Operations below their roofs", [], operations), panel("Peaks of one IPU", [], peaks));
    const columns = this.columns();
    this.table = sortableTable(operations, columns, this.data.points, {
      name: "roofline",
      sort: -1 - columns.findIndex(({ title }) => title === "cycles"),
      placeholder: "Filter operations",
      empty: "No operations.",
      onclick: (point) => this.choose(point),
      isSelected: (point) => this.isLinked(point),
      isExact: (point) => this.isExact(point),
    });
    sortableTable(peaks, PEAK_COLUMNS, [...this.data.roofs.values()], { name: "roofs", filter: false });
  }

  columns() {
    const { operations } = this.report;
    const own = (value) => ({ operation }) => value(operation);
    const name = { ...nameColumn("operation"), value: own(friendlyName), hint: own(({ name: primitive }) => primitive),
      search: own(({ name: primitive, scope }) => `${primitive} ${scope ?? ""}`) };
    const pass = { title: "pass", value: own(({ direction }) => direction ?? ""), text: () => "", search: own(({ direction }) => direction ?? ""),
      chip: own(({ direction }) => passChip(direction)), width: 11 };
    const most = operations.reduce((top, operation) => Math.max(top, operation.cycles), 1);
    const memories = this.data.memories.map(([memory, perByte, moves]) => ({
      ...numberColumn(`per ${perByte}`, (point) => intensity(point, memory), threeDigits, 20), about: `FLOPs for each byte that is ${moves}.` }));
    return [
      ...(operations.some(({ direction }) => direction) ? [name, pass] : [name]),
      { ...numberColumn("cycles", own((operation) => operation.cycles), cycles, 10), bar: own((operation) => operation.cycles / most),
        about: "Cycles of all its runs in a call." },
      { ...numberColumn("FLOPs", own(({ flops }) => flops), cycles, 8), about: "Of all runs." },
      { ...numberColumn("attained", ({ attained }) => attained, (value) => rate(value, "FLOP/s"), 14), about: "FLOPs, by the time of all runs." },
      { ...numberColumn("of roof", ({ attained, roof }) => attained / roof, percent, 9), about: "What it attains of its lowest roof." },
      { title: "lowest roof", value: ({ bound }) => bound.title, width: 27, about: "What its FLOPs or its bytes take longest on at best." },
      ...memories,
      { ...numberColumn("IPU", own(({ ipu }) => ipu), String, 6), about: "The IPU that runs it." },
    ];
  }

  selected(changed) {
    if (!relinked(changed) && !changed.includes("ipu")) return;
    this.chart.draw();
    this.table.refresh();
    if (!this.own) this.table.reveal();
  }
}

const PEAK_COLUMNS = [
  { title: "roof", value: ({ title }) => title, width: 30 },
  { ...numberColumn("peak", ({ per_second: peak }) => peak, String, 14),
    text: ({ per_second: peak, resource }) => rate(peak, resource === "compute" ? "FLOP/s" : "B/s") },
  { title: "follows from", value: ({ source }) => source, width: 60, grows: true },
];
