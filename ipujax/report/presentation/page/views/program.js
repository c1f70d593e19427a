// The program as a tree: what runs inside of what, how often, and what it costs.
import {ProgramTree, MOST_ROWS} from "../tree.js";
import {control, pushButton} from "../controls.js";
import {TreeList} from "../treelist.js";
import {cycles, element, exact, percent, seconds, shortOrigin} from "../format.js";
import {inWords, panel} from "../parts.js";
import {exactly, linked, relinked} from "../store.js";

const PROGRAM_OPEN_ROWS = 60;
const PROGRAM_FOUND_ROWS = 2000;
const PROGRAM_KINDS = { // a letter, and what it is
  sequence: ["S", "one after another"],
  repeat: ["R", "runs several times"],
  while: ["W", "runs while a condition holds"],
  switch: ["?", "one of several"],
  pipeline: ["P", "stages side by side"],
  task: ["T", "a task of a pipeline"],
  execute: ["E", "a kernel"],
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
    this.tree = new ProgramTree(report);
    this.keep = null; // the nodes that a filter leaves
    this.own = false; // whether a selection comes from here
    this.marked = new Uint8Array(this.tree.size);
    this.exact = new Uint8Array(this.tree.size);
    this.tree.openUseful(PROGRAM_OPEN_ROWS);
    this.list = new TreeList({
      label: "Program tree",
      columns: ["program", "cycles", "each", "count", "IPU", "line"],
      fill: (row) => this.fill(row),
      isMarked: (row) => this.marked[row.node] === 1,
      isExact: (row) => this.exact[row.node] === 1,
      ontoggle: (row, open) => this.toggle(row, open),
      onexpand: (row) => this.expand(row),
      onselect: (row) => this.select(row),
      oncursor: (row) => this.describe(row),
    });
    this.note = element("p", { class: "faint", "aria-live": "polite" });
    this.details = element("p", { class: "tree-details soft", text: "Click a row, or walk with the arrow keys." });
    root.append(panel("Program", [this.controls()], this.key(), this.list.root, this.details, this.note));
    store.subscribe((selection, changed) => this.selected(selection, changed));
    this.selected(store.selection, ["origin"]);
    this.show();
  }

  controls() {
    this.search = element("input", { type: "search", placeholder: "name, kind or line" });
    let timer = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.filter(this.search.value), 120);
    });
    const chosen = () => this.list.cursor || this.tree.root;
    return element("div", { class: "controls" }, control("Filter", this.search),
      pushButton("Open all below", "Open the chosen row and all below it (*)", () => this.expand(chosen())),
      pushButton("Close all below", "Close the chosen row and all below it", () => this.collapse(chosen())),
      pushButton("Reset", "Open what takes most cycles", () => this.reset()));
  }

  /** What the letters of the kinds mean, for those that there are. */
  key() {
    const kinds = new Set(this.report.program.kind);
    const known = Object.keys(PROGRAM_KINDS).filter((kind) => kinds.has(this.report.strings.indexOf(kind)));
    return element("p", { class: "tree-key" }, known.map((kind) =>
      element("span", { class: "tree-key-item", title: PROGRAM_KINDS[kind][1] }, badge(kind), inWords(kind))));
  }

  show() {
    const rows = this.tree.visible(this.keep);
    this.list.setRows(rows);
    if (this.keep && !rows.length) this.say("Nothing matches.");
    else if (rows.length >= MOST_ROWS) this.say(`Only the first ${MOST_ROWS} rows are shown.`);
    else this.say("");
  }

  say(message) { this.note.textContent = message; }

  /** What a row shows. */
  fill(row) {
    const { tree } = this;
    const kind = tree.kind(row);
    const total = tree.total(row);
    const share = total / Math.max(this.report.cycles, 1);
    const shared = tree.isShared(row);
    return {
      level: row.depth,
      open: tree.hasChildren(row) ? row.open : null,
      lead: badge(kind),
      name: tree.name(row) || kind,
      extra: shared ? "shared" : "",
      extraTitle: shared ? `This part is in ${tree.parents[row.node]} places` : "",
      share,
      cells: [
        cycles(total), cycles(tree.once(row)), tree.count(row) === 1 ? "" : `× ${tree.count(row)}`,
        tree.ipu(row) < 0 ? "" : String(tree.ipu(row)), shortOrigin(tree.origin(row)),
      ],
      titles: [`${percent(share)} of the call`, "", "", "", tree.origin(row)],
    };
  }

  describe(row) {
    const { tree } = this;
    const total = tree.total(row);
    const took = seconds(total / this.report.target.clock_hz);
    const parts = [
      `${inWords(tree.kind(row))} ${tree.name(row)}`,
      row.runs === 1 ? "runs once" : `runs ${exact(row.runs)} times in a call`,
      `${cycles(tree.once(row))} cycles each`,
      `${cycles(total)} cycles in all, ${took}, ${percent(total / Math.max(this.report.cycles, 1))} of the call`,
    ];
    if (tree.ipu(row) >= 0) parts.push(`IPU ${tree.ipu(row)}`);
    if (tree.isShared(row)) parts.push(`in ${tree.parents[row.node]} places of the program`);
    if (tree.origin(row)) parts.push(tree.origin(row));
    this.details.textContent = parts.join(" · ");
  }

  toggle(row, open) {
    row.open = open;
    this.show();
  }

  expand(row) {
    if (!row) return;
    const all = this.tree.openAll(row);
    this.show();
    if (!all) this.say("There is too much below this row to open all of it.");
  }

  collapse(row) {
    if (!row) return;
    this.tree.closeAll(row);
    this.show();
  }

  reset() {
    this.search.value = "";
    this.keep = null;
    if (this.tree.root) this.tree.closeAll(this.tree.root);
    this.tree.openUseful(PROGRAM_OPEN_ROWS);
    this.show();
    this.list.scrollTo(this.list.cursor);
  }

  /** Leaves only what has a text in its name, kind or line, and what is around it. */
  filter(wanted) {
    const words = wanted.toLowerCase().split(" ").filter((word) => word);
    this.keep = null;
    if (words.length) {
      const found = this.tree.matching(({ name, origin }, kind) => {
        const all = [name, origin, kind].join(" ").toLowerCase();
        return words.every((word) => all.includes(word));
      });
      this.keep = this.tree.containing(found);
      this.tree.openTo(this.keep, PROGRAM_FOUND_ROWS);
    }
    this.show();
  }

  select(row) {
    this.own = true;
    this.store.pick(this.tree.item(row.node), this.tree.ipu(row) < 0 ? {} : { ipu: this.tree.ipu(row) });
    this.own = false;
  }

  /** Marks what is linked with a selection, and goes to the first of it if it was made elsewhere. */
  selected(selection, changed) {
    if (!relinked(changed) && !changed.includes("ipu")) return;
    this.marked = this.tree.matching((item) => linked(selection, item));
    this.exact = this.tree.matching((item) => exactly(selection, item));
    if (!this.own) this.goTo(this.exact.includes(1) ? this.exact : this.marked);
    this.list.refresh();
  }

  goTo(wanted) {
    const found = this.tree.containing(wanted);
    const row = this.tree.firstOf(found, wanted);
    if (!row) return;
    if (this.keep && !this.keep[row.node]) this.keep = null;
    this.tree.reveal(row);
    this.show();
    this.list.setCursor(row);
  }
}

function badge(kind) {
  const letter = PROGRAM_KINDS[kind]?.[0] ?? "·";
  return element("span", { class: `kind-badge kind-${kind}`, text: letter, title: inWords(kind) });
}
