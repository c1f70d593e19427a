// Paints the tiles of one IPU: as stacked bars, or as a map.
import {NUMBERS_HEIGHT, bytesTicks, insideAxes, paintBytesAxis, paintNotes, paintNumbersAxis} from "./axes.js";
import {bytes} from "./format.js";
import {categoryColour, currentTheme, themeColour} from "./palette.js";
import {fullestOf, shownBytes} from "./tiles.js";

const MAP_SHAPE = 46 / 32; // columns to rows of a map
const TILE_RAMP_OVER = [[246, 178, 107], [224, 110, 40], [163, 40, 0]];
const OVER_CAP = 4; // pixels of the mark on a tile with too much
const OVER_ALONE = 24; // pixels: a narrower run of such marks is pointed at
const TILE_RAMP_LIGHT = [[232, 240, 247], [120, 180, 220], [24, 100, 170], [8, 40, 90]];
const TILE_RAMP_DARK = [[30, 40, 54], [24, 92, 148], [86, 170, 225], [226, 243, 255]];

/**
 * What both paintings take: `{memory, limit, top, category (one alone, or null), tile (chosen, or -1),
 * linked (bytes per tile of what is selected, or null), small}`; `top` is the most that is shown.
 */
export function paintTileBars(ctx, view, shown) {
  const height = view.height - NUMBERS_HEIGHT;
  const toY = (value) => height - (value / shown.top) * height;
  insideAxes(ctx, view, height, () => {
    paintGrid(ctx, view, shown, toY);
    const columns = tileColumns(view, shown);
    paintParts(ctx, columns, shown, toY);
    if (shown.category === null) paintPeaks(ctx, columns, shown, toY);
    if (shown.linked) paintLinked(ctx, columns, shown.linked, toY);
    paintLimit(ctx, view, shown, toY);
    paintChosen(ctx, view, shown.tile, height);
  });
  paintBytesAxis(ctx, view, height, shown.top, shown.small);
  paintNumbersAxis(ctx, view, height, "tile");
}

/** What each column of pixels stands for: `{x, width, tile}`, the fullest of its tiles. */
function tileColumns(view, { memory, category }) {
  const values = shownBytes(memory, category);
  const from = Math.max(0, Math.floor(view.lo));
  const to = Math.min(memory.tiles, Math.ceil(view.hi));
  const columns = [];
  const room = view.right - view.left;
  if (to - from <= room) {
    const gap = room / (to - from) > 5 ? 1 : 0;
    for (let tile = from; tile < to; tile++) {
      const x = view.toX(tile);
      columns.push({ x, width: Math.max(1, view.toX(tile + 1) - x - gap), tile });
    }
    return columns;
  }
  for (let x = view.left; x < view.right; x++) {
    const first = Math.max(from, Math.floor(view.fromX(x)));
    const end = Math.min(to, Math.max(first + 1, Math.floor(view.fromX(x + 1))));
    if (first < end) columns.push({ x, width: 1, tile: fullestOf(values, first, end) });
  }
  return columns;
}

/** The tile that is drawn at a place of the bars of `values`; -1 if there is none. */
export function tileAtBar(view, x, values) {
  const from = Math.floor(view.fromX(x));
  if (x < view.left || from < 0 || from >= values.length) return -1;
  const to = Math.min(values.length, Math.max(from + 1, Math.floor(view.fromX(x + 1))));
  return fullestOf(values, from, to);
}

function paintGrid(ctx, view, { top, small }, toY) {
  ctx.fillStyle = themeColour("grid");
  for (const value of bytesTicks(top, small)) ctx.fillRect(view.left, Math.round(toY(value)), view.right - view.left, 1);
}

function paintParts(ctx, columns, { memory, category }, toY) {
  const base = new Float64Array(columns.length);
  for (const { name, bytes: held } of memory.parts) {
    if (category !== null && category !== name) continue;
    ctx.fillStyle = categoryColour(name);
    columns.forEach(({ x, width, tile }, i) => {
      const value = held[tile];
      if (!value) return;
      const y = toY(base[i] + value);
      ctx.fillRect(x, y, width, toY(base[i]) - y);
      base[i] += value;
    });
  }
}

