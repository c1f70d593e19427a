// Dialogs over the page: the focus stays inside, and goes back to where it was.

import {element} from "./format.js";

/** A dialog that Escape, a click beside it or its button closes; `showModal()` opens it. */
export function dialogOf(label, name, ...children) {
  const close = element("button", {
    class: "dialog-close",
    type: "button",
    title: "Close (Esc)",
    "aria-label": "Close",
    text: "×",
    onclick: () => dialog.close(),
  });
  const dialog = element("dialog", { class: `dialog ${name}`, "aria-label": label }, ...children, close);
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
  document.body.append(dialog);
  return dialog;
}

/** Whether a dialog has all keys. */
export function dialogIsOpen() {
  return document.querySelector("dialog[open]") !== null;
}
