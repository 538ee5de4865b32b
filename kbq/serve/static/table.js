"use strict";
// The page of `kbq serve` on which a table is filled: what is asked for, in requests of some rows, becomes cells to review (review.js).
// Cells come when their row is done: what a row says of one relation may rule out what it says of another.

const form = byId("fill"), progress = byId("progress"), {presets, most} = JSON.parse(byId("known").textContent);
const LARGEST = 20000;  // cells: an hour
const kept = new Kept();
let table = null;     // what is asked: {kb, columns, rows, subject, relations}; `rows` are those of the person, with all their columns
let received = [];    // lines of the service
let unkept = [];      // those of them that wait to be kept
let stopping = null;
let waiting = 0;      // until it is said how many cells there are

const review = new Review({
  keep: `kbq decisions on ${form.elements.kb.value}`,
  exchange: "decisions" in form.dataset ? exchange : null,
  page: ({by_hand, page_id, paragraph, start, end}) => by_hand ? ""
    : `/page/${encodeURIComponent(page_id)}?${new URLSearchParams({kb: table.kb, paragraph, start, end})}#here`,
  document: documentOf,
  suggest: async prefix => {
    const answer = await fetch(`/v1/titles?${new URLSearchParams({prefix, kb: form.elements.kb.value, limit: 8})}`);
    return answer.ok ? (await answer.json()).titles.map(({title}) => title) : [];
  },
  table: () => table,
  unfinished: () => stopping && table ? `${number(cells().length)} of ${number(wantedCells())} cells were there: more are being filled.` : "",
  typed: async values => (await posted("/table/typed", JSON.stringify({kb: table.kb, values: values.map(({value, cell: {subject, relation}}) =>
    ({subject, relation: table.relations[table.plain.indexOf(relation)], value}))}))).json(),
});

async function posted(address, body, more = {}) {
  const options = {method: "POST", headers: {"Content-Type": "application/json"}, body, ...more};
  const answer = await fetch(address, options).catch(error => {  // a browser's own words say nothing to most people
    throw error instanceof TypeError ? new Error("the service does not answer: is it still running?") : error;
  });
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return answer;
}

// The document beside the claim: the place on the page of a PDF, if it can be drawn, or the text around as it was read.
function documentOf(claim) {
  const {page_id, paragraph, start, end} = claim, box = element("div", {className: "document", tabIndex: 0, ariaLabel: "Document"});
  box.setAttribute("role", "group");
  if ("drawn" in form.dataset && /\.pdf#page=\d+$/i.test(page_id)) {
    const address = `/document?${new URLSearchParams({kb: table.kb, page: page_id, paragraph, start, end})}`;
    const picture = element("img", {src: `${address}&part=true`, alt: `${claim.value}, where it stands on ${placeOf(claim)}`});
    picture.addEventListener("error", () => asRead(box, claim), {once: true});
    box.append(element("a", {href: address, target: "_blank", title: "Show the whole page"}, picture));
  } else asRead(box, claim);
  return box;
}

const texts = new Map();  // promises of the pages that were read last, by their ids

async function asRead(box, {page_id, paragraph, start, end}) {
  if (!texts.has(page_id)) {
    if (texts.size > 20) texts.delete(texts.keys().next().value);
    texts.set(page_id, fetch(`/v1/pages/${encodeURIComponent(page_id)}?${new URLSearchParams({kb: table.kb})}`).then(answer => answer.json()));
  }
  const {paragraphs = []} = await texts.get(page_id).catch(() => ({})), at = paragraphs.findIndex(({number}) => number === paragraph);
  if (at < 0) return box.remove();
  box.replaceChildren(...paragraphs.slice(Math.max(0, at - 2), at + 4).map(({number, text}) => {
    const letters = [...text], marked = element("mark", {}, letters.slice(start, end).join(""));
    return number !== paragraph ? element("p", {dir: "auto"}, text)
      : element("p", {dir: "auto"}, letters.slice(0, start).join(""), marked, letters.slice(end).join(""));
  }));
  const mark = box.querySelector("mark");
  box.scrollTop = mark.offsetTop - box.clientHeight / 3;
}

