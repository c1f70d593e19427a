// The playground: sliders, the choice of schedules, and a card for each that is shown. The simulator is in engine.js.

import {hideTooltip} from "../page/chart.js";
import {choice} from "../page/controls.js";
import {element} from "../page/format.js";
import {icon} from "../page/icons.js";
import {currentTheme, setTheme} from "../page/palette.js";
import {panel} from "../page/parts.js";
import {rememberChoice, rememberedChoice} from "../page/remember.js";
import {longestBubble, lowerBound, transfersPerMicroBatch} from "./bounds.js";
import {Card} from "./card.js";
import {familyList} from "./family.js";
import {formulaOf, optimumOf} from "./formulas.js";
import {sliders} from "./sliders.js";
import {hashOf, settingsOf, stateOf} from "./state.js";

const REST = 80; // milliseconds for which a slider has not moved
const COPIED_SHOWN = 1500; // milliseconds
const { names, schedules, run } = globalThis.playground;

class Playground {
  constructor(root, { start, model }) {
    this.start = start;
    this.model = model;
    this.cards = new Map();
    this.sliders = sliders((name, value) => this.set({ [name]: value }));
    this.family = familyList((name) => this.toggle(name));
    this.voice = element("div", { class: "unseen", "aria-live": "polite" });
    this.grids = element("div", { class: "grids" });
    root.replaceChildren(this.header(), element("main", { class: "playground" }, element("div", { class: "side" }, this.settings(), this.choices()), this.grids), this.voice);
    addEventListener("hashchange", () => this.restore(location.hash));
    document.querySelector(".exercises").addEventListener("click", (event) => this.setUp(event));
    this.restore(location.hash);
  }

  /** Sets up an exercise; a frame of a notebook has no address of its own that its link could lead to. */
  setUp(event) {
    const link = event.target.closest("a");
    if (!link) return;
    event.preventDefault();
    this.restore(link.hash);
    this.remember("pushState", link.hash);
    scrollTo(0, 0);
  }

  header() {
    const tool = (label, content, onclick) => element("button", { type: "button", title: label, "aria-label": label, onclick }, content);
    const link = tool("Copy a link to these settings", icon("link"), () => copyLink(link));
    const theme = tool("Light or dark", ["◐"], () => {
      setTheme(currentTheme() === "dark" ? "light" : "dark");
      rememberChoice("theme", currentTheme());
    });
    return element("header", {}, element("div", { class: "title-row" },
      element("h1", {}, element("span", { class: "brand", text: "ipujax" }), "Schedules of pipelines"),
      element("div", { class: "tools" }, link, theme)));
  }

  settings() {
    const options = [[true, "of the model"], [false, "equal"]];
    this.times = this.model && choice("Times", options, true, (own) => this.set(own ? { own, stages: this.start.stages } : { own }));
    const about = this.model && element("p", { class: "soft", text: this.model.about });
    return panel("Settings", [], ...[about, this.times?.root, this.sliders.root].filter(Boolean));
  }

  choices() {
    this.count = element("summary");
    return element("details", { class: "panel choices", open: innerWidth >= 1000 }, this.count, this.family.root);
  }

  restore(hash) {
    this.state = stateOf(hash, this.start, names);
    if (!this.model) this.state.own = false;
    else if (this.state.own) this.state.stages = this.start.stages;
    this.show();
  }

  set(changes) {
    Object.assign(this.state, changes);
    this.show();
    this.remember("replaceState", hashOf(this.state));
  }

  remember(way, hash) {
    try {
      history[way](null, "", hash);
    } catch {
      // A sandboxed frame has no address.
    }
  }

  toggle(name) {
    const { schedules: shown } = this.state;
    this.set({ schedules: shown.includes(name) ? shown.filter((other) => other !== name) : [...shown, name] });
  }

  show() {
    hideTooltip();
    this.sliders.show(this.state, this.model);
    this.times?.set(this.state.own);
    this.count.textContent = `Schedules: ${this.state.schedules.length} of ${names.length} shown`;
    const shown = this.state.schedules.map((name) => this.outcome(name));
    const until = Math.max(...shown.map(({ makespan }) => makespan ?? 0)) || 1;
    const most = Math.max(1, this.state.memory, ...shown.map(({ memory }) => memory ?? 0));
    for (const outcome of shown) this.card(outcome.name).show(outcome, { until, most });
    this.grids.replaceChildren(...shown.map(({ name }) => this.card(name).root));
    clearTimeout(this.pause);
    this.pause = setTimeout(() => this.showFamily(shown), this.pause ? REST : 0);
  }

  /** All schedules, once a slider rests: those that are not shown must be run for it. */
  showFamily(shown) {
    const known = new Map(shown.map((outcome) => [outcome.name, outcome]));
    this.family.show(names.map((name) => known.get(name) ?? this.outcome(name)), this.state.schedules);
  }

  card(name) {
    if (!this.cards.has(name)) {
      const ways = {
        close: () => this.toggle(name),
        change: (microBatches) => this.set({ microBatches }),
        say: (text) => { this.voice.textContent = text; },
      };
      this.cards.set(name, new Card({ name, ...schedules[name] }, ways));
    }
    return this.cards.get(name);
  }

  /** What a schedule does at the present settings, or `{why}` it cannot. */
  outcome(name) {
    const entry = schedules[name];
    const { perIpu = 1, splits = false, setOf, title } = entry;
    const { microBatches, memory: limit } = this.state;
    const settings = { ...settingsOf(this.state, name, entry, this.model), title, perIpu, several: perIpu > 1 };
    try {
      const made = run(settings);
      const ipus = made.inFlightPerIpu.length;
      const work = made.tasks.reduce((sum, { start, end }) => sum + end - start, 0);
      const memory = Math.max(...made.inFlightPerIpu) / perIpu;
      const fits = !limit || memory <= limit;
      return {
        name, title, settings, splits, ipus, run: made, memory, limit,
        makespan: made.makespan,
        idle: made.makespan ? Math.max(0, 1 - work / (ipus * made.makespan)) : 0,
        fits,
        transfers: transfersPerMicroBatch(made.tasks, microBatches),
        bubble: longestBubble(made.tasks),
        formula: formulaOf(entry, this.state),
        optimum: optimumOf(entry, this.state, limit || memory),
        bound: lowerBound(made, settings, splits, limit && fits ? limit * perIpu : Infinity),
      };
    } catch (error) {
      if (!error.fix) throw error;
      return { name, title, why: error.fix, multiple: setOf?.(settings.stages), microBatches };
    }
  }
}

/** Copies the address of the page, and says so on the button for a moment. */
async function copyLink(button) {
  await navigator.clipboard.writeText(location.href);
  button.replaceChildren(icon("done"));
  setTimeout(() => button.replaceChildren(icon("link")), COPIED_SHOWN);
}

function startPlayground() {
  const theme = rememberedChoice("theme");
  if (theme) setTheme(theme);
  const data = JSON.parse(document.getElementById("start").textContent);
  globalThis.playground.page = new Playground(document.getElementById("app"), data);
  document.documentElement.dataset.ready = "true";
}

startPlayground();
