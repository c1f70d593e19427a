// The user's files that call paths name: their lines, and what each takes, alone and with what it calls.

import {shortOrigin} from "./format.js";
import {frameOf, framesOf, placeOf} from "./frames.js";

/** A line of a file: its text (null if that is not at hand), and the operations that it is on the way to. */
class SourceLine {
  constructor(file, line, text = null) {
    this.file = file;
    this.line = line;
    this.text = text;
    this.origin = null; // as what it is selected: the frame behind most cycles
    this.frames = new Map(); // cycles by frame
    this.operations = [];
    this.cycles = 0;
    this.bytes = 0;
    this.own = { cycles: 0, bytes: 0 };
  }

  add(operation, frame, isInnermost) {
    this.operations.push(operation);
    this.cycles += operation.cycles;
    this.bytes += operation.bytes;
    this.frames.set(frame, (this.frames.get(frame) ?? 0) + operation.cycles);
    if (!isInnermost) return;
    this.own.cycles += operation.cycles;
    this.own.bytes += operation.bytes;
  }

  finish() {
    const [most] = [...this.frames].sort(([, a], [, b]) => b - a);
    this.origin = most ? most[0] : null;
    return this;
  }
}

const INSTALLED = /[/\\](site|dist)-packages[/\\]/;

/**
 * The user's files of a report, or those of packages where there are no others, those that take most cycles by
 * themselves first: `{file, name, cycles, calls, lines}`, where `calls` counts what its lines call, too.
 */
export function sourceFiles(report) {
  const files = new Map();
  for (const { file, line, text } of report.sources ?? []) {
    const lines = linesOf(files, file);
    text.replace(/\n$/, "").split("\n").forEach((own, i) => lines.set(line + i, new SourceLine(file, line + i, own)));
  }
  for (const operation of report.operations) addOperation(files, operation, framesOf(report, operation));
  const found = [...files].map(([file, lines]) => finishedFile(file, [...lines.values()])).filter(({ calls }) => calls);
  const own = found.filter(({ file }) => !INSTALLED.test(file));
  return (own.length ? own : found).sort((a, b) => b.cycles - a.cycles || b.calls - a.calls);
}

function linesOf(files, file) {
  if (!files.has(file)) files.set(file, new Map());
  return files.get(file);
}

/** Counts an operation once for each line of its call path, however often that comes. */
function addOperation(files, operation, frames) {
  const seen = new Set();
  frames.forEach((frame, i) => {
    const found = frameOf(frame);
    if (!found || seen.has(found.place)) return;
    seen.add(found.place);
    const lines = linesOf(files, found.file);
    if (!lines.has(found.line)) lines.set(found.line, new SourceLine(found.file, found.line));
    lines.get(found.line).add(operation, frame, placeOf(frames.at(-1)) === found.place);
  });
}

function finishedFile(file, found) {
  const lines = found.map((line) => line.finish()).sort((a, b) => a.line - b.line);
  return {
    file,
    name: shortOrigin(file),
    cycles: lines.reduce((sum, line) => sum + line.own.cycles, 0),
    calls: lines.reduce((sum, line) => sum + line.cycles, 0),
    lines,
  };
}
