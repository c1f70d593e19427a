// What is selected, over all views.

import {placeOf} from "./frames.js";
import {makes} from "./items.js";

/** What a selection says; every entry may be null. */
const NOTHING_SELECTED = Object.freeze({
  origin: null,
  name: null,
  operation: null,
  scope: null,
  ipu: null,
  tile: null,
  step: null,
  tick: null,
  iteration: null,
  category: null,
});
const SUBJECTS = ["origin", "name", "operation", "scope"]; // what belongs to a selection follows from these and the IPU

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
   * Merges into the selection. What is selected anew (an origin, a name, an operation or a scope) takes the place of all
   * that was: of these the ones not given, and step, tick and category, are then unset; the IPU and tile stay unless given.
   */
  select(patch) {
    const anew = SUBJECTS.some((key) => key in patch);
    const unset = anew ? { ...NOTHING_SELECTED, ipu: this.selection.ipu, tile: this.selection.tile } : {};
    this.replace({ ...this.selection, ...unset, ...patch });
  }

  /** Selects what an item is (see `items.js`): exactly that operation, or its line and name; and more, such as an IPU. */
  pick({ origin, name, operation = -1 }, more = {}) {
    this.select({ origin: origin || null, name: name || null, operation: operation < 0 ? null : operation, ...more });
  }

  /** Selects this and nothing else. */
  restore(selection) {
    this.replace({ ...NOTHING_SELECTED, ...selection });
  }

  /** Selects nothing. */
  clear() {
    this.restore({});
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

/** Whether the selection is of something that others belong to: a line, a name or a scope. */
export function linkable({ origin, name, scope }) {
  return Boolean(origin || name || scope);
}

/** Whether after a change of these keys, or only of the IPU, other things belong to the selection. */
export function relinked(changed) {
  return SUBJECTS.some((key) => changed.includes(key));
}

/**
 * Whether an item `{origin, name, operation, scope, lines}` (see `items.js`) belongs to what is selected: it is in the
 * scope; or both have the same origin, or the line is one of those that call it; or neither has one and their names begin
 * with the same part.
 */
export function linked(selection, item) {
  if (selection.scope) return `${item.scope ?? ""}/`.startsWith(`${selection.scope}/`);
  if (selection.origin) return item.origin === selection.origin || Boolean(item.lines?.has(placeOf(selection.origin)));
  if (item.origin || !selection.name || !item.name) return false;
  return item.name === selection.name || firstPart(item.name) === firstPart(selection.name);
}

/**
 * Whether something linked is the very thing that is selected, and not only of the same line: the operation of that
 * number, or, where one of them has none, what has its name; and of its IPU, if both say one. A tensor is what makes it.
 */
export function exactly(selection, item) {
  if (!selection.name || !linked(selection, item)) return false;
  if (selection.ipu !== null && (item.ipu ?? -1) >= 0 && item.ipu !== selection.ipu) return false;
  if (selection.operation !== null && item.operation >= 0) return item.operation === selection.operation;
  if (item.made) return item.name === selection.name || makes(selection.name, item.made);
  return isSame(selection.name, item.name);
}

/** Whether two names are of one thing: a step such as `dot_general/Convolve` is of `dot_general float16[8,8]`. */
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
