// Two reports side by side: whether their charts have the same scales.

/** The switch for that: `reports` are those whose scale is shared with a report's charts. */
export class SameScale {
  constructor(reports) {
    this.all = reports;
    this.on = true;
    this.listeners = [];
  }

  /** The reports that must have room in a chart of one of them. */
  reportsWith(report) {
    return this.on ? this.all : [report];
  }

  set(on) {
    this.on = on;
    for (const listener of this.listeners) listener();
  }

  subscribe(listener) {
    this.listeners.push(listener);
  }
}
