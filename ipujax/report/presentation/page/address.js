// The address of what is seen: `#timeline?operation=12&ipu=1` opens the page there again.

import {operationOf} from "./items.js";

const ADDRESS_TEXTS = ["origin", "name", "scope", "category"];
const ADDRESS_NUMBERS = ["operation", "ipu", "tile", "step", "tick", "iteration"];
const ADDRESS_PLAIN = { "%2F": "/", "%3A": ":", "%2C": ",", "%20": "+" }; // what may stand in an address as it is

/** The part of an address from `#` on, of a view and a selection. */
export function addressOf(view, selection) {
  const implied = selection.operation === null ? [] : ["origin", "name"];
  const told = Object.entries(selection).filter(([key, value]) => value !== null && !implied.includes(key));
  return `#${[view, told.map(([key, value]) => `${addressKey(key)}=${readable(value)}`).join("&")].filter(Boolean).join("?")}`;
}

/** The view and the selection that such a part of an address asks for; what the reports do not have is left out. */
export function askedBy(address, reports) {
  const [, view, query = ""] = address.match(/^#?([^?]*)\??(.*)$/);
  const asked = new URLSearchParams(query);
  const selection = {};
  for (const key of ADDRESS_TEXTS) selection[key] = asked.get(addressKey(key)) || null;
  for (const key of ADDRESS_NUMBERS) {
    const number = asked.get(key);
    selection[key] = /^\d+$/.test(number ?? "") && isThere(key, Number(number), reports) ? Number(number) : null;
  }
  const operation = reports.map((report) => operationOf(report, selection.operation ?? -1)).find(Boolean);
  return { view, selection: operation ? { ...selection, origin: operation.origin || null, name: operation.name } : selection };
}

function isThere(key, number, reports) {
  const has = {
    operation: (report) => operationOf(report, number) !== undefined,
    ipu: (report) => number < report.num_ipus,
    tick: (report) => number < (report.pipeline?.ticks ?? 0),
  };
  return !has[key] || reports.some(has[key]);
}

function addressKey(key) {
  return key === "origin" ? "line" : key;
}

function readable(value) {
  return encodeURIComponent(value).replace(/%(2F|3A|2C|20)/g, (code) => ADDRESS_PLAIN[code]);
}
