"use strict";
// The list of all claims, filtered, sorted, a hundred at a time; what is decided on them is downloaded as decisions.jsonl.

const ROWS = 100;
const {claims, source, relations} = JSON.parse(byId("data").textContent);
const collator = new Intl.Collator(undefined, {numeric: true});
const texts = claims.map(claim => `${claim.subject}\n${claim.value}\n${claim.title}`.toLowerCase());
const number = count => count.toLocaleString("en");
const cells = new Map();  // by subject and relation
for (const claim of claims) {
  const key = Decisions.key(claim.subject, claim.relation);
  if (!cells.has(key)) cells.set(key, {...claim, many: relations[claim.relation]?.values === "many", claims: []});
  claim.cell = cells.get(key);
  claim.cell.claims.push(claim);
}
let shown = [];     // places in `claims`, filtered and sorted
let chosen = 0;     // place in `shown`
let first = -1;     // place in `shown` of the first row that is drawn
let sorted = {by: "", descending: false};

const decisions = new Decisions({keep: `kbq review of ${source.knowledge_base}`, changed: touched => { tell(touched); redraw(touched); }});
const evidence = new Evidence(byId("evidence"), {
  decisions,
  page: ({metadata}) => /^https?:\/\//i.test(metadata?.url) ? metadata.url : "",
  suggest: async prefix => titles.filter(title => title.toLowerCase().startsWith(prefix.toLowerCase())).slice(0, 8),
  next: () => choose(chosen + 1, true),
});
const titles = [...new Set(claims.flatMap(claim => [claim.title, claim.value, ...claim.alternatives?.map(({value}) => value) ?? []]))]
  .filter(Boolean).sort(collator.compare);

// What was decided on a claim: "accept", "reject", "corrected" (another value stands in its cell), or "".
function stateOf(claim) {
  const own = decisions.on(claim.cell, claim.value)?.decision;
  if (own) return own;
  return decisions.accepted(claim.cell) && (!claim.cell.many || !decisions.accepted(claim.cell).length) ? "corrected" : "";
}

const counts = {accept: 0, reject: 0, corrected: 0, "": 0};

function tell(touched) {
  for (const claim of [...touched].flatMap(key => cells.get(key)?.claims ?? [])) {
    if ("state" in claim) counts[claim.state]--;
    counts[claim.state = stateOf(claim)]++;
  }
  const done = claims.length - counts[""];
  byId("progress").max = claims.length || 1;
  byId("progress").value = done;
  byId("done").className = decisions.warning ? "warning" : "";
  byId("done").textContent = decisions.warning || `${number(done)} reviewed: ${number(counts.accept)} accepted, `
    + `${number(counts.reject)} rejected${counts.corrected ? `, ${number(counts.corrected)} corrected` : ""}`;
  byId("download").disabled = !done;
}

const placed = ["page_id", "paragraph", "start", "end"];

function place({subject, relation, value}) {
  const cell = cells.get(Decisions.key(subject, relation));
  const found = [...cell?.claims ?? [], ...cell?.claims[0]?.alternatives ?? []].find(one => oneLine(one.value) === value);
  return found && !found.by_hand ? Object.fromEntries(placed.map(name => [name, found[name]])) : {};
}

// The list

function filter() {
  const words = byId("search").value.toLowerCase().trim(), relation = byId("relation").value;
  const state = byId("state").value, from = byId("from").valueAsNumber, to = byId("to").valueAsNumber;
  const fits = {"": () => true, open: claim => !claim.state, filled: claim => claim.accepted, empty: claim => !claim.accepted}[state]
    ?? (claim => claim.state === state);
  shown = [...claims.keys()].filter(place => {
    const claim = claims[place];
    return texts[place].includes(words) && (!relation || claim.relation === relation)
      && (isNaN(from) || (claim.probability ?? -1) >= from) && (isNaN(to) || (claim.probability ?? 2) <= to) && fits(claim);
  });
  const {by, descending} = sorted, sign = descending ? -1 : 1;
  if (by === "probability") {
    shown.sort((a, b) => sign * ((claims[a][by] ?? -1) - (claims[b][by] ?? -1)));
  } else if (by) {
    shown.sort((a, b) => sign * collator.compare(claims[a][by], claims[b][by]));
  }
  byId("accept-all").textContent = `Accept all ${number(shown.length)} in view`;
  byId("accept-all").disabled = !shown.length;
  first = -1;
  choose(0);
}

function draw() {
  byId("rows").replaceChildren(...shown.slice(first, first + ROWS).map((_, row) => drawn(first + row)));
  if (!shown.length) byId("rows").append(element("tr", {}, element("td", {colSpan: 6, className: "empty"}, "No claim is like this.")));
  byId("place").textContent = shown.length
    ? `${number(first + 1)}–${number(Math.min(first + ROWS, shown.length))} of ${number(shown.length)}` : "none";
  byId("before").disabled = first === 0;
  byId("after").disabled = first + ROWS >= shown.length;
}

