// What each tile does in a call: a map of cycles or bytes, of the whole call or of one compute set or exchange.
import {Chart} from "../chart.js";
import {numberColumn} from "../columns.js";
import {choice, choiceOf, pushButton} from "../controls.js";
import {fromRepeats, text} from "../document.js";
import {bytes, cycles, element, percent} from "../format.js";
import {onTheme} from "../palette.js";
import {panel} from "../parts.js";
import {sortableTable} from "../table.js";
import {mapHeight, mapWidth, paintRamp, paintTileMap, tileAtMap} from "../tiledraw.js";
import {fullestOf} from "../tiles.js";

const MAP_HEIGHT = 460;
const MEASURES = {
  cycles: ["cycles", "cycles of vertices", cycles],
  received: ["received_bytes", "bytes received", bytes],
  sent: ["sent_bytes", "bytes sent", bytes],
};
const NOTE = "A step of an IPU is as long as its busiest tile: where few tiles are dark, the others wait. "
  + "What the planner has laid out has the busiest tile's cycles on all tiles that take part.";

/** The work of the tiles of a report. */
export function tileActivityView(root, report, store) {
  new TileActivityView(root, report, store);
}

class TileActivityView {
  constructor(root, report, store) {
    this.report = report;
    this.store = store;
    this.activity = report.tile_activity;
    this.sets = this.activity.compute_sets.map((step) => this.unpacked(step, "tile_cycles"));
    this.exchanges = this.activity.exchanges.map((step) => this.unpacked(step, "received_bytes"));
    this.ipu = 0;
    this.measure = "cycles";
    this.step = null; // of the tables; null for the whole call
    this.facts = element("p", { class: "tile-facts soft" });
    this.place = element("div", { class: "tile-chart" });
    this.note = element("div", { class: "tile-note" });
    const charts = element("div", { class: "tile-charts alone map" }, this.place);
    root.append(panel("Work of the tiles", [this.controls()], this.facts, charts, this.note,
      element("p", { class: "faint", text: NOTE })));
    this.tables(root);
    onTheme(() => this.draw());
    this.arrange();
  }

  /** A step with its name, what its tiles have, and how evenly. */
  unpacked(step, key) {
    const values = fromRepeats(step[key]);
    const most = values[fullestOf(values, 0, values.length)];
    const sum = values.reduce((all, value) => all + value, 0);
    const used = values.reduce((count, value) => count + (value > 0), 0);
    const mean = used ? sum / used : 0;
    return { ...step, title: text(this.report, step.name), values, most, sum, used, mean, waits: most ? 1 - mean / most : 0 };
  }

  controls() {
    const ipus = this.activity.totals.map(({ ipu }) => [ipu, String(ipu)]);
    this.ipuControl = choiceOf("IPU", ipus, this.ipu, (ipu) => { this.ipu = ipu; this.choose(null); }, 8);
    this.ipuControl.root.hidden = ipus.length === 1;
    const options = Object.entries(MEASURES).map(([key, [, title]]) => [key, title]);
    this.measureControl = choice("Show", options, this.measure, (measure) => { this.measure = measure; this.fit(); });
    this.whole = pushButton("whole call", "Show the sum of all steps of a call", () => this.choose(null));
    return element("div", { class: "controls" }, this.ipuControl.root, this.measureControl.root, this.whole);
  }

  /** Leaves a step whose numbers are not those that are asked for. */
  fit() {
    if (this.step && !(MEASURES[this.measure][0] in this.step) && !this.shows(this.step)) this.step = null;
    this.arrange();
  }

  shows(step) {
    return "tile_cycles" in step ? this.measure === "cycles" : this.measure !== "cycles";
  }

  choose(step) {
    this.step = step;
    if (step) {
      this.ipu = step.ipu;
      this.ipuControl.set(step.ipu);
      if (!this.shows(step)) this.measure = "tile_cycles" in step ? "cycles" : "received";
      this.measureControl.set(this.measure);
    }
    this.arrange();
  }

  shownValues() {
    const [key] = MEASURES[this.measure];
    if (!this.step) return fromRepeats(this.activity.totals[this.ipu][key]);
    return fromRepeats("tile_cycles" in this.step ? this.step.tile_cycles : this.step[key]);
  }

  /** Builds the map anew for what is chosen. */
  arrange() {
    this.chart?.remove();
    this.values = this.shownValues();
    this.busiest = fullestOf(this.values, 0, this.values.length);
    this.facts.textContent = this.said();
    const tiles = this.values.length;
    this.chart = new Chart(this.place, {
      name: "tile-activity",
      label: `IPU ${this.ipu}: ${MEASURES[this.measure][1]} on each of ${tiles} tiles. ${this.said()}`,
      height: MAP_HEIGHT,
      left: 0,
      domain: [0, tiles],
      least: 16,
      fixed: true,
      draw: (ctx, view) => {
        const fitting = mapHeight(view.width, tiles, MAP_HEIGHT);
        if (fitting === view.height) this.paint(ctx, view);
        else this.chart.setHeight(fitting); // which draws again
      },
      hover: (x, y, view) => this.hint(tileAtMap(view, x, y, tiles)),
      click: (x, y, view) => this.select(tileAtMap(view, x, y, tiles)),
    });
    this.chart.element.style.setProperty("max-width", `${mapWidth(MAP_HEIGHT, tiles)}px`);
    this.draw();
    for (const table of this.lists ?? []) table.refresh();
  }

