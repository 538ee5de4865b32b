"use strict";
// Wikidata: the values that stand in the table become a file of QuickStatements, which the service writes as `kbq export` does.
// Names need Q-numbers, from a table of names; those that lack one come as such a table, to be filled in.

const ASKED = 200;  // values in a request
const FACTS = ["probability", "page_id", "title", "paragraph", "start", "end", "sentence", "sentence_start"];
const OF_CLAIMS = [...FACTS, "normal", "says_the_same", "metadata"];
const several = (count, thing) => `${number(count)} ${thing}${count === 1 ? "" : "s"}`;
let ids = {};

// A claim as the service gave it; an alternative has the facts of its own place.
function claimOf({value, cell: {subject, relation, claims}, claim}) {
  const names = claims.includes(claim) ? OF_CLAIMS : FACTS;
  const known = Object.fromEntries(names.filter(name => claim[name] !== undefined).map(name => [name, claim[name]]));
  return {subject, relation, value: claim.value ?? value, accepted: true, ...known};
}

function standingValue(one) {
  const {subject, relation} = one.cell, asked = table.relations[table.plain.indexOf(relation)];
  return one.claim && !one.claim.by_hand ? {relation: asked, claim: claimOf(one)}
    : {relation: asked, typed: {subject, relation: asked, value: one.value}};
}

async function exported(to) {
  const values = review.standing.map(standingValue), found = {lines: [], left_out: [], lacking: {}};
  for (let first = 0; first < values.length; first += ASKED) {
    const asked = {kb: table.kb, to, values: values.slice(first, first + ASKED), ids};
    const part = await (await posted("/table/export", JSON.stringify(asked))).json();
    found.lines.push(...part.lines);
    found.left_out.push(...part.left_out);
    for (const [name, count] of Object.entries(part.lacking)) found.lacking[name] = (found.lacking[name] ?? 0) + count;
  }
  return {...found, lines: [...new Set(found.lines)]};
}

byId("quickstatements").addEventListener("click", async () => {
  const said = byId("wikidata-said"), todo = byId("ids-todo");
  todo.hidden = true;
  try {
    const {lines, left_out, lacking} = await exported("quickstatements"), names = Object.entries(lacking).sort((a, b) => b[1] - a[1]);
    const reasons = [...new Set(left_out.map(({reason}) => reason))].slice(0, 3).join("; ");
    const left = left_out.length ? ` ${several(left_out.length, "value")} cannot be one: ${reasons}.` : "";
    const without = names.length ? ` ${several(names.length, "name")} without a Q-number.` : "";
    said.textContent = `${several(lines.length, "command")}.${left}${without}`;
    if (lines.length) save("facts.qs", textOf(lines));
    todo.hidden = !names.length;
    todo.onclick = () => save("ids-todo.tsv", textOf(["name\tid\tclaims", ...names.map(([name, count]) => `${guarded(name)}\t\t${count}`)]));
  } catch (error) {
    said.textContent = `It did not work: ${error.message}`;
  }
});

// Which names have which Q-numbers is read as `kbq export --ids` reads it.
byId("ids").addEventListener("change", async ({target}) => {
  const [file] = target.files, said = byId("wikidata-said");
  target.value = "";
  if (!file) return;
  try {
    ids = (await (await posted(`/table/ids?${new URLSearchParams({name: file.name})}`, file,
      {headers: {"Content-Type": "application/octet-stream"}})).json()).ids;
    const names = Object.keys(ids).filter(name => !name.startsWith("\0"));  // others are forms of these, for comparing
    said.textContent = `${several(names.length, "name")} with Q-numbers, from ${file.name}.`;
  } catch (error) {
    said.textContent = `${file.name} cannot be read: ${error.message}`;
  }
});
