// Where the cycles of a call go: a bar for all IPUs and one for each, whose parts add up to the whole.

import {hideTooltip, showTooltip} from "./chart.js";
import {cycles, element, exact, percent, percents} from "./format.js";
import {term} from "./glossary.js";
import {panel} from "./parts.js";

/** What the cycles of a call go to. */
export const CAUSES = ["work", "exchange", "copies", "update", "host", "streaming memory", "imbalance", "bubble"];

/** The share of a cause in the cycles of all IPUs, rounded as it is shown; null in reports that do not say it. */
export function causeShare(report, cause) {
  if (!report.breakdown) return null;
  return parseFloat(percents(CAUSES.map((each) => cyclesOf(report, each)))[CAUSES.indexOf(cause)]) / 100;
}

function cyclesOf(report, cause) {
  return report.breakdown[cause].reduce((sum, own) => sum + own, 0);
}

/** The class that colours a cause. */
function colourClass(cause) {
  return `cause-${cause.replaceAll(" ", "-")}`;
}

/** The panel of a report's breakdown; clicking a bar selects its IPU. */
export function breakdownPanel(report, store) {
  if (!report.breakdown) {
    const text = "An earlier version of ipujax wrote this report: model the program again to see it.";
    return panel("Where the time goes", [], element("p", { class: "soft", text }));
  }
  const causes = CAUSES.filter((cause) => report.breakdown[cause].some(Boolean));
  const ipus = Array.from({ length: report.num_ipus }, (_, ipu) => causes.map((cause) => report.breakdown[cause][ipu]));
  const whole = causes.map((cause) => cyclesOf(report, cause));
  const bars = ipus.map((parts, ipu) =>
    barRow(`IPU ${ipu}`, causes, parts, { "data-ipu": ipu, onclick: () => store.select({ ipu }) }),
  );
  const mark = () => bars.forEach((bar, ipu) => bar.setAttribute("aria-pressed", String(ipu === store.selection.ipu)));
  store.subscribe((_, changed) => changed.includes("ipu") && mark());
  mark();
  const all = bars.length > 1 && barRow("all", causes, whole, { "data-ipu": "all", class: "cause-row whole" });
  const text = `${exact(report.cycles)} cycles a call; right of each bar is its share of work.`;
  return panel(
    "Where the time goes",
    [],
    causeKey(causes, whole),
    element("div", { class: bars.length > 8 ? "cause-rows many" : "cause-rows" }, all || null, bars),
    element("p", { class: "faint", text }),
  );
}

/** What colours mean, with the shares of the whole: they add up to 100.0%. */
function causeKey(causes, whole) {
  const shares = percents(whole);
  return element(
    "div",
    { class: "cause-key" },
    causes.map((cause, i) =>
      element(
        "span",
        { "data-cause": cause },
        element("span", { class: `swatch ${colourClass(cause)}` }),
        term(cause),
        element("b", { text: shares[i] }),
      ),
    ),
  );
}

function barRow(name, causes, parts, attributes) {
  const whole = parts.reduce((sum, part) => sum + part, 0) || 1;
  const shares = percents(parts);
  const lines = causes.map((cause, i) => `${cause}: ${shares[i]}, ${cycles(parts[i])} cycles`);
  const work = shares[causes.indexOf("work")] ?? percent(0);
  const label = [`${name} ${work} work`, ...lines].join("; "); // what can be seen comes first
  const row = element(
    attributes.onclick ? "button" : "div",
    { class: "cause-row", type: attributes.onclick && "button", "aria-label": label, ...attributes },
    element("span", { class: "cause-name", text: name }),
    " ",
    element(
      "span",
      { class: "cause-bar" },
      causes.map((cause, i) =>
        element("span", { class: colourClass(cause), style: { width: `${(100 * parts[i]) / whole}%` } }),
      ),
    ),
    element("span", { class: "cause-share", text: work }),
  );
  row.addEventListener("pointermove", (event) => showTooltip([name, ...lines], event.clientX, event.clientY));
  row.addEventListener("pointerleave", hideTooltip);
  return row;
}
