// What memory holds while a call runs: a curve over steps, the lives of tensors, and who is alive when.
import {BYTES_WIDTH, NUMBERS_HEIGHT, paintNumbersAxis} from "../axes.js";
import {Chart} from "../chart.js";
import {numberColumn, ownerColumn, tensorColumns} from "../columns.js";
import {ipuChoice, ipuLink, numberField, pushButton, tickBox} from "../controls.js";
import {text} from "../document.js";
import {bytes, element, percent, shortOrigin} from "../format.js";
import {itemOf} from "../items.js";
import {aliveAt, largestBetween, lifetimes, liveStepName} from "../lifetimes.js";
import {LIFE_ROW, paintCurve, paintLives, liveStepAt} from "../livedraw.js";
import {themeColour} from "../palette.js";
import {inWords, legend, panel} from "../parts.js";
import {exactly, linkable, linked, relinked} from "../store.js";
import {sortableTable} from "../table.js";
import {tensorItem} from "../tiles.js";

const CURVE_HEIGHT = 230;
const CURVE_HEIGHT_SMALL = 110;
const LIVES_TOP = CURVE_HEIGHT + NUMBERS_HEIGHT + 4;
const MOST_LIVES = 40;

/** The liveness of a report, linked with what is selected elsewhere. */
export function livenessView(root, report, store) {
  new LivenessView(root, report, store);
}

