"use strict";
// Review: cells with their claims become a list to filter, sort and decide on, and files. The page of `kbq serve` and the file that
// `kbq export --to review` writes show the same one. Texts of a corpus only ever become text nodes.

const ROWS = 100;
const NOTHING = {value: "", probability: null, accepted: false, sentence: "", title: "", says_the_same: 1, is_nothing: true};
const collator = new Intl.Collator(undefined, {numeric: true});
const number = count => count.toLocaleString("en");

class Review {
  #cells = new Map();   // by subject and relation: {subject, relation, many, claims, rows}
  #claims = [];         // what can be listed: each claim, and NOTHING of a cell without any, with its cell and its words
  #shown = [];          // those of them that fit the filters, in order
  #chosen = 0;          // place in `shown`
  #first = -1;          // place in `shown` of the first row that is drawn
  #sorted = {by: "", descending: false};
  #counts = {accept: 0, reject: 0, corrected: 0, "": 0};  // of the claims, by what was decided on them
  #waiting = 0;         // until the list is drawn again

  // keep, exchange: as `Decisions` has them; page, suggest: as `Evidence`; table: gives {columns, rows} for tables, or null;
  // typed: promises, for typed values [{value, cell}], what is known of each: {fact}; unfinished: says what a file lacks yet, or "".
  constructor({keep, exchange = null, page, suggest, table = () => null, typed, unfinished = () => ""}) {
    Object.assign(this, {table, typed, unfinished});
    this.decisions = new Decisions({keep, exchange, changed: touched => { this.#judge(touched); this.#redraw(touched); }});
    this.evidence = new Evidence(byId("evidence"), {decisions: this.decisions, page, suggest,
      next: () => this.#choose(this.#chosen + 1, true), close: () => this.#close()});
    this.evidence.root.hidden = matchMedia("(max-width: 60rem)").matches;
    byId("filtering").open = !this.evidence.root.hidden;
    const view = {next: steps => this.#choose(this.#chosen + steps, true), undo: () => this.#undo(), close: () => this.#close(),
      search: () => { byId("filtering").open = true; byId("search").focus(); }};
    listen(this.evidence, view);
    for (const id of ["search", "relation", "state", "from", "to"]) byId(id).addEventListener("input", () => this.#filter());
    for (const header of document.querySelectorAll("[data-sort]")) header.addEventListener("click", () => this.#sort(header.dataset.sort));
    byId("before").addEventListener("click", () => this.#turn(-1));
    byId("after").addEventListener("click", () => this.#turn(1));
    byId("all").addEventListener("click", () => { byId("filters").reset(); this.#filter(); });
    byId("accept-all").addEventListener("click", () => this.#acceptAll());
    byId("undo").addEventListener("click", view.undo);
    byId("filters").addEventListener("submit", event => event.preventDefault());
    byId("reviewer").value = this.decisions.reviewer;
    byId("reviewer").addEventListener("input", () => this.decisions.named(byId("reviewer").value));
    byId("downloads").addEventListener("click", ({target: {dataset: {format}}}) => format && this.#download(format));
  }

  // Begin with no cells.
  clear() {
    this.#cells.clear();
    this.#claims = [];
    for (const state in this.#counts) this.#counts[state] = 0;
    byId("relation").replaceChildren(element("option", {value: ""}, "all"));
    this.#filter();
    this.#tell();
  }

  // cells: [{subject, relation, type, many, claims, views, rows}], views: facts of each claim and its alternatives; they are drawn soon.
  add(cells) {
    for (const cell of cells) {
      const key = Decisions.key(cell.subject, cell.relation);
      if (![...byId("relation").options].some(({value}) => value === cell.relation)) {
        byId("relation").append(element("option", {value: cell.relation}, cell.relation));
      }
      const own = {...cell}, {subject, relation} = cell, known = this.#cells.get(key);
      if (known) {  // of more rows
        known.rows.push(...cell.rows);
        continue;
      }
      const listed = cell.claims.length ? cell.claims : [{...NOTHING, subject, relation}];
      own.claims = listed.map((claim, place) => ({...claim, ...cell.views?.[place]?.[0], cell: own,
        alternatives: claim.alternatives?.map((other, at) => ({...other, ...cell.views[place][at + 1]})) ?? [],
        words: `${subject}\n${claim.value}\n${claim.title}`.toLowerCase()}));
      own.listed = own.claims;
      if (!cell.claims.length) own.claims = [];
      for (const claim of own.listed) this.#counts[claim.state = this.#stateOf(claim)]++;
      this.#claims.push(...own.listed);
      this.#cells.set(key, own);
    }
    this.#waiting ||= setTimeout(() => {
      this.#waiting = 0;
      this.#filter(this.#shown[this.#chosen]);
      this.#tell();
    });
  }

  // What was decided on a claim: "accept", "reject", "corrected" (another value stands in its place), or "".
  #stateOf(claim) {
    const {cell} = claim, own = this.decisions.on(cell, claim.value)?.decision;
    if (own === "accept" && !claim.is_nothing) return own;
    return this.#insteadOf(claim) === null ? own ?? "" : "corrected";
  }

  // What stands in the place of a claim, "" for nothing; null: no other value does.
  #insteadOf(claim) {
    const {cell} = claim, accepted = this.decisions.accepted(cell);
    if (!accepted || accepted.includes(oneLine(claim.value)) && !claim.is_nothing) return null;
    if (!cell.many || !accepted.length) return accepted.join(" | ");
    const typed = accepted.filter(value => !cell.claims.some(one => oneLine(one.value) === value));
    const first = cell.claims.find(one => this.decisions.on(cell, one.value)?.decision === "reject");
    return typed.length && (claim === first || claim.is_nothing) ? typed.join(" | ") : null;
  }

  // The values that stand in a cell now, with what is known of each: [{value, cell, claim}].
  #standing(cell) {
    const {decisions} = this, accepted = decisions.accepted(cell), known = [...cell.claims, ...cell.claims[0]?.alternatives ?? []];
    const byKbq = cell.claims.filter(claim => claim.accepted && decisions.on(cell, claim.value)?.decision !== "reject")
      .map(({value}) => oneLine(value));
    const values = !accepted ? byKbq : cell.many && accepted.length ? [...new Set([...accepted, ...byKbq])] : accepted;
    return values.map(value => ({value, cell, claim: known.find(one => oneLine(one.value) === value)}));
  }

  #judge(touched) {  // the claims of these cells, as something was decided
    for (const {listed} of [...touched].map(key => this.#cells.get(key)).filter(Boolean)) {
      for (const claim of listed) {
        this.#counts[claim.state]--;
        this.#counts[claim.state = this.#stateOf(claim)]++;
      }
    }
    this.#tell();
  }

  #tell() {
    const counts = this.#counts, done = this.#claims.length - counts[""], {warning, note} = this.decisions;
    byId("reviewed").max = this.#claims.length || 1;
    byId("reviewed").value = done;
    byId("done").className = warning ? "warning" : "";
    byId("done").textContent = warning || `${number(done)} of ${number(this.#claims.length)} reviewed: ${number(counts.accept)} accepted, `
      + `${number(counts.reject)} rejected, ${number(counts.corrected)} corrected${note && `. ${note}`}`;
    byId("undo").disabled = !this.decisions.canUndo;
    this.#tellBulk();
  }

  // The list

  #filter(kept = null) {
    const words = byId("search").value.toLowerCase().trim(), relation = byId("relation").value, state = byId("state").value;
    const bound = id => { const given = byId(id).valueAsNumber; return given > 1 ? given / 100 : given; };  // 80 means 80 %
    const from = bound("from"), to = bound("to");
    const fits = {"": () => true, open: claim => !claim.state, filled: claim => claim.accepted, empty: claim => !claim.accepted}[state]
      ?? (claim => claim.state === state);
    this.#shown = this.#claims.filter(claim => claim.words.includes(words) && (!relation || claim.relation === relation)
      && !((claim.probability ?? 0) < from) && !((claim.probability ?? 0) > to) && fits(claim));
    const {by, descending} = this.#sorted, sign = descending ? -1 : 1;
    if (by === "probability") this.#shown.sort((a, b) => sign * ((a[by] ?? -1) - (b[by] ?? -1)));
    else if (by) this.#shown.sort((a, b) => sign * collator.compare(a[by], b[by]));
    this.#first = -1;
    this.#tellBulk();
    this.#choose(Math.max(0, this.#shown.indexOf(kept)));
  }

  #open() { return this.#shown.filter(claim => !claim.state && !claim.is_nothing); }

  #tellBulk() {
    const open = this.#open(), filled = open.filter(({accepted}) => accepted).length, guesses = open.length - filled;
    byId("accept-all").textContent = filled || !guesses ? `Accept the ${number(filled)} filled` : `Accept ${number(guesses)} guesses…`;
    byId("accept-all").disabled = !open.length;
  }

  #acceptAll() {  // what was filled; where there are only guesses, these, if somebody says so again
    const open = this.#open(), filled = open.filter(({accepted}) => accepted);
    const question = `${number(open.length)} values are below the threshold: kbq left their cells empty. Accept all of them?`;
    if (!filled.length && !confirm(question)) return;
    this.decisions.acceptAll((filled.length ? filled : open).map(claim => ({...claim.cell, value: claim.value})));
  }

  #draw() {
    const {length} = this.#shown, last = Math.min(this.#first + ROWS, length);
    byId("rows").replaceChildren(...this.#shown.slice(this.#first, last).map((_, row) => this.#drawn(this.#first + row)));
    const empty = this.#claims.length ? "No claims match the filters." : "There are no claims.";
    if (!length) byId("rows").append(element("tr", {}, element("td", {colSpan: 6, className: "empty"}, empty)));
    byId("place").textContent = length ? `${number(this.#first + 1)}–${number(last)} of ${number(length)}` : "none";
    byId("before").disabled = this.#first === 0;
    byId("after").disabled = last >= length;
    byId("turning").hidden = length <= ROWS;
  }

  #drawn(place) {
    const claim = this.#shown[place], {cell, state} = claim, instead = state === "corrected" ? this.#insteadOf(claim) : null;
    const choice = (decision, look, sign, label) => element("button", {type: "button", className: `choice ${look}`,
      ariaLabel: `${label} ${claim.value}`, ariaPressed: String(state === decision), dataset: {choice: decision}, disabled: claim.is_nothing ?? false,
      onclick: () => { this.#choose(place); this.decisions.decide(cell, claim.value, decision); }}, sign);
    const isStruck = instead !== null || state === "reject", level = levelOf(claim.probability);
    const choose = ({target}) => target.closest("button") || this.#choose(place, true);
    return element("tr", {className: claim.accepted ? "" : "left-empty", dataset: {place}, onclick: choose},
      element("td", {className: "decision"}, choice("accept", "yes", "✓", "Accept"), " ", choice("reject", "no", "✗", "Reject")),
      element("td", {dir: "auto", className: "subject"}, claim.subject, element("small", {className: "narrow"}, claim.relation)),
      element("td", {dir: "auto", className: "relation"}, claim.relation),
      element("td", {className: "value"},
        element("button", {type: "button", title: "Show the evidence", dir: "auto", className: isStruck && !claim.is_nothing ? "struck" : "",
          onclick: () => this.#choose(place, true)}, claim.value || "nothing found"),
        ...instead === null ? [] : [" ", element("span", {className: "instead", dir: "auto"}, instead || "left empty")]),
      element("td", {className: "probability"}, element("span", {className: `level ${claim.accepted ? level : "unlikely"}`},
        claim.is_nothing ? "–" : percent(claim) || "unknown")),
      element("td", {dir: "auto", className: "page"}, claim.title));
  }

  #rowOf(place) { return byId("rows").querySelector(`tr[data-place="${place}"]`); }

  #redraw(touched) {  // the rows of these cells and the evidence, as something was decided
    const inTable = byId("rows").contains(document.activeElement), at = document.activeElement?.dataset?.choice;
    for (const row of byId("rows").querySelectorAll("[data-place]")) {
      const place = Number(row.dataset.place), {subject, relation} = this.#shown[place];
      if (touched.has(Decisions.key(subject, relation))) row.replaceWith(this.#drawn(place));
    }
    this.#choose(this.#chosen);
    if (inTable) this.#rowOf(this.#chosen)?.querySelector(at ? `[data-choice=${at}]` : ".value button")?.focus({preventScroll: true});
  }

  #choose(place, isAsked = false) {
    this.#chosen = Math.max(0, Math.min(place, this.#shown.length - 1));
    const begin = Math.floor(this.#chosen / ROWS) * ROWS;
    if (begin !== this.#first) {
      this.#first = begin;
      this.#draw();
    }
    const last = byId("rows").querySelector(".chosen");
    last?.classList.remove("chosen");
    last?.removeAttribute("aria-current");
    const row = this.#rowOf(this.#chosen), claim = this.#shown[this.#chosen];
    row?.classList.add("chosen");
    row?.setAttribute("aria-current", "true");
    if (claim) this.evidence.show(claim.cell, claim);
    else this.evidence.clear();
    if (!row || !isAsked) return;
    this.evidence.root.hidden = false;
    row.querySelector(".value button").focus({preventScroll: true});
    row.scrollIntoView({block: "nearest"});
  }

  #close() {
    this.evidence.root.hidden = true;
    this.#rowOf(this.#chosen)?.querySelector(".value button").focus({preventScroll: true});
  }

  #undo() {
    const cell = this.decisions.undo();
    const at = cell ? this.#shown.findIndex(({subject, relation}) => subject === cell.subject && relation === cell.relation) : -1;
    if (at >= 0) this.#choose(at, true);
    this.#tell();
  }

  #turn(pages) {
    this.#choose(this.#first + pages * ROWS);
    byId("claims").scrollIntoView();
  }

  #sort(by) {
    this.#sorted = {by, descending: this.#sorted.by === by ? !this.#sorted.descending : by === "probability"};
    for (const header of document.querySelectorAll("#claims th")) {
      if (header.firstElementChild?.dataset.sort === by) header.ariaSort = this.#sorted.descending ? "descending" : "ascending";
      else header.removeAttribute("aria-sort");
    }
    this.#filter();
  }

  // Files

  // The place in the text of a value, for those who train with decisions.
  placeOf({subject, relation, value}) {
    const cell = this.#cells.get(Decisions.key(subject, relation));
    const found = [...cell?.claims ?? [], ...cell?.claims[0]?.alternatives ?? []].find(one => oneLine(one.value) === value);
    if (!found || found.by_hand) return {};
    return Object.fromEntries(["page_id", "paragraph", "start", "end"].map(name => [name, found[name]]));
  }

  async #download(format) {
    const cells = [...this.#cells.values()], decided = format === "decisions" ? this.decisions.lines(record => this.placeOf(record)) : [];
    const standing = cells.flatMap(cell => this.#standing(cell));
    const isMissing = {decisions: !decided.length, rdf: !standing.length}[format] ?? !cells.length;
    if (isMissing) {
      byId("said").textContent = {decisions: "Nothing was decided yet: there is no file.",
        rdf: "No cell has a value yet: there is no file."}[format] ?? "No cell is there yet: there is no file.";
      return;
    }
    byId("said").textContent = this.unfinished();
    if (format === "decisions") save("decisions.jsonl", textOf(decided));
    else if (format === "csv") save("table.csv", textOf(this.#table().map(row => row.map(quoted).join(","))));
    else if (format === "xlsx") save("table.xlsx", spreadsheet(this.#table()));
    else {
      const typed = standing.filter(({claim}) => !claim?.fact);
      const views = typed.length ? await this.typed(typed).catch(() => []) : [], missing = typed.filter((_, place) => !views[place]?.fact);
      const facts = standing.map(one => one.claim?.fact ?? views[typed.indexOf(one)]?.fact);
      save("facts.nt", textOf([...new Set(facts.filter(Boolean))]));
      if (missing.length) byId("said").textContent = `${number(missing.length)} of ${number(standing.length)} values are not in facts.nt: `
        + "they were typed, and kbq fill --decisions gives them a form.";
    }
  }

  // The table as it stands now; without one, the subjects and relations of the cells are its rows and columns.
  #table() {
    const cells = [...this.#cells.values()], values = cell => this.#standing(cell).map(written).join("|");
    const given = this.table();
    if (given) {
      const rows = given.rows.map(row => [...row]);
      for (const cell of cells) for (const row of cell.rows) rows[row][given.columns.indexOf(cell.relation)] = values(cell);
      return [given.columns, ...rows.map(row => given.columns.map((_, column) => row[column] ?? ""))];
    }
    const columns = ["subject", ...new Set(cells.map(({relation}) => relation))];
    const rows = new Map(cells.map(({subject}) => [subject, [subject, ...columns.slice(1).map(() => "")]]));
    for (const cell of cells) rows.get(cell.subject)[columns.indexOf(cell.relation)] = values(cell);
    return [columns, ...rows.values()];
  }
}

const levelOf = probability => probability == null ? "unknown" : probability >= .75 ? "sure" : probability >= .5 ? "likely" : "unlikely";

// As `--dates iso` does: what ISO has no form for, and what is of the Julian calendar, stays as the text has it.
function written({value, claim}) {
  const normal = claim?.normal;
  const isDate = byId("iso").checked && normal?.type === "date" && !normal.julian && /^-?\d{4}(-\d\d){0,2}$/.test(normal.edtf);
  return isDate ? normal.edtf : value;
}

const textOf = lines => [lines.map(line => `${line}\n`).join("")];
// Whatever a cell comes from, a link that was shared included: no spreadsheet computes it. As kbq/tables/tables.py does.
const guarded = text => /^(\s*[=+\-@＝＋－＠]|[\t\r\n])/.test(text) && !/^ *[+-]?\d[\d.,\s]*%?$/.test(text) ? `'${text}` : text;
const quoted = text => (text = guarded(text), /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);

function save(name, parts) {
  const url = URL.createObjectURL(new Blob(parts, {type: name.endsWith("xlsx") ? "application/octet-stream" : "text/plain;charset=utf-8"}));
  element("a", {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
}
