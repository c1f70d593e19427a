// A tree to walk in: filtered, opened and closed, marked by what is selected elsewhere.

import {pushButton} from "./controls.js";
import {element} from "./format.js";
import {MOST_ROWS} from "./tree.js";
import {TreeList} from "./treelist.js";

const USEFUL_ROWS = 40; // that are open at first, at most
const FOUND_ROWS = 2000;

/**
 * A tree list with its controls. Options: those of `TreeList`, of which `fill` and `oncursor` are given the tree, too, and
 * `onselect` a node; `words(node)`, what a filter looks at; `placeholder` of the filter; `onshown(test)`, told which nodes a filter leaves (null: all).
 */
export class TreePanel {
  constructor(options) {
    this.options = options;
    this.list = new TreeList({
      ...options,
      fill: (row) => options.fill(row, this.tree),
      onselect: (row) => options.onselect(this.tree.of(row)),
      oncursor: (row) => options.oncursor(row, this.tree),
      isMarked: (row) => this.marked[row.node] === 1,
      isExact: (row) => this.exact[row.node] === 1,
      ontoggle: (row, open) => this.toggle(row, open),
      onexpand: (row) => this.expand(row),
    });
    this.note = element("p", { class: "faint", "aria-live": "polite" });
    this.search = element("input", { type: "search", placeholder: options.placeholder, "aria-label": options.placeholder });
    let timer = 0;
    this.search.addEventListener("input", () => {
      clearTimeout(timer);
      timer = setTimeout(() => this.filter(), 120);
    });
    this.controls = element("div", { class: "controls" }, this.search, this.buttons());
  }

  buttons() {
    const chosen = () => this.list.cursor || this.tree.root;
    return [
      pushButton("Open all below", "Open the chosen row and all below it (*)", () => this.expand(chosen())),
      pushButton("Close all below", "Close the chosen row and all below it", () => this.collapse(chosen())),
      pushButton("Reset", "Open what takes most cycles", () => this.reset()),
    ];
  }

  /** Shows another tree. */
  setTree(tree) {
    this.tree = tree;
    this.marked = new Uint8Array(tree.size);
    this.exact = new Uint8Array(tree.size);
    tree.openUseful(USEFUL_ROWS);
    this.filter();
  }

  show() {
    const rows = this.tree.visible(this.keep);
    this.list.setRows(rows);
    if (this.keep && !rows.length) this.say("Nothing matches.");
    else if (rows.length >= MOST_ROWS) this.say(`Only the first ${MOST_ROWS} rows are shown.`);
    else this.say("");
  }

  say(message) { this.note.textContent = message; }

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
    if (this.tree.root) this.tree.closeAll(this.tree.root);
    this.tree.openUseful(USEFUL_ROWS);
    this.filter();
    this.list.scrollTo(this.list.cursor);
  }

  /** Leaves only what has all words of the filter, and what is around it. */
  filter() {
    const words = this.search.value.toLowerCase().split(" ").filter(Boolean);
    const hasAll = (node) => {
      const said = this.options.words(node).toLowerCase();
      return words.every((word) => said.includes(word));
    };
    this.keep = null;
    if (words.length) {
      this.keep = this.tree.containing(this.tree.matching(hasAll));
      this.tree.openTo(this.keep, FOUND_ROWS);
    }
    this.show();
    this.options.onshown?.(words.length ? hasAll : null);
  }

  /** Marks the nodes of which tests hold: those that are linked with what is selected, and the very thing. */
  mark(isLinked, isExact) {
    this.marked = this.tree.matching(isLinked);
    this.exact = this.tree.matching(isExact);
    this.list.refresh();
  }

  /** Goes to the first row that is marked, the very thing if it is there. */
  goToMarked() {
    const wanted = this.exact.includes(1) ? this.exact : this.marked;
    const found = this.tree.containing(wanted);
    const row = this.tree.firstOf(found, wanted);
    if (!row) return;
    if (this.keep && !this.keep[row.node]) this.keep = null;
    this.tree.reveal(row);
    this.show();
    this.list.setCursor(row);
  }
}
