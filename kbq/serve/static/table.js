"use strict";
// Fills the table cell by cell, shows the evidence of a cell, keeps what people decide (decisions.js), and makes files of it.
// Cells are found by row and column, whatever their texts are. Texts of the knowledge base only ever become text nodes.

const form = byId("fill"), results = byId("results"), grid = byId("cells"), progress = byId("progress"), MOST = Number(form.dataset.most);
let table = null;     // what is asked: {kb, header, rows, relations}; `rows` are those of the person, with all their columns
let lines = [];       // of the service: lines[row][column], {subject, relation, claims, triples}
let stopping = null, chosen = null;  // chosen: {row, column, number of the claim}

async function exchange(records, since) {
  const decisions = records.map(record => ({...record, ...place(record)}));
  const body = JSON.stringify({kb: form.elements.kb.value, since, decisions});
  const answer = await fetch("/v1/decisions", {method: "POST", headers: {"Content-Type": "application/json"}, body,
    keepalive: body.length < 20000});  // it arrives also where the tab is closed meanwhile
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer.json();
}

const decisions = new Decisions({
  keep: `kbq decisions on ${form.elements.kb.value}`, changed: touched => { redraw(touched); tell(); },
  exchange: "decisions" in form.dataset ? exchange : null,
});
const evidence = new Evidence(byId("evidence"), {
  decisions, close, page: address, next: () => step(1),
  suggest: async prefix => {
    const answer = await fetch(`/v1/titles?${new URLSearchParams({prefix, kb: form.elements.kb.value, limit: 8})}`);
    return answer.ok ? (await answer.json()).titles.map(({title}) => title) : [];
  },
});

function address(claim) {
  if (claim.by_hand) return "";
  const {page_id, paragraph, start, end} = claim;
  return `/page/${encodeURIComponent(page_id)}?${new URLSearchParams({kb: table.kb, paragraph, start, end})}#here`;
}

// What is asked for

// Rows of CSV, with whatever separates its first line; of a list of names: one column.
function parsed(text) {
  const head = text.split(/\r\n|\r|\n/, 1)[0], mark = [..."\t;,|"].find(one => head.includes(one)) ?? "\t";
  const pattern = new RegExp(`(?:"((?:[^"]|"")*)"|([^${mark}\\r\\n]*))([${mark}]|\\r\\n|\\r|\\n|$)`, "y"), rows = [[]];
  for (let found; (found = pattern.exec(text));) {
    rows.at(-1).push(oneLine(found[1]?.replaceAll('""', '"') ?? found[2]));
    if (pattern.lastIndex >= text.length && found[3] !== mark) break;
    if (found[3] !== mark) rows.push([]);
  }
  return rows.filter(row => row.some(Boolean));
}

function asked() {
  const data = new FormData(form), text = data.get("subjects"), names = data.getAll("relation");
  names.push(...data.get("others").split(",").map(oneLine).filter(Boolean));
  const isTable = text.includes("\t"), given = isTable ? parsed(text) : text.split(/\r\n|\r|\n/).map(oneLine).filter(Boolean).map(name => [name]);
  const [header, rows] = isTable ? [given[0] ?? ["subject"], given.slice(1)] : [["subject"], given];
  const lacking = header.slice(1).filter((name, column) => name && rows.some(row => !row[column + 1]));
  const relations = [...new Set([...lacking, ...names])];
  return {kb: data.get("kb"), header: [...header, ...relations.filter(name => !header.includes(name))], relations,
    rows: isTable ? rows.filter(row => row[0]) : [...new Map(rows.map(row => [row[0], row])).values()]};
}

const columnOf = relation => table.header.indexOf(table.relations[relation], 1);
const value = (row, relation) => table.rows[row][columnOf(relation)] ?? "";

function refusal({rows, relations}) {
  if (!rows.length) return "Write subjects, one a line.";
  if (!relations.length) return "Choose relations, or write some.";
  const count = rows.length * relations.length;
  return count > MOST ? `The table has ${count.toLocaleString("en")} cells: ask for ${MOST.toLocaleString("en")} at most.` : "";
}

async function fill(kept = null) {
  const wanted = asked(), problem = refusal(wanted);
  byId("subjects").setAttribute("aria-invalid", String(!wanted.rows.length));
  progress.className = problem ? "warning" : "";
  if (problem) {
    progress.textContent = problem;
    if (!wanted.rows.length) byId("subjects").focus();
    return;
  }
  table = wanted;
  share();
  lines = table.rows.map(() => []);
  close();
  skeleton();
  stopping?.abort();
  const own = stopping = new AbortController();
  byId("stop").hidden = false;
  try {
    received = [];
    if (kept) kept.forEach(take);
    else await receive(own.signal);
    remember();
    byId("asking").open = false;
  } catch (error) {
    if (stopping !== own) return;
    progress.className = error.name === "AbortError" ? "" : "warning";
    progress.textContent = error.name === "AbortError" ? `Stopped after ${count()} cells.` : `It did not work: ${error.message}`;
  } finally {
    if (stopping === own) byId("stop").hidden = true;
  }
  byId("downloads").hidden = !count();
  for (const cell of grid.querySelectorAll(".waiting")) cell.replaceWith(element("span", {className: "cell nothing"}, "–"));
}

