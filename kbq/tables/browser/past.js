"use strict";
// Past: what was decided, by whom and when, the last first; each of it can be taken back.

const MOST_PAST = 200;

class Past {
  // decisions: `Decisions`; choose: called with {subject, relation} and a value; takeBack: called with a decision.
  constructor(root, {decisions, choose, takeBack}) {
    Object.assign(this, {root, decisions, choose, takeBack});
  }

  draw() {
    if (this.root.hidden) return;
    const records = this.decisions.past(), shown = records.slice(0, MOST_PAST);
    const words = {accept: "accepted", reject: "rejected", undo: "took back"};
    this.root.replaceChildren(
      records.length ? element("ol", {className: "past"}, ...shown.map(record => element("li", {className: record.decision},
        element("button", {type: "button", className: "to", dir: "auto", onclick: () => this.choose(record)},
          `${record.subject} — ${record.relation}`),
        element("span", {className: "what", dir: "auto"}, record.value || record.decision !== "accept"
          ? `${words[record.decision]} ${record.value ? `“${record.value}”` : "that it is empty"}` : "left empty"),
        element("small", {dir: "auto"}, [record.reviewer || "without a name", moment(record.time)].filter(Boolean).join(" · ")),
        ...record.decision === "undo" ? [] : [element("button", {type: "button", className: "back", onclick: () => this.takeBack(record)}, "Take back")],
      ))) : element("p", {className: "source"}, "Nothing was decided yet."),
      ...records.length > shown.length ? [element("p", {className: "source"}, `${number(records.length - shown.length)} earlier ones are in the file of decisions.`)] : [],
    );
  }
}

function moment(time) {
  const date = new Date(time);
  return Number.isNaN(date.valueOf()) ? "" : date.toLocaleString(undefined, {dateStyle: "medium", timeStyle: "short"});
}