class LivenessView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.always = false;
    const asked = store.selection.ipu;
    const known = asked !== null && asked < report.num_ipus;
    this.focus = known ? asked : report.memory.worst.ipu; // the IPU whose step the table shows
    this.ipu = this.focus; // -1: all
    this.step = this.life().worst;
    this.charts = [];
    this.linkedSteps = new Map(); // by IPU
    this.place = element("div");
    this.key = element("div", { class: "live-key" });
    this.facts = element("p", { class: "live-note soft" });
    const detail = element("section", { class: "panel" });
    root.append(panel("Memory over the steps of a call", [this.controls()], this.place, this.key, this.facts), detail);
    this.buildDetail(detail);
    store.subscribe((selection, changed) => this.selected(selection, changed));
    this.link();
    this.follow(store.selection);
    this.arrange();
    this.showStep();
  }

  shownIpus() {
    return this.ipu >= 0 ? [this.ipu] : Array.from({ length: this.report.num_ipus }, (_, ipu) => ipu);
  }

  life(ipu = this.focus) { return lifetimes(this.report, ipu); }

  controls() {
    this.ipuControl = ipuChoice(this.report, this.ipu, (ipu) => this.showIpu(ipu));
    const always = tickBox("include what is always alive", this.always, (value) => {
      this.always = value;
      this.draw();
      this.showStep();
    });
    return element("div", { class: "controls" }, this.ipuControl.root, always);
  }

  showIpu(ipu) {
    this.ipu = ipu;
    this.ipuControl.set(ipu);
    if (ipu >= 0 && ipu !== this.focus) {
      this.focus = ipu;
      this.step = this.life().worst;
      this.store.select({ ipu, step: null, tile: null });
      this.showStep();
    }
    this.arrange();
  }

  arrange() {
    for (const chart of this.charts) chart.remove();
    this.place.replaceChildren();
    this.place.className = this.ipu < 0 ? "tile-charts few" : "live-chart";
    const busy = this.shownIpus().filter((ipu) => this.life(ipu).steps);
    this.charts = busy.map((ipu) => this.chartOf(ipu));
    if (!busy.length) this.place.append(element("p", { class: "soft", text: "Nothing runs here." }));
    this.draw();
  }

  chartOf(ipu) {
    const alone = this.ipu >= 0;
    const life = this.life(ipu);
    const box = element("div", { class: "tile-chart" }, alone ? null : this.captionOf(ipu));
    const lives = Math.min(MOST_LIVES, life.order.length);
    this.place.append(box);
    return new Chart(box, {
      name: "liveness",
      label: `IPU ${ipu}: bytes at each of ${life.steps} steps, at most ${bytes(life.bytes[life.worst])} `
        + `at step ${life.worst}; below, the lives of the largest tensors`,
      height: NUMBERS_HEIGHT + (alone ? CURVE_HEIGHT + lives * LIFE_ROW + 10 : CURVE_HEIGHT_SMALL),
      left: BYTES_WIDTH,
      domain: [0, life.steps],
      least: Math.min(8, life.steps),
      fixed: !alone,
      draw: (ctx, view) => this.paint(ctx, view, ipu),
      hover: (x, y, view) => this.hover(ipu, x, y, view),
      click: (x, y, view) => this.click(ipu, x, y, view),
    });
  }

  captionOf(ipu) {
    const { steps, bytes: held, worst } = this.life(ipu);
    return element("div", { class: "tile-caption" }, ipuLink(ipu, () => this.showIpu(ipu)),
      element("span", { class: "faint", text: `${steps} steps, at most ${bytes(this.most(ipu))} beside what is always alive` }));
  }

  /** The most that the y axes stand for, the same for all charts. */
  top() {
    const most = Math.max(1, ...this.shownIpus().map((ipu) => this.base(ipu) + this.most(ipu)));
    const reach = this.capacity() - (this.always ? 0 : this.leastAlways());
    return Math.max(most, reach < 2.5 * most ? reach : 0) * 1.15;
  }

  /** The bytes at the worst step, beside what is always alive. */
  most(ipu) {
    const { bytes: held, worst, steps } = this.life(ipu);
    return steps ? held[worst] : 0;
  }

  base(ipu) { return this.always ? this.life(ipu).always : 0; }

  /** What is always alive on those that are shown: without it, that much less can be held. */
  leastAlways() { return Math.min(...this.shownIpus().map((ipu) => this.life(ipu).always)); }

  capacity() {
    const { limit, tile_peak_bytes: peaks } = this.report.memory;
    return limit * peaks[0].reduce((sum, [, count]) => sum + count, 0);
  }

  paint(ctx, view, ipu) {
    const alone = this.ipu >= 0;
    const life = this.life(ipu);
    paintCurve(ctx, view, {
      life,
      height: alone ? CURVE_HEIGHT : CURVE_HEIGHT_SMALL,
      top: this.shownTop,
      base: this.base(ipu),
      capacity: this.capacity() - (this.always ? 0 : life.always),
      always: this.always ? 0 : life.always,
      linked: this.linkedSteps.get(ipu) ?? null,
      step: ipu === this.focus ? this.step : null,
      small: !alone,
    });
    paintNumbersAxis(ctx, view, alone ? CURVE_HEIGHT : CURVE_HEIGHT_SMALL, "step");
    if (!alone) return;
    const seen = largestBetween(life, Math.floor(view.lo), Math.ceil(view.hi) - 1, MOST_LIVES);
    this.lives = seen.map((i) => this.lifeOf(ipu, i));
    paintLives(ctx, view, this.lives, LIVES_TOP);
    ctx.fillStyle = themeColour("text-soft");
    ctx.fillText("tensors", 2, LIVES_TOP + LIFE_ROW / 2);
  }

  /** One tensor as a row of the table and a bar of the chart. */
  lifeOf(ipu, i) {
    const { report } = this;
    const { tensors } = report.liveness[ipu];
    const item = tensorItem(report, report.liveness[ipu], i);
    const size = tensors.bytes[i];
    return {
      ...item, bytes: size, label: [item.scope && `${item.scope}:`, item.owner, item.shape, bytes(size)].filter(Boolean).join(" "),
      category: text(report, tensors.category[i]),
      first: tensors.first[i], last: tensors.last[i], linked: linked(this.store.selection, item),
    };
  }

  barAt(y) {
    const row = Math.floor((y - LIVES_TOP) / LIFE_ROW);
    return this.ipu >= 0 && row >= 0 ? this.lives?.[row] : undefined;
  }

  hover(ipu, x, y, view) {
    const bar = this.barAt(y);
    if (bar) {
      return [bar.name, `${bytes(bar.bytes)}, ${inWords(bar.category)}`, bar.owner, bar.scope ? `in ${bar.scope}` : "",
        `made by ${bar.maker}`, `steps ${bar.first} to ${bar.last}`, bar.origin].filter(Boolean);
    }
    const step = liveStepAt(view, x, this.life(ipu));
    if (step < 0 || (this.ipu >= 0 && y > LIVES_TOP)) return null;
    const life = this.life(ipu);
    return [
      `IPU ${ipu}, step ${step}: ${liveStepName(this.report, ipu, step)}`,
      `${bytes(life.bytes[step])} beside what is always alive`,
      ...life.parts.filter((part) => part.bytes[step] > 0).map((part) => `${part.name} ${bytes(part.bytes[step])}`),
      `with what is always alive ${bytes(life.bytes[step] + life.always)}`,
      text(this.report, this.report.liveness[ipu].steps.origin[step]),
    ].filter(Boolean);
  }

  click(ipu, x, y, view) {
    const bar = this.barAt(y);
    if (bar) return this.choose(bar);
    const step = liveStepAt(view, x, this.life(ipu));
    if (step >= 0) this.goTo(ipu, step);
    return undefined;
  }

  /** Selects a step, and with it its line. */
  goTo(ipu, step) {
    this.focus = ipu;
    this.step = step;
    this.store.pick(this.stepItem(ipu, step), { ipu, step });
    this.draw();
    this.showStep();
  }

  choose(row) {
    const { origin, name, category } = row;
    this.store.pick({ origin, name }, { category, ipu: this.focus, step: this.step });
  }

  draw() {
    this.shownTop = this.top();
    for (const chart of this.charts) chart.draw();
    const names = new Set(this.shownIpus().flatMap((ipu) => this.life(ipu).parts.map((part) => part.name)));
    const said = (name) => (name === "temporaries" ? "temporaries and work space" : inWords(name));
    const parts = [...names].map((name) => [said(name), `category-${name}`]);
    this.key.replaceChildren(legend([...(this.always ? [["always alive", "line"]] : []), ...parts]));
    const { always } = this.life();
    const worst = always + this.most(this.focus);
    const limit = this.capacity() - (this.always ? 0 : always);
    const far = this.charts.length && limit > this.shownTop ? " That is above the chart." : "";
    this.facts.textContent = `IPU ${this.focus}: ${bytes(always)} always alive and ${bytes(this.most(this.focus))} beside it `
      + `at the worst step: ${bytes(worst)}, ${percent(worst / this.capacity())} of the ${bytes(this.capacity())} that all `
      + `its tiles can hold.${far}`;
  }

  buildDetail(root) {
    const last = () => Math.max(0, this.life().steps - 1);
    const go = (step) => this.life().steps && this.goTo(this.focus, Math.min(last(), Math.max(0, step)));
    this.field = numberField("Step", last(), this.step, go);
    this.title = element("h2");
    this.about = element("p", { class: "soft table-note" });
    root.append(element("div", { class: "panel-head" }, this.title, element("div", { class: "controls" },
      pushButton("‹", "The step before", () => go(this.step - 1)), this.field.root,
      pushButton("›", "The next step", () => go(this.step + 1)),
      pushButton("Worst", "The step that needs most", () => go(this.life().worst)))), this.about);
    this.table = sortableTable(root, liveColumns(this.report), this.aliveRows(), {
      name: "alive",
      sort: -2,
      height: 460,
      placeholder: "Filter tensors",
      empty: "Nothing is alive but what always is.",
      onclick: (row) => this.choose(row),
      isSelected: (row) => linked(this.store.selection, row),
      isExact: (row) => exactly(this.store.selection, row),
    });
  }

  aliveRows() {
    const rows = aliveAt(this.life(), this.step, this.always).map((i) => this.lifeOf(this.focus, i));
    const most = rows[0]?.bytes || 1;
    for (const row of rows) row.share = row.bytes / most;
    return rows;
  }

  /** The table of what is alive at the step. */
  showStep() {
    const life = this.life();
    this.field.limit(Math.max(0, life.steps - 1));
    this.field.set(this.step);
    const worst = this.step === life.worst ? ", its worst" : "";
    this.title.textContent = `Alive on IPU ${this.focus} at step ${this.step}${worst}`;
    this.about.textContent = life.steps ? this.aboutStep() : "This IPU runs no steps.";
    this.table.setRows(this.aliveRows());
  }

  aboutStep() {
    const { bytes: held, temporary } = this.life();
    const origin = shortOrigin(text(this.report, this.report.liveness[this.focus].steps.origin[this.step]));
    return `${liveStepName(this.report, this.focus, this.step)}${origin ? ` (${origin})` : ""}: ${bytes(held[this.step])} `
      + `beside what is always alive, ${bytes(temporary[this.step])} of it work space.`;
  }

  /** What a step is, for what is selected. */
  stepItem(ipu, step) {
    const { operation, origin, name } = this.report.liveness[ipu].steps;
    return { ...itemOf(this.report, operation?.[step] ?? -1, origin[step], name[step]), ipu };
  }

  /** Finds the steps of what is selected, or else of its line. */
  link() {
    this.linkedSteps.clear();
    const { selection } = this.store;
    if (!linkable(selection)) return;
    for (const belongs of [exactly, linked]) {
      for (let ipu = 0; ipu < this.report.num_ipus; ipu++) {
        const marks = Uint8Array.from(this.report.liveness[ipu].steps.name, (_, step) =>
          Number(belongs(selection, this.stepItem(ipu, step))));
        if (marks.includes(1)) this.linkedSteps.set(ipu, marks);
      }
      if (this.linkedSteps.size) return;
    }
  }

  /** Goes to the IPU and step of a selection made elsewhere; says whether that changed anything. */
  follow({ ipu, step }) {
    const other = ipu !== null && ipu < this.report.num_ipus && ipu !== this.focus;
    if (other) {
      this.focus = ipu;
      this.step = this.life().worst;
      if (this.ipu >= 0) {
        this.ipu = ipu;
        this.ipuControl.set(ipu);
      }
    }
    const moved = step !== null && step !== this.step && step < this.life().steps;
    if (moved) this.step = step;
    return { other, moved };
  }

  selected(selection, changed) {
    if (relinked(changed) || changed.includes("ipu")) this.link();
    const { other, moved } = this.follow(selection);
    if (other && this.ipu >= 0) this.arrange();
    else this.draw();
    if (other || moved) this.showStep();
    else this.table.refresh();
  }
}

function liveColumns(report) {
  const step = (value) => (row) => (row.first < 0 ? "always" : String(value(row)));
  const from = (row) => row.first;
  const to = (row) => row.last;
  return [
    ownerColumn(),
    { ...numberColumn("bytes", (row) => row.bytes, bytes, 14), bar: (row) => row.share },
    ...tensorColumns(report),
    { ...numberColumn("from", from, String, 9), text: step(from) },
    { ...numberColumn("to", to, String, 9), text: step(to) },
  ];
}
