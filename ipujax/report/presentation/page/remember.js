// What a page remembers of its reader's choices, where the browser lets it.

const CHOICE_PREFIX = "ipujax-";

/** What was chosen last, or null. A sandboxed frame may not ask. */
export function rememberedChoice(name) {
  try {
    return localStorage.getItem(CHOICE_PREFIX + name);
  } catch {
    return null;
  }
}

/** Keeps a choice for the next page. */
export function rememberChoice(name, value) {
  try {
    localStorage.setItem(CHOICE_PREFIX + name, value);
  } catch {
    // It then lasts as long as this page.
  }
}
