"use strict";
// Review: cells with their claims become a table and a list to filter, sort and decide on, and files. The page of `kbq serve` and the
// file that `kbq export --to review` writes show the same ones. Texts of a corpus only ever become text nodes.

const ROWS = 100;
const NOTHING = {value: "", probability: null, accepted: false, sentence: "", title: "", says_the_same: 1, is_nothing: true};
const collator = new Intl.Collator(undefined, {numeric: true});
const number = count => count.toLocaleString("en");
const NARROW = "(max-width: 60rem)";

class Review {
  #cells = new Map();     // by subject and relation: {subject, relation, type, many, claims, listed, rows}
  #byRow = [];            // of each row of the table, its cells by relation
  #subjects = new Map();  // rows of subjects, where there is no table
  #claims = [];           // what can be listed: each claim, and NOTHING of a cell without any, with its cell and its words
  #shown = [];            // those of them that fit the filters, in order
  #rows = [];             // places of the rows of the table that are shown, in order
  #selected = new Set();  // places of rows
  #chosen = 0;            // place in `shown`
  #row = -1;              // place of the row in which the chosen claim was chosen
  #first = -1;            // place of the first row that is drawn
  #sorted = {by: "", descending: false};  // by a name of the list, or the place of a column
  #counts = {accept: 0, reject: 0, corrected: 0, "": 0};  // of the claims, by what was decided on them
  #waiting = 0;           // until all is drawn again
  #claim = null;          // the chosen one, even if it does not fit the filters
  #made = null;           // a table of subjects and relations, where none was given
  #view;                  // the table, or the list of claims