  /** A sentence on how evenly the tiles share what is shown. */
  said() {
    const [, title, format] = MEASURES[this.measure];
    const used = this.values.filter((value) => value > 0);
    const what = this.step ? `${this.step.title}, one of ${this.step.runs} runs a call` : "The whole call";
    if (!used.length) return `${what}: no ${title} on IPU ${this.ipu}.`;
    const mean = used.reduce((sum, value) => sum + value, 0) / used.length;
    const most = this.values[this.busiest];
    return `${what}: ${used.length} of ${this.values.length} tiles of IPU ${this.ipu} take part; the busiest, tile ${this.busiest}, has `
      + `${format(most)} ${title}, ${(most / mean).toFixed(2)} times their mean, ${format(mean)}.`;
  }

  paint(ctx, view) {
    const memory = { tiles: this.values.length, peak: this.values, parts: [] };
    const top = Math.max(this.values[this.busiest], 1);
    const tile = this.store.selection.ipu === this.ipu ? this.store.selection.tile ?? -1 : -1;
    paintTileMap(ctx, view, { memory, limit: Infinity, top, category: null, tile, linked: null });
  }

  hint(tile) {
    if (tile < 0) return null;
    const [, title, format] = MEASURES[this.measure];
    return [`IPU ${this.ipu}, tile ${tile}`, `${format(this.values[tile])} ${title}`];
  }

  select(tile) {
    if (tile < 0) return;
    this.store.select({ ipu: this.ipu, tile });
    this.chart.draw();
  }

  draw() {
    this.chart.draw();
    const canvas = element("canvas", { width: 200, height: 12, role: "img", "aria-label": "Scale of the colours" });
    paintRamp(canvas.getContext("2d"), 200, 12);
    const [, title, format] = MEASURES[this.measure];
    this.note.replaceChildren("0", canvas, `${format(this.values[this.busiest])} ${title}`);
  }

  tables(root) {
    const sets = element("div");
    const exchanges = element("div");
    root.append(panel("Compute sets", [], sets), panel("Exchanges", [], exchanges));
    const options = (name, columns) => ({
      name,
      sort: -1 - columns.findIndex(({ title }) => title === "of the call"),
      placeholder: "Filter by name",
      empty: "None.",
      onclick: (step) => this.choose(step),
      isSelected: (step) => step === this.step,
      isExact: (step) => step === this.step,
    });
    const [ofSets, ofExchanges] = [this.setColumns(), this.exchangeColumns()];
    this.lists = [
      sortableTable(sets, ofSets, this.sets, options("compute-sets", ofSets)),
      sortableTable(exchanges, ofExchanges, this.exchanges, options("exchanges", ofExchanges)),
    ];
  }

  stepColumns() {
    const share = (step) => (step.cycles * step.runs) / this.report.cycles;
    return [
      { title: "name", value: ({ title }) => title, width: 30, grows: true },
      { ...numberColumn("IPU", ({ ipu }) => ipu, String, 6), about: "The IPU whose tiles take part." },
      { ...numberColumn("runs", ({ runs }) => runs, String, 8), about: "How often one call runs it." },
      { ...numberColumn("cycles", (step) => step.cycles, cycles, 10), about: "Of one run: as long as the busiest tile." },
      { ...numberColumn("of the call", share, percent, 13), bar: share, about: "All its runs, of the cycles of a call." },
      { ...numberColumn("tiles", ({ used }) => used, String, 8), about: "Tiles that take part." },
    ];
  }

  setColumns() {
    const vertices = new Map(this.sets.map((step) => [step, fromRepeats(step.vertices).reduce((sum, n) => sum + n, 0)]));
    return [
      ...this.stepColumns(),
      { ...numberColumn("vertices", (step) => vertices.get(step), String, 11), about: "On all tiles." },
      { ...numberColumn("busiest", ({ most }) => most, cycles, 10), about: "Cycles of the vertices on the busiest tile." },
      { ...numberColumn("mean", ({ mean }) => mean, cycles, 10), about: "Cycles of the vertices, the mean of the tiles that take part." },
      { ...numberColumn("waiting", ({ waits }) => waits, percent, 10), bar: ({ waits }) => waits,
        about: "How long a tile that takes part waits for the busiest, on average." },
    ];
  }

  exchangeColumns() {
    return [
      ...this.stepColumns(),
      { ...numberColumn("bytes", ({ sum }) => sum, bytes, 10), about: "Received by all tiles in one run." },
      { ...numberColumn("busiest", ({ most }) => most, bytes, 10), about: "Received by the tile that receives most." },
      { ...numberColumn("waiting", ({ waits }) => waits, percent, 10), bar: ({ waits }) => waits,
        about: "How long a tile that takes part waits for the busiest, on average." },
    ];
  }
}
