// What the tiles hold: bars or maps of all tiles, and what lies on one of them.
import {BYTES_WIDTH} from "../axes.js";
import {Chart} from "../chart.js";
import {choice, ipuChoice, ipuLink} from "../controls.js";
import {bytes, element, percent} from "../format.js";
import {meaning} from "../glossary.js";
import {onTheme} from "../palette.js";
import {inWords, panel} from "../parts.js";
import {exactly, linkable, linked, relinked} from "../store.js";
import {mapHeight, mapWidth, paintRamp, paintTileBars, paintTileMap, tileAtBar, tileAtMap} from "../tiledraw.js";
import {TileDetail} from "../tiledetail.js";
import {countOver, linkedOnTiles, shownBytes, tileMemory, usedCategories} from "../tiles.js";

const TILE_HEIGHTS = { bars: { alone: 320, small: 150 }, map: { alone: 520, small: 180 } };
const FEW_IPUS = 4; // as many have wide bars
const LOW_USE = 0.25; // share of a tile under which bars are shown larger
const ROOM_ABOVE = 1.15; // of bars
const BARS_NOTE = "The colours are what tiles hold at the worst step of their IPU; "
  + "the outline is the most that each ever holds.";

/** The memory of a report: tiles by category, and the tensors on them. */
export function memoryView(root, report, store, scale) {
  new MemoryView(root, report, store, scale);
}

class MemoryView {
  constructor(root, report, store, sameScale) {
    this.sameScale = sameScale;
    this.report = report;
    this.store = store;
    this.ipu = report.num_ipus > 1 ? -1 : 0; // -1: all
    this.mode = "bars";
    this.scale = this.usualScale();
    this.category = null; // the one that is shown alone
    this.charts = [];
    this.linkedBytes = new Map(); // by IPU
    this.tiles = element("div", { class: "tile-charts" });
    this.legend = element("div", { class: "tile-legend", role: "group", "aria-label": "Show one category alone" });
    this.note = element("div", { class: "tile-note" });
    this.detail = new TileDetail(report, store);
    root.append(
      panel("Memory of the tiles", [this.controls()], this.facts(), this.legend, this.tiles, this.note),
      this.detail.element);
    store.subscribe((selection, changed) => this.selected(selection, changed));
    onTheme(() => this.drawNote());
    sameScale.subscribe(() => this.draw());
    this.link();
    this.arrange();
    this.showTile();
  }

  ipus() {
    return Array.from({ length: this.report.num_ipus }, (_, ipu) => ipu);
  }

  shownIpus() {
    return this.ipu >= 0 ? [this.ipu] : this.ipus();
  }

  controls() {
    this.ipuControl = ipuChoice(this.report, this.ipu, (ipu) => this.showIpu(ipu));
    this.scaleControl = choice("Scale to", [["limit", "limit"], ["use", "use"]], this.scale, (scale) => {
      this.scale = scale;
      this.draw();
    });
    const mode = choice("Show as", [["bars", "bars"], ["map", "map"]], this.mode, (value) => {
      this.mode = value;
      this.arrange();
    });
    return element("div", { class: "controls" }, this.ipuControl.root, mode.root, this.scaleControl.root);
  }

  showIpu(ipu) {
    this.ipu = ipu;
    this.ipuControl.set(ipu);
    if (ipu >= 0 && this.store.selection.ipu !== ipu) this.store.select({ ipu, tile: null });
    this.arrange();
    this.showTile();
  }

  /** Sentences on the program as a whole. */
  facts() {
    const { memory } = this.report;
    const over = this.ipus().reduce((sum, ipu) => sum + countOver(tileMemory(this.report, ipu), memory.limit), 0);
    const said = (text, bad) => element("span", { class: bad ? "bad" : null, text: `${text} ` });
    return element("p", { class: "tile-facts soft" },
      memory.fits
        ? element("span", { class: "good", text: "Fits. " })
        : said(`Does not fit: ${bytes(memory.missing_bytes)} missing on the worst tile.`, true),
      over ? said(`${over} ${over === 1 ? "tile holds" : "tiles hold"} more than the limit, ${bytes(memory.limit)}.`, true) : null,
      said(`Instructions: at most ${bytes(memory.most_code_bytes)} on a tile, of ${bytes(memory.code_limit)} `
        + "that can be fetched from.", memory.most_code_bytes > memory.code_limit));
  }

  /** Builds the charts anew, one for each IPU that is shown. */
  arrange() {
    const size = this.ipu >= 0 ? "alone" : this.report.num_ipus > FEW_IPUS ? "several" : "few";
    this.tiles.className = `tile-charts ${size} ${this.mode}`;
    for (const chart of this.charts) chart.remove();
    this.tiles.replaceChildren();
    this.charts = this.shownIpus().map((ipu) => this.chartOf(ipu));
    this.draw();
  }

