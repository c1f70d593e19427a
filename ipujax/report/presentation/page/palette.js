// Colours by meaning. They are CSS variables of page.css; canvases need them resolved.

export const PART_TINTS = 7; // that page.css has
const resolvedColours = new Map();
const themeListeners = new Set();
let colourProbe = null;

/** The colour of a kind of step: compute, exchange, sync, inter_ipu, host, remote, waiting. */
export function kindColour(kind) {
  return themeColour(`kind-${kind}`);
}

/** The colour of a category of memory. */
export function categoryColour(category) {
  return themeColour(`category-${category}`);
}

/** The colour of a phase: fwd, bwd, wgt, recompute, offload, load, update; of anything else a neutral one. */
export function phaseColour(phase) {
  return themeColour(phase ? `phase-${phase}` : "phase-none");
}

/** The colour of a phase above steps that have the colours of their kinds. */
export function passColour(phase) {
  return themeColour(phase ? `pass-${phase}` : "part-many");
}

/** The variable of a tint that tells parts of the model apart: there are a few, which begin again. */
export function partTint(number) {
  return `part-${number % PART_TINTS}`;
}

/** The variable `--name` of the theme that is in force, as a canvas understands it. */
export function themeColour(name) {
  if (!resolvedColours.has(name)) resolvedColours.set(name, resolveColour(name));
  return resolvedColours.get(name);
}

/** Calls a function whenever the theme changes; gives what ends that. */
export function onTheme(listener) {
  themeListeners.add(listener);
  return () => themeListeners.delete(listener);
}

/** Puts a theme in force: "light", "dark", or "" for the system's. */
export function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  themeChanged();
}

/** The theme that is in force. */
export function currentTheme() {
  const chosen = document.documentElement.dataset.theme;
  return chosen || (systemIsDark().matches ? "dark" : "light");
}

function resolveColour(name) {
  if (!colourProbe) {
    colourProbe = document.createElement("span");
    colourProbe.hidden = true;
    document.body.append(colourProbe);
    systemIsDark().addEventListener("change", themeChanged);
  }
  colourProbe.style.color = "";
  colourProbe.style.color = `var(--${name}, var(--text-faint))`;
  return getComputedStyle(colourProbe).color;
}

function systemIsDark() {
  return matchMedia("(prefers-color-scheme: dark)");
}

function themeChanged() {
  resolvedColours.clear();
  for (const listener of themeListeners) listener();
}

/** Black or white, whichever can be read on a colour such as `rgb(0, 114, 178)`. */
export function inkOn(colour) {
  const [red, green, blue] = colour.match(/[\d.]+/g).map((part) => luminance(Number(part) / 255));
  const bright = 0.2126 * red + 0.7152 * green + 0.0722 * blue;
  return 1.05 / (bright + 0.05) > (bright + 0.05) / 0.05 ? "#ffffff" : "#000000";
}

function luminance(part) {
  return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
}
