// Small labelled controls that several views share.
import {element} from "./format.js";

/** Buttons of which one is chosen: `{root, set(value)}`. `options` are `[value, text]`. */
export function choice(label, options, value, onchange) {
  const buttons = new Map();
  const show = (chosen) => {
    for (const [key, button] of buttons) button.setAttribute("aria-pressed", String(key === chosen));
  };
  for (const [key, text] of options) {
    const press = () => { show(key); onchange(key); };
    buttons.set(key, element("button", { type: "button", text, onclick: press }));
  }
  show(value);
  const root = element("div", { class: "control", role: "group", "aria-label": label },
    element("span", { text: label }), element("div", { class: "switch" }, [...buttons.values()]));
  return { root, set: show };
}

/** A choice of one IPU, or of all (-1); hidden if there is only one. */
export function ipuChoice(report, value, onchange) {
  const options = [[-1, "all"]];
  for (let i = 0; i < report.num_ipus; i++) options.push([i, String(i)]);
  const made = choiceOf("IPU", options, value, onchange, 9);
  made.root.hidden = report.num_ipus === 1;
  return made;
}

/** A choice of one of some numbers: buttons, or a list where there are more than `most`. */
export function choiceOf(label, options, value, onchange, most = 4) {
  if (options.length <= most) return choice(label, options, value, onchange);
  const list = element("select", { onchange: () => onchange(Number(list.value)) });
  for (const [key, text] of options) list.append(element("option", { value: String(key), text }));
  list.value = String(value);
  return { root: control(label, list), set: (chosen) => { list.value = String(chosen); } };
}

/** A button that shows an IPU alone. */
export function ipuLink(ipu, onclick) {
  return element("button", { class: "link", type: "button", text: `IPU ${ipu}`, title: "Show this IPU alone", onclick });
}

/** A whole number from 0 to `most` that can be typed; others become the nearest: `{root, set(value), limit(most)}`. */
export function numberField(label, most, value, onchange) {
  const input = element("input", { type: "number", min: "0", max: String(most), step: "1" });
  let known = value;
  const show = (number) => {
    known = number;
    input.value = String(number);
  };
  input.addEventListener("change", () => {
    const typed = Math.round(Number(input.value));
    const valid = input.value !== "" && Number.isFinite(typed);
    show(valid ? Math.min(Number(input.max), Math.max(0, typed)) : known);
    if (valid) onchange(known);
  });
  show(value);
  return { root: control(label, input), set: show, limit: (last) => { input.max = String(last); } };
}

/** A box to tick. */
export function tickBox(label, value, onchange) {
  const input = element("input", { type: "checkbox" });
  input.checked = value;
  input.addEventListener("change", () => onchange(input.checked));
  return element("label", { class: "control" }, input, label);
}

/** A button with a text. */
export function pushButton(text, title, onclick) {
  return element("button", { class: "button", type: "button", text, title, onclick });
}

/** A control with a label before it. */
export function control(label, input) {
  return element("label", { class: "control" }, element("span", { text: label }), input);
}
