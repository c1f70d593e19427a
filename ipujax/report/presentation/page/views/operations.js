// Where the cycles go, by operation: as a tree of the model's parts, or as a table to sort, filter and group.
import {choice} from "../controls.js";
import {bytes, cycles, element, percent, shortOrigin} from "../format.js";
import {rowItem} from "../items.js";
import {exchanged, groupColumns, mostFirst, operationColumns} from "../operationcolumns.js";
import {operationDetail, operationFacts} from "../operationdetail.js";
import {operationGroups, operationSums} from "../operationsums.js";
import {operationNodes} from "../operationtree.js";
import {panel} from "../parts.js";
import {passChip} from "../passchip.js";
import {exactly, linked, relinked} from "../store.js";
import {isChosen, STRUCTURES, structuresOf} from "../structure.js";
import {sortableTable} from "../table.js";
import {RowTree} from "../tree.js";
import {TreePanel} from "../treepanel.js";

const OPERATION_TABLES = { same: "operation", none: "operation and IPU", origin: "line", primitive: "primitive", ipu: "IPU" };
const OPERATION_ORDERS = [["model", "as in the model"], ["cycles", "most cycles first"]];
const TREE_COLUMNS = ["operation", "cycles", "share", "exchange", "bytes", "FLOPs", "of peak", "runs", "IPU", "line"];

/** The operations of a report, linked with what is selected elsewhere. */
export function operationsView(root, report, store) {
  new OperationsView(root, report, store);
}

