// What the host did in a real run, beside what the model says of a call.

import {Chart, ticksOf} from "../chart.js";
import {text} from "../document.js";
import {counted, cycles, element, seconds} from "../format.js";
import {inkOn, kindColour, themeColour} from "../palette.js";
import {inWords, legend, paintText, panel} from "../parts.js";
import {sortableTable} from "../table.js";

const HOST_KINDS = ["trace", "lower", "compile", "load", "feed", "execute", "dequeue", "report", "user"];
const HOST_OWN_COLOURS = 4;
const HOST_LEFT = 96;
const HOST_ROW = 24;
const HOST_AXIS = 24;
const RECORDING = [
  "import ipujax as ipu",
  "",
  "with ipu.host_trace.record() as trace:",
  "    ...  # what you want to see: compile and call",
  "executable.report(host=trace)",
].join("\n");

/** The host's part of a report. */
export function hostView(root, report, store) {
  if (report.host) new HostView(root, report, store);
  else root.append(panel("Host", [], howToRecord()), modelled(report));
}

function howToRecord() {
  return element(
    "div",
    {},
    element("p", {
      text:
        "Nothing of a real run is in this report. Record one, and it is shown here: " +
        "tracing, lowering, compiling, loading, feeding, executing, dequeuing, by thread.",
    }),
    element("pre", { class: "code", tabindex: 0, role: "group", "aria-label": "How a run is recorded", text: RECORDING }),
  );
}

function modelled(report) {
  const box = panel("The modelled call", []);
  box.append(
    element("p", {
      class: "soft",
      text: `One call takes ${callTime(report)} on ${counted(report.num_ipus, "IPU")} (${report.target.name}).`,
    }),
  );
  return box;
}

function callTime(report) {
  return `${seconds(report.seconds)} (${cycles(report.cycles)} cycles)`;
}

class HostView {
  constructor(root, report) {
    this.report = report;
    this.spans = spansOf(report);
    this.lanes = lanesOf(this.spans);
    this.last = this.spans.reduce((latest, span) => Math.max(latest, span.start + span.seconds), 0) || 1;
    this.tables(root, this.build(root));
  }

  build(root) {
    this.kinds = kindsOf(this.spans);
    const box = panel("Host", [legend(this.kinds.map((kind) => [kind, this.colourOf(kind)]))]);
    root.append(box);
    this.rows = this.lanes.length + 1;
    const chart = new Chart(box, {
      name: "host",
      label: `What the host did in ${seconds(this.last)}, by thread. Arrow keys move, plus and minus zoom.`,
      height: this.rows * HOST_ROW + HOST_AXIS,
      domain: [0, Math.max(this.last, this.report.seconds)],
      least: Math.min(1e-6, this.last),
      left: HOST_LEFT,
      draw: (ctx, view) => this.draw(ctx, view),
      hover: (x, y, view) => this.hover(x, y, view),
    });
    this.executed = this.spans.find((span) => span.kind === "execute");
    const where = this.executed ? ", beside the first call that was executed" : "";
    const model = `The lowest row is the modelled call, ${callTime(this.report)}, at the same scale${where}.`;
    box.append(
      element("p", { class: "faint", text: `Wall clock since the recording began. ${model}` }),
    );
    return chart;
  }

  tables(root, chart) {
    const own = ownSeconds(this.spans);
    const totals = this.kinds.map((kind) => ({
      kind,
      count: this.spans.filter((span) => span.kind === kind).length,
      seconds: own.get(kind),
    }));
    const most = totals.reduce((largest, row) => Math.max(largest, row.seconds), 1e-12);
    const said = "What lies inside another span of its thread counts for the inner one alone; threads add up.";
    const byKind = panel("By kind", [], element("p", { class: "faint table-note", text: said }));
    const all = panel("Spans", []);
    root.append(element("div", { class: "columns" }, byKind, all));
    const colour = (row) => `var(--${this.colourOf(row.kind)})`;
    const time = { title: "Time", about: "What is inside included.", value: (row) => row.seconds, text: (row) => seconds(row.seconds), numeric: true };
    sortableTable(
      byKind,
      [
        { title: "Kind", value: (row) => row.kind, colour },
        { title: "Spans", value: (row) => row.count, numeric: true },
        { ...time, title: "Own time", about: said, bar: (row) => row.seconds / most },
      ],
      totals,
      { name: "host-kinds", sort: -3, filter: false },
    );
    sortableTable(
      all,
      [
        { title: "Name", value: (row) => row.name || row.kind, colour },
        { title: "Kind", value: (row) => row.kind },
        { title: "Thread", value: (row) => row.thread },
        { title: "Start", about: "Since the recording began.", value: (row) => row.start, text: (row) => seconds(row.start), numeric: true },
        time,
      ],
      this.spans,
      {
        name: "host-spans",
        sort: 3,
        onclick: (row) => chart.show(row.start - row.seconds, row.start + 2 * row.seconds),
      },
    );
  }

  draw(ctx, view) {
    ctx.save();
    ctx.beginPath();
    ctx.rect(HOST_LEFT, 0, view.width - HOST_LEFT, view.height);
    ctx.clip();
    this.drawAxis(ctx, view);
    this.lanes.forEach((lane, i) => lane.spans.forEach((span) => this.drawSpan(ctx, view, span, i * HOST_ROW + 2)));
    this.drawModel(ctx, view, this.lanes.length * HOST_ROW + 2);
    ctx.restore();
    ctx.fillStyle = themeColour("text-soft");
    this.lanes.forEach((lane, i) => lane.label && paintText(ctx, lane.label, 2, (i + 0.5) * HOST_ROW, HOST_LEFT - 6));
    ctx.fillText("modelled call", 2, (this.lanes.length + 0.5) * HOST_ROW);
  }

