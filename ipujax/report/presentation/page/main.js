// The page: header, tabs, what is selected, and the views, each built when it is first shown.

import {tickBox} from "./controls.js";
import {loadReports, reportLabels} from "./document.js";
import {element, shortOrigin} from "./format.js";
import {numberAlike, operationOf} from "./items.js";
import {friendlyName} from "./names.js";
import {currentTheme, setTheme} from "./palette.js";
import {SameScale} from "./scale.js";
import {Store} from "./store.js";
import {compareView} from "./views/compare.js";
import {hostView} from "./views/host.js";
import {livenessView} from "./views/liveness.js";
import {memoryView} from "./views/memory.js";
import {operationsView} from "./views/operations.js";
import {programView} from "./views/program.js";
import {scheduleView} from "./views/schedule.js";
import {summaryView} from "./views/summary.js";
import {timelineView} from "./views/timeline.js";

const PAGE_VIEWS = [
  { name: "summary", title: "Summary", build: summaryView },
  { name: "memory", title: "Memory", build: memoryView },
  { name: "liveness", title: "Liveness", build: livenessView },
  { name: "program", title: "Program", build: programView },
  { name: "operations", title: "Operations", build: operationsView },
  { name: "timeline", title: "Timeline", build: timelineView },
  { name: "schedule", title: "Schedule", build: scheduleView, has: (report) => report.pipeline },
  { name: "host", title: "Host", build: hostView },
];
const COMPARE_VIEW = { name: "compare", title: "Compare" };
const SCALED_VIEWS = ["memory", "timeline"];
const THEME_KEY = "ipujax-theme";

class Page {
  constructor(root, reports) {
    this.root = root;
    this.reports = reports;
    this.labels = reportLabels().map((label, i) => label || reports[i].name || "program");
    this.scale = new SameScale(reports);
    this.store = new Store();
    this.store.opener = (name) => this.goTo(this.views.some((view) => view.name === name) ? name : "timeline");
    const views = PAGE_VIEWS.filter((view) => !view.has || reports.some(view.has));
    this.views = reports.length > 1 ? [COMPARE_VIEW, ...views] : views;
    this.tabs = this.views.map((view) => this.tab(view));
    this.panels = this.views.map((view) =>
      element("section", { id: `panel-${view.name}`, role: "tabpanel", "aria-label": view.title, hidden: true }),
    );
    root.replaceChildren(this.header(), element("main", {}, this.panels));
    this.store.subscribe(() => this.showSelection());
    this.showSelection();
    this.show(this.asked() ?? this.views[0].name);
    quietly(() => history.replaceState(null, "", `#${this.shown}`));
    for (const moved of ["hashchange", "popstate"]) addEventListener(moved, () => this.show(this.asked() ?? this.shown));
    addEventListener("keydown", (event) => this.key(event));
  }

  /** The view that the address asks for, if it is there. */
  asked() {
    const name = location.hash.slice(1);
    return this.views.some((view) => view.name === name) ? name : null;
  }

  /** Shows a view, from which the browser's way back leads to the one before. */
  goTo(name) {
    if (name === this.shown) return;
    this.show(name);
    scrollTo(0, 0);
    quietly(() => history.pushState(null, "", `#${name}`));
  }

  show(name) {
    this.shown = name;
    this.views.forEach((view, i) => {
      const own = view.name === name;
      this.tabs[i].setAttribute("aria-selected", String(own));
      this.tabs[i].tabIndex = own ? 0 : -1;
      this.panels[i].hidden = !own;
      if (own && !this.panels[i].childElementCount) this.build(view, this.panels[i]);
      if (own) bringIntoSight(this.tabs[i]);
    });
  }

  build(view, panel) {
    const roots = view === COMPARE_VIEW ? [null] : this.reports.filter((report) => !view.has || view.has(report));
    const several = view !== COMPARE_VIEW && this.reports.length > 1;
    if (several && SCALED_VIEWS.includes(view.name)) panel.append(this.scaleSwitch());
    for (const report of roots) {
      const root = element("div", { class: "view", "data-view": view.name });
      const title = several && element("h2", { class: "side-title", text: this.sideTitle(report) });
      panel.append(element("div", { class: "side" }, title || null, root));
      if (report) view.build(root, report, this.store, this.scale);
      else compareView(root, this.reports, this.store, this.labels);
    }
    panel.classList.toggle("sides", several);
  }

  /** One switch for all views. */
  scaleSwitch() {
    const box = tickBox("same scale on both sides", this.scale.on, (on) => this.scale.set(on));
    this.scale.subscribe(() => {
      box.querySelector("input").checked = this.scale.on;
    });
    return element("div", { class: "controls same-scale" }, box);
  }