/** The outline of what tiles hold at most, what of it comes at other steps, and marks where it is too much. */
function paintPeaks(ctx, columns, { memory, limit }, toY) {
  ctx.fillStyle = themeColour("text");
  ctx.globalAlpha = 0.12;
  for (const { x, width, tile } of columns) {
    const y = toY(memory.peak[tile]);
    const held = memory.parts.reduce((sum, part) => sum + part.bytes[tile], 0);
    if (held < memory.peak[tile]) ctx.fillRect(x, y, width, toY(held) - y);
  }
  ctx.globalAlpha = 1;
  ctx.strokeStyle = themeColour("text");
  ctx.lineWidth = 1;
  ctx.beginPath();
  for (const { x, width, tile } of columns) {
    const y = Math.round(toY(memory.peak[tile])) + 0.5;
    ctx.lineTo(x, y);
    ctx.lineTo(x + width, y);
  }
  ctx.stroke();
  paintOver(ctx, columns.filter(({ tile }) => memory.peak[tile] > limit), memory, toY);
}

/** A cap on each column that holds too much; and a pointer at those that stand alone, lest they be missed. */
function paintOver(ctx, columns, memory, toY) {
  ctx.fillStyle = themeColour("bad");
  const runs = [];
  for (const { x, width, tile } of columns) {
    const y = toY(memory.peak[tile]) - OVER_CAP - 1;
    ctx.fillRect(x, y, Math.max(2, width), OVER_CAP);
    const run = runs.at(-1);
    if (run && x - run.to < 2) Object.assign(run, { to: x + width, y: Math.min(run.y, y) });
    else runs.push({ from: x, to: x + width, y });
  }
  for (const { from, to, y } of runs) if (to - from < OVER_ALONE) paintPointer(ctx, (from + to) / 2, y);
}

function paintPointer(ctx, x, y) {
  ctx.beginPath();
  ctx.moveTo(x - 5, y - 6);
  ctx.lineTo(x + 5, y - 6);
  ctx.lineTo(x, y);
  ctx.fill();
}

function paintLinked(ctx, columns, linkedBytes, toY) {
  ctx.fillStyle = themeColour("select-line");
  for (const { x, width, tile } of columns) {
    if (!linkedBytes[tile]) continue;
    const y = toY(linkedBytes[tile]);
    ctx.globalAlpha = 0.35;
    ctx.fillRect(x, y, width, toY(0) - y);
    ctx.globalAlpha = 1;
    ctx.fillRect(x, y - 1, width, 2);
  }
}

function paintLimit(ctx, view, { limit, top, small }, toY) {
  if (limit > top) return;
  const y = toY(limit);
  paintLimitLine(ctx, view, y);
  if (small) return;
  paintNotes(ctx, view, [{ text: `limit of a tile ${bytes(limit)}`, x: view.right - 6, y: y - 9, after: false }]);
}

/** A dashed line across, with a rim so that it stands out from all colours. */
export function paintLimitLine(ctx, view, y) {
  ctx.fillStyle = themeColour("panel");
  ctx.globalAlpha = 0.75;
  ctx.fillRect(view.left, Math.round(y) - 1, view.right - view.left, 3);
  ctx.globalAlpha = 1;
  ctx.fillStyle = themeColour("bad");
  for (let x = view.left; x < view.right; x += 10) ctx.fillRect(x, Math.round(y) - 1, 6, 2);
}

function paintChosen(ctx, view, tile, height) {
  if (tile < 0) return;
  const x = view.toX(tile);
  const width = Math.max(1, view.toX(tile + 1) - x);
  ctx.strokeStyle = themeColour("accent");
  ctx.lineWidth = 1.5;
  ctx.strokeRect(Math.round(x) - 1.5, 1, width + 3, height - 2);
}

/** How a map lies in its view: `{columns, rows, cell}`, cells in pixels. */
function mapShape(view, tiles) {
  const columns = Math.ceil(Math.sqrt(tiles * MAP_SHAPE));
  const rows = Math.ceil(tiles / columns);
  return { columns, rows, cell: Math.min(view.width / columns, view.height / rows) };
}

