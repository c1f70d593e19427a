// A table of any length: sorted, filtered, and only the rows that are in sight are in the page.

import {cutInMiddle, element} from "./format.js";

const ROW_HEIGHT = 26; // as --row of page.css
const ROWS_BEYOND = 8;
const MOST_CHARACTERS = 44; // of a column
const MOST_NAME = 80; // characters of the first column, which stays in sight
const NARROW_NAME = 32; // characters of it that a table of any width has room for
const NAME_SHARE = 46; // percent of a wide table that it may take
const WIDTH_SAMPLE = 200; // rows that tell how wide a column is
let tableCount = 0;

/**
 * Adds a table. Columns are `{title, value(row), text(row), numeric, bar(row), colour(row), width}`: `value`
 * sorts, `text` (else `value`) is shown, `bar` is a share of 1 drawn behind it, `width` is in characters (numbers that are longer make it wider; one that `grows` takes what room is left),
 * `hint(row)` is said on hovering, `about` on hovering over the title, `tone(row)` a class of the cell such as
 * good or bad; `search(row)` is found by the filter beside what is shown, `chip(row)` an element after it, or null.
 * Options: `onclick(row)`, `isSelected(row)`, `name` (data-table), `sort` (a column's index, negative - 1 for
 * falling), `isExact(row)` (whether a selected row is the very thing), `height` (most pixels), `filter` (false: none), its `placeholder`, `empty` (said without rows),
 * `onshown(rows)` (told which rows a filter leaves, in order).
 * Gives `{element, refresh(), setRows(rows)}`; refresh marks selected rows anew.
 */
export function sortableTable(root, columns, rows, options = {}) {
  const table = new VirtualTable(columns, rows, options);
  root.append(table.element);
  table.arrange();
  return table;
}

class VirtualTable {
  constructor(columns, rows, options) {
    this.columns = columns;
    this.options = { height: 420, filter: true, placeholder: "Filter", empty: "Nothing here.", ...options };
    this.id = `table-${tableCount++}`;
    this.sorted = { column: null, falling: false };
    this.filter = "";
    this.active = -1;
    this.rows = rows;
    this.build();
    if (options.sort !== undefined) this.setSort(options.sort);
  }

  setRows(rows) {
    this.rows = rows;
    this.texts = null;
    this.fitColumns();
    this.arrange();
  }

  refresh() {
    this.draw();
  }

  /** Brings the first selected row into sight. */
  reveal() {
    const exact = this.shown.findIndex((row) => this.options.isExact?.(row));
    const at = exact >= 0 ? exact : this.shown.findIndex((row) => this.options.isSelected?.(row));
    if (at >= 0) this.scrollTo(at);
  }

  build() {
    this.body = element("tbody");
    this.heads = this.columns.map((column, i) => this.head(column, i));
    this.cols = this.columns.map(() => element("col"));
    const table = element(
      "table",
      { class: "rows", "data-table": this.options.name },
      element("colgroup", {}, this.cols),
      element("thead", {}, element("tr", {}, this.heads)),
      this.body,
    );
    this.table = table;
    this.fitColumns();
    this.scroller = element(
      "div",
      {
        class: "table-scroll",
        tabindex: 0,
        style: { "max-height": `${this.options.height}px` },
        onscroll: () => this.drawMoved(),
        onkeydown: (event) => this.key(event),
      },
      table,
    );
    this.count = element("span", { class: "faint" });
    this.input = element("input", {
      type: "search",
      placeholder: this.options.placeholder,
      "aria-label": this.options.placeholder,
      oninput: () => this.setFilter(this.input.value),
    });
    const tools = element("div", { class: "table-tools" }, this.input, this.count);
    this.element = element("div", { class: "table" }, this.options.filter ? tools : null, this.scroller);
    new ResizeObserver(() => this.drawMoved()).observe(this.scroller);
  }

