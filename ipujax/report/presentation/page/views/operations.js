// Where the cycles go, by operation: a table to sort, filter and group.
import {lineColumn, nameColumn, numberColumn} from "../columns.js";
import {choice} from "../controls.js";
import {bytes, cycles, element, percent, shortOrigin} from "../format.js";
import {asItem} from "../items.js";
import {calledFrom, operationGroups, operationSums, scopeOf} from "../operationsums.js";
import {panel} from "../parts.js";
import {exactly, linked, relinked} from "../store.js";
import {sortableTable} from "../table.js";

const OPERATION_GROUPINGS = [
  ["same", "operation"], ["none", "operation and IPU"], ["origin", "line"], ["scope", "scope"], ["primitive", "primitive"], ["ipu", "IPU"],
];

/** The operations of a report, linked with what is selected elsewhere. */
export function operationsView(root, report, store) {
  new OperationsView(root, report, store);
}

class OperationsView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.grouping = "same";
    this.within = null; // the group whose operations are shown
    this.all = report.num_ipus * report.cycles; // IPU-cycles of a call
    this.hasScopes = report.operations.some((operation) => scopeOf(operation) !== "");
    const offered = OPERATION_GROUPINGS.filter(([key]) =>
      (key !== "none" || report.num_ipus > 1) && (key !== "scope" || this.hasScopes));
    this.control = choice("One row per", offered, this.grouping, (grouping) => this.group(grouping));
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
    const single = this.isSingle();
    const shown = this.within?.rows ?? operations;
    const asTheyAre = this.grouping === "none" || this.within !== null;
    const rows = asTheyAre ? shown : operationGroups(shown, this.grouping);
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
      isExact: (row) => single && this.isExact(row),
      onshown: (shown) => this.showSum(shown),
    });
    this.table.reveal();
  }

  /** Whether rows are operations, of one IPU or of several, and not other groups. */
  isSingle() {
    return this.within !== null || this.grouping === "none" || this.grouping === "same";
  }

  operationColumns(rows) {
    const from = (row) => calledFrom(this.report, row);
    return [
      nameColumn("operation"),
      ...this.shareColumns(rows),
      { ...lineColumn(15), hint: from, search: from,
        about: "The user's line. Hovering tells the pass, and the calls that lead there." },
      ...(this.hasScopes ? [{ title: "scope", value: scopeOf, width: 11,
        about: "The named scopes around it, outermost first, the name of an operator included." }] : []),
      { title: "IPU", value: (row) => row.ipu, text: (row) => row.ipus ?? String(row.ipu), numeric: true, width: 6,
        about: "The IPUs that run it; numbers are sums over them." },
      ...this.costColumns(),
      { ...numberColumn("tiles", (row) => row.tiles, String, 7), about: "The most tiles of an IPU that it uses." },
      { title: "model", value: (row) => row.source, width: 9,
        about: "Whether its cycles come from a formula of its own or from the default one." },
    ];
  }

  groupColumns(rows) {
    const line = { text: (row) => shortOrigin(row.name) || "(no line)", hint: (row) => row.name, search: (row) => row.name };
    return [
      { ...nameColumn(this.groupTitle()), ...(this.grouping === "origin" ? line : {}),
        ...(this.grouping === "scope" ? { text: (row) => row.name || "(no scope)" } : {}) },
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
      { ...numberColumn("cycles", (row) => row.cycles, cycles, 10), bar: (row) => row.cycles / most,
        about: "Cycles of all its runs in a call." },
      { ...numberColumn("share", (row) => row.cycles / this.all, percent, 8), about: "Of the IPU-cycles of a call." },
    ];
  }

  /** The other columns that operations and groups of them have. */
  costColumns() {
    const exchanged = (row) => (row.cycles ? row.exchange_cycles / row.cycles : 0);
    return [
      { ...numberColumn("runs", (row) => row.runs, cycles, 7), about: "How often it runs in a call." },
      { ...numberColumn("exchange", exchanged, percent, 11), about: "The share of its cycles that is exchange." },
      { ...numberColumn("bytes", (row) => row.bytes, bytes, 9), about: "Read and written by all runs." },
      { ...numberColumn("FLOPs", (row) => row.flops || null, cycles, 8), about: "Of all runs." },
      { ...numberColumn("of peak", (row) => row.flop_utilisation, percent, 9),
        about: "FLOPs, of the most that the units of the IPU can do." },
    ];
  }

  choose(row) {
    const several = row.rows && new Set(row.rows.map(({ ipu }) => ipu)).size > 1;
    this.store.pick(asItem(row), { ipu: several ? null : row.ipu });
  }

  /** Shows the operations of a group. */
  enter(row) {
    this.within = row;
    if (this.grouping === "origin" && row.name) this.store.select({ origin: row.name, name: null });
    if (this.grouping === "scope" && row.name) this.store.select({ scope: row.name });
    if (this.grouping === "ipu") this.store.select({ ipu: row.ipu });
    this.arrange();
    this.only.querySelector("button")?.focus();
  }

  showOnly() {
    this.only.hidden = this.within === null;
    if (this.within === null) return;
    const back = () => { this.within = null; this.arrange(); };
    const none = `(no ${this.groupTitle()})`;
    this.only.replaceChildren(
      element("button", { class: "button", type: "button", text: "← all", title: "Back to the groups", onclick: back }),
      element("span", {}, element("span", { class: "soft", text: `${this.groupTitle()} ` }), this.within.name || none));
  }

  isSelected(row, single) {
    const { selection } = this.store;
    return (single ? [row] : row.rows).some((own) => linked(selection, asItem(own)));
  }

  isExact(row) {
    const { selection } = this.store;
    return (row.rows ?? [row]).some((own) => exactly(selection, asItem(own)));
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
    if (!relinked(changed) && !changed.includes("ipu")) return;
    this.table.refresh();
    this.table.reveal();
  }
}
