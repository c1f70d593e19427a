// What is selected, over all views.

/** What a selection says; every entry may be null. */
const NOTHING_SELECTED = Object.freeze({
  origin: null,
  name: null,
  ipu: null,
  tile: null,
  step: null,
  tick: null,
  category: null,
});

/** Holds the selection and tells views when it changes. */
export class Store {
  constructor() {
    this.selection = { ...NOTHING_SELECTED };
    this.listeners = [];
    this.opener = () => {};
  }

  /** Selects, and goes to the view that shows it best. */
  open(view, patch) {
    this.select(patch);
    this.opener(view);
  }

  /**
   * Merges into the selection. An origin or a name selects what they belong to: the one that is not
   * given, and step, tick and category, are then unset; the IPU and tile stay unless given.
   */
  select(patch) {
    const anew = "origin" in patch || "name" in patch;
    const unset = anew ? { origin: null, name: null, step: null, tick: null, category: null } : {};
    this.replace({ ...this.selection, ...unset, ...patch });
  }

  /** Selects nothing. */
  clear() {
    this.replace({ ...NOTHING_SELECTED });
  }

  /** Calls `listener(selection, changedKeys)` after each change; gives what ends that. */
  subscribe(listener) {
    this.listeners.push(listener);
    return () => {
      this.listeners = this.listeners.filter((other) => other !== listener);
    };
  }

  replace(selection) {
    const changed = Object.keys(selection).filter((key) => selection[key] !== this.selection[key]);
    if (!changed.length) return;
    this.selection = selection;
    for (const listener of [...this.listeners]) listener(selection, changed);
  }
}

/** Whether the selection is of something that can be linked: it has an origin or a name. */
export function linkable(selection) {
  return Boolean(selection.origin || selection.name);
}

/**
 * Whether something of this origin and name belongs to what is selected: both have the same origin,
 * or neither has one and their names begin with the same part.
 */
export function linked(selection, origin, name) {
  if (selection.origin) return origin === selection.origin;
  if (origin || !selection.name || !name) return false;
  return name === selection.name || firstPart(name) === firstPart(selection.name);
}

/**
 * Whether something linked is the very thing that is selected, and not only of the same line: it has the name
 * of it and, if both say one, its IPU. A step such as `dot_general/Convolve` belongs to the operation
 * `dot_general float16[8,8]`.
 */
export function exactly(selection, origin, name, ipu = -1) {
  if (!selection.name || !linked(selection, origin, name)) return false;
  if (selection.ipu !== null && ipu >= 0 && ipu !== selection.ipu) return false;
  return isSame(selection.name, name);
}

function isSame(a, b) {
  if (a === b || a.replace("/", " ") === b.replace("/", " ")) return true;
  const told = (a.includes("[") && b.includes("[")) || (a.includes("/") && b.includes("/"));
  return !told && primitivesOf(firstPart(a)) === primitivesOf(firstPart(b));
}

/** What stands before the shape: `sub exp` of `sub exp float16[2,128], backward`. */
export function primitivesOf(name) {
  return name.replace(/\s\S*\[.*$/, "");
}

/** The name of a step without that of its kernel: `dot_general` of `dot_general/Convolve`. */
export function firstPart(name) {
  const slash = name.indexOf("/");
  return slash < 0 ? name : name.slice(0, slash);
}
