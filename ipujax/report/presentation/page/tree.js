// The rows of a tree: what is open, what is seen, without any DOM.

export const MOST_ROWS = 200000;
const LEAST_USEFUL = 0.005; // of all cycles: what takes less is not opened by itself

/** A place in the tree. A node that several parents share has a place under each of them. */
class TreeRow {
  constructor(node, parent, runs) {
    this.node = node;
    this.parent = parent;
    this.depth = parent ? parent.depth + 1 : 0;
    this.runs = runs; // in one call
    this.open = false;
    this.rows = null; // of its children, once asked for
  }
}

/**
 * Open and closed rows over `nodes`, of which every child comes before its parents and the last is the root:
 * `{cycles (of one run), count (how often it runs when its parent does), children (numbers of nodes)}` and more.
 */
export class RowTree {
  constructor(nodes) {
    this.nodes = nodes;
    this.size = nodes.length;
    this.parents = countParents(nodes);
    this.root = this.size ? new TreeRow(this.size - 1, null, nodes.at(-1).count) : null;
  }

  /** What is at a row. */
  of(row) { return this.nodes[row.node]; }
  total(row) { return this.of(row).cycles * row.runs; }
  hasChildren(row) { return this.of(row).children.length > 0; }
  isShared(row) { return this.parents[row.node] > 1; }

  /** The rows of a row's parts. */
  childrenOf(row) {
    row.rows ??= this.of(row).children.map((node) => new TreeRow(node, row, row.runs * this.nodes[node].count));
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

  /** Opens the rows that take most cycles, until about `most` rows are seen: one that is longer only if else few were. */
  openUseful(most) {
    if (!this.root || !this.hasChildren(this.root)) return;
    this.root.open = true;
    const candidates = [...this.childrenOf(this.root)];
    let seen = 1 + candidates.length;
    while (candidates.length && seen < most) {
      candidates.sort((a, b) => this.total(a) - this.total(b));
      const row = candidates.pop();
      if (this.total(row) < LEAST_USEFUL * this.total(this.root)) break;
      const parts = this.of(row).children.length;
      if (!parts || (seen + parts > most && 2 * seen > most)) continue;
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
      opened += this.of(next).children.length;
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
    this.nodes.forEach(({ children }, node) => {
      if (!found[node] && children.some((part) => found[part])) found[node] = 1;
    });
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

  /** The nodes for which a test holds, as a Uint8Array. */
  matching(test) {
    return Uint8Array.from(this.nodes, (node) => (test(node) ? 1 : 0));
  }
}

function countParents(nodes) {
  const parents = new Uint32Array(nodes.length);
  for (const { children } of nodes) for (const part of children) parents[part] += 1;
  return parents;
}