const count = () => lines.flat().filter(Boolean).length;

function share() {
  const query = new URLSearchParams([["subjects", byId("subjects").value], ...table.relations.map(name => ["relation", name]), ["kb", table.kb]]);
  const isShort = query.toString().length < 7000;
  history.replaceState(null, "", isShort ? `/table?${query}` : `/table?${new URLSearchParams({kb: table.kb})}`);
}

// A page that is loaded again asks nothing again.
function remember() {
  try { sessionStorage.setItem("kbq table", JSON.stringify({table: {...table, counts: undefined}, lines: received})); } catch { /* it is asked again */ }
}

function remembered() {
  try {
    const kept = JSON.parse(sessionStorage.getItem("kbq table"));
    return kept && JSON.stringify(kept.table) === JSON.stringify(asked()) ? kept.lines : null;
  } catch {
    return null;
  }
}

let received = [];

async function receive(signal) {
  const rows = table.rows.map((row, number) => Object.fromEntries([["subject", row[0]],
    ...table.relations.map((name, relation) => [name, value(number, relation)])]));
  const answer = await fetch("/v1/fill", {method: "POST", signal, headers: {"Content-Type": "application/json"},
    body: JSON.stringify({kb: table.kb, rows, relations: table.relations})});
  if (!answer.ok) throw new Error((await answer.json()).detail);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const {done, value: text} = await reader.read();
    if (done) return;
    const parts = (left + text).split("\n");
    left = parts.pop();
    parts.map(JSON.parse).forEach(take);
  }
}

function take(line) {
  if (line.problem) throw new Error(line.problem.detail);
  received.push(line.counts ? {counts: line.counts} : line);
  if (line.counts) {
    table.counts = line.counts;
    tell();
    return;
  }
  for (const row of line.rows) {
    if (value(row, line.column)) continue;
    lines[row][line.column] = line;
    show(row, line.column);
  }
  progress.textContent = `${count()} cells`;
}

function tell() {
  if (!table?.counts) return;
  const {cells, filled, unasked} = table.counts;
  progress.className = decisions.warning ? "warning" : "";
  progress.textContent = decisions.warning || `${filled} of ${cells} cells filled.` + (unasked.length ? ` Not asked: ${unasked.join("; ")}` : "");
}

// The table

function skeleton() {
  const head = element("tr", {}, ...table.header.map(name => element("th", {scope: "col", dir: "auto"}, name)));
  const rows = table.rows.map((row, number) => element("tr", {}, ...table.header.map((name, column) => {
    if (!column) return element("th", {scope: "row", dir: "auto"}, row[0]);
    const relation = table.relations.indexOf(name), text = row[column] ?? "";
    return element("td", {dir: "auto", dataset: {row: number, column: relation}},
      text || relation < 0 ? element("span", {className: "cell given"}, text) : element("span", {className: "cell waiting"}));
  })));
  grid.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  results.hidden = false;
  progress.scrollIntoView({block: "nearest"});
}

const at = (row, column) => grid.tBodies[0].rows[row].cells[columnOf(column)];
const cellOf = line => ({subject: line.subject, relation: line.relation, many: false, claims: line.claims});

// The values of a cell as they stand now: [{text, claim, state}], state being "", "guess", "accepted", or "rejected".
function standing(line) {
  const cell = cellOf(line), accepted = decisions.accepted(cell), {claims} = line;
  const known = claims.map(claim => {
    const own = decisions.on(cell, claim.value)?.decision;
    const state = own === "accept" && (!accepted || accepted.includes(oneLine(claim.value))) ? "accepted"
      : own === "reject" || accepted ? "rejected" : claim.accepted ? "" : "guess";
    return {text: claim.value, claim, state};
  });
  const others = (accepted ?? []).filter(text => !claims.some(claim => oneLine(claim.value) === text));
  return [...others.map(text => ({text, claim: claims[0] ?? null, state: "accepted"})), ...known];
}

function show(row, column) {
  const line = lines[row][column], shown = standing(line);
  if (!shown.length) {
    at(row, column).replaceChildren(element("button", {type: "button", className: "cell nothing", ariaLabel: "nothing was found"}, "–"));
    return;
  }
  at(row, column).replaceChildren(...shown.map(({text, claim, state}) => {
    const chance = claim && oneLine(claim.value) === oneLine(text) ? claim.probability : null;
    const level = chance == null ? "unknown" : chance >= .75 ? "sure" : chance >= .5 ? "likely" : "unlikely";
    const said = [text, percent({probability: chance}), state === "guess" ? "a guess" : state].filter(Boolean).join(", ");
    return element("a", {className: `cell ${level} ${state}`, href: claim ? address(claim) : "#", dir: "auto", ariaLabel: said},
      text, " ", element("small", {}, percent({probability: chance})));
  }));
}

function redraw(touched) {
  lines.forEach((row, number) => row.forEach((line, column) => {
    if (line && touched.has(Decisions.key(line.subject, line.relation))) show(number, column);
  }));
  if (chosen) open(chosen.row, chosen.column, false);
}

