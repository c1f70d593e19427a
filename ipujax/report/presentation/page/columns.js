// Columns that tables of several views have.
import {text} from "./document.js";
import {bytes, shortOrigin} from "./format.js";
import {inWords} from "./parts.js";

/** What a row is called. */
export function nameColumn(title) {
  return { title, value: (row) => row.name, width: 34 };
}

/** What a tensor belongs to, which tells it from others of its shape; it is found by its name and its primitive, too. */
export function ownerColumn() {
  const hint = ({ owner, maker }) => (owner.includes(maker) ? owner : `${owner}: made by ${maker}`);
  const search = (row) => `${row.name} ${hint(row)}`;
  return { title: "owner", value: (row) => row.owner, hint, search, width: 24,
    about: "What the user calls it, and the operation that makes it; hovering tells the primitive." };
}

/** A tensor's type and category, the scopes around what makes it if the report knows any, and the line of that. */
export function tensorColumns(report) {
  const hasScopes = report.liveness.some(({ tensors }) => tensors.scope?.some((scope) => text(report, scope)));
  const scope = { title: "scope", value: (row) => row.scope ?? "", width: 20, about: "The named scopes around what makes it, outermost first." };
  return [
    ...(hasScopes ? [scope] : []),
    { title: "tensor", value: (row) => row.shape, width: 21 },
    categoryColumn(),
    lineColumn(20),
  ];
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
