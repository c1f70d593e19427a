// Numbers as texts, and elements of the page from plain descriptions.

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"];
const CYCLE_UNITS = ["", "k", "M", "G", "T"];
const SECOND_UNITS = ["ns", "µs", "ms", "s"];
const LAST_CHARACTERS = 12; // of a text that is cut in the middle; one of less than twice as many is halved
let pen = null; // that measures texts

/** Three digits that count, without zeros at the end: 12.3, 0.123, 1230. */
export function threeDigits(number) {
  return Math.abs(number) >= 99.95 ? exact(number) : String(+number.toPrecision(3));
}

function scaled(number, step, units) {
  let unit = 0;
  while (Math.abs(number) >= step - 0.5 && unit < units.length - 1) {
    number /= step;
    unit++;
  }
  return [threeDigits(number), units[unit]];
}

/** 1.5 MB, in powers of 1000. */
export function bytes(number) {
  return scaled(number, 1000, BYTE_UNITS).join(" ");
}

/** 1.5 M; with the word: 1.5 M cycles. */
export function cycles(number) {
  return scaled(number, 1000, CYCLE_UNITS).join(" ").trim();
}

/** 1.5 TFLOP/s: a number of some unit, in powers of 1000. */
export function rate(number, unit) {
  return scaled(number, 1000, CYCLE_UNITS).join(" ") + unit;
}

/** All digits, with a comma between thousands: 1,472. */
export function exact(number) {
  return Math.round(number)
    .toString()
    .replace(/\B(?=(\d{3})+$)/g, ",");
}

/** 1.5 ms. */
export function seconds(number) {
  return number ? scaled(number * 1e9, 1000, SECOND_UNITS).join(" ") : "0 s";
}

/** 0.1234 as 12.3%; 0 of 0 is 0.0%. */
export function percent(share) {
  const hundredths = 100 * (share || 0);
  if (hundredths && Math.abs(hundredths) < 0.05) return hundredths > 0 ? "<0.1%" : ">-0.1%";
  return `${hundredths.toFixed(1)}%`;
}

/** The shares of parts in their sum, rounded so that what is shown adds up to 100.0%, too. */
export function percents(parts) {
  const whole = parts.reduce((sum, part) => sum + part, 0) || 1;
  const thousandths = parts.map((part) => (1000 * part) / whole);
  const shown = thousandths.map(Math.floor);
  const left = Math.round(thousandths.reduce((sum, part) => sum + part, 0)) - shown.reduce((sum, part) => sum + part, 0);
  const order = [...parts.keys()].sort((a, b) => shown[a] - thousandths[a] - (shown[b] - thousandths[b]));
  for (const i of order.slice(0, left)) shown[i]++;
  return shown.map((part) => `${(part / 10).toFixed(1)}%`);
}

/** How much more a share is than another, as both are shown: 0.1234 after 0.1 as +2.3 points, of 100. */
export function pointsMore(share, before) {
  const [now, then] = [share, before].map((each) => Number((100 * each).toFixed(1)));
  const points = Number((now - then).toFixed(1));
  return `${withSign(points, String)}${points ? ` point${Math.abs(points) === 1 ? "" : "s"}` : ""}`;
}

/** A difference as a text, with its sign: +12, −3 or 0. */
export function withSign(difference, text) {
  return difference ? `${difference > 0 ? "+" : "−"}${text(Math.abs(difference))}` : "0";
}

/** 1 IPU, 2 IPUs. */
export function counted(number, what) {
  return `${exact(number)} ${what}${number === 1 ? "" : "s"}`;
}

/** `cpu:0..3, cpu:6`: names of devices, in the given order. */
export function deviceRanges(names) {
  const groups = [];
  for (const name of names) {
    const group = groups.at(-1);
    if (group && isNextDevice(group.last, name)) group.last = name;
    else groups.push({ first: name, last: name });
  }
  return groups.map(({ first, last }) => (first === last ? first : `${first}..${last.split(":").at(-1)}`)).join(", ");
}

function isNextDevice(name, other) {
  const [first, second] = [name, other].map((text) => /^(.*):(\d+)$/.exec(text));
  return first && second && first[1] === second[1] && Number(first[2]) + 1 === Number(second[2]);
}

/** The file's name and the line of `folders/file.py:12`, which a function's name may follow. */
export function shortOrigin(origin) {
  const line = (origin ?? "").split(" (")[0];
  return line.slice(Math.max(line.lastIndexOf("/"), line.lastIndexOf("\\")) + 1);
}

/**
 * A DOM element. Attributes: `class`, `text`, `style` (an object), `on...` (a function), any other as
 * it is; those that are null, undefined or false are left out. Children are elements or texts.
 */
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== null && value !== undefined && value !== false) setAttribute(made, name, value);
  }
  made.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return made;
}

function setAttribute(made, name, value) {
  if (name === "text") made.textContent = value;
  else if (name === "style") {
    for (const [property, setting] of Object.entries(value)) made.style.setProperty(property, setting);
  } else if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
  else made.setAttribute(name, value === true ? "" : value);
}

/** A text whose middle is left out where it has no room: what tells names apart is often at their end. */
export function cutInMiddle(kind, text) {
  const first = Math.max(text.length - LAST_CHARACTERS, Math.ceil(text.length / 2));
  const parts = [text.slice(0, first), text.slice(first)].map((part) => element("span", { text: part }));
  const style = { "--last-width": `${Math.ceil(rowWidth(parts[1].textContent))}px` };
  return element("span", { class: `${kind} cut-middle`, style }, parts);
}

/** Pixels that a text takes in rows that are not bold. */
function rowWidth(text) {
  if (!pen) {
    pen = document.createElement("canvas").getContext("2d");
    pen.font = `13px ${getComputedStyle(document.body).fontFamily}`;
  }
  return pen.measureText(text).width;
}