  /** Makes columns as wide as they say; numbers and the first column, if their rows need it, wider. */
  fitColumns() {
    this.characters = this.columns.map((column, i) => {
      const grows = !column.width || column.numeric || i === 0;
      const sample = grows ? this.rows.slice(0, WIDTH_SAMPLE).map((row) => this.textOf(column, row).length) : [];
      const least = Math.max(column.width ?? Math.max(column.title.length + 3, 6) + 2, this.characters?.[i] ?? 0);
      return Math.min(Math.max(least, ...sample.map((length) => length + (column.colour ? 5 : 2))), i ? MOST_CHARACTERS : MOST_NAME);
    });
    const widths = this.characters.map((width, i) => (i ? `${width}ch` : `min(${width}ch, max(${NARROW_NAME}ch, ${NAME_SHARE}cqi))`));
    this.cols.forEach((col, i) => col.style.setProperty("width", this.columns[i].grows ? null : widths[i]));
    const whole = widths.map((width, i) => (this.columns[i].grows ? `${this.longest(i)}ch` : width));
    this.table.style.setProperty("--least-width", `calc(${widths.join(" + ")})`);
    this.table.style.setProperty("--whole-width", `calc(${whole.join(" + ")})`);
  }

  /** The characters of the longest text of a column. */
  longest(i) {
    return this.rows.reduce((most, row) => Math.max(most, this.textOf(this.columns[i], row).length + 2), 0);
  }

  head(column, i) {
    const title = [column.about, "Click to sort."].filter(Boolean).join(" ");
    const button = element("button", { type: "button", text: column.title, title, onclick: () => this.toggleSort(i) });
    return element("th", { class: column.numeric ? "numeric" : null, scope: "col" }, button);
  }

  textOf(column, row) {
    return String((column.text ? column.text(row) : column.value(row)) ?? "");
  }

  setFilter(filter) {
    this.filter = filter.toLowerCase();
    this.arrange();
  }

  setSort(sort) {
    this.sorted = sort < 0 ? { column: -sort - 1, falling: true } : { column: sort, falling: false };
    this.arrange();
  }

  toggleSort(i) {
    const falling = this.sorted.column === i ? !this.sorted.falling : Boolean(this.columns[i].numeric);
    this.setSort(falling ? -i - 1 : i);
  }

  /** Filters and sorts. */
  arrange() {
    this.shown = this.filter ? this.rows.filter((row, i) => this.textAt(i).includes(this.filter)) : [...this.rows];
    const { column, falling } = this.sorted;
    if (column !== null) this.sortShown(this.columns[column].value, falling ? -1 : 1);
    this.heads.forEach((head, i) => {
      const order = falling ? "descending" : "ascending";
      if (i === column) head.setAttribute("aria-sort", order);
      else head.removeAttribute("aria-sort");
    });
    this.active = -1;
    const all = this.shown.length === this.rows.length;
    this.count.textContent = all ? `${this.rows.length} rows` : `${this.shown.length} of ${this.rows.length} rows`;
    this.options.onshown?.(this.shown);
    this.draw();
  }

  sortShown(value, sign) {
    const keyed = this.shown.map((row) => [value(row), row]);
    keyed.sort(([a], [b]) =>
      typeof a === "string" ? sign * a.localeCompare(b) : sign * ((a ?? -Infinity) - (b ?? -Infinity)),
    );
    this.shown = keyed.map(([, row]) => row);
  }

  textAt(i) {
    this.texts ??= this.rows.map((row) =>
      this.columns
        .map((column) => `${this.textOf(column, row)}\n${column.search?.(row) ?? ""}`)
        .join("\n")
        .toLowerCase(),
    );
    return this.texts[i];
  }

  /** The first row that is in sight, and the first one below the sight. */
  inSight() {
    const { scrollTop, clientHeight } = this.scroller;
    const first = Math.floor(scrollTop / ROW_HEIGHT);
    const fitting = Math.ceil((clientHeight || this.options.height) / ROW_HEIGHT) + 1;
    return [Math.min(first, this.shown.length), Math.min(first + fitting, this.shown.length)];
  }

