// The first look: what it is, whether it fits, how long it takes, and what would help.

import {breakdownPanel} from "../breakdown.js";
import {bytes, counted, cycles, deviceRanges, element, exact, percent, seconds, shortOrigin} from "../format.js";
import {term} from "../glossary.js";
import {figure, panel} from "../parts.js";
import {linked} from "../store.js";

/** Summary of a report. */
export function summaryView(root, report, store) {
  // What does not fit cannot run at all, so its advice comes before what would make it faster.
  const panels = [advicePanel(report), costsPanel(report, store), meshesPanel(report), assumptionsPanel(report)];
  root.append(
    figuresPanel(report),
    element("div", { class: "columns" }, breakdownPanel(report, store), fitPanel(report, store)),
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
          `${elementsOf(report)} a second`,
          `${exact(report.elements)} of each call, over all replicas`,
        ),
      report.throughput &&
        report.batch_size &&
        figure(cycles(report.throughput * report.batch_size), "examples a second"),
      pipeline &&
        figure(
          exact(pipeline.micro_batches),
          `micro-batches through ${counted(pipeline.stages, "stage")}`,
          `In ${counted(pipeline.ticks, "tick")}; schedule ${pipeline.schedule}`,
        ),
      figure(exact(report.steps.count), "steps"),
    ),
  );
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
      remote ? figure(bytes(remote), element("span", {}, "in ", term("streaming memory"))) : null,
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
    text: "What each takes off the IPU with the fullest tile, as modelled.",
  });
  return panel("What would make it fit", [head], element("ul", { class: "advice" }, entries));
}

/** The JAX devices that run each IPU; null for programs without meshes, and for earlier reports. */
function meshesPanel(report) {
  if (!report.meshes?.length) return null;
  const entries = report.meshes.map(({ replica, ipu, axes, sizes, devices }) => {
    const place = report.replication_factor > 1 ? ` of replica ${replica}` : "";
    const shape = axes.map((axis, i) => `${axis}=${sizes[i]}`).join(", ");
    return element("li", { text: `IPU ${ipu}${place}: mesh ${shape} of ${deviceRanges(devices)}` });
  });
  const head = element("span", { class: "faint", text: "What is modelled are IPUs, not these." });
  return panel("JAX devices", [head], element("ul", { class: "plain meshes" }, entries));
}

function assumptionsPanel(report) {
  const general = element("li", {}, `${percent(report.default_share)} of the computing is estimated by the `, term("general formula"));
  const entries = report.assumptions.map((text) => element("li", { text }));
  if (report.default_share) entries.unshift(general);
  if (!entries.length) return null;
  return panel(
    "Assumed",
    [],
    element(
      "ul",
      { class: "plain" },
      entries,
    ),
  );
}

/** What an infeed gives at a time, in words: batches where all its arrays have as many rows. */
function elementsOf({ batch_size: rows, pipeline }) {
  if (rows) return `batches of ${exact(rows)}`;
  return pipeline ? "micro-batches" : "elements";
}
