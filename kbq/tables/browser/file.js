"use strict";
// File: the claims in a file become cells to review; decisions on them are kept in this browser, and downloaded.

const {claims, views, source, relations} = JSON.parse(byId("data").textContent);
let titles = null;  // in order, as soon as somebody types a value
const review = new Review({
  keep: `kbq review of ${source.knowledge_base}`,
  page: ({metadata}) => /^https?:\/\//i.test(metadata?.url) ? metadata.url : "",
  typed: async values => values.map(known),
  suggest: async prefix => (titles ??= allTitles()).filter(title => title.toLowerCase().startsWith(prefix.toLowerCase())).slice(0, 8),
});
const cells = new Map();

function allTitles() {
  const texts = claims.flatMap(claim => [claim.title, claim.value, ...claim.alternatives?.map(({value}) => value) ?? []]);
  return [...new Set(texts)].filter(Boolean).sort(collator.compare);
}

// The fact of a typed text, day or number; anything else may be a page of the knowledge base, which is not here.
function known({value, cell}) {
  const [begins] = /^\S+ \S+ /.exec(cell.views[0]?.[0]?.fact ?? "") ?? [], type = relations[cell.relation]?.type;
  const isDay = type === "date" && /^(1[6-9]|2\d)\d\d-\d\d-\d\d$/.test(value) && new Date(value).getUTCDate() === Number(value.slice(-2));
  const isNumber = type === "quantity" && /^-?[1-9]\d*$/.test(value);
  if (!begins || !(type === "text" || isDay || isNumber)) return {};
  const datatype = type === "text" ? "" : `^^<http://www.w3.org/2001/XMLSchema#${isDay ? "date" : "decimal"}>`;
  return {fact: `${begins}"${value.replace(/["\\]/g, "\\$&")}"${datatype} .`};
}

claims.forEach((claim, place) => {
  const {subject, relation} = claim, key = Decisions.key(subject, relation);
  if (!cells.has(key)) cells.set(key, {subject, relation, type: relations[relation]?.type, many: relations[relation]?.values === "many", claims: [], views: []});
  cells.get(key).claims.push(claim);
  cells.get(key).views.push(views[place]);
});
review.add([...cells.values()]);
byId("counts").textContent = `${number(claims.length)} claims about ${number(new Set(claims.map(({subject}) => subject)).size)} subjects`;
byId("source").textContent = `kbq ${source.kbq_version}, ${source.time}, knowledge base ${source.knowledge_base}, `
  + `model ${source.model}: ${source.command}`;