  /** The modelled call beside the first that was executed: it is about as long as its row is. */
  drawModel(ctx, view, top) {
    const start = this.executed?.start ?? 0;
    const { busy_cycles: busy, cycles: whole, num_ipus: ipus } = this.report;
    const x = view.toX(start);
    const width = Math.max(view.toX(start + this.report.seconds) - x, 1);
    ctx.fillStyle = kindColour("waiting");
    ctx.fillRect(x, top, width, HOST_ROW - 4);
    let from = x;
    for (const [kind, own] of Object.entries(busy)) {
      const part = (width * own.reduce((sum, one) => sum + one, 0)) / Math.max(whole * ipus, 1);
      ctx.fillStyle = kindColour(kind);
      ctx.fillRect(from, top, part, HOST_ROW - 4);
      from += part;
    }
  }

  drawAxis(ctx, view) {
    const top = this.rows * HOST_ROW;
    for (const mark of ticksOf(view.lo, view.hi, (view.width - HOST_LEFT) / 100)) {
      const x = Math.round(view.toX(mark));
      ctx.fillStyle = themeColour("grid");
      ctx.fillRect(x, 0, 1, top + 4);
      ctx.fillStyle = themeColour("text-soft");
      ctx.textAlign = x < HOST_LEFT + 20 ? "left" : x > view.width - 30 ? "right" : "center";
      ctx.fillText(seconds(mark), x, top + 14);
    }
    ctx.textAlign = "left";
  }

  hover(x, y, view) {
    const row = Math.floor(y / HOST_ROW);
    if (row === this.lanes.length) return this.modelLines();
    const time = view.fromX(x);
    const slack = (3 * (view.hi - view.lo)) / view.width;
    const span = this.lanes[row]?.spans.find(
      (own) => own.start - slack <= time && time <= own.start + own.seconds + slack,
    );
    return span
      ? [
          span.name || span.kind,
          `${span.kind}, ${seconds(span.seconds)}`,
          `from ${seconds(span.start)} since the recording began`,
          `thread ${span.thread}`,
        ]
      : null;
  }

  drawSpan(ctx, view, span, top) {
    const x = view.toX(span.start);
    const width = Math.max(view.toX(span.start + span.seconds) - x, 1);
    if (x > view.width || x + width < HOST_LEFT) return;
    const colour = themeColour(this.colourOf(span.kind));
    ctx.fillStyle = colour;
    ctx.fillRect(x, top, width > 3 ? width - 0.5 : width, HOST_ROW - 4);
    ctx.fillStyle = inkOn(colour);
    const from = Math.max(x, HOST_LEFT);
    const room = Math.min(x + width, view.width) - from - 8;
    paintText(ctx, span.name || span.kind, from + 4, top + HOST_ROW / 2 - 2, room);
  }

  /** The variable of a kind's colour; words of the user's own have some of their own. */
  colourOf(kind) {
    if (HOST_KINDS.includes(kind)) return `host-${kind}`;
    const place = this.kinds.filter((other) => !HOST_KINDS.includes(other)).indexOf(kind);
    return `host-own-${place % HOST_OWN_COLOURS}`;
  }

  modelLines() {
    const { busy_cycles: busy, cycles: whole, num_ipus: ipus } = this.report;
    const parts = Object.entries(busy).map(([kind, own]) => [kind, own.reduce((sum, one) => sum + one, 0) / ipus]);
    return [
      `modelled call: ${seconds(this.report.seconds)}`,
      ...parts
        .filter(([, own]) => own)
        .map(
          ([kind, own]) =>
            `${inWords(kind)}: ${seconds((this.report.seconds * own) / Math.max(whole, 1))} on an average IPU`,
        ),
    ];
  }
}

function spansOf(report) {
  const { kind, name, start, seconds: long, thread } = report.host.spans;
  const spans = start.map((begin, i) => ({
    kind: text(report, kind[i]),
    name: text(report, name[i]),
    start: begin,
    seconds: long[i],
    thread: text(report, thread[i]),
  }));
  return spans.sort((a, b) => a.start - b.start || b.seconds - a.seconds);
}

/** Seconds by kind; what lies inside another span of its thread counts for the inner one alone. */
function ownSeconds(spans) {
  const total = new Map();
  const around = new Map(); // by thread, the spans that a start lies in
  const add = (kind, time) => total.set(kind, (total.get(kind) ?? 0) + time);
  for (const span of spans) {
    if (!around.has(span.thread)) around.set(span.thread, []);
    const outer = around.get(span.thread);
    while (outer.length && outer.at(-1).start + outer.at(-1).seconds <= span.start) outer.pop();
    if (outer.length) add(outer.at(-1).kind, -span.seconds);
    add(span.kind, span.seconds);
    outer.push(span);
  }
  return total;
}

/** The kinds that there are: those of the library first, then words of the user's own. */
function kindsOf(spans) {
  const used = new Set(spans.map((span) => span.kind));
  return [
    ...HOST_KINDS.filter((kind) => used.has(kind)),
    ...[...used].filter((kind) => !HOST_KINDS.includes(kind)).sort(),
  ];
}

/** A row for each thread, and more below it for spans inside of others. */
function lanesOf(spans) {
  const threads = new Map();
  for (const span of spans) {
    if (!threads.has(span.thread)) threads.set(span.thread, []);
    const rows = threads.get(span.thread);
    let row = rows.find((own) => own.end <= span.start + 1e-12);
    if (!row) rows.push((row = { spans: [], end: 0 }));
    row.spans.push(span);
    row.end = Math.max(row.end, span.start + span.seconds);
  }
  return [...threads].flatMap(([thread, rows]) => rows.map((row, i) => ({ label: i ? "" : thread, spans: row.spans })));
}