  sideTitle(report) {
    const i = this.reports.indexOf(report);
    const name = report.name || "program";
    return `${"AB"[i]}: ${this.labels[i]}${this.labels[i] === name ? "" : ` (${name})`}`;
  }

  header() {
    const name = [...new Set(this.labels)].join(" and ");
    this.chip = element("div", { class: "chip", "aria-live": "polite" });
    this.theme = element("button", {
      class: "theme",
      type: "button",
      title: "Light or dark",
      "aria-label": "Light or dark",
      text: "◐",
      onclick: () => this.toggleTheme(),
    });
    return element(
      "header",
      {},
      element(
        "div",
        { class: "title-row" },
        element("h1", { title: name }, element("span", { class: "brand", text: "ipujax" }), name),
        this.chip,
        this.theme,
      ),
      element("div", { class: "tabs", role: "tablist", onkeydown: (event) => this.tabKey(event) }, this.tabs),
    );
  }

  tab(view) {
    return element("button", {
      type: "button",
      role: "tab",
      "data-tab": view.name,
      "aria-controls": `panel-${view.name}`,
      text: view.title,
      onclick: () => this.goTo(view.name),
    });
  }

  tabKey(event) {
    const moves = { ArrowRight: 1, ArrowLeft: -1 };
    if (!moves[event.key]) return;
    const now = this.tabs.findIndex((tab) => tab.getAttribute("aria-selected") === "true");
    const next = (now + moves[event.key] + this.tabs.length) % this.tabs.length;
    this.goTo(this.views[next].name);
    this.tabs[next].focus();
    event.preventDefault();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("input, select")) return;
    if (event.key === "Escape") this.store.clear();
    const view = this.views[Number(event.key) - 1];
    if (event.key >= "1" && event.key <= "9" && view) this.goTo(view.name);
  }

  showSelection() {
    const parts = selectionTexts(this.store.selection, this.selectedName());
    this.chip.hidden = !parts.length;
    const clear = element("button", {
      type: "button",
      title: "Select nothing (Esc)",
      "aria-label": "Select nothing",
      text: "×",
      onclick: () => this.store.clear(),
    });
    const texts = parts.map(([what, value, full]) =>
      element(
        "span",
        { class: "chip-part", title: full ?? value },
        element("span", { class: "faint", text: what }),
        value,
      ),
    );
    this.chip.replaceChildren(...texts, clear);
  }

  /** What people call what is selected. */
  selectedName() {
    const { name, operation } = this.store.selection;
    const found = operation !== null && this.reports.map((report) => operationOf(report, operation)).find(Boolean);
    return found ? friendlyName(found) : name;
  }

  toggleTheme() {
    setTheme(currentTheme() === "dark" ? "light" : "dark");
    quietly(() => localStorage.setItem(THEME_KEY, currentTheme()));
  }
}

function selectionTexts({ origin, scope, ipu, tile, step, tick, category }, name) {
  const number = (value) => (value === null ? null : String(value));
  const parts = [
    ["", name],
    ["all in", scope],
    [name && origin ? "and, weaker, its line" : "", shortOrigin(origin), origin],
    ["IPU", number(ipu)],
    ["tile", number(tile)],
    ["step", number(step)],
    ["tick", number(tick)],
    ["", category],
  ];
  return parts.filter(([, value]) => value);
}

/** Scrolls a row of tabs, and nothing around it, to where one of them can be seen. */
function bringIntoSight(tab) {
  const row = tab.parentElement;
  if (!row) return;
  const left = tab.offsetLeft - row.offsetLeft;
  const most = left - 24;
  const least = left + tab.offsetWidth + 24 - row.clientWidth;
  row.scrollLeft = Math.min(Math.max(row.scrollLeft, least), most);
}

/** Does what a sandboxed frame may forbid. */
function quietly(action) {
  try {
    return action();
  } catch {
    return null;
  }
}

async function startPage() {
  const root = document.getElementById("app");
  const theme = quietly(() => localStorage.getItem(THEME_KEY));
  if (theme) setTheme(theme);
  try {
    const reports = await loadReports();
    if (reports.length > 1) numberAlike(...reports);
    const page = new Page(root, reports);
    window.ipujax = { store: page.store, reports };
  } catch (error) {
    root.replaceChildren(
      element("p", { class: "failed", role: "alert", text: `This report cannot be shown: ${error}` }),
    );
    throw error;
  }
  requestAnimationFrame(() =>
    setTimeout(() => {
      document.documentElement.dataset.ready = "true";
      performance.mark("ipujax-ready");
    }),
  );
}

startPage();
