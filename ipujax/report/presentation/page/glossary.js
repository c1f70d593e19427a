// Words that need explaining, with the sentences of docs/glossary.md.

import {hideTooltip, showTooltip} from "./chart.js";
import {element} from "./format.js";

const GLOSSARY = {
  work: "computing the forward and backward pass",
  exchange: "moving data between the tiles of one IPU, and the syncs before",
  copies: "moving data between IPUs or replicas, and the syncs before",
  update: "computing and exchange of the weight update",
  host: "queues, copies and calls of the host, where they do not overlap with other work",
  imbalance: "waiting for another IPU, or in a tick for the longest task",
  bubble: "waiting in ticks of a pipeline in which the IPU has no task, or fewer than in other ticks",
  waiting: "imbalance and bubble together",
  "streaming memory": "memory outside of the chips that IPUs read and write: larger and slower than tile memory. Poplar's remote buffers are in it, so options and attributes call it `remote`; host memory is the host's own",
  "general formula": "the cost of an operation without a formula of its own: ten cycles for each element of its largest array",
  variables: "arguments, loop variables, and the new values that replace them",
  constants: "arrays that the function closes over",
  activations: "results of operations that later operations read; also gradients of weights, until they are accumulated",
  fifos: "the FIFOs of a pipeline",
  temporaries: "work space of operations: copied operands and partial sums",
  "vertex code": "the instructions of a tile's codelets, once for each kind that it has",
  "vertex state": "the memory of a tile that holds the addresses and lengths of its vertices' operands",
  "control code": "the instructions that choose the next step",
  "exchange code": "the instructions that send and receive data, cycle by cycle",
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
