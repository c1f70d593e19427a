// Pieces that views are made of: panels, figures, legends, and bars painted into charts.

import {element} from "./format.js";
import {themeColour} from "./palette.js";

/** A panel with a title, and what stands right of the title. */
export function panel(title, tools, ...children) {
  const head = element("div", { class: "panel-head" }, element("h2", { text: title }), ...tools);
  return element("section", { class: "panel" }, head, ...children);
}

/** A number, and below it what it is, a text or an element; `detail` is said on hovering. */
export function figure(value, label, detail = null) {
  return element(
    "div",
    { class: "figure", title: detail },
    element("div", { class: "figure-value", text: value }),
    element("div", { class: "figure-label" }, label),
  );
}

/** What colours mean: `entries` are `[text, colour variable]`. */
export function legend(entries) {
  return element(
    "div",
    { class: "legend" },
    entries.map(([text, colour]) =>
      element("span", {}, element("span", { class: "swatch", style: { background: `var(--${colour})` } }), text),
    ),
  );
}

const KIND_WORDS = { inter_ipu: "between IPUs", remote: "streaming memory" };

/** A kind of step or category in words. */
export function inWords(name) {
  return KIND_WORDS[name] ?? name.replaceAll("_", " ");
}

const PHASE_WORDS = {
  fwd: "forward",
  bwd: "backward",
  wgt: "weight gradients",
  recompute: "forward again",
  offload: "to host memory",
  load: "from host memory",
};

/** A phase of a pipeline in words. */
export function phaseInWords(phase) {
  return PHASE_WORDS[phase] ?? phase;
}

/** Paints a text that ends with an ellipsis where it has no room; nothing where there is none at all. */
export function paintText(ctx, text, x, y, room) {
  const shown = room < 8 ? "" : shortened(ctx, text, room);
  if (shown) ctx.fillText(shown, x, y);
}

/** A text that ends with an ellipsis where it has no room; "" where there is none at all. */
export function shortened(ctx, text, room) {
  const width = ctx.measureText(text).width;
  if (width <= room) return text;
  for (let length = Math.floor((text.length * room) / width) - 1; length > 1; length--) {
    const shown = `${text.slice(0, length)}…`;
    if (ctx.measureText(shown).width <= room) return shown;
  }
  return "";
}

/** Paints a pattern for nothing: hatched, so that it cannot be taken for a colour. */
export function hatching(ctx) {
  const tile = document.createElement("canvas");
  tile.width = tile.height = 6;
  const pen = tile.getContext("2d");
  pen.fillStyle = themeColour("bubble");
  pen.fillRect(0, 0, 6, 6);
  pen.strokeStyle = themeColour("bubble-line");
  pen.lineWidth = 1;
  pen.beginPath();
  pen.moveTo(-1, 7);
  pen.lineTo(7, -1);
  pen.stroke();
  return ctx.createPattern(tile, "repeat");
}

/** Rows with a label left of a chart: "IPU 3" beside each. */
export function paintRowLabels(ctx, rows, isSelected) {
  ctx.save();
  for (const { label, y, key } of rows) {
    ctx.fillStyle = themeColour(isSelected(key) ? "accent" : "text-soft");
    ctx.font = `${isSelected(key) ? 700 : 400} 12px ${getComputedStyle(document.body).fontFamily}`;
    ctx.fillText(label, 2, y);
  }
  ctx.restore();
}
