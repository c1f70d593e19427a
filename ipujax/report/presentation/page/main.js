// The page: header, tabs, what is selected, and the views, each built when it is first shown.

import {addressOf, askedBy} from "./address.js";
import {tickBox} from "./controls.js";
import {dialogIsOpen} from "./dialogs.js";
import {loadComparison, loadReports, reportLabels} from "./document.js";
import {Finder} from "./finder.js";
import {element, shortOrigin} from "./format.js";
import {icon} from "./icons.js";
import {numberAlike} from "./items.js";
import {friendlyName} from "./names.js";
import {currentTheme, setTheme} from "./palette.js";
import {panel} from "./parts.js";
import {SameScale} from "./scale.js";
import {COMMAND_KEY, showShortcuts} from "./shortcuts.js";
import {relinked, Store} from "./store.js";
import {compareView} from "./views/compare.js";
import {hostView} from "./views/host.js";
import {livenessView} from "./views/liveness.js";
import {memoryView} from "./views/memory.js";
import {operationsView} from "./views/operations.js";
import {programView} from "./views/program.js";
import {rooflineView} from "./views/roofline.js";
import {scheduleView} from "./views/schedule.js";
import {sourceView} from "./views/source.js";
import {summaryView} from "./views/summary.js";
import {tileActivityView} from "./views/tileactivity.js";
import {timelineView} from "./views/timeline.js";

const PAGE_VIEWS = [
  { name: "summary", title: "Summary", build: summaryView },
  { name: "memory", title: "Memory", build: memoryView },
  { name: "liveness", title: "Liveness", build: livenessView },
  { name: "program", title: "Program", build: programView },
  { name: "operations", title: "Operations", build: operationsView },
  { name: "roofline", title: "Roofline", build: rooflineView, has: (report) => report.roofline?.points.bound.length, needs: "operation that its report places below the roofs of the chip" },
  { name: "tiles", title: "Tiles", build: tileActivityView, has: (report) => report.tile_activity?.compute_sets.length, needs: "compute set that its report has tile by tile" },
  { name: "source", title: "Source", build: sourceView },
  { name: "timeline", title: "Timeline", build: timelineView },
  { name: "schedule", title: "Schedule", build: scheduleView, has: (report) => report.pipeline, needs: "pipeline" },
  { name: "host", title: "Host", build: hostView },
];
const COMPARE_VIEW = { name: "compare", title: "Compare" };
const SCALED_VIEWS = ["memory", "timeline"];
const THEME_KEY = "ipujax-theme";
const COPIED_SHOWN = 1500; // milliseconds

class Page {
  constructor(root, reports, comparison) {
    this.root = root;
    this.reports = reports;
    this.comparison = comparison;
    this.labels = reportLabels().map((label, i) => label || reports[i].name || "program");
    this.scale = new SameScale(reports);
    this.finder = new Finder(reports, (entry, stay) => this.choose(entry, stay));
    this.store = new Store();
    this.store.opener = (name) => this.goTo(this.has(name) ? name : "timeline");
    const views = PAGE_VIEWS.filter((view) => !view.has || reports.some(view.has));
    this.views = reports.length > 1 ? [COMPARE_VIEW, ...views] : views;
    this.tabs = this.views.map((view) => this.tab(view));
    this.panels = this.views.map((view) =>
      element("section", { id: `panel-${view.name}`, role: "tabpanel", "aria-label": view.title, hidden: true }),
    );
    this.moves = []; // ways to write the address that wait for the end of what happens now
    root.replaceChildren(this.header(), element("main", {}, this.panels));
    this.shown = this.views[0].name;
    this.store.subscribe(() => this.showSelection());
    this.showSelection();
    this.restore();
    this.store.subscribe((_, changed) => this.moved(relinked(changed) ? "pushState" : "replaceState"));
    for (const gone of ["hashchange", "popstate"]) addEventListener(gone, () => this.restore());
    addEventListener("keydown", (event) => this.key(event));
  }

  /** Shows the view, and selects, what the address asks for. */
  restore() {
    const { view, selection } = askedBy(location.hash, this.reports);
    this.store.restore(selection);
    this.show(this.has(view) ? view : this.shown);
    this.remember("replaceState");
  }

  has(name) {
    return this.views.some((view) => view.name === name);
  }

  /** Shows a view, from which the browser's way back leads to the one before. */
  goTo(name) {
    if (name === this.shown) return;
    this.show(name);
    scrollTo(0, 0);
    this.moved("pushState");
  }

