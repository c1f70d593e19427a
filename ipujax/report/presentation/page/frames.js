// Lines of the user's as call paths write them: `models/bert.py:7 (Block.__call__)`, or `cell 12, line 7 (layer)`.

import {text} from "./document.js";
import {shortOrigin} from "./format.js";

const FRAME = /^(.*)(?::|, line )(\d+)(?: \((.*)\))?$/;
const frameCache = new Map();

/** `{file, line, place, name}` of a frame or an origin: its file or cell, the line, both in words, the function; or null. */
export function frameOf(frame) {
  if (!frameCache.has(frame)) {
    const found = FRAME.exec(frame);
    const place = found && frame.slice(0, frame.length - (found[3] === undefined ? 0 : found[3].length + 3));
    frameCache.set(frame, found && { file: found[1], line: Number(found[2]), place, name: found[3] ?? "" });
  }
  return frameCache.get(frame);
}

/** The line of a frame or an origin, without the function. */
export function placeOf(frame) {
  return frameOf(frame)?.place ?? frame;
}

/** The user's frames behind an operation, the outermost first; of reports of earlier versions, its line alone. */
export function framesOf(report, operation) {
  if (operation.call_path?.length) return operation.call_path.map((number) => text(report, number));
  return operation.origin ? [operation.origin] : [];
}

/** The user's line that an operation is of, or "". */
export function lineOf(report, operation) {
  return framesOf(report, operation).at(-1) ?? "";
}

/** A function as people call it: `Block` of `model.<locals>.Block.__call__`. */
export function shortFunction(name) {
  return name.split("<locals>.").at(-1).replace(/\.__call__$/, "");
}

/** A call path in few words, as `resnet.py:17 > :5`: a line of the file before it is named by its number alone. */
export function pathText(frames) {
  let last = null;
  return frames.map((frame) => {
    const { file, line, place } = frameOf(frame) ?? { place: frame };
    const shown = file === last ? `:${line}` : shortOrigin(place);
    last = file;
    return shown;
  }).join(" > ");
}
