// One tile: what it holds by category, and the tensors on it.
import {bytesColumn, numberColumn, ownerColumn, tensorColumns} from "./columns.js";
import {numberField} from "./controls.js";
import {bytes, element, percent} from "./format.js";
import {liveStepName} from "./lifetimes.js";
import {inWords, legend, panel} from "./parts.js";
import {exactly, linked} from "./store.js";
import {sortableTable} from "./table.js";
import {tensorsOnTile, tileMemory} from "./tiles.js";

/** A panel about the tile that `show` names; its rows select tensors. */
export class TileDetail {
  constructor(report, store) {
    this.report = report;
    this.store = store;
    this.ipu = -1;
    this.tile = -1;
    const last = tileMemory(report, 0).tiles - 1;
    this.field = numberField("Tile", last, 0, (tile) => store.select({ ipu: this.ipu, tile }));
    this.body = element("div");
    this.element = panel("", [this.field.root], this.body);
  }

  /** Shows a tile; one that is shown already stays as it is. */
  show(ipu, tile) {
    if (ipu === this.ipu && tile === this.tile) {
      this.table.refresh();
      return;
    }
    this.ipu = ipu;
    this.tile = tile;
    const memory = tileMemory(this.report, ipu);
    const fullest = tile === memory.worst ? ", its fullest" : "";
    this.element.querySelector("h2").textContent = `Tile ${tile} of IPU ${ipu}${fullest}`;
    this.field.set(tile);
    this.body.replaceChildren(this.verdict(memory), this.parts(memory),
      element("h3", { text: `Tensors on it at the IPU's worst step${this.stepName()}` }));
    this.table = this.tensors(this.body);
  }

  /** The IPU's worst step by number and name. */
  stepName() {
    const { worst, steps } = this.report.liveness[this.ipu];
    return steps.name.length ? ` (step ${worst}, ${liveStepName(this.report, this.ipu, worst)})` : "";
  }

  /** Whether it fits. */
  verdict(memory) {
    const { limit } = this.report.memory;
    const held = memory.peak[this.tile];
    const atWorst = memory.parts.reduce((sum, part) => sum + part.bytes[this.tile], 0);
    const over = held > limit;
    const said = over
      ? `${bytes(held)}: ${bytes(held - limit)} more than it has.`
      : `${bytes(held)} of ${bytes(limit)}, ${percent(held / limit)}.`;
    const other = bytes(held) !== bytes(atWorst) ? ` At the IPU's worst step it holds ${bytes(atWorst)}; its own worst is another.` : "";
    return element("p", { class: "soft" }, element("span", { class: over ? "bad" : null, text: said }), other);
  }

  /** Its categories as one bar lying down, and in words. */
  parts(memory) {
    const { tile } = this;
    const most = Math.max(this.report.memory.limit, memory.peak[tile]);
    const parts = memory.parts.filter((part) => part.bytes[tile]);
    const stripe = ({ name, bytes: held }) => element("span", {
      title: `${inWords(name)} ${bytes(held[tile])}`,
      style: { width: `${(100 * held[tile]) / most}%`, background: `var(--category-${name})` },
    });
    const bar = element("div", { class: "tile-bar", "aria-hidden": "true" }, parts.map(stripe));
    const bySize = [...parts].sort((a, b) => b.bytes[tile] - a.bytes[tile]);
    const words = bySize.map(({ name, bytes: held }) => [`${inWords(name)} ${bytes(held[tile])}`, `category-${name}`]);
    return element("div", { class: "tile-parts" }, bar, legend(words));
  }

  tensors(root) {
    const { report, store, ipu, tile } = this;
    const rows = tensorsOnTile(report, ipu, tile, report.liveness[ipu].worst);
    const columns = [
      ownerColumn(),
      bytesColumn("on this tile", (row) => row.bytes, rows[0]?.bytes ?? 1, 14),
      numberColumn("on all tiles", (row) => row.total, bytes, 13),
      ...tensorColumns(report),
    ];
    return sortableTable(root, columns, rows, {
      name: "tile-tensors",
      sort: -2,
      height: 380,
      placeholder: "Filter tensors",
      empty: "No tensors, only code and work space.",
      onclick: ({ origin, name, category }) => store.pick({ origin, name }, { category, ipu, tile }),
      isSelected: (row) => linked(store.selection, row),
      isExact: (row) => exactly(store.selection, row),
    });
  }
}
