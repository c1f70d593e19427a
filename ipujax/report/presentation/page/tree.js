// The rows of a program tree: what is open, what is seen, without any DOM.
import {text} from "./document.js";
import {itemOf} from "./items.js";

export const MOST_ROWS = 200000;

/** A place in the tree. A node that several parents share has a place under each of them. */
class ProgramRow {
  constructor(node, parent, runs) {
    this.node = node;
    this.parent = parent;
    this.depth = parent ? parent.depth + 1 : 0;
    this.runs = runs; // in one call
    this.open = false;
    this.rows = null; // of its children, once asked for
  }
}

/** A report's program: its columns, and the open and closed rows over them. */
export class ProgramTree {
  constructor(report) {
    this.report = report;
    this.columns = report.program;
    this.size = this.columns.kind.length;
    this.parents = countParents(this.columns.children, this.size);
    this.root = this.size ? new ProgramRow(this.size - 1, null, this.columns.count[this.size - 1]) : null;
  }

  kind(row) { return text(this.report, this.columns.kind[row.node]); }
  name(row) { return text(this.report, this.columns.name[row.node]); }
  origin(row) { return text(this.report, this.columns.origin[row.node]); }
  ipu(row) { return this.columns.ipu[row.node]; }
  count(row) { return this.columns.count[row.node]; }
  once(row) { return this.columns.cycles[row.node]; }
  total(row) { return this.columns.cycles[row.node] * row.runs; }
  hasChildren(row) { return this.columns.children[row.node].length > 0; }
  isShared(row) { return this.parents[row.node] > 1; }

  /** The rows of a row's parts. */
  childrenOf(row) {
    if (!row.rows) {
      const { children, count } = this.columns;
      row.rows = children[row.node].map((node) => new ProgramRow(node, row, row.runs * count[node]));
    }
    return row.rows;
  }

  /** All rows that are seen, top down; with `keep`, those only whose nodes it has. */
  visible(keep) {
    const seen = [];
    const waiting = this.root && (!keep || keep[this.root.node]) ? [this.root] : [];
    while (waiting.length && seen.length < MOST_ROWS) {
      const row = waiting.pop();
      seen.push(row);
      if (!row.open) continue;
      const parts = this.childrenOf(row);
      for (let i = parts.length - 1; i >= 0; i--) {
        if (!keep || keep[parts[i].node]) waiting.push(parts[i]);
      }
    }
    return seen;
  }

  /** Opens the rows that take most cycles, as long as no more than `most` rows are seen. */
  openUseful(most) {
    if (!this.root || !this.hasChildren(this.root)) return;
    this.root.open = true;
    const candidates = [...this.childrenOf(this.root)];
    let seen = 1 + candidates.length;
    while (candidates.length && seen < most) {
      candidates.sort((a, b) => this.total(a) - this.total(b));
      const row = candidates.pop();
      const parts = this.columns.children[row.node].length;
      if (!parts || seen + parts > most) continue;
      row.open = true;
      seen += parts;
      candidates.push(...this.childrenOf(row));
    }
  }

  /** Opens a row and all below it; gives false if there were more than can be shown. */
  openAll(row) {
    const waiting = [row];
    let opened = 0;
    while (waiting.length) {
      const next = waiting.pop();
      if (!this.hasChildren(next)) continue;
      next.open = true;
      opened += this.columns.children[next.node].length;
      if (opened > MOST_ROWS) return false;
      for (const part of this.childrenOf(next)) waiting.push(part);
    }
    return true;
  }

  /** Closes a row and all below it that was ever open. */
  closeAll(row) {
    const waiting = [row];
    while (waiting.length) {
      const next = waiting.pop();
      next.open = false;
      if (next.rows) for (const part of next.rows) waiting.push(part);
    }
  }

  /** Opens what is above a row. */
  reveal(row) {
    for (let above = row.parent; above; above = above.parent) above.open = true;
  }

  /** Of each node, whether it or anything below it is one of `wanted` (a Uint8Array). */
  containing(wanted) {
    const found = Uint8Array.from(wanted);
    const { children } = this.columns;
    for (let node = 0; node < this.size; node++) {
      if (!found[node] && children[node].some((part) => found[part])) found[node] = 1;
    }
    return found;
  }

  /** Opens the rows of `found` nodes, top down, until about `most` are seen. */
  openTo(found, most) {
    const waiting = this.root && found[this.root.node] ? [this.root] : [];
    let seen = 0;
    while (waiting.length && seen < most) {
      const row = waiting.pop();
      seen += 1;
      const below = this.hasChildren(row) ? this.childrenOf(row).filter((part) => found[part.node]) : [];
      if (below.length) row.open = true;
      waiting.push(...below.reverse());
    }
  }

  /** The first row of a node wanted, top down; null if there is none. Opens nothing. */
  firstOf(found, wanted) {
    let row = this.root;
    if (!row || !found[row.node]) return null;
    while (!wanted[row.node]) {
      row = this.childrenOf(row).find((part) => found[part.node]);
    }
    return row;
  }

  /** What a node is, for what is selected. */
  item(node) {
    const { operation, origin, name } = this.columns;
    return itemOf(this.report, operation?.[node] ?? -1, origin[node], name[node]);
  }

  /** The nodes for which a test of `(item, kind)` holds, as a Uint8Array. */
  matching(test) {
    const wanted = new Uint8Array(this.size);
    for (let node = 0; node < this.size; node++) {
      if (test(this.item(node), text(this.report, this.columns.kind[node]))) wanted[node] = 1;
    }
    return wanted;
  }
}

function countParents(children, size) {
  const parents = new Uint32Array(size);
  for (const parts of children) for (const part of parts) parents[part] += 1;
  return parents;
}
