// A schedule on the page: its numbers, its grid, and how it compares with its formula and with what is possible.

import {element, percent, threeDigits} from "../page/format.js";
import {figure} from "../page/parts.js";
import {Board} from "./board.js";

/** `{root, show(outcome)}`; `close()` is called to take it off, `change(microBatches)` where another number would do. */
export class Card {
  constructor(entry, { close, change, say }) {
    this.entry = entry;
    this.change = change;
    const shut = element("button", { type: "button", class: "zoom", title: "Close", "aria-label": `Close ${entry.title}`, text: "×", onclick: close });
    this.figures = element("div", { class: "figures" });
    this.facts = element("div", { class: "facts" });
    this.boardBox = element("div");
    this.board = new Board(this.boardBox, say);
    this.root = element("section", { class: "panel card", "data-schedule": entry.name, "aria-label": entry.title },
      element("div", { class: "panel-head" }, element("h2", { text: entry.title }), this.figures, shut),
      this.facts, this.boardBox);
  }

  /** Of an outcome `{why}` the reason why there is none. */
  show(outcome, shared) {
    this.boardBox.hidden = this.figures.hidden = Boolean(outcome.why);
    if (outcome.why) return this.facts.replaceChildren(element("p", { class: "soft", text: outcome.why }), ...this.others(outcome));
    this.figures.replaceChildren(
      figure(threeDigits(outcome.makespan), outcome.settings.unit),
      figure(percent(outcome.idle), "idle", "The share of the time in which IPUs have nothing to do"),
      figure(threeDigits(outcome.memory), "memory", "The most micro-batches that an IPU holds at once"),
      figure(threeDigits(outcome.transfers), "transfers", "Results that go to another IPU, for each micro-batch"),
    );
    this.facts.replaceChildren(...factsOf(outcome));
    this.board.show({ ...outcome, ...shared });
    return undefined;
  }

  others({ multiple, microBatches }) {
    if (!multiple || microBatches % multiple === 0) return [];
    const below = Math.floor(microBatches / multiple) * multiple;
    return [below, below + multiple].filter(Boolean).map((number) =>
      element("button", { type: "button", class: "button", text: `${number} micro-batches`, onclick: () => this.change(number) }));
  }
}

function factsOf(outcome) {
  const { bubble, formula, optimum, memory, fits, limit } = outcome;
  const facts = [];
  if (!fits) facts.push(fact("bad", `needs memory for ${threeDigits(memory)} micro-batches, and has it for ${limit}`));
  const measured = `bubble ${threeDigits(bubble)}`;
  facts.push(fact("", formula ? `${measured}; by the formula ${formula.text} = ${threeDigits(formula.value)}` : measured));
  facts.push(optimum ? besideOptimum(outcome) : besideBound(outcome));
  return facts;
}

function besideOptimum({ optimum, makespan, fits }) {
  const shortest = `with memory for ${optimum.memory} micro-batch${optimum.memory === 1 ? "" : "es"} the shortest order takes ${threeDigits(optimum.time)}`;
  return fits && makespan === optimum.time ? fact("good", `proven optimal: ${shortest}`) : fact("", `${shortest}, as is proven`);
}

function besideBound({ bound, makespan, fits, limit }) {
  const memory = fits ? ", with this memory," : ", with any memory,";
  const least = `no order of these tasks on these IPUs${limit ? memory : ""} takes less than ${threeDigits(bound)}`;
  const gap = makespan - bound;
  if (gap > 1e-9 * makespan) return fact("", `${least}, ${threeDigits(gap)} less than this`);
  return fits ? fact("good", `optimal: ${least}`) : fact("", least);
}

function fact(kind, text) {
  return element("p", { class: `fact ${kind}`, text });
}
