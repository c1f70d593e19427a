// The user's files: what each line takes, alone and with what it calls, and the operations that it comes to.
import {numberColumn} from "../columns.js";
import {choiceOf} from "../controls.js";
import {bytes, cycles, element, percent, shortOrigin} from "../format.js";
import {frameOf, framesOf, pathText, placeOf} from "../frames.js";
import {rowItem} from "../items.js";
import {lineOperationColumns, mostFirst} from "../operationcolumns.js";
import {operationDetail, operationFacts} from "../operationdetail.js";
import {operationGroups} from "../operationsums.js";
import {panel} from "../parts.js";
import {sourceFiles} from "../sourcelines.js";
import {exactly, linked, relinked} from "../store.js";
import {sortableTable} from "../table.js";

const NARROW_SOURCE = 700; // pixels under which only the most telling columns are there

/** The user's lines of a report, linked with what is selected elsewhere. */
export function sourceView(root, report, store) {
  const files = sourceFiles(report);
  if (files.length) new SourceView(root, report, store, files);
  else root.append(panel("Source", [], element("p", { class: "soft", text: "No operation of this report says which line it is of." })));
}

class SourceView {
  constructor(root, report, store, files) {
    this.report = report;
    this.store = store;
    this.files = files;
    this.all = report.operations.reduce((sum, operation) => sum + operation.cycles, 0);
    this.choice = choiceOf("File", files.map(({ file }, i) => [i, this.fileTitle(file)]), 0, (i) => this.showFile(files[i]));
    this.path = element("p", { class: "soft table-note" });
    this.place = element("div", { class: "source-lines" });
    this.below = element("div");
    this.details = element("div", { class: "tree-details" });
    this.choice.root.hidden = files.length === 1;
    root.append(panel("Source", [this.choice.root], this.path, this.place), this.below);
    this.showFile(files[0]);
    store.subscribe((selection, changed) => this.selected(changed));
    this.selected(["origin"]);
  }

  /** The name of a file, with its folder where several have that name. */
  fileTitle(file) {
    const alike = this.files.filter((other) => other.name === shortOrigin(file)).length > 1;
    return alike ? file.split("/").slice(-2).join("/") : shortOrigin(file);
  }

  showFile(file) {
    this.file = file;
    this.choice.set(this.files.indexOf(file));
    const own = `${cycles(file.cycles)} of ${cycles(this.all)} cycles are of operations on its lines`;
    const missing = file.lines.some(({ text }) => text !== null) ? "" : "its text is not in this report";
    this.path.textContent = [file.file, own, missing].filter(Boolean).join(" · ");
    this.place.replaceChildren();
    this.table = sortableTable(this.place, this.columns(), file.lines, {
      name: "source",
      sort: 0,
      height: 480,
      placeholder: "Filter lines",
      empty: "No lines.",
      onclick: (line) => this.choose(line),
      isSelected: (line) => this.isChosen(line),
      isExact: (line) => this.isChosen(line),
    });
    this.showLine(file.lines.reduce((most, line) => (line.own.cycles > most.own.cycles ? line : most)));
    this.table.reveal();
  }

  columns() {
    const most = Math.max(...this.file.lines.map((line) => line.cycles), 1);
    const mostOwn = Math.max(...this.file.lines.map((line) => line.own.cycles), 1);
    const told = (number) => (number ? cycles(number) : "");
    const heat = [
      { ...numberColumn("cycles", (line) => line.cycles, told, 10), bar: (line) => line.cycles / most, about: "Of a call, with all that the line calls." },
      { ...numberColumn("alone", (line) => line.own.cycles, told, 10), bar: (line) => line.own.cycles / mostOwn, tone: () => "own",
        about: "Of operations that are on the line itself." },
    ];
    const wide = [
      { ...numberColumn("share", (line) => line.cycles / this.all, (share) => (share ? percent(share) : ""), 8), about: "Of the cycles of all operations." },
      { ...numberColumn("bytes", (line) => line.bytes, (number) => (number ? bytes(number) : ""), 10.5), about: "Read and written by all that the line calls." },
      { ...numberColumn("alone", (line) => line.own.bytes, (number) => (number ? bytes(number) : ""), 10.5),
        about: "Read and written by operations on the line itself." },
    ];
    const code = { title: "text", value: (line) => line.text ?? "(not in this report)", tone: () => "code-cell", width: 44, grows: true, hint: (line) => line.origin };
    const number = { title: "line", numeric: true, value: (line) => line.line, text: (line) => String(line.line), tone: () => "code-cell", width: 8 };
    return innerWidth < NARROW_SOURCE ? [number, ...heat, code] : [number, ...heat, ...wide, code];
  }

  choose(line) {
    this.showLine(line);
    this.own = true;
    if (line.origin) this.store.select({ origin: line.origin });
    this.own = false;
  }

  isChosen({ file, line }) {
    return file === this.line?.file && line === this.line.line;
  }

  /** Lists the operations that a line comes to. */
  showLine(line) {
    this.line = line;
    this.table.refresh();
    this.details.replaceChildren();
    const rows = operationGroups(line.operations, "same");
    const title = `Operations of ${placeOf(line.origin ?? "") ? shortOrigin(placeOf(line.origin)) : `line ${line.line}`}`;
    const place = element("div");
    this.below.replaceChildren(panel(title, [], place, this.details));
    const columns = lineOperationColumns(this.report, rows, (row) => this.pathBelow(row));
    this.operations = sortableTable(place, columns, rows, {
      name: "source-operations",
      sort: mostFirst(columns),
      height: 300,
      placeholder: "Filter operations",
      empty: "No operation comes from this line.",
      onclick: (row) => this.pick(row),
      isSelected: (row) => linked(this.store.selection, rowItem(this.report, row)),
      isExact: (row) => exactly(this.store.selection, rowItem(this.report, row)),
    });
  }

  /** What the line calls on the way to an operation. */
  pathBelow(row) {
    const frames = framesOf(this.report, row);
    const here = placeOf(this.line.origin);
    const path = pathText(frames.slice(frames.findIndex((frame) => placeOf(frame) === here)));
    return path.split(" > ").slice(1).join(" > ");
  }

  pick(row) {
    const several = new Set(row.rows.map(({ ipu }) => ipu)).size > 1;
    this.own = true;
    this.store.pick(rowItem(this.report, row), { ipu: several ? null : row.ipu });
    this.own = false;
    this.details.replaceChildren(...operationDetail(this.report, this.store, row, operationFacts(this.report, row)));
  }

  /** Goes to the line of what was selected elsewhere. */
  selected(changed) {
    const { origin } = this.store.selection;
    if (!this.own && changed.includes("origin") && origin) this.goTo(frameOf(origin));
    if (relinked(changed) || changed.includes("ipu")) this.operations.refresh();
  }

  goTo(place) {
    const file = place && this.files.find((own) => own.file === place.file);
    const line = file?.lines.find((own) => own.line === place.line);
    if (!line) return;
    if (file !== this.file) this.showFile(file);
    this.showLine(line);
    this.table.reveal();
  }
}