function drawn(place) {
  const claim = claims[shown[place]], bar = element("i"), {state} = claim;
  bar.style.width = `${100 * (claim.probability ?? 0)}%`;
  const instead = state === "corrected" ? decisions.accepted(claim.cell).join(" | ") || "(empty)" : "";
  const choice = (decision, look, sign, label) => element("button", {type: "button", className: `choice ${look}`, ariaLabel: label,
    ariaPressed: String(state === decision), dataset: {choice: decision},
    onclick: () => { choose(place); decisions.decide(claim.cell, claim.value, decision); }}, sign);
  return element("tr", {className: claim.accepted ? "" : "left-empty", dataset: {place}},
    element("td", {}, choice("accept", "yes", "✓", "Accept"), " ", choice("reject", "no", "✗", "Reject")),
    element("td", {dir: "auto"}, claim.subject),
    element("td", {dir: "auto", className: "relation"}, claim.relation),
    element("td", {className: "value"}, element("button", {type: "button", title: "Show the evidence", dir: "auto",
      className: instead || state === "reject" ? "struck" : "", onclick: () => choose(place)}, claim.value),
      ...instead ? [" ", element("span", {className: "instead", dir: "auto"}, instead)] : []),
    element("td", {className: "probability"}, percent(claim) || "unknown", element("span", {className: "bar"}, bar)),
    element("td", {dir: "auto", className: "page"}, claim.title));
}

const rowOf = place => byId("rows").querySelector(`tr[data-place="${place}"]`);

function redraw(touched) {  // the rows of these cells and the evidence, as something was decided
  const inTable = byId("rows").contains(document.activeElement), at = document.activeElement?.dataset?.choice;
  for (const row of byId("rows").querySelectorAll("[data-place]")) {
    const place = Number(row.dataset.place), {subject, relation} = claims[shown[place]];
    if (touched.has(Decisions.key(subject, relation))) row.replaceWith(drawn(place));
  }
  choose(chosen);
  if (inTable) rowOf(chosen)?.querySelector(at ? `[data-choice=${at}]` : ".value button")?.focus({preventScroll: true});
}

function choose(place, focused = false) {
  chosen = Math.max(0, Math.min(place, shown.length - 1));
  const begin = Math.floor(chosen / ROWS) * ROWS;
  if (begin !== first) {
    first = begin;
    draw();
  }
  byId("rows").querySelector(".chosen")?.classList.remove("chosen");
  byId("rows").querySelector("[aria-current]")?.removeAttribute("aria-current");
  const row = rowOf(chosen), claim = claims[shown[chosen]];
  row?.classList.add("chosen");
  row?.setAttribute("aria-current", "true");
  if (claim) evidence.show(claim.cell, claim);
  else evidence.root.replaceChildren(element("p", {className: "quiet"}, "Choose a value to see its evidence."));
  if (!row || !focused) return;
  row.querySelector(".value button").focus({preventScroll: true});
  row.scrollIntoView({block: "nearest"});
}

function undo() {
  const cell = decisions.undo();
  if (!cell) return;
  const at = shown.findIndex(place => claims[place].subject === cell.subject && claims[place].relation === cell.relation);
  if (at >= 0) choose(at, true);
}

function turn(pages) {
  choose(first + pages * ROWS);
  document.querySelector("table").scrollIntoView();
}

function sort(by) {
  sorted = {by, descending: sorted.by === by ? !sorted.descending : by === "probability"};
  for (const header of document.querySelectorAll("thead th")) {
    if (header.firstElementChild?.dataset.sort === by) header.setAttribute("aria-sort", sorted.descending ? "descending" : "ascending");
    else header.removeAttribute("aria-sort");
  }
  filter();
}

listen(evidence, {next: steps => choose(chosen + steps, true), undo, search: () => byId("search").focus()});
for (const id of ["search", "relation", "state", "from", "to"]) byId(id).addEventListener("input", filter);
for (const header of document.querySelectorAll("[data-sort]")) header.addEventListener("click", () => sort(header.dataset.sort));
byId("before").addEventListener("click", () => turn(-1));
byId("after").addEventListener("click", () => turn(1));
byId("all").addEventListener("click", () => { byId("filters").reset(); filter(); });
byId("accept-all").addEventListener("click", () => decisions.acceptAll(
  shown.map(place => claims[place]).filter(claim => !claim.state).map(claim => ({...claim.cell, value: claim.value}))));
byId("undo").addEventListener("click", undo);
byId("filters").addEventListener("submit", event => event.preventDefault());
byId("download").addEventListener("click", () => save("decisions.jsonl", decisions.lines(place)));
byId("reviewer").value = decisions.reviewer;
byId("reviewer").addEventListener("input", () => decisions.named(byId("reviewer").value));

byId("counts").textContent = `${number(claims.length)} claims about ${number(new Set(claims.map(({subject}) => subject)).size)} subjects`;
byId("source").textContent = `kbq ${source.kbq_version}, ${source.time}, knowledge base ${source.knowledge_base}, `
  + `model ${source.model}: ${source.command}`;
for (const relation of [...new Set(claims.map(claim => claim.relation))].sort(collator.compare)) {
  byId("relation").append(element("option", {value: relation}, relation));
}
tell(cells.keys());
filter();
