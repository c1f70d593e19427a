// Rows of a tree in a scrolled box, of which only those in sight are in the page.
import {cutInMiddle, element} from "./format.js";

const TREE_ROW_HEIGHT = 26; // pixels, as --row of page.css
const TREE_MOST_HEIGHT = 620;
const TREE_ROWS_BEYOND = 4;
let treeLists = 0;

/**
 * A tree grid that the keyboard moves in. `fill(row)` says what a row shows: `{level, open (null for
 * a leaf), lead (an element or null), name, chip (an element or null), extra, extraTitle, share (0 to 1), cells, titles}`;
 * `kind` (a class) says how wide its columns are.
 */
export class TreeList {
  constructor(options) {
    this.options = options;
    this.rows = [];
    this.places = new Map();
    this.cursor = null;
    this.awaited = null;
    this.drawn = [0, 0];
    this.id = `tree-${treeLists++}`;
    this.space = element("div", { class: "tree-space", role: "presentation" });
    this.body = element("div", { class: "tree-body", role: "rowgroup" });
    this.space.append(this.body);
    this.box = element("div", { class: "tree-box", role: "treegrid", tabindex: "0", "aria-label": options.label }, this.space);
    this.heads = this.head();
    this.root = element("div", { class: `tree tree-${options.kind}` }, this.heads, this.box);
    this.box.addEventListener("scroll", () => {
      this.heads.scrollLeft = this.box.scrollLeft;
      this.refreshMoved();
    });
    this.box.addEventListener("keydown", (event) => this.key(event));
    this.box.addEventListener("click", (event) => this.click(event));
    new ResizeObserver(() => this.resized()).observe(this.box);
  }

  head() {
    const head = element("div", { class: "tree-row tree-head", "aria-hidden": "true" });
    this.options.columns.forEach((title, i) => {
      head.append(element("span", { class: `tree-cell tree-cell-${i}`, text: title }));
    });
    return head;
  }

  /** Shows other rows; the cursor stays where it is if its row is among them. */
  setRows(rows) {
    this.rows = rows;
    this.places = new Map(rows.map((row, i) => [row, i]));
    if (this.cursor && !this.places.has(this.cursor)) this.cursor = null;
    const height = rows.length * TREE_ROW_HEIGHT;
    this.space.style.height = `${height}px`;
    this.box.style.height = `${Math.min(height + 2, TREE_MOST_HEIGHT)}px`;
    this.refresh();
  }

  /** Puts the cursor on a row and brings it into sight. */
  setCursor(row) {
    this.cursor = row;
    this.options.oncursor(row);
    this.scrollTo(row);
    this.refresh();
  }

  /** Scrolls so that a row can be seen. */
  scrollTo(row) {
    const place = this.places.get(row);
    const height = this.box.clientHeight;
    this.awaited = height ? null : row; // a box that is hidden cannot scroll
    if (place === undefined || !height) return;
    const before = (place - 1) * TREE_ROW_HEIGHT;
    const after = (place + 2) * TREE_ROW_HEIGHT;
    if (before < this.box.scrollTop) this.box.scrollTop = Math.max(0, before);
    else if (after > this.box.scrollTop + height) this.box.scrollTop = after - height;
  }

  resized() {
    if (this.awaited) this.scrollTo(this.awaited);
    this.refreshMoved();
  }

  /** The first row that is in sight, and the first one below the sight. */
  inSight() {
    const from = Math.floor(this.box.scrollTop / TREE_ROW_HEIGHT);
    return [from, Math.min(this.rows.length, from + Math.ceil(this.box.clientHeight / TREE_ROW_HEIGHT) + 1)];
  }

  /** Draws if rows came into sight that are not in the page; else the rows stay, and with them a click that has begun. */
  refreshMoved() {
    const [from, to] = this.inSight();
    if (from < this.drawn[0] || to > this.drawn[1]) this.refresh();
  }