class OperationsView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.all = report.num_ipus * report.cycles; // of all IPUs in a call
    this.order = "model";
    this.within = null; // the group whose operations are shown
    const structures = structuresOf(report);
    const tables = Object.keys(OPERATION_TABLES).filter((key) => key !== "none" || report.num_ipus > 1);
    this.grouping = structures[0] ?? "same";
    const offered = [...structures, ...tables].map((key) => [key, STRUCTURES[key] ?? OPERATION_TABLES[key]]);
    const groups = choice("Group by", offered, this.grouping, (grouping) => this.group(grouping));
    this.orders = choice("Order", OPERATION_ORDERS, this.order, (order) => { this.order = order; this.arrange(); });
    this.only = element("div", { class: "controls only-group", hidden: true });
    this.place = element("div");
    this.details = element("div", { class: "tree-details" });
    this.sum = element("div", { class: "sum-row", "aria-live": "polite", "data-sum": "operations" });
    const shares = "Shares are of the cycles of all IPUs in a call.";
    const note = element("p", { class: "soft table-note", text: shares });
    root.append(panel("Operations", [groups.root], note, this.only, this.place, this.sum, this.details));
    this.arrange();
    store.subscribe((selection, changed) => this.selected(changed));
  }

  group(grouping) {
    this.grouping = grouping;
    this.within = null;
    this.arrange();
  }

  /** Builds the tree or the table anew. */
  arrange() {
    this.place.replaceChildren();
    this.details.replaceChildren();
    this.tree = null;
    this.table = null;
    this.showOnly();
    if (this.grouping in STRUCTURES) this.showTree();
    else this.showTable();
    this.mark();
    this.reveal();
  }

  // --- as a tree

  showTree() {
    this.tree = new TreePanel({
      kind: "operations",
      label: "Operations tree",
      placeholder: "Filter operations",
      columns: TREE_COLUMNS,
      words: ({ name, origin, row, operation }) => (operation ? [name, row.name, origin, row.scope, row.direction].join(" ") : name),
      fill: (place, tree) => this.fill(place, tree),
      onselect: (node) => this.chooseNode(node),
      oncursor: (place, tree) => this.describeNode(tree.of(place)),
      onshown: (test) => this.showSum(this.leaves(test)),
    });
    this.tree.controls.append(this.orders.root);
    this.place.append(this.tree.controls, this.tree.list.root, this.tree.note);
    this.nodes = operationNodes(this.report, this.grouping, this.order === "cycles");
    this.tree.setTree(new RowTree(this.nodes));
  }

  /** The operations that a filter leaves. */
  leaves(test) {
    const found = this.nodes.filter((node) => node.operation && (!test || test(node)));
    return [...new Set(found.map(({ operation }) => operation))];
  }

  fill(place, tree) {
    const { kind, name, from, origin, row, operation, direction } = tree.of(place);
    return {
      level: place.depth,
      open: tree.hasChildren(place) ? place.open : null,
      lead: null,
      name,
      chip: passChip(operation?.direction ?? direction),
      extra: from,
      extraTitle: kind === "call" ? "The line of the call" : from,
      share: row.cycles / Math.max(tree.of(tree.root).cycles, 1),
      cells: [
        cycles(row.cycles), percent(row.cycles / this.all), percent(exchanged(row)), bytes(row.bytes), row.flops ? cycles(row.flops) : "",
        row.flop_utilisation === null ? "" : percent(row.flop_utilisation), operation ? cycles(row.runs) : "", row.ipus, shortOrigin(origin),
      ],
      titles: ["", "Of the cycles of all IPUs in a call", "The share of its cycles that is exchange", "Read and written by all runs", "",
        "FLOPs, of the most that the units of the IPU can do", "How often it runs in a call", "", origin],
    };
  }

  chooseNode(node) {
    if (node.operation) this.choose(node.row);
    else if (node.patch) this.store.select(node.patch);
  }

  describeNode({ name, row, operation }) {
    if (operation) this.describe(row);
    else this.details.replaceChildren(element("p", {}, element("b", { text: name }),
      element("span", { class: "soft", text: ` · ${sumTexts(row, this.all).map(([value, what]) => `${value} ${what}`).join(" · ")}` })));
  }

  // --- as a table

  showTable() {
    const { operations } = this.report;
    const single = this.isSingle();
    const shown = this.within?.rows ?? operations;
    const asTheyAre = this.grouping === "none" || this.within !== null;
    const rows = asTheyAre ? shown : operationGroups(shown, this.grouping);
    const columns = single ? operationColumns(this.report, rows) : groupColumns(this.report, rows, OPERATION_TABLES[this.grouping]);
    this.table = sortableTable(this.place, columns, rows, {
      name: "operations",
      sort: mostFirst(columns),
      height: 560,
      placeholder: "Filter operations",
      empty: "No operations.",
      onclick: (row) => (single ? this.choose(row) : this.enter(row)),
      isSelected: (row) => this.isSelected(row, single),
      isExact: (row) => single && this.isExact(row),
      onshown: (shown) => this.showSum(shown),
    });
  }

  /** Whether rows are operations, of one IPU or of several, and not other groups. */
  isSingle() {
    return this.within !== null || this.grouping === "none" || this.grouping === "same";
  }

  /** Shows the operations of a group. */
  enter(row) {
    this.within = row;
    if (this.grouping === "origin" && row.name) this.store.select({ origin: row.name });
    if (this.grouping === "ipu") this.store.select({ ipu: row.ipu });
    this.arrange();
    this.only.querySelector("button")?.focus();
  }

  showOnly() {
    this.only.hidden = this.within === null;
    if (this.within === null) return;
    const back = () => { this.within = null; this.arrange(); };
    const title = OPERATION_TABLES[this.grouping];
    this.only.replaceChildren(
      element("button", { class: "button", type: "button", text: "← all", title: "Back to the groups", onclick: back }),
      element("span", {}, element("span", { class: "soft", text: `${title} ` }), this.within.name || `(no ${title})`));
  }

  // --- in both

  choose(row) {
    const several = row.rows && new Set(row.rows.map(({ ipu }) => ipu)).size > 1;
    this.describe(row);
    this.own = true;
    this.store.pick(rowItem(this.report, row), { ipu: several ? null : row.ipu });
    this.own = false;
  }

  describe(row) {
    this.details.replaceChildren(...operationDetail(this.report, this.store, row, operationFacts(this.report, row)));
  }

  isSelected(row, single) {
    const { selection } = this.store;
    return (single ? [row] : row.rows).some((own) => linked(selection, rowItem(this.report, own)));
  }

  isExact(row) {
    const { selection } = this.store;
    return (row.rows ?? [row]).some((own) => exactly(selection, { ...rowItem(this.report, own), ipu: own.ipu }));
  }

  showSum(rows) {
    const sums = operationSums(rows);
    const parts = [[String(sums.count), sums.count === 1 ? "operation" : "operations"], ...sumTexts(sums, this.all)];
    this.sum.replaceChildren(...parts.map(([value, what]) =>
      element("span", {}, element("b", { text: value }), element("span", { class: "soft", text: ` ${what}` }))));
  }

  selected(changed) {
    if (!relinked(changed) && !changed.includes("ipu")) return;
    this.mark();
    if (!this.own) this.reveal();
  }

  mark() {
    const belongs = (test) => (node) => (node.operation ? test(node.row) : isChosen(this.store.selection, node));
    this.tree?.mark(belongs((row) => this.isSelected(row, true)), belongs((row) => this.isExact(row)));
    this.table?.refresh();
  }

  reveal() {
    this.tree?.goToMarked();
    this.table?.reveal();
  }
}

/** Sums of operations: `[number, what it is]`. */
function sumTexts(sums, all) {
  return [
    [cycles(sums.cycles), "cycles"],
    [percent(sums.cycles / all), "of all IPUs' cycles"],
    [percent(exchanged(sums)), "of it exchange"],
    [bytes(sums.bytes), "read and written"],
    ...(sums.flops ? [[cycles(sums.flops), "FLOPs"]] : []),
    ...(sums.flop_utilisation === null ? [] : [[percent(sums.flop_utilisation), "of the peak of those with FLOPs"]]),
  ];
}
