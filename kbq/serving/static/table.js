"use strict";
// Fills the table cell by cell, shows the evidence of a cell, keeps what a person decides, and makes files of it.
// Texts of the knowledge base only ever become text nodes.

const byId = id => document.getElementById(id);
const form = byId("fill"), results = byId("results"), cells = byId("cells"), panel = byId("evidence"), progress = byId("progress");
let found = new Map(), table = null, stopping = null, chosen = null;
const key = (subject, relation) => JSON.stringify([subject, relation]);
const percent = ({probability}) => probability == null ? "" : probability < .005 ? "< 1 %" : probability >= .995 ? "> 99 %"
  : `${Math.round(100 * probability)} %`;

function element(name, properties, ...children) {
  const {dataset, ...rest} = properties ?? {};
  const made = Object.assign(document.createElement(name), rest);
  Object.assign(made.dataset, dataset);
  made.append(...children);
  return made;
}

function address(claim) {
  const place = new URLSearchParams({
    kb: table.kb, paragraph: claim.paragraph, start: claim.start, end: claim.end});
  return `/page/${encodeURIComponent(claim.page_id)}?${place}#here`;
}

// What is asked for

function asked() {
  const lines = (text, separator) => [...new Set(text.split(separator).map(part => part.trim()).filter(Boolean))];
  const data = new FormData(form);
  return {
    kb: data.get("kb"),
    subjects: lines(data.get("subjects"), "\n"),
    relations: [...new Set([...data.getAll("relation"), ...lines(data.get("others"), ",")])],
  };
}

async function fill() {
  table = asked();
  if (!table.subjects.length || !table.relations.length) {
    progress.textContent = "Write subjects, one a line, and choose relations.";
    return;
  }
  const shared = new URLSearchParams([["subjects", table.subjects.join("\n")], ...table.relations.map(name => ["relation", name]),
    ["kb", table.kb]]);
  history.replaceState(null, "", `/table?${shared}`);
  byId("json").href = `/table.json?${shared}`;
  found = new Map();
  close();
  skeleton();
  stopping?.abort();
  const own = stopping = new AbortController();
  byId("stop").hidden = false;
  try {
    await receive(own.signal);
  } catch (error) {
    if (stopping !== own) return;
    progress.textContent = error.name === "AbortError" ? `Stopped after ${found.size} cells.` : `It did not work: ${error.message}`;
  } finally {
    if (stopping === own) byId("stop").hidden = true;
  }
  byId("downloads").hidden = !found.size;
  for (const cell of cells.querySelectorAll(".waiting")) cell.replaceWith(element("span", {className: "cell nothing"}, "–"));
}

async function receive(signal) {
  const answer = await fetch("/v1/fill", {
    method: "POST", signal, headers: {"Content-Type": "application/json"}, body: JSON.stringify(table)});
  if (!answer.ok) throw new Error((await answer.json()).detail);
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  const most = table.subjects.length * table.relations.length;
  let left = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const lines = (left + value).split("\n");
    left = lines.pop();
    for (const line of lines.map(JSON.parse)) {
      if (line.problem) throw new Error(line.problem.detail);
      if (line.counts) tell(line.counts);
      else {
        found.set(key(line.subject, line.relation), {...line, decision: ""});
        show(line.subject, line.relation);
        progress.textContent = `${found.size} of ${most} cells`;
      }
    }
  }
}

function tell({cells, filled, unasked}) {
  progress.textContent = `${filled} of ${cells} cells filled.` + (unasked.length ? ` Not asked: ${unasked.join("; ")}` : "");
}

// The table

function skeleton() {
  const head = element("tr", {}, ...["subject", ...table.relations].map(name => element("th", {scope: "col", dir: "auto"}, name)));
  const rows = table.subjects.map(subject => element("tr", {}, element("th", {scope: "row", dir: "auto"}, subject),
    ...table.relations.map(relation => element("td", {dataset: {key: key(subject, relation)}}, element("span", {className: "cell waiting"})))));
  cells.replaceChildren(element("thead", {}, head), element("tbody", {}, ...rows));
  results.hidden = false;
  progress.scrollIntoView({block: "nearest"});
}

function show(subject, relation) {
  const {claims, decision} = found.get(key(subject, relation));
  const place = [...cells.querySelectorAll("td")].find(cell => cell.dataset.key === key(subject, relation));
  if (!claims.length) {
    place.replaceChildren(element("span", {className: "cell nothing"}, "–"));
    return;
  }
  place.replaceChildren(...claims.map(claim => {
    const level = claim.probability == null ? "unknown" : claim.probability >= .75 ? "sure" : claim.probability >= .5 ? "likely" : "unlikely";
    const kind = decision ? `${decision}ed` : claim.accepted ? "" : "guess";
    const said = decision ? `, ${decision}ed` : claim.accepted ? "" : ", a guess";
    return element("a", {className: `cell ${level} ${kind}`, href: address(claim), dir: "auto", ariaLabel: `${claim.value}, ${percent(claim)}${said}`},
      claim.value, " ", element("small", {}, percent(claim)));
  }));
}

