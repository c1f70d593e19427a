// The program as a tree: what runs inside of what, how often, and what it costs; operations in the parts of the model.
import {choice} from "../controls.js";
import {cycles, element, percent, shortOrigin} from "../format.js";
import {rowItem} from "../items.js";
import {operationDetail, partFacts} from "../operationdetail.js";
import {inWords, panel} from "../parts.js";
import {passChip} from "../passchip.js";
import {programNodes} from "../programtree.js";
import {exactly, linked, relinked} from "../store.js";
import {isChosen, isPartOfModel, STRUCTURES, structuresOf} from "../structure.js";
import {RowTree} from "../tree.js";
import {TreePanel} from "../treepanel.js";

const PROGRAM_KINDS = { // a letter, and what it is
  sequence: ["S", "one after another"],
  repeat: ["R", "runs several times"],
  while: ["W", "runs while a condition holds"],
  switch: ["?", "one of several"],
  pipeline: ["P", "stages side by side"],
  task: ["T", "a task of a pipeline"],
  execute: ["E", "a kernel"],
  pass: ["D", "a pass of a kernel"],
  scope: ["N", "a part of the model, by its scopes"],
  call: ["F", "a part of the model, by its functions"],
  operation: ["O", "an operation"],
  copy: ["C", "between IPUs"],
  load: ["L", "from streaming memory"],
  store: ["M", "to streaming memory"],
  stream_in: ["I", "from the host"],
  stream_out: ["U", "to the host"],
  host_call: ["H", "a call of the host"],
};

/** The tree of a report's program, linked with what is selected elsewhere. */
export function programView(root, report, store) {
  new ProgramView(root, report, store);
}

class ProgramView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.own = false; // whether a selection comes from here
    this.tree = new TreePanel({
      kind: "program",
      label: "Program tree",
      placeholder: "Filter by name, kind or line",
      columns: ["program", "cycles", "each", "count", "IPU", "line"],
      words: ({ name, raw, origin, kind, operation }) => [name, raw, origin, kind, operation?.direction].join(" "),
      fill: (row, tree) => this.fill(row, tree),
      onselect: (node) => this.select(node),
      oncursor: (row, tree) => this.describe(row, tree),
    });
    const [first, ...others] = structuresOf(report);
    const offered = [first, ...others, ""].map((by) => [by, STRUCTURES[by] ?? "order"]);
    const taken = choice("Operations by", offered, first, (by) => this.arrange(by));
    this.key = element("p", { class: "tree-key" });
    this.details = element("div", { class: "tree-details" }, element("p", { class: "soft", text: "Click a row, or walk with the arrow keys." }));
    root.append(panel("Program", [this.tree.controls, first && taken.root].filter(Boolean), this.key, this.tree.list.root, this.tree.note, this.details));
    this.arrange(first);
    store.subscribe((selection, changed) => this.selected(changed));
  }

  /** Shows the program with operations by scope, by function, or as they run. */
  arrange(by) {
    this.nodes = programNodes(this.report, by);
    this.tree.setTree(new RowTree(this.nodes));
    this.key.replaceChildren(...this.badges());
    this.selected(["origin"]);
  }

  /** What the letters of the kinds mean, for those that there are. */
  badges() {
    const kinds = new Set(this.nodes.map(({ kind }) => (kind === "several" ? "operation" : kind)));
    return Object.keys(PROGRAM_KINDS).filter((kind) => kinds.has(kind)).map((kind) =>
      element("span", { class: "tree-key-item", title: PROGRAM_KINDS[kind][1] }, badge(kind), kindInWords(kind)));
  }

  /** What a row shows. */
  fill(row, tree) {
    const node = tree.of(row);
    const total = tree.total(row);
    const share = total / Math.max(this.report.cycles, 1);
    const shared = tree.isShared(row) && node.kind !== "operation";
    return {
      level: row.depth,
      open: tree.hasChildren(row) ? row.open : null,
      lead: badge(node.kind),
      name: node.name || node.kind,
      chip: passChip(node.operation?.direction ?? node.direction),
      extra: [node.from, shared ? "shared" : ""].filter(Boolean).join(" "),
      extraTitle: [node.kind === "call" ? "The line of the call" : node.from, shared && `This part is in ${tree.parents[row.node]} places`].filter(Boolean).join("; "),
      share,
      cells: [
        cycles(total), cycles(node.cycles), node.count === 1 ? "" : `× ${node.count}`,
        node.ipu < 0 ? "" : String(node.ipu), shortOrigin(node.origin),
      ],
      titles: [`${percent(share)} of the call`, "", "", "", node.origin],
    };
  }

  describe(row, tree) {
    const node = tree.of(row);
    const facts = partFacts(this.report, node, row.runs);
    const name = `${kindInWords(node.kind)} ${node.name}`;
    const places = tree.isShared(row) ? `in ${tree.parents[row.node]} places of the program` : "";
    const said = [name, ...facts, places, node.origin].filter(Boolean).join(" · ");
    const lines = node.operation
      ? operationDetail(this.report, this.store, node.operation, facts)
      : [element("p", { class: "soft", text: said })];
    this.details.replaceChildren(...lines);
  }

  select(node) {
    this.own = true;
    if (node.patch) this.store.select(node.patch);
    else if (!isPartOfModel(node)) this.store.pick(this.item(node), node.ipu < 0 ? {} : { ipu: node.ipu });
    this.own = false;
  }

  item({ operation, origin, raw }) {
    return operation ? rowItem(this.report, operation) : { origin, name: raw };
  }

  /** Marks what is linked with a selection, and goes to the first of it if it was made elsewhere. */
  selected(changed) {
    if (!relinked(changed) && !changed.includes("ipu")) return;
    const { selection } = this.store;
    const belongs = (test) => (node) => (isPartOfModel(node) ? isChosen(selection, node) : test(selection, this.item(node)));
    this.tree.mark(belongs(linked), belongs(exactly));
    if (!this.own) this.tree.goToMarked();
  }
}

function kindInWords(kind) {
  return { call: "function", several: "operations" }[kind] ?? inWords(kind);
}

function badge(kind) {
  if (kind === "several") return badge("operation");
  const letter = PROGRAM_KINDS[kind]?.[0] ?? "·";
  return element("span", { class: `kind-badge kind-${kind}`, text: letter, title: kindInWords(kind) });
}
