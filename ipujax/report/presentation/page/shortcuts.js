// The keys of the page, and what else is not written on buttons, in a dialog.

import {dialogOf} from "./dialogs.js";
import {element} from "./format.js";

/** The key that goes with letters for commands, as this system writes it. */
export const COMMAND_KEY = /Mac|iPhone|iPad/.test(navigator.platform) ? "⌘" : "Ctrl";

const SHORTCUTS = [
  ["Everywhere", [
    [[`${COMMAND_KEY} K`, "/"], "search operations, tensors, lines and scopes"],
    [["1", "…", "9"], "go to one of the first nine views"],
    [["Esc"], "select nothing"],
    [["?"], "this list"],
  ]],
  ["Charts", [
    [["+", "−"], "zoom; so does the wheel"],
    [["0"], "show all; so does a double click"],
    [["←", "→"], "move; so does dragging"],
    [["↑", "↓", "Shift ←", "Shift →"], "move a cross"],
    [["Enter"], "click where the cross is"],
  ]],
  ["The timeline", [
    [["[", "]"], "the step of the loop before, and the one after"],
    [["n", "p"], "the next and the previous step of what is selected"],
    [["m"], "measure from the cross, and stop; so does dragging"],
    [["z"], "zoom to what is measured; dragging in the strip above zooms"],
    [["b"], "fold the parts of the model, or show them"],
    [["Shift"], "with dragging: move"],
  ]],
  ["Tables and the program", [
    [["↑", "↓"], "walk along the rows"],
    [["Enter"], "select the row"],
    [["←", "→"], "in the program: close and open the row"],
    [["*"], "in the program: open all below"],
  ]],
];

let shortcutsDialog = null;

/** Shows them. */
export function showShortcuts() {
  shortcutsDialog ??= dialogOf("Keys", "shortcuts", element("h2", { text: "Keys" }),
    element("div", { class: "shortcut-groups" }, SHORTCUTS.map(([title, entries]) => shortcutGroup(title, entries))));
  shortcutsDialog.showModal();
}

function shortcutGroup(title, entries) {
  const rows = entries.map(([keys, does]) => element("div", {},
    element("dt", {}, keys.map((key) => (key === "…" ? key : element("kbd", { text: key })))),
    element("dd", { text: does })));
  return element("section", {}, element("h3", { text: title }), element("dl", {}, rows));
}
