"use strict";
// Decisions: what people decide on the values of cells. They are kept in this browser and, where a server keeps them, there.
// A record is {subject, relation, value, decision, time, reviewer}; of those on one value the latest counts.

const oneLine = text => text.trim().replace(/\s+/g, " ");

class Decisions {
  #cells = new Map();  // of cells: maps from values to records
  #steps = [];         // what was there before each step that can be undone
  #unsent = [];
  #sending = false;
  #next = 0;           // place in the file of the server
  #written = null;     // what this page has stored last
  warning = "";

  // keep: name in the browser's storage; changed: called after each change with the keys of the cells that it is about;
  // exchange: gives records and a place to the server, and promises {decisions, next} of what is there behind it.
  constructor({keep, changed, exchange = null}) {
    Object.assign(this, {keep, changed, exchange});
    this.reviewer = this.#stored("kbq reviewer") ?? "";
    this.#merge(this.#load());
    addEventListener("storage", event => {
      if (event.key === keep) this.#tell(this.#merge(this.#load()));
    });
    if (exchange) {
      this.#unsent = this.#records();
      this.#exchange();
      addEventListener("focus", () => this.#exchange());
    }
  }

  // What counts of the decisions on a cell, the latest last.
  of({subject, relation}) {
    const records = [...this.#cells.get(Decisions.key(subject, relation))?.values() ?? []];
    return records.filter(({decision}) => decision !== "undo").sort((a, b) => a.time < b.time ? -1 : a.time > b.time ? 1 : 0);
  }

  on(cell, value) {
    const found = this.#cells.get(Decisions.key(cell.subject, cell.relation))?.get(oneLine(value));
    return found && found.decision !== "undo" ? found : null;
  }

  // The values that are to stand in a cell as people want it; null: nobody has accepted one.
  accepted(cell) {
    const records = this.of(cell).filter(({decision}) => decision === "accept");
    if (!records.length) return null;
    if (records.at(-1).value === "") return [];
    const values = records.map(({value}) => value).filter(Boolean);
    return cell.many ? values : values.slice(-1);
  }

  // Accept or reject a value; doing so again takes it back. To accept "" leaves the cell empty.
  decide(cell, value, decision) {
    const is = this.on(cell, value)?.decision === decision;
    this.#step([...is || decision !== "accept" ? [] : this.#rivals(cell, oneLine(value)),
      this.#record(cell, value, is ? "undo" : decision)]);
  }

  correct(cell, old, value) {
    if (!oneLine(value)) return;
    const instead = old && oneLine(old) !== oneLine(value) ? [this.#record(cell, old, "reject")] : [];
    this.#step([...this.#rivals(cell, oneLine(value)), ...instead, this.#record(cell, value, "accept")]);
  }

  acceptAll(cells) {  // each with its `value`
    this.#step(cells.map(cell => this.#record(cell, cell.value, "accept")));
  }

  // Take the last step back; the cell that it was about, or null.
  undo() {
    const before = this.#steps.pop();
    if (!before) return null;
    this.#apply(before.map(record => ({...record, time: this.#now()})));
    return before.at(-1);
  }

  named(reviewer) {
    this.reviewer = oneLine(reviewer);
    try { localStorage.setItem("kbq reviewer", this.reviewer); } catch { /* it is asked again */ }
  }

  // The lines of a file for `kbq fill --decisions`, `kbq finetune` and `kbq calibrate`; `place` gives what is known of a value.
  lines(place) {
    return this.#records().filter(({decision}) => decision !== "undo").sort((a, b) => a.time < b.time ? -1 : 1).map(record => {
      const known = place(record);
      return JSON.stringify({...record, ...known, object: record.value, page: known?.page_id ?? ""});
    });
  }

  static key(subject, relation) { return JSON.stringify([oneLine(subject), relation]); }

  #tell(touched) { if (touched.size) this.changed(touched); }

  #now() {  // later than any before, as the order of decisions counts
    this.last = Math.max(Date.now(), (this.last ?? 0) + 1);
    return new Date(this.last).toISOString();
  }

  #record({subject, relation}, value, decision) {
    const record = {subject: oneLine(subject), relation, value: oneLine(value), decision, time: this.#now()};
    return this.reviewer ? {...record, reviewer: this.reviewer} : record;
  }

  // Where a cell has one value, another that was accepted no longer is.
  #rivals(cell, value) {
    return this.of(cell).filter(one => one.decision === "accept" && one.value !== value && (!cell.many || !one.value || !value))
      .map(one => this.#record(cell, one.value, "undo"));
  }

  #step(records) {
    if (!records.length) return;
    this.#steps.push(records.map(record => this.on(record, record.value) ?? {...record, decision: "undo"}));
    this.#apply(records);
  }

  #apply(records) {
    const touched = this.#merge(records, true);
    for (const key of this.#save()) touched.add(key);
    this.#unsent.push(...records);
    this.#exchange();
    this.changed(touched);
  }

  #merge(records, ours = false) {
    const touched = new Set();
    for (const record of records) {
      if (typeof record?.subject !== "string" || typeof record.value !== "string") continue;
      const key = Decisions.key(record.subject, record.relation);
      if (!this.#cells.has(key)) this.#cells.set(key, new Map());
      const values = this.#cells.get(key), known = values.get(record.value);
      if (ours || !known || (known.time ?? "") < (record.time ?? "")) {
        values.set(record.value, record);
        touched.add(key);
      }
    }
    return touched;
  }

  #records() { return [...this.#cells.values()].flatMap(values => [...values.values()]); }

  #stored(name) {
    try { return localStorage.getItem(name); } catch { return null; }
  }

  #load() {
    const names = ["subject", "relation", "value", "decision", "time", "reviewer"];
    try {
      return JSON.parse(this.#stored(this.keep) ?? "[]").map(fields => Object.fromEntries(
        names.map((name, place) => [name, fields[place]]).filter(([, value]) => value)))
        .map(record => ({value: "", ...record}));
    } catch {
      return [];
    }
  }

  #save() {
    const theirs = this.#stored(this.keep) === this.#written ? new Set() : this.#merge(this.#load());  // of another tab
    const kept = this.#records().map(({subject, relation, value, decision, time, reviewer}) =>
      [subject, relation, value, decision, time, ...reviewer ? [reviewer] : []]);
    try {
      localStorage.setItem(this.keep, this.#written = JSON.stringify(kept));
      if (!this.exchange) this.warning = "";
    } catch {
      if (!this.exchange) this.warning = "This browser keeps no decisions: download them before you close the page.";
    }
    return theirs;
  }

  async #exchange() {
    if (!this.exchange || this.#sending) return;
    this.#sending = true;
    let again = false;
    try {
      do {
        const sent = this.#unsent.slice(0, 500), answer = await this.exchange(sent, this.#next);
        this.#unsent = this.#unsent.slice(sent.length);
        again = answer.more;
        this.#next = answer.next;
        this.warning = "";
        this.#tell(this.#merge(answer.decisions));
      } while (this.#unsent.length || again);
    } catch (error) {
      this.warning = `The server has not kept the last decisions (${error.message}); this browser has: they are sent again.`;
      setTimeout(() => this.#exchange(), 3000);
      this.changed(new Set());
    } finally {
      this.#sending = false;
    }
  }
}
