// Where the cycles go, by operation: a table to sort, filter and group.
import {lineColumn, nameColumn, numberColumn} from "../columns.js";
import {choice} from "../controls.js";
import {bytes, cycles, element, percent, shortOrigin} from "../format.js";
import {operationGroups, operationSums} from "../operationsums.js";
import {panel} from "../parts.js";
import {linked} from "../store.js";
import {sortableTable} from "../table.js";

const OPERATION_GROUPINGS = [["none", "operation"], ["origin", "line"], ["primitive", "primitive"], ["ipu", "IPU"]];

/** The operations of a report, linked with what is selected elsewhere. */
export function operationsView(root, report, store) {
  new OperationsView(root, report, store);
}

class OperationsView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.grouping = "none";
    this.within = null; // the group whose operations are shown
    this.all = report.num_ipus * report.cycles; // IPU-cycles of a call
    this.control = choice("One row per", OPERATION_GROUPINGS, this.grouping, (grouping) => this.group(grouping));
    this.only = element("div", { class: "controls only-group", hidden: true });
    this.place = element("div");
    this.sum = element("div", { class: "sum-row", "aria-live": "polite", "data-sum": "operations" });
    const shares = "Shares are of the IPU-cycles of a call: its cycles times its IPUs.";
    const note = element("p", { class: "soft table-note", text: shares });
    root.append(panel("Operations", [this.control.root], note, this.only, this.place, this.sum));
    this.arrange();
    store.subscribe((selection, changed) => this.selected(changed));
  }

  group(grouping) {
    this.grouping = grouping;
    this.within = null;
    this.arrange();
  }

  /** Builds the table anew. */
  arrange() {
    const { operations } = this.report;
    const single = this.grouping === "none" || this.within !== null;
    const rows = single ? (this.within?.rows ?? operations) : operationGroups(operations, this.grouping);
    this.showOnly();
    this.place.replaceChildren();
    this.table = sortableTable(this.place, single ? this.operationColumns(rows) : this.groupColumns(rows), rows, {
      name: "operations",
      sort: -2,
      height: 560,
      placeholder: "Filter operations",
      empty: "No operations.",
      onclick: (row) => (single ? this.choose(row) : this.enter(row)),
      isSelected: (row) => this.isSelected(row, single),
      onshown: (shown) => this.showSum(shown),
    });
    this.table.reveal();
  }

  operationColumns(rows) {
    return [
      nameColumn("operation"),
      ...this.shareColumns(rows),
      lineColumn(17),
      numberColumn("IPU", (row) => row.ipu, String, 6),
      ...this.costColumns(),
      numberColumn("tiles", (row) => row.tiles, String, 8),
      { title: "model", value: (row) => row.source, width: 10 },
    ];
  }

  groupColumns(rows) {
    const line = { text: (row) => shortOrigin(row.name) || "(no line)", title_text: (row) => row.name };
    return [
      { ...nameColumn(this.groupTitle()), ...(this.grouping === "origin" ? line : {}) },
      ...this.shareColumns(rows),
      numberColumn("operations", (row) => row.rows.length, String, 12),
      { title: "IPUs", value: (row) => row.ipus, width: 10 },
      ...this.costColumns(),
    ];
  }

  groupTitle() {
    return OPERATION_GROUPINGS.find(([key]) => key === this.grouping)[1];
  }

  shareColumns(rows) {
    const most = rows.reduce((top, row) => Math.max(top, row.cycles), 1);
    return [
      { ...numberColumn("cycles", (row) => row.cycles, cycles, 11), bar: (row) => row.cycles / most },
      numberColumn("share", (row) => row.cycles / this.all, percent, 8),
    ];
  }

  /** The other columns that operations and groups of them have. */
  costColumns() {
    const used = numberColumn("of peak", (row) => row.flop_utilisation, percent, 10);
    return [
      numberColumn("runs", (row) => row.runs, cycles, 7),
      numberColumn("exchange", (row) => (row.cycles ? row.exchange_cycles / row.cycles : 0), percent, 11),
      numberColumn("bytes", (row) => row.bytes, bytes, 10),
      numberColumn("FLOPs", (row) => row.flops || null, cycles, 9),
      { ...used, title_text: () => "FLOPs of the most that the units of the IPU can do" },
    ];
  }

  choose(row) {
    this.store.select({ origin: row.origin, name: row.name, ipu: row.ipu });
  }

  /** Shows the operations of a group. */
  enter(row) {
    this.within = row;
    if (this.grouping === "origin" && row.name) this.store.select({ origin: row.name, name: null });
    if (this.grouping === "ipu") this.store.select({ ipu: row.ipu });
    this.arrange();
    this.only.querySelector("button")?.focus();
  }

  showOnly() {
    this.only.hidden = this.within === null;
    if (this.within === null) return;
    const back = () => { this.within = null; this.arrange(); };
    this.only.replaceChildren(
      element("button", { class: "button", type: "button", text: "← all", title: "Back to the groups", onclick: back }),
      element("span", {}, element("span", { class: "soft", text: `${this.groupTitle()} ` }), this.within.name || "(no line)"));
  }

  isSelected(row, single) {
    const { selection } = this.store;
    if (single) return linked(selection, row.origin, row.name);
    return row.rows.some(({ origin, name }) => linked(selection, origin, name));
  }

  showSum(rows) {
    const sums = operationSums(rows);
    const part = (name, text) => element("span", {}, element("b", { text }),
      element("span", { class: "soft", text: ` ${name}` }));
    this.sum.replaceChildren(...[
      part(sums.count === 1 ? "operation" : "operations", String(sums.count)),
      part("cycles", cycles(sums.cycles)),
      part("of the IPU-cycles", percent(sums.cycles / this.all)),
      part("of it exchange", percent(sums.cycles ? sums.exchange_cycles / sums.cycles : 0)),
      part("read and written", bytes(sums.bytes)),
      sums.flops ? part("FLOPs", cycles(sums.flops)) : null,
      sums.flop_utilisation === null ? null : part("of the peak of those with FLOPs", percent(sums.flop_utilisation)),
    ].filter(Boolean));
  }

  selected(changed) {
    if (!changed.includes("origin") && !changed.includes("name")) return;
    this.table.refresh();
    this.table.reveal();
  }
}