// The evidence of a cell

function open(cell) {
  const place = cell.closest("td"), line = found.get(place.dataset.key), claim = line.claims[[...place.children].indexOf(cell)];
  chosen = {line, place, number: [...place.children].indexOf(cell)};
  const [before, after] = [claim.sentence.slice(0, offset(claim, claim.start)), claim.sentence.slice(offset(claim, claim.end))];
  const choice = (decision, text) => element("button", {type: "button", ariaPressed: String(line.decision === decision), onclick: () => decide(decision)}, text);
  panel.replaceChildren(
    element("button", {className: "close", type: "button", ariaLabel: "Close", onclick: close}, "×"),
    element("p", {className: "over", dir: "auto"}, `${line.subject} — ${line.relation}`),
    element("h2", {dir: "auto"}, claim.value),
    element("p", {className: "source"}, [percent(claim), claim.says_the_same > 1 ? `${claim.says_the_same} places say the same` : "",
      claim.accepted ? "" : "not likely enough to fill the cell"].filter(Boolean).join(" · ")),
    element("blockquote", {dir: "auto"}, before, element("mark", {}, claim.value), after),
    element("p", {className: "source"}, element("a", {href: address(claim), dir: "auto"}, claim.title || "untitled page"),
      element("span", {}, `paragraph ${claim.paragraph}`)),
    element("p", {className: "do"}, choice("accept", "Accept"), choice("reject", "Reject")),
  );
  if (claim.alternatives?.length) {
    panel.append(element("h3", {}, "Also found"), element("ol", {}, ...claim.alternatives.map(other =>
      element("li", {dir: "auto"}, `${other.value} `, element("small", {}, `${percent(other)} · ${other.title}`)))));
  }
  panel.hidden = false;
  mark();
  panel.focus({preventScroll: true});
  place.scrollIntoView({block: "nearest", inline: "nearest"});
}

// Places count characters as Python does: a letter outside the basic plane is one, and two in a string of JavaScript.
const offset = (claim, place) => [...claim.sentence].slice(0, place - claim.sentence_start).join("").length;

function mark() {
  for (const cell of cells.querySelectorAll(".chosen")) cell.classList.remove("chosen");
  if (chosen) chosen.place.children[chosen.number]?.classList.add("chosen");
}

function close() {
  panel.hidden = true;
  const last = chosen;
  chosen = null;
  mark();
  if (last?.place.isConnected) last.place.children[last.number]?.focus();
}

function decide(decision) {
  const {line, place, number} = chosen;
  line.decision = line.decision === decision ? "" : decision;
  show(line.subject, line.relation);
  open(place.children[number]);
}

// Files

const filling = line => line.claims.map((claim, number) => ({claim, triple: line.triples[number]}))
  .filter(({claim}) => line.decision === "accept" || (claim.accepted && line.decision !== "reject"));
// Whatever a cell comes from, a link that was shared included: no spreadsheet computes it. As kbq/filling/tables.py does.
const guarded = text => /^(\s*[=+\-@＝＋－＠]|[\t\r\n])/.test(text) && !/^ *[+-]?\d[\d.,\s]*%?$/.test(text) ? `'${text}` : text;
const quoted = text => (text = guarded(text), /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
const lines = () => [...found.values()];
const formats = {
  csv: () => [["subject", ...table.relations].map(quoted), ...table.subjects.map(subject => [quoted(subject), ...table.relations.map(relation => {
    const line = found.get(key(subject, relation));
    return quoted(line ? filling(line).map(({claim}) => claim.value).join("|") : "");
  })])].map(row => row.join(",")),
  jsonl: () => lines().flatMap(line => line.claims.map(claim => JSON.stringify(line.decision ? {...claim, decision: line.decision} : claim))),
  nt: () => [...new Set(lines().flatMap(line => filling(line).map(({triple}) => triple)))],
};

function download(format) {
  const text = formats[format]().map(line => `${line}\n`).join("");
  const link = element("a", {href: URL.createObjectURL(new Blob([text], {type: "text/plain;charset=utf-8"})), download: `table.${format}`});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

form.addEventListener("submit", event => {
  event.preventDefault();
  fill();
});
byId("stop").addEventListener("click", () => stopping?.abort());
cells.addEventListener("click", event => {
  const cell = event.target.closest("a.cell");
  if (!cell || !cell.closest("td").dataset.key || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  open(cell);
});
byId("downloads").addEventListener("click", event => event.target.dataset.format && download(event.target.dataset.format));
document.addEventListener("keydown", event => {
  if (panel.hidden || event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName)) return;
  const action = {Escape: close, a: () => decide("accept"), r: () => decide("reject")}[event.key];
  if (action) {
    event.preventDefault();
    action();
  }
});
if (results.hidden && asked().subjects.length && asked().relations.length) fill();  // an address that was shared
