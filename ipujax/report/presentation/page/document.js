// The report documents of this page, unpacked; and the notations that they are written in.

/** All report documents of the page, in order: parsed JSON as docs/report_format.md has it. */
export async function loadReports() {
  const packed = [...document.querySelectorAll("script.report")];
  return Promise.all(packed.map(unpacked));
}

/** What belongs together in the two reports of the page, as `comparison.py` has it; null for one report alone. */
export async function loadComparison() {
  const packed = document.querySelector("script.comparison");
  return packed && unpacked(packed);
}

/** What the reports of the page are called, by file or otherwise; null for those that are only named. */
export function reportLabels() {
  return [...document.querySelectorAll("script.report")].map((script) => script.dataset.label ?? null);
}

async function unpacked(script) {
  const stream = new Blob([bytesOfBase64(script.textContent.trim())]).stream();
  const plain = stream.pipeThrough(new DecompressionStream("gzip"));
  return JSON.parse(await new Response(plain).text());
}

function bytesOfBase64(base64) {
  if (Uint8Array.fromBase64) return Uint8Array.fromBase64(base64);
  const characters = atob(base64);
  const bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return bytes;
}

/** Arithmetic runs `[[first, step, count], ...]` as a Float64Array. */
export function fromRuns(runs) {
  const numbers = new Float64Array(runs.reduce((sum, run) => sum + run[2], 0));
  let i = 0;
  for (const [first, step, count] of runs) {
    for (let k = 0; k < count; k++) numbers[i++] = first + k * step;
  }
  return numbers;
}

/** Repeats `[[value, count], ...]` as a Float64Array. */
export function fromRepeats(repeats) {
  const numbers = new Float64Array(repeats.reduce((sum, pair) => sum + pair[1], 0));
  let i = 0;
  for (const [value, count] of repeats) {
    numbers.fill(value, i, i + count);
    i += count;
  }
  return numbers;
}

/** What a text number of a report stands for. */
export function text(report, number) {
  return report.strings[number];
}