  /** Draws if rows came into sight that are not in the page; else the rows stay, and with them a click that has begun. */
  drawMoved() {
    const [first, last] = this.inSight();
    if (first < this.drawn[0] || last > this.drawn[1]) this.draw();
  }

  /** Puts the rows that are in sight, and some beyond, into the page. */
  draw() {
    const [firstSeen, lastSeen] = this.inSight();
    const first = Math.max(0, firstSeen - ROWS_BEYOND);
    const last = Math.min(this.shown.length, lastSeen + ROWS_BEYOND);
    this.drawn = [first, last];
    const rows = this.shown.slice(first, last).map((row, i) => this.row(row, first + i));
    if (!this.shown.length) rows.push(this.emptyRow());
    this.body.replaceChildren(this.gap(first), ...rows, this.gap(this.shown.length - last));
    this.table.setAttribute("aria-rowcount", this.shown.length);
  }

  gap(rows) {
    const cell = element("td", { colspan: this.columns.length });
    return element("tr", { class: "gap", "aria-hidden": "true", style: { height: `${rows * ROW_HEIGHT}px` } }, cell);
  }

  emptyRow() {
    return element("tr", {}, element("td", { colspan: this.columns.length, class: "faint", text: this.options.empty }));
  }

  row(row, i) {
    const selected = Boolean(this.options.isSelected?.(row));
    const exact = selected && Boolean(this.options.isExact?.(row));
    const classes = [selected && "selected", exact && "exact", i === this.active && "active", this.options.onclick && "clicks"];
    return element(
      "tr",
      {
        id: `${this.id}-${i}`,
        "data-row": i,
        "aria-rowindex": i + 1,
        "aria-selected": selected ? "true" : null,
        class: classes.filter(Boolean).join(" ") || null,
        onclick: () => this.options.onclick?.(row),
      },
      this.columns.map((column) => this.cell(column, row)),
    );
  }

  cell(column, row) {
    const shown = this.textOf(column, row);
    const classes = [column.numeric && "numeric", column.tone?.(row)].filter(Boolean).join(" ");
    const cell = element("td", { class: classes || null, title: column.hint?.(row) || shown });
    if (column.colour) cell.append(element("span", { class: "swatch", style: { background: column.colour(row) } }));
    if (column.bar) {
      const share = Math.min(Math.max(column.bar(row) || 0, 0), 1);
      cell.append(element("span", { class: "bar", style: { width: `${(100 * share).toFixed(2)}%` } }));
    }
    cell.append(this.isCut(column, shown) ? cutInMiddle("cell-text", shown) : element("span", { class: "cell-text", text: shown }));
    const chip = column.chip?.(row);
    if (chip) cell.append(chip);
    return cell;
  }

  /** Whether a text may have no room beside what else is in its cell. */
  isCut(column, text) {
    const i = this.columns.indexOf(column);
    const room = i ? this.characters[i] : Math.min(this.characters[i], NARROW_NAME);
    return !column.numeric && !column.grows && !column.colour && !column.chip && text.length > room - 2;
  }

  key(event) {
    const page = Math.max(Math.floor(this.scroller.clientHeight / ROW_HEIGHT) - 2, 1);
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: page, PageUp: -page, Home: -Infinity, End: Infinity };
    if (event.key in moves) {
      const last = this.shown.length - 1;
      this.active = Math.max(0, Math.min(last, this.active + moves[event.key]));
      this.scrollTo(this.active);
    } else if (event.key === "Enter" && this.shown[this.active] !== undefined) {
      this.options.onclick?.(this.shown[this.active]);
    } else return;
    event.preventDefault();
    this.draw();
    this.scroller.setAttribute("aria-activedescendant", `${this.id}-${this.active}`);
  }

  scrollTo(i) {
    const top = i * ROW_HEIGHT;
    const room = this.scroller.clientHeight - 2 * ROW_HEIGHT;
    if (top < this.scroller.scrollTop) this.scroller.scrollTop = top;
    else if (top > this.scroller.scrollTop + room) this.scroller.scrollTop = top - room;
  }
}
