// Columns that tables of several views have.
import {bytes, shortOrigin} from "./format.js";
import {inWords} from "./parts.js";

/** What a row is called. */
export function nameColumn(title) {
  return { title, value: (row) => row.name, width: 34 };
}

/** The user's line. */
export function lineColumn(width, whole = (row) => row.origin) {
  const short = (row) => shortOrigin(whole(row));
  return { title: "line", value: whole, text: short, hint: whole, search: whole, width, about: "The user's line." };
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
