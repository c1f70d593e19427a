// A dialog that searches the reports, and goes to what is chosen.

import {dialogOf} from "./dialogs.js";
import {element} from "./format.js";
import {SearchIndex, costText} from "./search.js";

const FOUND_OF_KIND = 6;

/** Searches `reports`; `choose(entry, stay)` is told what is chosen, and whether to stay in the view. */
export class Finder {
  constructor(reports, choose) {
    this.reports = reports;
    this.choose = choose;
    this.dialog = null; // until it is first opened
    this.options = [];
    this.at = 0; // the option that Enter takes
  }

  open() {
    if (!this.dialog) this.build();
    this.input.select();
    this.show();
    if (!this.dialog.open) this.dialog.showModal();
    this.input.focus();
  }

  build() {
    this.index = new SearchIndex(this.reports);
    this.input = element("input", {
      type: "text", // of a search field, the first Escape would only empty it
      enterkeyhint: "search",
      role: "combobox",
      placeholder: "Operation, tensor, line or scope", // as long as fits on a phone
      "aria-label": "Search operations, tensors, lines and scopes",
      "aria-expanded": "true",
      "aria-controls": "finder-list",
      "aria-autocomplete": "list",
      autocomplete: "off",
      spellcheck: "false",
      oninput: () => this.show(),
      onkeydown: (event) => this.key(event),
    });
    this.list = element("div", { id: "finder-list", role: "listbox", "aria-label": "What is found" });
    this.note = element("p", { class: "finder-note", "aria-live": "polite" });
    const keys = element("p", { class: "finder-keys" }, [["↑ ↓", "choose"], ["Enter", "open"], ["Shift Enter", "select, and stay here"]]
      .map(([key, does]) => element("span", {}, element("kbd", { text: key }), ` ${does}`)));
    this.dialog = dialogOf("Search", "finder", this.input, this.list, element("footer", {}, this.note, keys));
  }

  /** Shows what is found. */
  show() {
    const groups = this.index.find(this.input.value, FOUND_OF_KIND);
    const words = this.input.value.toLowerCase().split(/\s+/).filter(Boolean);
    this.options = [];
    this.list.replaceChildren(...groups.map((group, i) => this.group(group, i, words)));
    this.list.scrollTop = 0;
    const total = groups.reduce((sum, group) => sum + group.total, 0);
    this.note.textContent = total ? `${total} found` : "Nothing is called that.";
    this.mark(0);
  }

  group({ title, total, found }, i, words) {
    const more = found.length < total ? `${found.length} of ${total}` : String(total);
    const head = element("div", { class: "finder-head", id: `finder-group-${i}` }, title, element("span", { class: "faint", text: more }));
    return element("div", { role: "group", "aria-labelledby": head.id }, head, found.map((entry) => this.option(entry, words)));
  }

  option(entry, words) {
    const at = this.options.length;
    const option = element("div", {
      id: `found-${at}`,
      role: "option",
      class: "found",
      "data-kind": entry.kind,
      onclick: (event) => this.take(at, event.shiftKey),
      onpointermove: () => this.mark(at, false),
    },
    element("span", { class: "found-label" }, marked(entry.label, words)),
    element("span", { class: "found-cost", text: costText(entry) }),
    element("span", { class: "found-detail", text: entry.detail.filter(Boolean).join(" · ") }));
    this.options.push({ entry, option });
    return option;
  }

  /** Makes one of the options the one that Enter takes. */
  mark(at, scrolls = true) {
    this.options[this.at]?.option.removeAttribute("aria-selected");
    this.at = at;
    const option = this.options[at]?.option;
    option?.setAttribute("aria-selected", "true");
    if (scrolls) option?.scrollIntoView({ block: "nearest" });
    if (option) this.input.setAttribute("aria-activedescendant", option.id);
    else this.input.removeAttribute("aria-activedescendant");
  }

  key(event) {
    const moves = { ArrowDown: 1, ArrowUp: -1, PageDown: FOUND_OF_KIND, PageUp: -FOUND_OF_KIND };
    const last = this.options.length - 1;
    if (moves[event.key]) this.mark(Math.max(0, Math.min(last, this.at + moves[event.key])));
    else if (event.key === "Enter") this.take(this.at, event.shiftKey);
    else return;
    event.preventDefault();
  }

  take(at, stay) {
    if (!this.options[at]) return;
    this.dialog.close();
    this.choose(this.options[at].entry, stay);
  }
}

/** A text in which the words that are searched for are marked. */
function marked(label, words) {
  const lower = label.toLowerCase();
  const parts = [];
  let from = 0;
  const places = words.map((word) => [lower.indexOf(word), word.length]).filter(([at]) => at >= 0);
  for (const [at, length] of places.sort(([a], [b]) => a - b)) {
    if (at < from) continue;
    parts.push(label.slice(from, at), element("mark", { text: label.slice(at, at + length) }));
    from = at + length;
  }
  return [...parts, label.slice(from)];
}
