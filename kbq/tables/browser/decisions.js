"use strict";
// Decisions: what people decide on the values of cells. They are kept in this browser or, where a server keeps them, there.
// A record is {id, subject, relation, value, decision, time, reviewer}. Of those on one value the last to arrive counts, at the
// server if there is one: clocks may differ. A record is sent until the server has it; then this browser forgets it.

const idOf = ({id, time}) => id ?? time;  // those of before have no ids
const oneLine = text => text.trim().replace(/\s+/g, " ");

class Decisions {
  #cells = new Map();   // of cells: maps from values to records, the last to arrive last
  #own = new Map();     // those that this browser keeps, by their names in its storage
  #steps;               // what can be undone: of each step, the ids that it made, the records that were there before, and all ids of its cells
  #next = 0;            // place in the file of the server
  #isCurrent = false;   // whether all that the server had has been read
  #isSending = false;
  #last = 0;            // time of the last record, in milliseconds
  warning = "";
  note = "";            // what is said of the last step

  // keep: name in the browser's storage; changed: called after each change with the keys of the cells that it is about;
  // exchange: gives records and a place to the server, and promises {decisions, next, more} of what is there behind it.
  constructor({keep, changed, exchange = null}) {
    Object.assign(this, {keep, changed, exchange});
    this.reviewer = this.#stored("kbq reviewer") ?? "";
    this.#steps = JSON.parse(this.#stored(`${keep} steps`, "sessionStorage") ?? "[]");
    this.#load();
    addEventListener("storage", ({key, newValue}) => {  // another tab has stored something
      if (!key?.startsWith(`${keep}\n`)) return;
      if (newValue === null) this.#own.delete(key);
      else this.#tell(this.#take([this.#parsed(key, newValue)], true));
    });
    if (!exchange) return;
    this.#exchange();
    addEventListener("focus", () => this.#exchange());
  }

  // What counts of the decisions on a cell, the last to arrive last.
  of({subject, relation}) {
    return [...this.#cells.get(Decisions.key(subject, relation))?.values() ?? []].filter(({decision}) => decision !== "undo");
  }

  on(cell, value) {
    const found = this.#record(cell, value);
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
      this.#made(cell, value, is ? "undo" : decision)]);
  }

  correct(cell, old, value) {
    if (!oneLine(value)) return;
    const instead = old && oneLine(old) !== oneLine(value) ? [this.#made(cell, old, "reject")] : [];
    this.#step([...this.#rivals(cell, oneLine(value)), ...instead, this.#made(cell, value, "accept")]);
  }

  decideAll(cells, decision) {  // each with its `value`
    this.#step(cells.map(cell => this.#made(cell, cell.value, decision)));
  }

  // The last decision on each value, also where it was taken back, the last first.
  past() {
    return [...this.#cells.values()].flatMap(values => [...values.values()]).filter(({time}) => time).sort((a, b) => b.number - a.number);
  }

  get canUndo() { return this.#steps.length > 0 && (!this.exchange || this.#isCurrent); }

  // Take the last step back and return the cell that it was about; null if there is none. What somebody decided on a cell since
  // counts: then only the step's own decisions there are withdrawn, and none that it had replaced comes back.
  undo() {
    const step = this.#steps.pop();
    if (!step) return null;
    const {made, before, seen = []} = step, known = new Set([...made, ...seen]);
    const left = before.filter((record, place) => this.#record(record, record.value)?.id === made[place]
      && (record.decision !== "accept" || !this.#isDecidedSince(record, known)));
    const records = left.map(record => ({...record, ...this.#stamp()}));
    this.#rename(new Map(left.map((record, place) => [records[place].id, idOf(record)])));
    this.#keepSteps();
    this.note = left.length < made.length ? "Others have decided on this since: what they decided stays." : "";
    if (records.length) this.#apply(records);
    else this.changed(new Set());
    return before.at(-1);
  }

  named(reviewer) { this.#store("kbq reviewer", this.reviewer = oneLine(reviewer)); }

  // The lines of a file for `kbq fill --decisions`, `kbq finetune` and `kbq calibrate`; `place` gives what is known of a value.
  lines(place) {
    const records = [...this.#cells.values()].flatMap(values => [...values.values()]).filter(({decision}) => decision !== "undo");
    return records.sort((a, b) => a.number - b.number).map(({number, ...record}) => {
      const known = place(record);
      return JSON.stringify({...record, ...known, object: record.value, page: known?.page_id ?? ""})
        .replace(/[\u0085\u2028\u2029]/g, letter => `\\u${letter.charCodeAt(0).toString(16).padStart(4, "0")}`);  // they end lines elsewhere
    });
  }

  static key(subject, relation) { return JSON.stringify([oneLine(subject), relation]); }

  #tell(touched) { if (touched.size) this.changed(touched); }

  #record({subject, relation}, value) { return this.#cells.get(Decisions.key(subject, relation))?.get(oneLine(value)); }

  #stamp() {
    this.#last = Math.max(Date.now(), this.#last + 1);
    const id = [...crypto.getRandomValues(new Uint8Array(12))].map(byte => byte.toString(16).padStart(2, "0")).join("");
    return {id, time: new Date(this.#last).toISOString()};
  }

  #made({subject, relation}, value, decision) {
    const record = {subject: oneLine(subject), relation, value: oneLine(value), decision, ...this.#stamp()};
    return this.reviewer ? {...record, reviewer: this.reviewer} : record;
  }

  // Where a cell has one value, another that was accepted no longer is.
  #rivals(cell, value) {
    return this.of(cell).filter(one => one.decision === "accept" && one.value !== value && (!cell.many || !one.value || !value))
      .map(one => this.#made(cell, one.value, "undo"));
  }

  #step(records) {
    if (!records.length) return;
    const before = records.map(record => this.#record(record, record.value) ?? {...record, id: "", decision: "undo"});
    const keys = new Set(records.map(({subject, relation}) => Decisions.key(subject, relation)));
    const seen = [...keys].flatMap(key => [...this.#cells.get(key)?.values() ?? []].map(idOf));
    this.#steps = [...this.#steps.slice(-99), {made: records.map(({id}) => id), before, seen}];
    this.#keepSteps();
    this.note = "";
    this.#apply(records);
  }

  #keepSteps() { this.#store(`${this.keep} steps`, JSON.stringify(this.#steps), "sessionStorage"); }

  // What earlier steps made, or saw, is there again by another id. New ids: the old ones, or "" where there was nothing.
  #rename(restored) {
    for (const step of this.#steps) {
      const known = new Set([...step.made, ...step.seen ?? [], ""]);
      const again = [...restored].filter(([, old]) => known.has(old));
      const renamed = new Map(again.map(([id, old]) => [old, id]));
      step.made = step.made.map(id => renamed.get(id) ?? id);
      step.seen = [...step.seen ?? [], ...again.map(([id]) => id)];
    }
  }

  // Whether a cell has a decision that is not among these.
  #isDecidedSince({subject, relation}, known) {
    return [...this.#cells.get(Decisions.key(subject, relation))?.values() ?? []].some(record => !known.has(idOf(record)));
  }

  #apply(records) {
    const touched = this.#take(records, true), isKept = records.every(record => this.#store(...this.#storedAs(record)));
    if (!this.exchange) this.warning = isKept ? "" : "This browser keeps no decisions: download them before you close the page.";
    this.#exchange();
    this.changed(touched);
  }

  // Records that have arrived, in their order; `isOwn`: the server may not have them yet.
  #take(records, isOwn = false) {
    const touched = new Set();
    for (const record of records) {
      const key = Decisions.key(record.subject, record.relation);
      if (!this.#cells.has(key)) this.#cells.set(key, new Map());
      const values = this.#cells.get(key);
      values.delete(record.value);
      values.set(record.value, {...record, number: this.arrived = (this.arrived ?? 0) + 1});
      touched.add(key);
      const name = this.#storedAs(record)[0];
      if (isOwn) {
        this.#own.delete(name);
        this.#own.set(name, record);
      }
    }
    return touched;
  }

  // The storage of the browser: a name for each value, so that no tab writes over what another has stored

  #storedAs({subject, relation, value, decision, time, reviewer = "", id}) {
    return [`${this.keep}\n${JSON.stringify([subject, relation, value])}`, JSON.stringify([decision, time, reviewer, id])];
  }

  #parsed(name, text) {
    const [subject, relation, value] = JSON.parse(name.slice(this.keep.length + 1)), [decision, time, reviewer, id] = JSON.parse(text);
    return {subject, relation, value, decision, time, id, ...reviewer ? {reviewer} : {}};
  }

  #stored(name, storage = "localStorage") {
    try { return window[storage].getItem(name); } catch { return null; }
  }

  #store(name, text, storage = "localStorage") {
    try { window[storage].setItem(name, text); } catch { return false; }
    return true;
  }

  #load() {
    const records = [];
    try {
      this.#loadOld();
      for (const [name, text] of Object.entries(localStorage)) {
        if (name.startsWith(`${this.keep}\n`)) records.push(this.#parsed(name, text));
      }
    } catch { /* it keeps nothing, and says so with the first decision */ }
    records.sort((a, b) => a.time < b.time ? -1 : 1);
    this.#last = Date.parse(records.at(-1)?.time) || 0;
    this.#take(records, true);
  }

  #loadOld() {  // there was one list, of all that was known, without ids
    for (const [subject, relation, value, decision, time, reviewer] of JSON.parse(this.#stored(this.keep) ?? "[]")) {
      this.#store(...this.#storedAs({subject, relation, value: value ?? "", decision, time, reviewer, id: time}));
    }
    localStorage.removeItem(this.keep);
  }

  // The server: what it has is read before anything is sent

  async #exchange() {
    if (!this.exchange || this.#isSending) return;
    this.#isSending = true;
    try {
      do {
        const sent = this.#isCurrent ? this.#batch() : [], answer = await this.exchange(sent, this.#next);
        this.#next = answer.next;
        this.warning = "";
        const touched = this.#take(answer.decisions);
        this.#forget([...sent, ...answer.decisions]);
        for (const key of this.#take([...this.#own.values()], true)) touched.add(key);
        this.#isCurrent = !answer.more;
        this.#tell(touched);
      } while (!this.#isCurrent || this.#own.size);
    } catch (error) {
      this.warning = `The server has not kept the last decisions (${error.message}); this browser has: they are sent again.`;
      setTimeout(() => this.#exchange(), 3000);
      this.changed(new Set());
    } finally {
      this.#isSending = false;
    }
  }

  #batch() {  // as many as one request may have
    let size = 0;
    return [...this.#own.values()].filter((record, place) => place < 500 && (size += JSON.stringify(record).length + 500) < 200000);
  }

  #forget(records) {  // those that the server has
    for (const record of records) {
      const [name] = this.#storedAs(record), own = this.#own.get(name);
      if (own && own.id === idOf(record)) {
        this.#own.delete(name);
        try { localStorage.removeItem(name); } catch { /* it was never there */ }
      }
    }
  }
}
