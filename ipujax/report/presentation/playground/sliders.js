// The sliders, each with its number, and a line that says what the one in hand means.

import {element} from "../page/format.js";
import {SLIDERS} from "./state.js";

const HINT = "Point at a task of a grid, or walk there with the arrow keys, to see what it waits for.";

/** `{root, show(state, model)}`; `change(name, value)` is called while one is moved. */
export function sliders(change) {
  const help = element("p", { class: "faint help", text: HINT });
  const tell = (title, about) => { help.textContent = `${title}: ${about}`; };
  const rows = SLIDERS.map((slider) => ({ slider, ...sliderRow(slider, change, tell) }));
  const show = (state, model) => {
    const own = state.own ? model : null;
    for (const { slider, input, number } of rows) {
      input.max = String(Math.max(slider.most, state[slider.name]));
      input.value = String(state[slider.name]);
      const text = valueText(slider, state, own);
      number.textContent = text;
      input.setAttribute("aria-valuetext", text);
      input.disabled = slider.name === "stages" && own !== null;
    }
  };
  const root = element("div", { class: "sliders", onpointerleave: () => { help.textContent = HINT; } }, rows.map((row) => row.root), help);
  return { root, show };
}

function sliderRow({ name, title, phase, least, most, step, about }, change, tell) {
  const id = `slider-${name}`;
  const input = element("input", {
    type: "range", id, name, min: String(least), max: String(most), step: String(step), "aria-description": about,
    oninput: () => change(name, Number(input.value)),
    onfocus: () => tell(title, about),
  });
  const number = element("output", { for: id });
  const swatch = phase && element("span", { class: "swatch", style: { background: `var(--phase-${phase})` } });
  const label = element("label", { for: id }, swatch || null, title);
  const root = element("div", { class: "slider", onpointerenter: () => tell(title, about) }, label, input, number);
  return { root, input, number };
}

function valueText({ name, phase }, state, own) {
  if (name === "memory") return state.memory ? String(state.memory) : "no limit";
  if (own && phase) return `× ${state[name]}`;
  if (own && name === "transfer") return `${state[name]} F`;
  return String(state[name]);
}
