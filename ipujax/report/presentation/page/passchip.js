// The pass that an operation belongs to, as a small mark beside its name.

import {element} from "./format.js";

/** The mark of a pass (`forward`, `backward` or `update`); null where there is none. */
export function passChip(pass) {
  return pass ? element("span", { class: `pass pass-${pass}`, text: pass }) : null;
}