  /** Draws the rows in sight, and some beyond, anew. */
  refresh() {
    const [first, last] = this.inSight();
    const from = Math.max(0, first - TREE_ROWS_BEYOND);
    const to = Math.min(this.rows.length, last + TREE_ROWS_BEYOND);
    this.drawn = [from, to];
    const drawn = [];
    for (let i = from; i < to; i++) drawn.push(this.draw(i));
    this.body.style.transform = `translateY(${from * TREE_ROW_HEIGHT}px)`;
    this.body.replaceChildren(...drawn);
    this.box.setAttribute("aria-rowcount", String(this.rows.length));
    if (this.cursor) this.box.setAttribute("aria-activedescendant", `${this.id}-${this.places.get(this.cursor)}`);
    else this.box.removeAttribute("aria-activedescendant");
  }

  draw(place) {
    const row = this.rows[place];
    const shown = this.options.fill(row);
    const classes = ["tree-row"];
    if (row === this.cursor) classes.push("is-cursor");
    if (this.options.isMarked(row)) classes.push("is-linked");
    if (this.options.isExact(row)) classes.push("is-exact");
    const drawn = element("div", {
      class: classes.join(" "), id: `${this.id}-${place}`, role: "row", "data-row": String(place),
      "aria-level": String(shown.level + 1), "aria-rowindex": String(place + 1),
      "aria-selected": String(this.options.isMarked(row)),
    });
    if (shown.open !== null) drawn.setAttribute("aria-expanded", String(shown.open));
    drawn.append(nameCell(shown));
    shown.cells.forEach((text, i) => {
      const cell = element("span", {class: `tree-cell tree-cell-${i + 1}`, role: "gridcell", title: shown.titles[i]});
      if (i === 0) cell.append(shareBar(shown.share));
      cell.append(element("span", { class: "tree-text", text }));
      drawn.append(cell);
    });
    return drawn;
  }

  click(event) {
    const place = event.target.closest("[data-row]")?.dataset.row;
    if (place === undefined) return;
    const row = this.rows[Number(place)];
    this.cursor = row;
    this.options.oncursor(row);
    if (event.target.closest(".tree-twist")) this.options.ontoggle(row, !row.open);
    else this.options.onselect(row);
    this.refresh();
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || !this.rows.length) return;
    const place = this.cursor ? this.places.get(this.cursor) : -1;
    const page = Math.max(1, Math.floor(this.box.clientHeight / TREE_ROW_HEIGHT) - 1);
    const last = this.rows.length - 1;
    const to = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + page, PageUp: place - page, Home: 0, End: last };
    if (event.key in to) this.setCursor(this.rows[Math.min(last, Math.max(0, to[event.key]))]);
    else if (!this.cursor || !this.act(event.key, this.cursor)) return;
    event.preventDefault();
  }

  /** What a key does with the row under the cursor; false if nothing. */
  act(key, row) {
    const open = this.options.fill(row).open;
    if (key === "ArrowRight" && open === false) this.options.ontoggle(row, true);
    else if (key === "ArrowRight" && open) this.setCursor(this.rows[this.places.get(row) + 1] ?? row);
    else if (key === "ArrowLeft" && open) this.options.ontoggle(row, false);
    else if (key === "ArrowLeft" && row.parent) this.setCursor(row.parent);
    else if (key === "Enter" || key === " ") this.options.onselect(row);
    else if (key === "*") this.options.onexpand(row);
    else return key === "ArrowLeft" || key === "ArrowRight";
    return true;
  }
}

function nameCell(shown) {
  const cell = element("span", { class: "tree-cell tree-cell-0", role: "gridcell", title: shown.name });
  cell.style.paddingLeft = `calc(${Math.min(shown.level, 24)} * var(--tree-indent) + 4px)`;
  const twist = shown.open === null
    ? element("span", { class: "tree-leaf" })
    : element("span", { class: "tree-twist", text: shown.open ? "▾" : "▸", "aria-hidden": "true" });
  cell.append(twist, ...[shown.lead].filter(Boolean));
  cell.append(cutInMiddle("tree-name", shown.name));
  if (shown.chip) cell.append(shown.chip);
  if (shown.extra) cell.append(element("span", { class: "tree-extra", text: shown.extra, title: shown.extraTitle }));
  return cell;
}

function shareBar(share) {
  const fill = element("span", { class: "share-fill" });
  fill.style.width = `${Math.min(100, Math.max(0, share * 100))}%`;
  return element("span", { class: "share-bar", "aria-hidden": "true" }, fill);
}
