// What the search finds: operations, scopes, lines and tensors of the page's reports, each with what it costs.

import {text} from "./document.js";
import {bytes, cycles, shortOrigin} from "./format.js";
import {asItem} from "./items.js";
import {friendlyName, scopePath} from "./names.js";
import {operationGroups} from "./operationsums.js";
import {inWords} from "./parts.js";
import {tensorItem} from "./tiles.js";

/** Kinds of what is found, each with its title. */
const SEARCH_KINDS = [["operation", "Operations"], ["scope", "Scopes"], ["line", "Lines"], ["tensor", "Tensors"]];

/**
 * All that can be found: entries `{kind, label, detail, costs (one for each report), words (what is searched), item and
 * more (what to select), views (where it shows best, the first that there is)}`, most cycles or bytes first.
 */
export class SearchIndex {
  constructor(reports) {
    this.entries = new Map();
    this.reports = reports;
    reports.forEach((report, side) => {
      for (const row of operationGroups(report.operations, "same")) this.addOperation(report, row, side);
      report.liveness.forEach((life, ipu) => this.addTensors(report, life, ipu, side));
    });
    this.sorted = [...this.entries.values()].sort((a, b) => mostOf(b) - mostOf(a));
    for (const entry of this.sorted) entry.words = [entry.label, entry.kind, entry.words].join(" ").toLowerCase();
  }

  addOperation(report, row, side) {
    const [first] = row.rows;
    const path = scopePath(first);
    const ipus = report.num_ipus > 1 ? `IPU ${row.ipus}` : "";
    const label = friendlyName(first);
    const primitive = label === row.name ? "" : row.name.replace(/, backward$/, "");
    const entry = this.entryOf(["operation", ...(row.number < 0 ? [row.name, row.origin] : [row.number])], () => ({
      label,
      detail: [first.direction, shortOrigin(row.origin), path.join(" > "), ipus, primitive],
      words: [row.name, row.origin, row.scope, first.direction].join(" "),
      item: asItem(row),
      more: row.rows.every(({ ipu }) => ipu === row.ipu) ? { ipu: row.ipu } : { ipu: null },
      views: ["operations"],
    }));
    addCost(entry, side, row.cycles);
    if (row.origin) addCost(this.lineOf(row.origin), side, row.cycles);
    path.forEach((_, depth) => addCost(this.scopeOf(path.slice(0, depth + 1)), side, row.cycles));
  }

  lineOf(origin) {
    const [line, within = ""] = origin.split(" (");
    return this.entryOf(["line", origin], () => ({
      label: shortOrigin(origin),
      detail: [within.replace(/\)$/, "").split(".").at(-1), line],
      words: origin,
      item: { origin },
      views: ["source", "operations"],
    }));
  }

  scopeOf(path) {
    return this.entryOf(["scope", ...path], () => ({
      label: path.join(" > "),
      detail: [],
      words: path.join("/"),
      more: { scope: path.join("/") },
      views: ["operations"],
    }));
  }

  addTensors(report, life, ipu, side) {
    const { tensors } = life;
    tensors.bytes.forEach((held, i) => {
      const { maker, owner, scope, ...item } = tensorItem(report, life, i);
      const category = text(report, tensors.category[i]);
      const entry = this.entryOf(["tensor", item.name, item.made, item.origin], () => ({
        label: item.name,
        detail: [inWords(category), owner, scope, shortOrigin(item.origin)],
        words: [category, maker, owner, scope, item.origin].join(" "),
        item: { origin: item.origin, name: item.name },
        more: { ipu, category, step: tensors.first[i] < 0 ? null : tensors.first[i] },
        views: [tensors.first[i] < 0 ? "memory" : "liveness"],
      }));
      entry.costs[side] = Math.max(entry.costs[side] ?? 0, held);
    });
  }

  /** The entry of a kind and of what tells it from others, made when it is first met. */
  entryOf(key, make) {
    const known = JSON.stringify(key);
    if (!this.entries.has(known)) {
      const costs = this.reports.map(() => null);
      this.entries.set(known, { kind: key[0], item: {}, more: {}, ...make(), costs });
    }
    return this.entries.get(known);
  }

  /** What has all words that are searched for, by kind: `[{title, total, found (at most so many)}]`, the best first. */
  find(wanted, most) {
    const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
    let ranked = this.ranked((entry) => rankOf(entry, words));
    if (!ranked.length) ranked = this.ranked((entry) => letterRank(entry.label.toLowerCase(), words.join("")));
    const groups = SEARCH_KINDS.map(([kind, title]) => {
      const found = ranked.filter(({ entry }) => entry.kind === kind);
      return { title, total: found.length, best: found[0]?.rank, found: found.slice(0, most).map(({ entry }) => entry) };
    });
    return groups.filter(({ total }) => total).sort((a, b) => b.best - a.best);
  }

  /** Entries with a rank, those of a high rank first, and of one rank those that cost most. */
  ranked(rank) {
    const ranks = this.sorted.map((entry) => ({ entry, rank: rank(entry) })).filter((own) => own.rank >= 0);
    return ranks.sort((a, b) => b.rank - a.rank);
  }
}

/** What an entry costs, in each report. */
export function costText({ kind, costs }) {
  const told = kind === "tensor" ? bytes : (cost) => `${cycles(cost)} cycles`;
  return costs.map((cost) => (cost === null ? "–" : told(cost))).join(" → ");
}

function addCost(entry, side, cost) {
  entry.costs[side] = (entry.costs[side] ?? 0) + cost;
}

function mostOf({ costs }) {
  return costs.reduce((most, cost) => Math.max(most, cost ?? 0), 0);
}

/** How well all words are met: at the start of the label best, then of a word in it, within it, elsewhere; or -1. */
function rankOf(entry, words) {
  const label = entry.label.toLowerCase();
  let rank = 0;
  for (const word of words) {
    const at = label.indexOf(word);
    if (at < 0 && !entry.words.includes(word)) return -1;
    if (at >= 0) rank += at === 0 ? 3 : /\w/.test(label[at - 1]) ? 1 : 2;
  }
  return rank;
}

/** Whether a label has letters in this order with others between them: the more, the fewer there are; or -1. */
function letterRank(label, letters) {
  let at = -1;
  let first = 0;
  for (const letter of letters) {
    at = label.indexOf(letter, at + 1);
    if (at < 0) return -1;
    if (letter === letters[0] && !first) first = at + 1;
  }
  return 1 / (1 + at - first + 1);
}