  /** Remembers where one is once all that a click changes has changed. */
  moved(way) {
    this.moves.push(way);
    if (this.moves.length > 1) return;
    queueMicrotask(() => {
      this.remember(this.moves.includes("pushState") ? "pushState" : "replaceState");
      this.moves = [];
    });
  }

  /** Writes view and selection into the address, as a new place to go back from or in place of the one before. */
  remember(way) {
    const address = addressOf(this.shown, this.store.selection);
    if (address !== location.hash) quietly(() => history[way](null, "", address));
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
    const roots = view === COMPARE_VIEW ? [null] : this.reports;
    const several = view !== COMPARE_VIEW && this.reports.length > 1;
    if (several && SCALED_VIEWS.includes(view.name)) panel.append(this.scaleSwitch());
    for (const report of roots) {
      const root = element("div", { class: "view", "data-view": view.name });
      const title = several && element("h2", { class: "side-title", text: this.sideTitle(report) });
      panel.append(element("div", { class: "side" }, title || null, root));
      if (!report) compareView(root, this.reports, this.comparison, this.store, this.labels);
      else if (view.has && !view.has(report)) root.append(panelOfNothing(view));
      else view.build(root, report, this.store, this.scale);
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
    return element(
      "header",
      {},
      element(
        "div",
        { class: "title-row" },
        element("h1", { title: name }, element("span", { class: "brand", text: "ipujax" }), name),
        this.chip,
        this.tools(),
      ),
      element("div", { class: "tabs", role: "tablist", onkeydown: (event) => this.tabKey(event) }, this.tabs),
    );
  }

  /** Buttons for what the page can do, in any view. */
  tools() {
    const tool = (label, content, onclick) =>
      element("button", { type: "button", title: label, "aria-label": label, onclick }, content);
    const search = [icon("search"), element("span", { class: "wide-only", text: "Search" }), " ",
      element("kbd", { class: "wide-only", text: `${COMMAND_KEY} K` })];
    const link = tool("Copy a link to this view and selection", icon("link"), () => copyLink(link));
    link.hidden = !/^(file|https?):/.test(location.protocol); // a frame of a notebook has no address
    return element("div", { class: "tools" },
      tool(`Search ${COMMAND_KEY} K, or /`, search, () => this.finder.open()),
      link,
      tool("Keys (?)", ["?"], showShortcuts),
      tool("Light or dark", ["◐"], () => this.toggleTheme()));
  }

  /** Goes to what was found, or only selects it. */
  choose({ item, more, views }, stay) {
    this.store.pick(item, more);
    if (!stay) this.goTo(views.find((view) => this.has(view)));
    const { activeElement } = document;
    if (!activeElement?.checkVisibility() || activeElement === document.body) {
      this.tabs.find((tab) => tab.getAttribute("aria-selected") === "true").focus();
    }
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
    const command = (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    const typing = event.target.matches?.("input, select, textarea");
    if (command && event.key.toLowerCase() === "k") return this.finder.open(event.preventDefault());
    if (event.ctrlKey || event.metaKey || event.altKey || typing || dialogIsOpen()) return undefined;
    const own = { "/": () => this.finder.open(), "?": showShortcuts, Escape: () => this.store.clear() };
    if (own[event.key]) {
      event.preventDefault();
      return own[event.key]();
    }
    const view = this.views[Number(event.key) - 1];
    return event.key >= "1" && event.key <= "9" && view ? this.goTo(view.name) : undefined;
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
    const { origin, name, operation } = this.store.selection;
    const isSelected = (own) =>
      operation === null ? own.name === name && own.origin === (origin ?? "") : own.number === operation;
    const found = this.reports.map((report) => report.operations.find(isSelected)).find(Boolean);
    return found ? [friendlyName(found), found.direction].filter(Boolean).join(", ") : name;
  }

  toggleTheme() {
    setTheme(currentTheme() === "dark" ? "light" : "dark");
    quietly(() => localStorage.setItem(THEME_KEY, currentTheme()));
  }
}

/** What is shown beside the other report's view where there is nothing to show. */
function panelOfNothing({ title, needs }) {
  return panel(title, [], element("p", { class: "soft", text: `This program has no ${needs}.` }));
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

/** Copies the address of the page, and says so on the button for a moment. */
async function copyLink(button) {
  await navigator.clipboard.writeText(location.href);
  button.replaceChildren(icon("done"));
  button.setAttribute("aria-label", "Copied");
  setTimeout(() => {
    button.replaceChildren(icon("link"));
    button.setAttribute("aria-label", button.title);
  }, COPIED_SHOWN);
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
    const comparison = await loadComparison();
    if (comparison) numberAlike(...reports, comparison.operations);
    const page = new Page(root, reports, comparison);
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