async function exchange(records, since) {
  const body = JSON.stringify({kb: form.elements.kb.value, since, decisions: records.map(record => ({...record, ...review.placeOf(record)}))});
  // It arrives also where the tab is closed meanwhile.
  return (await posted("/v1/decisions", body, {keepalive: body.length < 20000})).json();
}

// What is asked for

// Rows of what a spreadsheet copies: cells with line ends in them are quoted.
function parsed(text) {
  const pattern = /(?:"((?:[^"]|"")*)"|([^\t\r\n]*))(\t|\r\n|\r|\n|$)/y, rows = [[]];
  for (let found; (found = pattern.exec(text));) {
    rows.at(-1).push(oneLine(found[1]?.replaceAll('""', '"') ?? found[2]));
    if (pattern.lastIndex >= text.length && found[3] !== "\t") break;
    if (found[3] !== "\t") rows.push([]);
  }
  return rows.filter(row => row.some(Boolean));
}

function given() {
  const text = byId("subjects").value;
  const rows = text.includes("\t") ? parsed(text) : text.split(/\r\n|\r|\n/).map(oneLine).filter(Boolean).map(name => [name]);
  return text.includes("\t") ? {columns: rows[0], rows: rows.slice(1)} : {columns: ["subject"], rows: [...new Map(rows.map(row => [row[0], row])).values()]};
}

// The columns of the table can be chosen: one has the subjects, and others may be filled.
function offer(subject = byId("subject").value) {
  const {columns} = given(), chosen = new Set(new FormData(form).getAll("column"));
  byId("columns").hidden = columns.length < 2;
  byId("subject").replaceChildren(...columns.map(name => element("option", {value: name}, name)));
  if (columns.includes(subject)) byId("subject").value = subject;
  const others = columns.filter(name => name && name !== byId("subject").value);
  byId("offered").replaceChildren(...others.map(name => element("label", {},
    element("input", {type: "checkbox", name: "column", value: name, checked: chosen.has(name)}), element("span", {dir: "auto"}, name))));
}

function asked() {
  const data = new FormData(form), others = data.get("others").split(",").map(oneLine).filter(Boolean);
  const {columns, rows} = given(), subject = Math.max(0, columns.indexOf(data.get("subject")));
  const names = [...data.getAll("column"), ...data.getAll("relation"), ...others].flatMap(name => Object.hasOwn(presets, name) ? presets[name] : [name]);
  const relations = [...new Map(names.map(name => [name.replace(/^@/, ""), name])).values()];
  const plain = relations.map(name => name.replace(/^@/, ""));
  const choice = {subjects: byId("subjects").value, subject: data.get("subject"), offered: data.getAll("column"), chosen: data.getAll("relation"),
    others: data.get("others"), file: byId("file").hidden ? [] : [byId("file-name").textContent, byId("file-facts").textContent]};
  return {kb: data.get("kb"), columns: [...columns, ...plain.filter(name => !columns.includes(name))], relations, plain, subject, choice,
    rows: rows.filter(row => row[subject])};
}

// The form as it was when a table was asked for.
function restore({subjects, subject, offered, chosen, others, file}) {
  byId("subjects").value = subjects;
  offer(subject);
  for (const box of document.getElementsByName("column")) box.checked = offered.includes(box.value);
  const boxes = [...document.getElementsByName("relation")], typed = others.split(",").map(oneLine).filter(Boolean);
  const isTyped = ({value}) => typed.includes(value) && !chosen.includes(value);
  for (const box of boxes.filter(isTyped)) box.parentElement.remove();  // the address has it, too
  for (const box of boxes) box.checked = chosen.includes(box.value);
  byId("others").value = others;
  if (file.length) showFile(...file);
}

function refusal({rows, relations, plain, columns, subject}) {
  if (!rows.length) return "Write subjects, one a line.";
  if (!relations.length) return "Choose relations, or write some.";
  if (plain.includes(columns[subject])) return `${columns[subject]} is the column of subjects: choose other relations.`;
  const count = rows.length * relations.length;
  return count > LARGEST ? `The table has ${number(count)} cells: fill it with kbq fill, or ask for ${number(LARGEST)} at most.` : "";
}

