// Small pictures on buttons; they are in page.html.

/** A picture for eyes only: the button that has it needs a label. */
export function icon(name) {
  return document.getElementById("icons").content.querySelector(`[data-icon="${name}"]`).cloneNode(true);
}