  // keep, exchange: as `Decisions` has them; page, suggest, document: as `Evidence`; table: gives {columns, rows, subject} for tables, or null;
  // typed: promises, for typed values [{value, cell}], what is known of each: {fact}; unfinished: says what a file lacks yet, or "".
  constructor({keep, exchange = null, page, suggest, document: shown = () => null, table = () => null, typed, unfinished = () => ""}) {
    Object.assign(this, {table, typed, unfinished, side: byId("side")});
    this.decisions = new Decisions({keep, exchange, changed: touched => { this.#judge(touched); this.#redraw(touched); }});
    this.evidence = new Evidence(byId("evidence"), {decisions: this.decisions, page, suggest, document: shown, next: () => this.#step(1)});
    this.past = new Past(byId("past"), {decisions: this.decisions, choose: record => this.#go(record),
      takeBack: record => this.decisions.decide(this.#cellOf(record) ?? record, record.value, record.decision)});
    this.facets = new Facets(byId("facets"), [
      {name: "state", title: "State", of: kindOf, label: key => STATES[key], order: Object.keys(STATES)},
      {name: "relation", title: "Relation", of: ({relation}) => relation, label: key => key},
      {name: "page", title: "Page", of: ({title, is_nothing}) => is_nothing ? "" : title || "untitled", label: key => key || "nothing found"},
    ], () => this.#filter());
    this.tableView = new TableView(byId("sheet"), {cellAt: (row, column) => this.#cellAt(row, column), standing: cell => this.#standing(cell),
      choose: (claim, row) => this.#pick(claim, row), isSelected: row => this.#selected.has(row),
      select: (row, is) => this.#select(row === null ? this.#rows : [row], is), sort: column => this.#sort(column)});
    this.list = new ClaimsList(byId("claims"), {choose: claim => this.#pick(claim), insteadOf: claim => this.#insteadOf(claim),
      decide: (claim, decision) => { this.#choose(this.#shown.indexOf(claim)); this.decisions.decide(claim.cell, claim.value, decision); }});
    this.#view = this.tableView;
    this.#look(stored("kbq view") === "list" ? this.list : this.tableView);
    this.side.hidden = matchMedia(NARROW).matches;
    byId("filtering").open = !this.side.hidden;
    this.#listen();
  }

  #listen() {
    const act = {before: () => this.#turn(-1), after: () => this.#turn(1), "accept-all": () => this.#acceptAll(), undo: () => this.#undo(),
      all: () => this.#showAll(), "as-table": () => this.#look(this.tableView), "as-list": () => this.#look(this.list),
      "to-evidence": () => this.#turnTo("evidence"), "to-past": () => this.#turnTo("past"), close: () => this.#close(),
      "reject-selected": () => this.#rejectSelected(), unselect: () => this.#select([...this.#selected], false)};
    for (const [id, action] of Object.entries(act)) byId(id).addEventListener("click", action);
    for (const id of ["search", "from", "to"]) byId(id).addEventListener("input", () => this.#filter());
    for (const header of document.querySelectorAll("[data-sort]")) header.addEventListener("click", () => this.#sort(header.dataset.sort));
    byId("filters").addEventListener("submit", event => event.preventDefault());
    byId("reviewer").value = this.decisions.reviewer;
    byId("reviewer").addEventListener("input", () => this.decisions.named(byId("reviewer").value));
    byId("downloads").addEventListener("click", ({target: {dataset: {format}}}) => format && this.#download(format));
    listen(this.evidence, {next: steps => this.#step(steps), undo: act.undo, close: act.close, mark: () => this.#markRow(),
      past: () => this.#turnTo(byId("past").hidden ? "past" : "evidence"),
      other: () => this.#look(this.#view === this.list ? this.tableView : this.list),
      search: () => { byId("filtering").open = true; byId("search").focus(); }});
  }

  // Begin with no cells.
  clear() {
    for (const kept of [this.#cells, this.#subjects, this.#selected]) kept.clear();
    this.#claims = [];
    this.#byRow = [];
    this.#made = null;
    this.#row = -1;
    this.#sorted = {by: "", descending: false};
    for (const state in this.#counts) this.#counts[state] = 0;
    this.facets.clear();
    this.#filter();
    this.#tell();
  }

  // cells: [{subject, relation, type, many, claims, views, rows}], views: facts of each claim and its alternatives; they are drawn soon.
  add(cells) {
    this.#made = null;
    for (const cell of cells) {
      const known = this.#cells.get(Decisions.key(cell.subject, cell.relation)), rows = cell.rows ?? [this.#rowOf(cell.subject)];
      if (known) known.rows.push(...rows);  // of more rows
      else this.#addNew(cell, rows);
      for (const row of rows) (this.#byRow[row] ??= new Map()).set(cell.relation, known ?? this.#claims.at(-1).cell);
    }
    this.#waiting ||= setTimeout(() => {
      this.#waiting = 0;
      this.#filter(this.#claim);
      this.#tell();
    }, this.#claims.length > 500 ? 300 : 0);
  }

  #addNew(cell, rows) {
    const own = {...cell, rows}, {subject, relation} = cell, texts = rows.flatMap(row => this.table()?.rows[row] ?? []);
    const listed = cell.claims.length ? cell.claims : [{...NOTHING, subject, relation}];
    own.listed = listed.map((claim, place) => ({...claim, ...cell.views?.[place]?.[0], cell: own,
      alternatives: claim.alternatives?.map((other, at) => ({...other, ...cell.views[place][at + 1]})) ?? [],
      words: [subject, claim.value, claim.title, ...texts].join("\n").toLowerCase()}));
    own.claims = cell.claims.length ? own.listed : [];
    for (const claim of own.listed) this.#counts[claim.state = this.#stateOf(claim)]++;
    this.#claims.push(...own.listed);
    this.#cells.set(Decisions.key(subject, relation), own);
  }

  #rowOf(subject) {
    if (!this.#subjects.has(subject)) this.#subjects.set(subject, this.#subjects.size);
    return this.#subjects.get(subject);
  }

  #cellOf({subject, relation}) { return this.#cells.get(Decisions.key(subject, relation)); }

  #cellAt(row, column) {
    const {columns, subject} = this.#given();
    return column === subject ? undefined : this.#byRow[row]?.get(columns[column]);
  }

  // The table as it was given; without one, the subjects and relations of the cells are its rows and columns.
  #given() {
    const relations = () => [...new Set([...this.#cells.values()].map(({relation}) => relation))];
    return this.table() ?? (this.#made ??= {columns: ["subject", ...relations()], rows: [...this.#subjects.keys()].map(name => [name]), subject: 0});
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

  get standing() { return [...this.#cells.values()].flatMap(cell => this.#standing(cell)); }

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
    if (touched.size && this.#claims.length) this.facets.chosen(this.#searched());  // for their counts
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
    this.past.draw();
    this.#tellBulk();
  }

  // What is shown

  #searched() {
    const words = byId("search").value.toLowerCase().trim();
    const bound = id => { const given = byId(id).valueAsNumber; return given > 1 ? given / 100 : given; };  // 80 means 80 %
    const from = bound("from"), to = bound("to");
    return this.#claims.filter(claim => claim.words.includes(words) && !((claim.probability ?? 0) < from) && !((claim.probability ?? 0) > to));
  }

  #filter(kept = null) {
    this.#shown = this.facets.chosen(this.#searched());
    this.#order();
    this.#first = -1;
    this.#tellBulk();
    this.#choose(Math.max(0, this.#shown.indexOf(kept)));
  }

  #order() {
    const {by, descending} = this.#sorted, sign = descending ? -1 : 1, isByColumn = typeof by === "number";
    let places = [...this.#given().rows.keys()];
    if (by === "probability") this.#shown.sort((a, b) => sign * ((a[by] ?? -1) - (b[by] ?? -1)));
    else if (isByColumn) {
      places = inOrder(places, row => this.#textAt(row, by), sign);
      const ofRows = grouped(this.#shown, ({cell}) => cell.rows[0]);
      this.#shown = places.flatMap(row => ofRows.get(row) ?? []);
    } else if (by) this.#shown = inOrder(this.#shown, claim => claim[by], sign);
    const found = new Set();
    for (const {cell} of this.#shown) for (const row of cell.rows) found.add(row);
    if (by !== "" && !isByColumn) this.#rows = [...found];
    else this.#rows = this.#isWhole ? places : places.filter(row => found.has(row));
  }

  get #isWhole() { return this.#shown.length === this.#claims.length; }

  #textAt(row, column) {
    const cell = this.#cellAt(row, column);
    return cell ? this.#standing(cell).map(({value}) => value).join(" | ") : this.#given().rows[row][column] ?? "";
  }

  #draw() {
    const isList = this.#view === this.list, {length} = isList ? this.#shown : this.#rows, last = Math.min(this.#first + ROWS, length);
    const isAny = this.#claims.length > 0;
    if (isList) this.list.draw({claims: this.#shown, isAny}, this.#first, last);
    else this.tableView.draw({given: this.#given(), rows: this.#rows, matching: this.#isWhole ? null : new Set(this.#shown),
      sorted: this.#sorted, isAny}, this.#first, last);
    byId("place").textContent = length ? `${number(this.#first + 1)}–${number(last)} of ${number(length)}` : "none";
    byId("before").disabled = this.#first === 0;
    byId("after").disabled = last >= length;
    byId("turning").hidden = length <= ROWS;
  }

  #redraw(touched) {  // the rows of these cells and the evidence, as something was decided
    const {root} = this.#view, hadFocus = root.contains(document.activeElement), at = document.activeElement?.dataset?.choice;
    this.#view.redraw(({subject, relation}) => touched.has(Decisions.key(subject, relation)));
    const button = this.#mark();
    if (hadFocus && !root.contains(document.activeElement)) {
      (at && button?.closest("tr").querySelector(`[data-choice=${at}]`) || button)?.focus({preventScroll: true});
    }
  }

  #look(view) {
    this.#view = view;
    try { sessionStorage.setItem("kbq view", view === this.list ? "list" : "table"); } catch { /* it begins with the table again */ }
    for (const [id, one] of [["as-table", this.tableView], ["as-list", this.list]]) {
      byId(id).ariaPressed = String(view === one);
      one.root.hidden = view !== one;
    }
    this.#first = -1;
    this.#choose(this.#chosen);
  }

  #showAll() {
    byId("search").value = byId("from").value = byId("to").value = "";
    this.facets.clear();
    this.#filter(this.#claim);
  }

  #turn(pages) {
    const at = this.#first + pages * ROWS;
    if (this.#view === this.list) this.#choose(at);
    else {
      const rows = new Set(this.#rows.slice(at, at + ROWS));
      const place = this.#shown.findIndex(({cell}) => cell.rows.some(row => rows.has(row)));
      this.#row = this.#shown[place]?.cell.rows.find(row => rows.has(row)) ?? -1;
      this.#choose(place < 0 ? this.#chosen : place);
    }
    this.#view.root.scrollIntoView({block: "nearest"});
  }

  #sort(by) {
    this.#sorted = {by, descending: this.#sorted.by === by ? !this.#sorted.descending : by === "probability"};
    for (const header of document.querySelectorAll("#claims th")) {
      if (header.firstElementChild?.dataset.sort === by) header.ariaSort = this.#sorted.descending ? "descending" : "ascending";
      else header.removeAttribute("aria-sort");
    }
    this.#filter();
  }

  // What is chosen: keys act on this claim, which is marked and whose evidence is shown

  #choose(place, isAsked = false) {
    this.#chosen = Math.max(0, Math.min(place, this.#shown.length - 1));
    this.#show(this.#shown[this.#chosen] ?? null, isAsked);
  }

  #show(claim, isAsked = false) {
    this.#claim = claim;
    if (claim && !claim.cell.rows.includes(this.#row)) this.#row = claim.cell.rows.find(row => this.#rows.includes(row)) ?? claim.cell.rows[0];
    const at = this.#view === this.list ? this.#chosen : Math.max(0, this.#rows.indexOf(this.#row));
    const begin = Math.floor(at / ROWS) * ROWS;
    if (begin !== this.#first) {
      this.#first = begin;
      this.#draw();
    }
    if (isAsked) this.#turnTo("evidence");
    const button = this.#mark();
    if (!button || !isAsked) return;
    button.focus({preventScroll: true});
    (this.#view === this.list ? button.closest("tr") : button).scrollIntoView({block: "nearest", inline: "nearest"});
  }

  #mark() {
    const claim = this.#claim;
    if (claim) this.evidence.show(claim.cell, claim);
    else this.evidence.clear();
    return this.#view.mark(claim, this.#row);
  }

  #pick(claim, row = -1) {  // it may be one that does not fit the filters
    this.#row = row;
    const place = this.#shown.indexOf(claim);
    if (place < 0) this.#show(claim, true);
    else this.#choose(place, true);
  }

  #step(steps) { this.#choose(this.#chosen + steps, true); }

  #go(record) {
    const cell = this.#cellOf(record), claim = cell?.listed.find(one => oneLine(one.value) === record.value) ?? cell?.listed[0];
    if (!claim) return;
    if (!this.#shown.includes(claim)) this.#showAll();
    this.#pick(claim);
  }

  #undo() {
    const cell = this.decisions.undo();
    const at = cell ? this.#shown.findIndex(({subject, relation}) => subject === cell.subject && relation === cell.relation) : -1;
    if (at >= 0) this.#choose(at, true);
    this.#tell();
  }

  #turnTo(name) {
    this.side.hidden = false;
    for (const one of ["evidence", "past"]) {
      byId(one).hidden = one !== name;
      byId(`to-${one}`).ariaPressed = String(one === name);
    }
    this.past.draw();
  }

  #close() {
    this.side.hidden = true;
    this.#view.mark(this.#claim, this.#row)?.focus({preventScroll: true});
  }

  // Many at once

  #select(rows, is) {
    for (const row of rows) {
      if (is) this.#selected.add(row);
      else this.#selected.delete(row);
    }
    const focused = document.activeElement?.closest?.("[data-row]")?.dataset.row;
    this.#draw();
    this.#view.mark(this.#claim, this.#row);
    if (focused) this.#view.root.querySelector(`[data-row="${focused}"] input`)?.focus({preventScroll: true});
    this.#tellBulk();
  }

  #markRow() {
    if (this.#row >= 0 && this.#view === this.tableView) this.#select([this.#row], !this.#selected.has(this.#row));
  }

  #open() {  // what is shown and not decided; of the selected rows, if there are any
    const isMeant = ({cell}) => !this.#selected.size || cell.rows.some(row => this.#selected.has(row));
    return this.#shown.filter(claim => !claim.state && !claim.is_nothing && isMeant(claim));
  }

  #tellBulk() {
    const open = this.#open(), filled = open.filter(({accepted}) => accepted).length, guesses = open.length - filled;
    byId("accept-all").textContent = filled || !guesses ? `Accept the ${number(filled)} filled` : `Accept ${number(guesses)} guesses…`;
    byId("accept-all").disabled = !open.length;
    byId("selection").hidden = !this.#selected.size;
    byId("selected").textContent = this.#selected.size === 1 ? "1 row selected" : `${number(this.#selected.size)} rows selected`;
    byId("reject-selected").textContent = `Reject the ${number(filled)} filled`;
    byId("reject-selected").disabled = !filled;
  }

  #acceptAll() {  // what was filled; where there are only guesses, these, if somebody says so again
    const open = this.#open(), filled = open.filter(({accepted}) => accepted);
    const question = `${number(open.length)} values are below the threshold: kbq left their cells empty. Accept all of them?`;
    if (!filled.length && !confirm(question)) return;
    this.#decideAll(filled.length ? filled : open, "accept");
  }

  #rejectSelected() { this.#decideAll(this.#open().filter(({accepted}) => accepted), "reject"); }

  #decideAll(claims, decision) { this.decisions.decideAll(claims.map(claim => ({...claim.cell, value: claim.value})), decision); }

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

  // The table as it stands now.
  #table() {
    const {columns, rows, subject} = this.#given(), table = rows.map(row => columns.map((_, column) => row[column] ?? ""));
    for (const cell of this.#cells.values()) {
      const column = columns.findIndex((name, place) => name === cell.relation && place !== subject);
      for (const row of cell.rows) table[row][column] = this.#standing(cell).map(written).join("|");
    }
    return [columns, ...table];
  }
}

// Likely, unsure or left empty; or what was decided.
const kindOf = ({state, accepted, is_nothing, probability}) => state || (!accepted || is_nothing ? "empty"
  : probability >= .75 ? "likely" : "unsure");

function grouped(things, keyOf) {
  const groups = new Map();
  for (const thing of things) {
    const key = keyOf(thing), group = groups.get(key);
    if (group) group.push(thing);
    else groups.set(key, [thing]);
  }
  return groups;
}

// Things by their texts; equal ones are compared once, which takes longest, and their things stay in order.
function inOrder(things, textOf, sign) {
  const groups = grouped(things, textOf), {compare} = collator;
  return [...groups.keys()].sort((a, b) => sign * compare(a, b)).flatMap(text => groups.get(text));
}

function stored(name) {
  try { return sessionStorage.getItem(name); } catch { return null; }
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
