// Words that need explaining, with the sentences of docs/glossary.md.

import {hideTooltip, showTooltip} from "./chart.js";
import {element} from "./format.js";

const GLOSSARY = {
  work: "computing of the forward and backward pass",
  exchange: "data that goes from tile to tile of one IPU, and the syncs before it",
  copies: "data that goes between IPUs or between replicas, and the syncs before it",
  update: "computing and exchange of the weight update",
  host: "queues, copies and calls of the host, and streaming memory, where no other work hides them",
  imbalance: "waiting for another IPU, or in a tick for the longest task",
  bubble: "waiting in ticks of a pipeline in which the IPU has no task, or fewer than in others, by their length",
  waiting: "imbalance and bubble together",
  "streaming memory": "memory of the host's side that IPUs read and write through buffers, slower and larger than tiles; also remote memory",
  "general formula": "ten cycles for each element of the largest array, for operations that have no formula of their own",
  variables: "arguments and loop variables, and the new values that take their places",
  constants: "arrays that the function closes over",
  activations: "what operations leave for others, gradients of weights included until they are accumulated",
  fifos: "what waits in a pipeline between the forward and backward task of a micro-batch",
  temporaries: "work space of operations: copied operands and partial sums",
  "vertex code": "the instructions of a tile's codelets, once for each kind that it has",
  "vertex state": "what a tile keeps for its vertices beside the data: where operands are, how long they are",
  "control code": "the instructions that say which step comes next",
  "exchange code": "the instructions that say what is sent and received when",
  stack: "work space of the processors of a tile",
};

/** What a word means; "" if that needs no explaining. */
export function meaning(word) {
  return GLOSSARY[word] ?? "";
}

/** A word that says what it means where the pointer or the keyboard is on it. */
export function term(word, text = word) {
  const sentence = meaning(word);
  const told = element("span", { class: "term", tabindex: 0, "data-term": word, "aria-label": `${text}: ${sentence}`, text });
  const tell = () => {
    const { left, bottom } = told.getBoundingClientRect();
    showTooltip([word, sentence], left - 14, bottom - 8);
  };
  for (const event of ["pointerenter", "focus", "click"]) told.addEventListener(event, tell);
  for (const event of ["pointerleave", "blur"]) told.addEventListener(event, hideTooltip);
  told.addEventListener("keydown", (event) => event.key === "Escape" && hideTooltip());
  return told;
}