  chartOf(ipu) {
    const memory = tileMemory(this.report, ipu);
    const box = element("div", { class: "tile-chart" }, this.captionOf(ipu));
    this.tiles.append(box);
    const map = this.mode === "map";
    const height = TILE_HEIGHTS[this.mode][this.ipu >= 0 ? "alone" : "small"];
    const chart = new Chart(box, {
      name: map ? "memory-map" : "memory-tiles",
      label: `IPU ${ipu}: bytes on each of ${memory.tiles} tiles. ${this.captionText(ipu)}`,
      height,
      left: map ? 0 : BYTES_WIDTH,
      domain: [0, memory.tiles],
      least: 16,
      fixed: map || this.ipu < 0,
      draw: (ctx, view) => {
        const fitting = map ? mapHeight(view.width, memory.tiles, height) : height;
        if (fitting === view.height) this.paint(ctx, view, ipu);
        else chart.setHeight(fitting); // which draws again
      },
      hover: (x, y, view) => this.hover(ipu, this.tileAt(ipu, x, y, view)),
      click: (x, y, view) => this.click(ipu, this.tileAt(ipu, x, y, view)),
    });
    if (map) chart.element.style.setProperty("max-width", `${mapWidth(height, memory.tiles)}px`);
    return chart;
  }

  captionText(ipu) {
    const { memory } = this.report;
    const { worst, peak } = tileMemory(this.report, ipu);
    const always = memory.always_live_bytes[ipu];
    const remote = memory.remote_bytes[ipu] ? ` Streaming memory ${bytes(memory.remote_bytes[ipu])}.` : "";
    return `Fullest tile ${worst}: ${bytes(peak[worst])}, ${percent(peak[worst] / memory.limit)} of its limit.`
      + ` All tiles: ${bytes(memory.peak_bytes[ipu])} at the IPU's worst step, ${bytes(always)} always.${remote}`;
  }

  captionOf(ipu) {
    const { memory } = this.report;
    const { worst, peak } = tileMemory(this.report, ipu);
    const over = countOver(tileMemory(this.report, ipu), memory.limit);
    const remote = memory.remote_bytes[ipu] ? ` · streaming ${bytes(memory.remote_bytes[ipu])}` : "";
    const short = `at most ${bytes(peak[worst])} (${percent(peak[worst] / memory.limit)})${remote}`;
    const title = this.ipu >= 0 ? element("strong", { text: `IPU ${ipu}` }) : ipuLink(ipu, () => this.showIpu(ipu));
    const said = this.captionText(ipu);
    const words = element("span", { class: "faint", text: this.ipu >= 0 ? said : short, title: said });
    return element("div", { class: "tile-caption" }, title, words,
      over ? element("strong", { class: "bad", text: `${over} over the limit` }) : null);
  }

  /** Up to the limit of a tile, unless bars would be too low to see. */
  usualScale() {
    const isLow = ({ memory: { tile_peak_bytes: peaks, limit } }) =>
      peaks.every((repeats) => repeats.every(([held]) => held < LOW_USE * limit));
    return this.sameScale.reportsWith(this.report).every(isLow) ? "use" : "limit";
  }

  /** The most that the y axis, or the strongest colour, stands for. */
  top() {
    let most = 1;
    for (const report of this.sameScale.reportsWith(this.report)) {
      const ipus = report === this.report ? this.shownIpus() : Array.from({ length: report.num_ipus }, (_, ipu) => ipu);
      for (const ipu of ipus) {
        for (const value of shownBytes(tileMemory(report, ipu), this.category)) most = Math.max(most, value);
      }
      if (this.scale === "limit") most = Math.max(most, report.memory.limit);
    }
    return this.mode === "map" ? most : most * ROOM_ABOVE;
  }

  paint(ctx, view, ipu) {
    const { ipu: focus, tile } = this.place();
    const shown = {
      memory: tileMemory(this.report, ipu),
      limit: this.report.memory.limit,
      top: this.shownTop,
      category: this.category,
      tile: focus === ipu && this.store.selection.tile !== null ? tile : -1,
      linked: this.linkedBytes.get(ipu) ?? null,
      small: this.ipu < 0,
    };
    if (this.mode === "map") paintTileMap(ctx, view, shown);
    else paintTileBars(ctx, view, shown);
  }

  tileAt(ipu, x, y, view) {
    const memory = tileMemory(this.report, ipu);
    if (this.mode === "map") return tileAtMap(view, x, y, memory.tiles);
    return tileAtBar(view, x, shownBytes(memory, this.category));
  }

