// The log of runs: it refreshes itself, is filtered, and lets two be chosen.

const log = document.getElementById("log");
const state = document.getElementById("state");
const filter = document.getElementById("filter");
const compare = document.getElementById("compare");
const theme = document.getElementById("theme");
const places = state.textContent;
const EVERY = 2000; // milliseconds
const THEME_KEY = "ipujax-theme"; // as on the pages of reports

const boxes = () => [...log.querySelectorAll("input[name=report]")];
const chosen = () => boxes().filter((box) => box.checked).map((box) => box.value);

/** Says how many runs are shown, and lets two be compared when two are chosen. */
function tell() {
  const rows = [...log.querySelectorAll("tr[data-text]")];
  const shown = rows.filter((row) => !row.hidden).length;
  const count = shown === rows.length ? rows.length : `${shown} of ${rows.length}`;
  state.textContent = `${count} in ${places}`;
  compare.disabled = chosen().length !== 2;
  compare.textContent = compare.disabled ? "Compare: choose two" : "Compare the two";
}

/** Shows what has all words of the filter. */
function sift() {
  const words = filter.value.toLowerCase().split(/\s+/).filter(Boolean);
  const programs = new Set();
  for (const row of log.querySelectorAll("tr[data-text]")) {
    row.hidden = !words.every((word) => row.dataset.text.includes(word));
    if (!row.hidden && row.dataset.program) programs.add(row.dataset.program);
  }
  for (const card of log.querySelectorAll(".card")) card.hidden = !programs.has(card.dataset.program);
  tell();
}

/** Puts in a newer log; what is chosen, and where the keyboard is, stays. */
function renew(text, version) {
  const ticked = new Set(chosen());
  const focused = log.contains(document.activeElement) ? document.activeElement : null;
  const [link, value] = [focused?.getAttribute("href"), focused?.getAttribute("value")];
  log.innerHTML = text;
  log.dataset.version = version;
  for (const box of boxes()) box.checked = ticked.has(box.value);
  const again = [...log.querySelectorAll("a, input")].find((other) =>
    link ? other.getAttribute("href") === link : value && other.value === value,
  );
  again?.focus();
  sift();
}

async function refresh() {
  try {
    const answer = await fetch(`/log?version=${log.dataset.version}`);
    if (answer.status === 200) renew(await answer.text(), answer.headers.get("X-Version"));
    else tell();
  } catch {
    state.textContent = "The server does not answer; this is what it said last.";
  }
}

function restore(name) {
  if (name) document.documentElement.dataset.theme = name;
}

restore(localStorage.getItem(THEME_KEY));
theme.addEventListener("click", () => {
  const dark = getComputedStyle(document.documentElement).colorScheme.trim() === "dark";
  const system = matchMedia("(prefers-color-scheme: dark)").matches;
  const now = document.documentElement.dataset.theme ? dark : system;
  localStorage.setItem(THEME_KEY, now ? "light" : "dark");
  restore(now ? "light" : "dark");
});
filter.addEventListener("input", sift);
log.addEventListener("change", tell);
filter.hidden = theme.hidden = false;
sift();
setInterval(() => document.hidden || refresh(), EVERY);
document.addEventListener("visibilitychange", () => document.hidden || refresh());
