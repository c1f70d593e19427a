// The first look: what it is, whether it fits, how long it takes, and what would help.

import {Chart} from "../chart.js";
import {bytes, counted, cycles, element, exact, percent, seconds, shortOrigin} from "../format.js";
import {kindColour, themeColour} from "../palette.js";
import {figure, inWords, legend, paintRowLabels, panel} from "../parts.js";
import {linked} from "../store.js";
import {LANE_KINDS} from "../trace.js";

const BUSY_LEFT = 52;
const BUSY_RIGHT = 66;
const BUSY_HEAD = 18; // pixels of what the numbers are

/** Summary of a report. */
export function summaryView(root, report, store) {
  // What does not fit cannot run at all, so its advice comes before what would make it faster.
  const panels = [advicePanel(report), costsPanel(report, store), assumptionsPanel(report)];
  root.append(
    figuresPanel(report),
    element("div", { class: "columns" }, fitPanel(report, store), busyPanel(report, store)),
    ...panels.filter(Boolean),
  );
}

function figuresPanel(report) {
  const { target, pipeline } = report;
  const replicas = report.replication_factor > 1 ? ` in each of ${report.replication_factor} replicas` : "";
  const instances = report.instances > 1 ? ` in ${report.instances} instances` : "";
  const ipus = counted(report.num_ipus, "IPU") + replicas + instances;
  const clock = `${(target.clock_hz / 1e9).toFixed(2)} GHz`;
  const chip = `${exact(target.tiles_per_ipu)} tiles each, ${clock}, modelled by ipujax ${report.ipujax}`;
  return panel(
    `${target.name}, ${ipus}`,
    [element("span", { class: "soft", text: chip })],
    element(
      "div",
      { class: "figures even" },
      figure(seconds(report.seconds), "a call takes"),
      figure(cycles(report.cycles), "cycles of a call", `${exact(report.cycles)} cycles`),
      report.throughput &&
        figure(
          cycles(report.throughput),
          "elements a second",
          `${exact(report.elements)} elements of each call, over all replicas`,
        ),
      figure(percent(computeShare(report)), "compute share", "The share of compute in the cycles of all IPUs"),
      pipeline &&
        figure(
          percent(pipeline.utilisation),
          "pipeline utilisation",
          "The share of the pipeline's time in which an average IPU works",
        ),
      pipeline &&
        figure(
          percent(pipeline.bubble_fraction),
          "pipeline bubble",
          "The idle share of the grid of IPUs and ticks",
        ),
      figure(exact(report.steps.count), "steps"),
      figure(
        percent(report.default_share),
        "rests on defaults",
        "The share of compute cycles that come from default formulas, and not from those of the operation",
      ),
    ),
  );
}

function computeShare(report) {
  return report.busy_cycles.compute.reduce((sum, busy) => sum + busy, 0) / Math.max(report.num_ipus * report.cycles, 1);
}

function fitPanel(report, store) {
  const { memory } = report;
  const peak = memory.tile_peak_bytes.flat().reduce((most, [value]) => Math.max(most, value), 0);
  const verdict = memory.fits
    ? element("strong", { class: "good", text: "✓ It fits" })
    : element("strong", { class: "bad", text: `✗ ${bytes(memory.missing_bytes)} too much` });
  const { ipu, tile } = memory.worst;
  const go = element("button", {
    class: "button",
    type: "button",
    text: `IPU ${ipu}, tile ${tile}`,
    title: "Look at it",
    onclick: () => store.open("memory", { ipu, tile }),
  });
  const remote = memory.remote_bytes.reduce((sum, own) => sum + own, 0);
  return panel(
    "Memory",
    [verdict],
    fitBar("the fullest tile", peak, memory.limit),
    fitBar("instructions on the tile that has most", memory.most_code_bytes, memory.code_limit),
    element(
      "div",
      { class: "figures small" },
      element("div", { class: "figure" }, go, element("div", { class: "figure-label", text: "is the fullest" })),
      figure(bytes(memory.peak_bytes.reduce((sum, own) => sum + own, 0)), "on all IPUs, each at its worst step"),
      remote ? figure(bytes(remote), "in streaming memory") : null,
    ),
  );
}

function fitBar(label, used, limit) {
  const over = used > limit;
  const most = Math.max(used, limit);
  const bar = element(
    "div",
    { class: over ? "fit-bar over" : "fit-bar", role: "img", "aria-label": `${bytes(used)} of ${bytes(limit)}` },
    element("div", { class: "fit-used", style: { width: `${(100 * used) / most}%` } }),
    element("div", { class: "fit-limit", style: { left: `${(100 * limit) / most}%` } }),
  );
  const said = `${bytes(used)} of ${bytes(limit)}, ${percent(used / limit)}`;
  return element(
    "div",
    { class: "fit" },
    element(
      "div",
      { class: "fit-text" },
      element("span", { text: said }),
      element("span", { class: "soft", text: label }),
    ),
    bar,
  );
}

function busyPanel(report, store) {
  const rows = busyRows(report);
  const whole = Math.max(report.cycles, ...rows.map((row) => row.busy.reduce((sum, part) => sum + part, 0)), 1);
  const kinds = [...LANE_KINDS.filter((kind) => report.busy_cycles[kind]?.some(Boolean)), "waiting"];
  const rowHeight = busyRowHeight(report);
  const rowAt = (y) => Math.floor((y - BUSY_HEAD) / rowHeight);
  const box = panel("What the IPUs do", [legend(kinds.map((kind) => [inWords(kind), `kind-${kind}`]))]);
  const chart = new Chart(box, {
    name: "summary-busy",
    label: "Cycles of each IPU by kind of step",
    height: rows.length * rowHeight + BUSY_HEAD + 4,
    domain: [0, whole],
    row: rowHeight,
    fixed: true,
    left: BUSY_LEFT,
    right: BUSY_RIGHT,
    draw: (ctx, view) => paintBusy(ctx, view, rows, rowHeight, store.selection.ipu),
    hover: (x, y) => busyAt(rows[rowAt(y)], report),
    click: (x, y) => rows[rowAt(y)] && store.select({ ipu: rowAt(y) }),
  });
  store.subscribe((_, changed) => changed.includes("ipu") && chart.draw());
  return box;
}