// again: {table, lines} of the page that is loaded again.
async function fill(again = null) {
  const wanted = again?.table ?? asked(), problem = refusal(wanted);
  byId("subjects").setAttribute("aria-invalid", String(!wanted.rows.length));
  progress.className = problem ? "warning" : "";
  if (problem) {
    progress.textContent = problem;
    if (!wanted.rows.length) byId("subjects").focus();
    return;
  }
  stopping?.abort();
  const own = stopping = new AbortController();
  table = wanted;
  received = [];
  unkept = [];
  review.clear();
  byId("asking").open = false;
  byId("result").hidden = false;
  byId("stop").hidden = false;
  try {
    if (again) again.lines.forEach(line => take(line, false));
    else await begin();
    if (!received.some(({counts}) => counts?.isAll)) {
      await ask(own.signal);
      take({counts: {isAll: true}});
    }
    tell(true);
  } catch (error) {
    if (stopping !== own) return;
    byId("asking").open = true;
    progress.className = error.name === "AbortError" ? "" : "warning";
    if (error.name === "AbortError") {
      take({counts: {isAll: true, isStopped: true}});
      tell(true);
    } else progress.textContent = `It did not work: ${error.message}`;
  } finally {
    if (stopping === own) {
      byId("stop").hidden = byId("filling").hidden = true;
      stopping = null;
    }
    await keep();
  }
}

const wantedCells = () => table.rows.length * table.relations.length;
const cells = () => received.filter(({claims}) => claims);

// Name the table in the address, if it is short, and keep it.
async function begin() {
  const chosen = [...table.relations.map(name => ["relation", name]), ["kb", table.kb]];
  const query = new URLSearchParams([["subjects", byId("subjects").value], ...chosen]), isShort = query.toString().length < 7000;
  history.replaceState(null, "", isShort ? `/table?${query}` : `/table?${new URLSearchParams({kb: table.kb})}`);
  table.address = location.search;
  await kept.begin(table).catch(() => {});
}

async function keep() {
  if (unkept.length) await kept.add(unkept.splice(0)).catch(() => {});
}

async function ask(signal) {
  const there = new Set(cells().flatMap(({rows, relation}) => rows.map(row => `${row} ${relation}`)));
  const places = table.plain.map(name => [name, table.columns.indexOf(name)]);
  const left = table.rows.map((row, place) => place)
    .filter(place => places.some(([name, column]) => !table.rows[place][column] && !there.has(`${place} ${name}`)));
  const step = Math.max(1, Math.floor(most / table.relations.length));
  for (let first = 0; first < left.length; first += step) await receive(left.slice(first, first + step), there, signal);
}

// places: of the rows that are asked for; there: what has come of them before.
async function receive(places, there, signal) {
  const {kb, columns, relations, plain} = table, subject = plain.includes("subject") ? "the subject" : "subject";
  const rows = places.map(place => table.rows[place]).map(row => Object.fromEntries([[subject, row[table.subject]],
    ...plain.map(name => [name, row[columns.indexOf(name)] ?? ""])]));
  const answer = await posted("/v1/fill", JSON.stringify({kb, rows, relations, subject}), {signal});
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let left = "";
  for (;;) {
    const {done, value: text} = await reader.read();
    if (done) return;
    const parts = (left + text).split("\n");
    left = parts.pop();
    for (const line of parts.map(JSON.parse)) {
      const own = line.claims ? line.rows.map(row => places[row]).filter(row => !there.has(`${row} ${line.relation}`)) : [];
      if (!line.claims || own.length) take({...line, rows: own});
    }
    await keep();
  }
}

function take(line, isNew = true) {
  if (line.problem) throw new Error(line.problem.detail);
  const own = line.counts ? {counts: line.counts} : line;
  received.push(own);
  if (isNew) unkept.push(own);
  if (line.claims) review.add([{...line, many: line.values === "many"}]);
  waiting ||= setTimeout(() => {
    waiting = 0;
    if (stopping) tell(false);
  }, 100);
}

