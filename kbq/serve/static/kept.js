"use strict";
// Kept: what a tab has asked for, and the lines that came, in the browser's database: a page that is loaded again asks only for the rest.

const DAYS = 30;  // for which the tables of tabs that were closed are kept

class Kept {
  #opened;
  #count = 0;  // of the writings of this tab's table
  #tab;

  constructor() {
    try {
      this.#tab = sessionStorage.getItem("kbq tab") ?? crypto.randomUUID?.() ?? String(Math.random());
      sessionStorage.setItem("kbq tab", this.#tab);
    } catch { /* it keeps nothing */ }
    this.#opened = new Promise((resolve, reject) => {
      const asked = indexedDB.open("kbq", 1);
      asked.onupgradeneeded = () => asked.result.createObjectStore("tables");
      asked.onsuccess = () => resolve(asked.result);
      asked.onerror = () => reject(asked.error);
    });
    this.#opened.catch(() => {});
  }

  // Forget the table of before, and keep this one, a record with its `address`.
  async begin(table) {
    this.#count = 0;
    const old = Date.now() - DAYS * 86400e3;
    await this.#done("readwrite", tables => {
      tables.delete(this.#range());
      tables.put({table, time: Date.now()}, [this.#tab, 0]);
      tables.openCursor().onsuccess = ({target: {result: cursor}}) => {
        if (!cursor) return;
        if (cursor.value.time < old) cursor.delete();
        cursor.continue();
      };
    });
  }

  add(lines) {
    this.#count++;
    return this.#done("readwrite", tables => tables.put({lines, time: Date.now()}, [this.#tab, this.#count]));
  }

  // The table that was asked for at an address and the lines that came, or null.
  async read(address) {
    try {
      const [first, ...others] = await this.#done("readonly", tables => tables.getAll(this.#range()));
      if (first?.table?.address !== address) return null;
      this.#count = others.length;
      return {table: first.table, lines: others.flatMap(({lines}) => lines)};
    } catch {
      return null;
    }
  }

  #range() { return IDBKeyRange.bound([this.#tab, 0], [this.#tab, Infinity]); }

  async #done(mode, act) {
    const work = (await this.#opened).transaction("tables", mode);
    const request = act(work.objectStore("tables"));
    return new Promise((resolve, reject) => {
      work.oncomplete = () => resolve(request?.result);
      work.onerror = work.onabort = () => reject(work.error);
    });
  }
}