function busyRowHeight(report) {
  return report.num_ipus > 8 ? 15 : 22;
}

/** For each IPU cycles by kind, waiting last. */
function busyRows(report) {
  return Array.from({ length: report.num_ipus }, (_, ipu) => {
    const busy = LANE_KINDS.map((kind) => report.busy_cycles[kind]?.[ipu] ?? 0);
    const waiting = Math.max(report.cycles - busy.reduce((sum, part) => sum + part, 0), 0);
    return { ipu, busy: [...busy, waiting], whole: report.cycles };
  });
}

function paintBusy(ctx, view, rows, rowHeight, selected) {
  ctx.fillStyle = themeColour("text-faint");
  ctx.textAlign = "right";
  ctx.fillText("compute", view.width - 2, BUSY_HEAD / 2);
  ctx.textAlign = "left";
  const middle = (i) => BUSY_HEAD + (i + 0.5) * rowHeight + 1;
  rows.forEach((row, i) => {
    const top = BUSY_HEAD + i * rowHeight + 2;
    let from = 0;
    row.busy.forEach((part, k) => {
      ctx.fillStyle = kindColour(LANE_KINDS[k] ?? "waiting");
      const x = view.toX(from);
      ctx.fillRect(x, top, Math.max(view.toX(from + part) - x, 0), rowHeight - 4);
      from += part;
    });
    ctx.fillStyle = themeColour("text-soft");
    ctx.textAlign = "right";
    ctx.fillText(percent(row.busy[0] / Math.max(row.whole, 1)), view.width - 2, middle(i));
    ctx.textAlign = "left";
  });
  paintRowLabels(
    ctx,
    rows.map((row, i) => ({ label: `IPU ${i}`, key: i, y: middle(i) })),
    (ipu) => ipu === selected,
  );
}

function busyAt(row, report) {
  if (!row) return null;
  const parts = row.busy.map((part, k) => [LANE_KINDS[k] ?? "waiting", part]).filter(([, part]) => part);
  return [
    `IPU ${row.ipu}`,
    ...parts.map(
      ([kind, part]) => `${inWords(kind)}: ${cycles(part)} cycles, ${percent(part / Math.max(report.cycles, 1))}`,
    ),
  ];
}

function costsPanel(report, store) {
  if (!report.costs.length) return null;
  const cards = report.costs.map((cost) => costCard(cost, store));
  const mark = () =>
    cards.forEach((card, i) => {
      card.setAttribute("aria-pressed", String(linked(store.selection, report.costs[i])));
    });
  store.subscribe(mark);
  mark();
  return panel(
    "What takes most of the time",
    [element("span", { class: "faint", text: "Click one to see it where it shows best." })],
    element("div", { class: "cards" }, cards),
  );
}

/** A cost; it leads to the view that shows it best. */
function costCard(cost, store) {
  const where = [shortOrigin(cost.origin), cost.ipu === null ? "" : `IPU ${cost.ipu}`].filter(Boolean).join(", ");
  const patch = cost.ipu === null ? {} : { ipu: cost.ipu };
  if (cost.origin || cost.name) Object.assign(patch, { origin: cost.origin || null, name: cost.name || null });
  const view = viewOfCost(cost);
  return element(
    "button",
    { class: "card", "data-cost": view, type: "button", onclick: () => store.open(view, patch) },
    element(
      "span",
      { class: "card-head" },
      element("strong", { text: cost.title }),
      element("span", { class: "card-share", text: percent(cost.share) }),
    ),
    element(
      "span",
      { class: "card-bar" },
      element("span", { style: { width: `${Math.min(100 * cost.share, 100)}%` } }),
    ),
    element("span", {
      class: "soft",
      title: cost.origin,
      text: [`${cycles(cost.cycles)} cycles of all IPUs`, where].filter(Boolean).join(" · "),
    }),
    cost.detail && element("span", { text: cost.detail }),
    cost.remedy && element("span", { class: "remedy", text: cost.remedy }),
  );
}

/** Where a cost shows best: what an operation takes, how a pipeline's ticks are filled, or who does what when. */
function viewOfCost({ title, origin, name }) {
  if (/bubble|stages of|share a tick/.test(title)) return "schedule";
  return origin || name ? "operations" : "timeline";
}

function advicePanel(report) {
  if (!report.advice.length) return null;
  const entries = report.advice.map((entry) =>
    element(
      "li",
      { "data-advice": entry.rule ?? "" },
      element("span", { class: "advice-bytes", text: `about ${bytes(entry.about_bytes)}` }),
      element("span", { text: entry.text }),
    ),
  );
  const head = element("span", {
    class: "faint",
    text: "What each takes off the IPU with the fullest tile; of what was not modelled, at most.",
  });
  return panel("What would make it fit", [head], element("ul", { class: "advice" }, entries));
}

function assumptionsPanel(report) {
  if (!report.assumptions.length) return null;
  return panel(
    "Assumed",
    [],
    element(
      "ul",
      { class: "plain" },
      report.assumptions.map((text) => element("li", { text })),
    ),
  );
}