  hover(ipu, tile) {
    if (tile < 0) return null;
    const { peak, parts } = tileMemory(this.report, ipu);
    const { limit } = this.report.memory;
    const over = peak[tile] > limit ? `, ${bytes(peak[tile] - limit)} too much` : "";
    const held = parts.filter((part) => part.bytes[tile]).sort((a, b) => b.bytes[tile] - a.bytes[tile]);
    const own = this.linkedBytes.get(ipu)?.[tile];
    return [
      `IPU ${ipu}, tile ${tile}: ${bytes(peak[tile])}${over}`,
      ...held.map((part) => `${inWords(part.name)} ${bytes(part.bytes[tile])}`),
      ...(own ? [`of what is selected ${bytes(own)}`] : []),
    ];
  }

  click(ipu, tile) {
    if (tile >= 0) this.store.select({ ipu, tile });
  }

  draw() {
    this.shownTop = this.top();
    for (const chart of this.charts) chart.draw();
    this.drawLegend();
    this.drawNote();
  }

  /** Categories with their bytes; each a button that shows it alone. */
  drawLegend() {
    const { by_category: all, ipu_categories: each } = this.report.memory;
    const held = (name) => (this.ipu >= 0 ? each[name][this.ipu] : all[name]);
    const names = usedCategories(this.report).filter((name) => held(name) > 0 || name === this.category);
    const focused = this.legend.contains(document.activeElement) ? document.activeElement.dataset.category : null;
    this.legend.replaceChildren(...names.map((name) => this.legendButton(name, held(name))));
    if (focused) this.legend.querySelector(`[data-category="${focused}"]`)?.focus();
  }

  legendButton(name, held) {
    const alone = this.category === name;
    return element("button", {
      type: "button",
      class: "legend-button",
      "aria-pressed": String(alone),
      "data-category": name,
      title: `${meaning(inWords(name))}. Click to show ${alone ? "all categories" : "it alone"}.`,
      onclick: () => this.isolate(name),
    }, element("span", { class: "swatch", style: { background: `var(--category-${name})` } }), inWords(name),
    element("span", { class: "faint", text: bytes(held) }));
  }

  isolate(name) {
    this.category = this.category === name ? null : name;
    this.scale = this.category === null ? this.usualScale() : "use";
    this.scaleControl.set(this.scale);
    this.draw();
  }

  /** What the colours mean. */
  drawNote() {
    if (this.mode === "bars") {
      const alone = this.category && `Only ${inWords(this.category)}, at the worst step of each IPU.`;
      this.note.replaceChildren(element("span", { class: "faint", text: alone || BARS_NOTE }));
      return;
    }
    const { limit } = this.report.memory;
    const canvas = element("canvas", { width: 200, height: 12, role: "img", "aria-label": "Scale of the colours" });
    paintRamp(canvas.getContext("2d"), 200, 12);
    const over = this.category === null && this.shownTop > limit;
    const most = bytes(Math.min(this.shownTop, limit));
    const beyond = element("canvas", { width: 120, height: 12, role: "img", "aria-label": "Scale of what is too much" });
    paintRamp(beyond.getContext("2d"), 120, 12, true);
    const more = over ? [beyond, `${bytes(this.shownTop)}, over the limit`] : [];
    this.note.replaceChildren("0", canvas, most, ...more);
  }

  /** The IPU and tile that the details are about: those selected, else the fullest. */
  place() {
    const { selection } = this.store;
    const { worst } = this.report.memory;
    const wanted = this.ipu >= 0 ? this.ipu : selection.ipu ?? worst.ipu;
    const ipu = wanted < this.report.num_ipus ? wanted : worst.ipu;
    const memory = tileMemory(this.report, ipu);
    const tile = selection.tile !== null && selection.tile < memory.tiles ? selection.tile : memory.worst;
    return { ipu, tile };
  }

  showTile() {
    const { ipu, tile } = this.place();
    this.detail.show(ipu, tile);
  }

  selected({ ipu }, changed) {
    if (relinked(changed)) this.link();
    const other = changed.includes("ipu") && ipu !== null && ipu < this.report.num_ipus;
    if (other && this.ipu >= 0 && ipu !== this.ipu) {
      this.ipu = ipu;
      this.ipuControl.set(ipu);
      this.arrange();
    }
    for (const chart of this.charts) chart.draw();
    this.showTile();
  }

  /** Finds what the tensors that are selected, or else those of the line, take on each tile. */
  link() {
    this.linkedBytes.clear();
    const { selection } = this.store;
    if (!linkable(selection)) return;
    for (const belongs of [exactly, linked]) {
      for (const ipu of this.ipus()) {
        const found = linkedOnTiles(this.report, ipu, (tensor) => belongs(selection, tensor));
        if (found) this.linkedBytes.set(ipu, found);
      }
      if (this.linkedBytes.size) return;
    }
  }
}