// The evidence of a cell

const NOTHING = {value: "", probability: null, accepted: false, by_hand: true, sentence: "", says_the_same: 1};

function open(row, column, focused = true) {
  const line = lines[row]?.[column];
  if (!line) return;
  chosen = {row, column};
  evidence.show(cellOf(line), line.claims[0] ?? NOTHING);
  evidence.root.hidden = false;
  for (const one of grid.querySelectorAll(".chosen")) one.classList.remove("chosen");
  const place = at(row, column);
  place.firstElementChild.classList.add("chosen");
  if (!focused) return;
  evidence.root.focus({preventScroll: true});
  place.scrollIntoView({block: "nearest", inline: "nearest"});
}

function close() {
  evidence.root.hidden = true;
  const last = chosen;
  chosen = null;
  for (const one of grid.querySelectorAll(".chosen")) one.classList.remove("chosen");
  if (last) at(last.row, last.column)?.firstElementChild.focus();
}

// The next cell that was asked, row by row, or the one before.
function step(steps) {
  const cells = lines.flatMap((row, number) => row.map((line, column) => line && [number, column]).filter(Boolean));
  const now = chosen ? cells.findIndex(([row, column]) => row === chosen.row && column === chosen.column) : -1;
  const next = cells[Math.max(0, Math.min(now + steps, cells.length - 1))];
  if (next) open(...next);
}

function undo() {
  const cell = decisions.undo();
  if (!cell) return;
  lines.forEach((row, number) => row.forEach((line, column) => {
    if (line?.subject === cell.subject && line.relation === cell.relation) open(number, column);
  }));
}

function place({subject, relation, value}) {
  const line = lines.flat().find(one => one?.subject === subject && one.relation === relation);
  const found = [...line?.claims ?? [], ...line?.claims[0]?.alternatives ?? []].find(one => oneLine(one.value) === value);
  return found ? {page_id: found.page_id, paragraph: found.paragraph, start: found.start, end: found.end} : {};
}

// Files

const standingValues = line => standing(line).filter(({state}) => state === "" || state === "accepted");
const values = line => standingValues(line).map(({text}) => text);
// As `--dates iso` does: what ISO has no form for, and what is of the Julian calendar, stays as the text has it.
function written({text, claim}) {
  const normal = claim && oneLine(claim.value) === oneLine(text) ? claim.normal : null;
  const isDate = byId("iso").checked && normal?.type === "date" && !normal.julian && /^-?\d{4}(-\d\d){0,2}$/.test(normal.edtf);
  return isDate ? normal.edtf : text;
}
// Whatever a cell comes from, a link that was shared included: no spreadsheet computes it. As kbq/tables/tables.py does.
const guarded = text => /^(\s*[=+\-@＝＋－＠]|[\t\r\n])/.test(text) && !/^ *[+-]?\d[\d.,\s]*%?$/.test(text) ? `'${text}` : text;
const quoted = text => (text = guarded(text), /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const formats = {
  csv: () => [table.header, ...table.rows.map((row, number) => table.header.map((name, column) => {
    const line = column ? lines[number][table.relations.indexOf(name)] : null;
    return row[column] || (line ? standingValues(line).map(written).join("|") : "");
  }))].map(row => row.map(quoted).join(",")),
  jsonl: () => lines.flat().filter(Boolean).flatMap(line => line.claims.map(claim => {
    const decision = decisions.on(cellOf(line), claim.value)?.decision;
    return JSON.stringify(decision ? {...claim, decision} : claim);
  })),
  nt: () => [...new Set(lines.flat().filter(Boolean).flatMap(line => line.claims.map((claim, number) =>
    values(line).includes(claim.value) ? line.triples[number] : "")).filter(Boolean))],
  decisions: () => decisions.lines(place),
};

form.addEventListener("submit", event => {
  event.preventDefault();
  fill();
});
byId("upload").addEventListener("change", async event => {
  const [file] = event.target.files;
  if (!file) return;
  const rows = parsed((await file.text()).replace(/^\ufeff/, "")), isTable = rows.some(row => row.length > 1);
  byId("subjects").value = rows.slice(isTable ? 0 : 1).map(row => row.join("\t")).join("\n");  // names need no header
  event.target.value = "";
});
byId("stop").addEventListener("click", () => stopping?.abort());
grid.addEventListener("click", event => {
  const cell = event.target.closest("a.cell, button.cell"), td = cell?.closest("td");
  if (!td?.dataset.row || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  open(Number(td.dataset.row), Number(td.dataset.column));
});
byId("downloads").addEventListener("click", ({target: {dataset: {format}}}) => {
  if (format) save(format === "decisions" ? "decisions.jsonl" : `table.${format}`, formats[format]());
});
byId("undo").addEventListener("click", undo);
byId("reviewer").value = decisions.reviewer;
byId("reviewer").addEventListener("input", () => decisions.named(byId("reviewer").value));
listen(evidence, {next: step, undo, close});
if (results.hidden && !refusal(asked())) fill(remembered());  // an address that was shared, or a page that is loaded again
