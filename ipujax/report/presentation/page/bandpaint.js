// Paints the parts of the model in a lane, with their names. Neighbours that are too narrow for a name each share one.

import {paintColumns} from "./lanes.js";
import {inkOn, partTint, passColour, themeColour} from "./palette.js";
import {shortened} from "./parts.js";

/** The phases of a pipeline that passes of other programs look like. */
export const PASS_PHASES = { forward: "fwd", backward: "bwd", update: "update" };
/** What is narrower than so many pixels is not looked at for itself, for `laneShape`. */
export const NARROW_PART = 0.5;
const BESIDE = 2; // pixels that may lie between neighbours
const LEAST_SEEN = 0.1; // share of a pixel in parts that are too narrow to tell apart from which on it is filled
const NAME_MARGIN = 2; // pixels on both sides of a name
const MOST_NAMES = 3; // that are written one after the other
const CUT_WIDTH = 20; // pixels that the start of a name needs
const NUMBERED = /^(.*?)(\d+)$/;

/** Parts in a row `{level, top, height}`: passes in the colours of phases, all else in the tint of its scope. */
export function paintBand(ctx, shape, bands, { level, top, height }, opacity) {
  ctx.globalAlpha = opacity;
  paintColumns(ctx, shape, [[0, themeColour("part-many")]], top, height, shape.cyclesPerPixel * LEAST_SEEN);
  const stretches = joinedStretches(shape, bands);
  for (const stretch of stretches) {
    stretch.colour = colourOf(stretch.part, level);
    ctx.fillStyle = stretch.colour;
    const { from, to } = stretch;
    ctx.fillRect(from, top, to - from > 4 ? to - from - 1 : to - from, height);
  }
  ctx.globalAlpha = 1;
  ctx.save();
  ctx.textAlign = "center";
  for (const group of namedTogether(ctx, stretches)) {
    const text = nameOfGroup(ctx, group);
    ctx.fillStyle = opacity < 1 ? themeColour("text-soft") : inkOn(group[0].colour);
    if (text) ctx.fillText(text, (group[0].from + group.at(-1).to) / 2, top + height / 2 + 0.5);
  }
  ctx.restore();
}

function colourOf(part, level) {
  if (level === 0) return passColour(PASS_PHASES[part.name]);
  return themeColour(partTint(part.tint));
}

/** What can be seen of each part, `{part, from, to}` from left to right; neighbours that are of one part are one. */
function joinedStretches(shape, bands) {
  const right = shape.left + shape.width;
  const stretches = [];
  for (const { x, width, list, i } of shape.boxes.sort((a, b) => a.x - b.x)) {
    const part = bands.parts[list.part[i]];
    const [from, to] = [Math.max(x, shape.left), Math.min(x + width, right)];
    const last = stretches.at(-1);
    if (last?.part === part && from - last.to <= BESIDE) last.to = Math.max(last.to, to);
    else stretches.push({ part, from, to });
  }
  return stretches;
}

/** Groups of neighbours that share a name: one that has room for its own is alone. */
function namedTogether(ctx, stretches) {
  const groups = [];
  for (const stretch of stretches) {
    const room = stretch.to - stretch.from - 2 * NAME_MARGIN;
    stretch.isNamed = room > 0 && ctx.measureText(stretch.part.name).width <= room; // measuring takes time
    const last = groups.at(-1)?.at(-1);
    const joins = last && !last.isNamed && !stretch.isNamed && last.part.pass === stretch.part.pass;
    if (joins && stretch.from - last.to <= BESIDE) groups.at(-1).push(stretch);
    else groups.push([stretch]);
  }
  return groups;
}

/** What a group is called: all its names if they have room, else a range of numbers. Slivers and operations beside scopes do not count. */
function nameOfGroup(ctx, group) {
  const room = group.at(-1).to - group[0].from - 2 * NAME_MARGIN;
  if (group.length > 1 && group.every(({ part }) => part.operation >= 0)) return "";
  const seen = group.filter(({ from, to }) => to - from >= BESIDE).map(({ part }) => part);
  const scopes = seen.filter((part) => part.operation < 0);
  const names = [...new Set((scopes.length ? scopes : seen).map((part) => part.name))];
  const forms = [names.length > MOST_NAMES ? [] : [names.join(", ")], scopes.length ? rangeForms(names) : []].flat();
  const fitting = forms.find((form) => ctx.measureText(form).width <= room);
  return fitting ?? (names.length === 1 && room >= CUT_WIDTH ? shortened(ctx, names[0], room) : "");
}

/** `layer0` and `layer1` as `layer0–1` or `0–1`; nothing for names of which some have no number. */
function rangeForms(names) {
  const matches = names.map((name) => name.match(NUMBERED));
  const [first] = matches;
  if (!first || !matches.every((match) => match && match[1] === first[1])) return [];
  const numbers = matches.map(([, , digits]) => Number(digits));
  const [least, most] = [Math.min(...numbers), Math.max(...numbers)];
  const range = least === most ? String(least) : `${least}–${most}`;
  return [`${first[1]}${range}`, range];
}