/** The height that a map needs in a width, at most `most`, in pixels. */
export function mapHeight(width, tiles, most) {
  const { rows, cell } = mapShape({ width, height: Infinity }, tiles);
  return Math.min(most, Math.ceil(rows * cell));
}

/** The width of a map of some height, in pixels. */
export function mapWidth(height, tiles) {
  const { columns, cell } = mapShape({ width: Infinity, height }, tiles);
  return Math.floor(columns * cell);
}

/** The tile at a place of a map; -1 if there is none. */
export function tileAtMap(view, x, y, tiles) {
  const { columns, rows, cell } = mapShape(view, tiles);
  const column = Math.floor(x / cell);
  const row = Math.floor(y / cell);
  if (column < 0 || column >= columns || row < 0 || row >= rows) return -1;
  const tile = row * columns + column;
  return tile < tiles ? tile : -1;
}

/** The tiles in rows, the more bytes the stronger; tiles with too much are crossed out, on a scale of their own. */
export function paintTileMap(ctx, view, shown) {
  const { memory, limit, top, category, tile } = shown;
  const { columns, cell } = mapShape(view, memory.tiles);
  const values = shownBytes(memory, category);
  const gap = cell > 7 ? 1 : -0.5; // small cells overlap, lest seams show
  const place = (i) => [(i % columns) * cell, Math.floor(i / columns) * cell];
  for (let i = 0; i < memory.tiles; i++) {
    const [x, y] = place(i);
    const over = category === null && values[i] > limit;
    ctx.fillStyle = over ? overColour((values[i] - limit) / (top - limit)) : rampColour(values[i] / Math.min(top, limit));
    ctx.fillRect(x, y, cell - gap, cell - gap);
    if (over && cell > 8) paintCross(ctx, x, y, cell - gap);
  }
  if (shown.linked) paintLinkedCells(ctx, shown.linked, place, cell);
  if (tile < 0) return;
  ctx.strokeStyle = themeColour("select-line");
  ctx.lineWidth = 3;
  ctx.strokeRect(place(tile)[0] - 1, place(tile)[1] - 1, cell + 1, cell + 1);
}

function paintCross(ctx, x, y, size) {
  ctx.strokeStyle = themeColour("panel");
  ctx.lineWidth = 1;
  ctx.beginPath();
  ctx.moveTo(x + size * 0.3, y + size * 0.3);
  ctx.lineTo(x + size * 0.7, y + size * 0.7);
  ctx.moveTo(x + size * 0.7, y + size * 0.3);
  ctx.lineTo(x + size * 0.3, y + size * 0.7);
  ctx.stroke();
}

function paintLinkedCells(ctx, linkedBytes, place, cell) {
  ctx.fillStyle = themeColour("select-line");
  const size = Math.max(2, cell * 0.4);
  for (let i = 0; i < linkedBytes.length; i++) {
    if (!linkedBytes[i]) continue;
    const [x, y] = place(i);
    ctx.fillRect(x + (cell - size) / 2, y + (cell - size) / 2, size, size);
  }
}

/** The colour of a share of the most, 0 to 1, on a scale of growing contrast with the page. */
function rampColour(share) {
  return colourOnRamp(currentTheme() === "dark" ? TILE_RAMP_DARK : TILE_RAMP_LIGHT, share);
}

/** The colour of a tile with too much: 0 for hardly, 1 for as much as the worst. */
function overColour(share) {
  return colourOnRamp(TILE_RAMP_OVER, share);
}

function colourOnRamp(ramp, share) {
  const at = Math.min(1, Math.max(0, share)) * (ramp.length - 1);
  const i = Math.min(ramp.length - 2, Math.floor(at));
  const mixed = ramp[i].map((value, j) => Math.round(value + (ramp[i + 1][j] - value) * (at - i)));
  return `rgb(${mixed.join(",")})`;
}

/** The scale of colours from 0 to the most, or of what is over the limit, lying down. */
export function paintRamp(ctx, width, height, over = false) {
  for (let x = 0; x < width; x++) {
    ctx.fillStyle = (over ? overColour : rampColour)(x / (width - 1));
    ctx.fillRect(x, 0, 1, height);
  }
}
