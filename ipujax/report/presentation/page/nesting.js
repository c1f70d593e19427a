// Trees of nodes: leaves put into the parts of a model that they belong to.

/** What joins the names of parts that are the only ones in those around them. */
const JOINTS = { scope: "/", call: " › " };

class Part {
  constructor(place) {
    this.place = place;
    this.parts = new Map(); // parts by their keys
    this.leaves = new Map(); // how often, by node
  }
}

/**
 * Adds nodes for the parts of the model that `leaves` are in, `[node number, places]` (see `placesOf`), to `nodes`, and
 * gives the numbers of the outermost: parts first in the order in which they come. A leaf that comes several times in one
 * part is there once, with their count; operations of one name and line are put together. `whole(children)` gives more
 * that the node of a part has.
 */
export function nested(nodes, leaves, by, whole = () => ({})) {
  const top = new Part(null);
  for (const [node, places] of leaves) {
    let part = top;
    for (const place of places) {
      if (!part.parts.has(place.key)) part.parts.set(place.key, new Part(place));
      part = part.parts.get(place.key);
    }
    part.leaves.set(node, (part.leaves.get(node) ?? 0) + 1);
  }
  return new Nesting(nodes, by, whole).inside(top);
}

class Nesting {
  constructor(nodes, by, whole) {
    this.nodes = nodes;
    this.by = by;
    this.whole = whole;
  }

  /** The numbers of what is in a part. */
  inside({ parts, leaves }) {
    const inner = [...parts.values()].map((part) => this.part(part));
    return [...inner, ...this.alike([...leaves].map(([node, count]) => this.severalTimes(node, count)))];
  }

  /** A part, or the first of those around which there is nothing else, with the names of all. */
  part(part) {
    const places = [part.place];
    let inner = part;
    while (inner.parts.size === 1 && !inner.leaves.size) {
      [inner] = inner.parts.values();
      places.push(inner.place);
    }
    const name = places.map((place) => place.name).join(JOINTS[this.by]);
    return this.around(this.inside(inner), { kind: this.by, name, from: places[0].from, patch: inner.place.patch });
  }

  /** A node that runs `count` times as often. */
  severalTimes(node, count) {
    const own = this.nodes[node];
    return count === 1 ? node : added(this.nodes, { ...own, count: own.count * count });
  }

  /** Nodes, of which those of operations that have one name, pass and line are in one that is around them. */
  alike(numbers) {
    const groups = new Map();
    for (const number of numbers) {
      const { operation, name, origin } = this.nodes[number];
      const key = operation ? JSON.stringify([name, operation.direction, origin]) : number;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(number);
    }
    return [...groups.values()].map((group) => (group.length === 1 ? group[0] : this.together(group)));
  }

  together(group) {
    const { name, origin, operation } = this.nodes[group[0]];
    const exact = group.map((number) => added(this.nodes, { ...this.nodes[number], from: exactName(this.nodes[number]) }));
    const from = `${group.length} operations`;
    const patch = origin ? { origin } : null;
    return this.around(exact, { kind: "several", name, from, origin, patch, direction: operation.direction });
  }

  around(children, own) {
    const cycles = children.reduce((sum, child) => sum + this.nodes[child].cycles * this.nodes[child].count, 0);
    return added(this.nodes, { origin: "", ipu: -1, count: 1, operation: null, ...own, cycles, children, ...this.whole(children) });
  }
}

/** What tells an operation from others of its name. */
function exactName({ operation }) {
  return operation.name.replace(/, backward$/, "");
}

/** Adds a node and gives its number. */
export function added(nodes, node) {
  nodes.push(node);
  return nodes.length - 1;
}
