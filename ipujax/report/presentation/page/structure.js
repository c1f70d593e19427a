// Where operations are in the user's model: in its named scopes, or in its functions.

import {frameOf, framesOf, placeOf, shortFunction} from "./frames.js";
import {scopePath} from "./names.js";

/** What a model can be taken apart by, and what its parts are called. */
export const STRUCTURES = { scope: "scope", call: "function" };

/** Which of these tell parts of a report's model apart, the one that tells most of them first; [] if none does. */
export function structuresOf(report) {
  const parts = (by) => new Set(report.operations.map((operation) => partOf(report, operation, by))).size;
  return Object.keys(STRUCTURES)
    .map((by) => [by, parts(by)])
    .filter(([by, count]) => count > 1 || report.operations.some((operation) => partOf(report, operation, by)))
    .sort(([, a], [, b]) => b - a)
    .map(([by]) => by);
}

function partOf(report, operation, by) {
  return placesOf(report, operation, by).map(({ key }) => key).join("\n");
}

/**
 * The parts of the model around an operation, the outermost first: `{key, name, from, patch}`. `from` is the line of a
 * call, where there is one, and `patch` selects the part.
 */
export function placesOf(report, operation, by) {
  return by === "scope" ? scopePlaces(operation) : callPlaces(framesOf(report, operation));
}

function scopePlaces(operation) {
  const names = scopePath(operation);
  return names.map((name, i) => ({ key: name, name, from: "", patch: { scope: names.slice(0, i + 1).join("/") } }));
}

/** Functions, each called by the one before it; one that is called from two lines is two parts. */
function callPlaces(frames) {
  return frames.map((frame, i) => {
    const { file = "", name = frame } = frameOf(frame) ?? {};
    const call = i ? frameOf(frames[i - 1]) : null;
    return {
      key: `${call?.place ?? ""} ${file} ${name}`,
      name: shortFunction(name) || file,
      from: call ? `:${call.line}` : "",
      patch: i ? { origin: frames[i - 1] } : null,
    };
  });
}

/** Whether a node of a tree is not there itself, but stands for a part of the model (see `nested`). */
export function isPartOfModel(node) {
  return node.patch !== undefined;
}

/** Whether such a part is what is selected: its scope, or the line that it is called from. */
export function isChosen({ scope, origin, name }, { patch }) {
  if (!patch) return false;
  return patch.scope ? patch.scope === scope : !name && Boolean(origin) && placeOf(patch.origin) === placeOf(origin);
}