function tell(isDone) {
  byId("filling").hidden = isDone;
  byId("filling").max = wantedCells() || 1;
  byId("filling").value = cells().flatMap(({rows}) => rows).length;
  const done = cells(), filled = done.filter(({claims}) => claims[0]?.accepted).length;
  const unasked = received.flatMap(({counts}) => counts?.unasked ?? []);
  const isStopped = received.some(({counts}) => counts?.isStopped);
  progress.textContent = isStopped ? `Stopped after ${number(done.length)} cells.` : isDone ? `${number(filled)} of ${number(done.length)} cells filled.` : `${number(done.length)} of ${number(wantedCells())} cells …`;
  if (unasked.length) progress.textContent += ` Not asked: ${unasked.join("; ")}`;
}

form.addEventListener("submit", event => {
  event.preventDefault();
  fill();
});
byId("subjects").addEventListener("input", () => offer());
byId("subject").addEventListener("change", () => offer());
byId("subjects").addEventListener("paste", () => setTimeout(async () => {  // which column has the subjects is guessed by content
  const text = byId("subjects").value;
  if (!text.includes("\t")) return;
  const found = await readTable(new Blob([text]), "pasted.tsv").catch(() => null);
  if (found && byId("subjects").value === text) offer(found.subject);
}));
form.elements.kb.addEventListener("change", () => {  // whose decisions are others
  location.assign(`/table?${new URLSearchParams({kb: form.elements.kb.value, subjects: byId("subjects").value.slice(0, 5000)})}`);
});
byId("upload").addEventListener("change", ({target}) => {
  const [file] = target.files;
  target.value = "";
  if (file) read(file);
});
for (const name of ["dragover", "drop"]) {
  form.addEventListener(name, event => {
    const [file] = event.dataTransfer.files;
    if (![...event.dataTransfer.types].includes("Files")) return;
    event.preventDefault();
    if (file && name === "drop") read(file);
  });
}
byId("no-file").addEventListener("click", () => {
  byId("file").hidden = true;
  byId("subjects").value = "";
  offer();
  byId("subjects").focus();
});

async function readTable(file, name, sheet = "") {
  const query = new URLSearchParams({name, sheet, kb: form.elements.kb.value});
  return (await posted(`/table/read?${query}`, file, {headers: {"Content-Type": "application/octet-stream"}})).json();
}

async function read(file, sheet = "") {
  progress.className = "";
  byId("file").hidden = true;
  try {
    const {columns, rows, subject, notes, sheets, sheet: own} = await readTable(file, file.name, sheet);
    const lines = [...columns.length > 1 ? [columns] : [], ...rows].map(row => row.map(oneLine).join("\t"));  // names need no header
    byId("subjects").value = lines.join("\n");
    showFile(file.name, [`${number(rows.length)} rows, ${number(columns.length)} columns`, ...notes].join("; "));
    offerSheets(file, sheets, own);
    progress.textContent = "";
    offer(subject);
  } catch (error) {
    progress.className = "warning";
    progress.textContent = `${file.name} cannot be read: ${error.message}`;
  }
}

function offerSheets(file, sheets, own) {
  byId("sheets").hidden = sheets.length < 2;
  byId("of-sheets").replaceChildren(...sheets.map(name => element("option", {value: name, selected: name === own}, name)));
  byId("of-sheets").onchange = ({target}) => read(file, target.value);
}

function showFile(name, facts) {
  byId("sheets").hidden = true;
  byId("file-name").textContent = name;
  byId("file-facts").textContent = facts;
  byId("file").hidden = !name;
}

byId("stop").addEventListener("click", () => stopping?.abort());
offer();
kept.read(location.search).then(again => {  // a page that is loaded again, or an address that was shared
  if (stopping || !byId("result").hidden) return;
  if (again) restore(again.table.choice);
  if (again || !refusal(asked())) fill(again);
});
