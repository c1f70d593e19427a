// Columns that tables of several views have.
import {bytes, shortOrigin} from "./format.js";
import {inWords} from "./parts.js";

const NARROW_WINDOW = 600; // pixels under which costs matter more than whole names

/** What a row is called. */
export function nameColumn(title) {
  return { title, value: (row) => row.name, width: innerWidth < NARROW_WINDOW ? 24 : 36 };
}

/** The user's line. */
export function lineColumn(width) {
  const short = (row) => shortOrigin(row.origin);
  return { title: "line", value: (row) => row.origin, text: short, title_text: (row) => row.origin, width };
}

/** A category of memory, with its colour. */
export function categoryColumn() {
  const colour = (row) => `var(--category-${row.category})`;
  return { title: "category", value: (row) => row.category, text: (row) => inWords(row.category), colour, width: 15 };
}

/** Numbers, told by `text`; null ones are left out. */
export function numberColumn(title, value, text, width) {
  return { title, numeric: true, value, text: (row) => (value(row) === null ? "" : text(value(row))), width };
}

/** Bytes, with bars up to those of the largest. */
export function bytesColumn(title, value, most, width) {
  return { ...numberColumn(title, value, bytes, width), bar: (row) => value(row) / most };
}
