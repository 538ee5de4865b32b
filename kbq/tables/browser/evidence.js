"use strict";
// Evidence: the panel on which a value is seen in its sentence, accepted, rejected or corrected; and the keys for it.
// Texts of a corpus only ever become text nodes.

const byId = id => document.getElementById(id);

function element(name, properties, ...children) {
  const {dataset, ...rest} = properties ?? {};
  const made = Object.assign(document.createElement(name), rest);
  Object.assign(made.dataset, dataset);
  made.append(...children);
  return made;
}

const percent = ({probability}) => probability == null ? "" : probability < .005 ? "< 1 %" : probability >= .995 ? "> 99 %"
  : `${Math.round(100 * probability)} %`;

// Where a claim stands, in the words of a person who looks for it there.
function placeOf({page_id, paragraph}) {
  const [, path, sheet] = /^(.+)#page=(\d+)$/.exec(page_id) ?? [], name = (path ?? page_id).split("/").at(-1);
  if (sheet) return `page ${sheet} of ${name}`;
  return /\.[a-z]\w{1,4}$/i.test(name) ? `${name}, paragraph ${paragraph}` : `page ${page_id}, paragraph ${paragraph}`;
}

class Evidence {
  // decisions: `Decisions`; page: gives the address of a value's page, or ""; suggest: promises titles for a beginning;
  // document: gives an element that shows a claim in its document, or null; next: called after a decision.
  constructor(root, {decisions, page, suggest, document: shown = () => null, next}) {
    Object.assign(this, {root, decisions, page, suggest, shown, next, said: element("div")});
    this.clear();
  }

  // cell: {subject, relation, type, many, claims}; claim: that of its claims that is shown.
  show(cell, claim) {
    if (claim !== this.claim) {  // what somebody is typing for the same claim stays
      Object.assign(this, {cell, claim});
      const beside = claim.is_nothing || claim.by_hand ? null : this.shown(claim);
      this.root.replaceChildren(this.said, this.#correction(), ...beside ? [element("h3", {dir: "auto"}, placeOf(claim)), beside] : []);
      this.root.scrollTop = 0;
    }
    this.alternatives = cell.claims[0]?.alternatives ?? [];
    const {decisions} = this, found = [claim, ...this.alternatives].map(({value}) => oneLine(value));
    const others = (decisions.accepted(cell) ?? []).filter(value => !found.includes(value));
    const by = decisions.of(cell).filter(one => one.reviewer)
      .map(one => `${one.decision}ed ${one.value ? `“${one.value}”` : "as empty"}: ${one.reviewer}, ${new Date(one.time).toLocaleString()}`);
    this.said.replaceChildren(
      element("p", {className: "over", dir: "auto"}, `${cell.subject} — ${cell.relation}`),
      element("h2", {dir: "auto"}, claim.value || "Nothing was found"),
      ...others.map(value => element("p", {className: "corrected", dir: "auto"}, "✓ ", value, element("small", {}, " typed"))),
      this.#choices(),
      ...claim.is_nothing ? [] : claim.by_hand ? [element("p", {className: "source"}, "typed by a person")] : this.#sentence(claim),
      ...by.map(text => element("p", {className: "source", dir: "auto"}, text)),
      ...this.alternatives.length ? [element("h3", {}, "Other values that were found"), this.#others()] : [],
    );
  }

  clear() {
    Object.assign(this, {cell: null, claim: null});
    this.root.replaceChildren(element("p", {className: "source"}, "Choose a value to see its evidence."));
  }

  accept() { if (!this.claim.is_nothing) this.#decide(this.claim.value, "accept"); }

  reject() { if (!this.claim.is_nothing) this.#decide(this.claim.value, "reject"); }

  leaveEmpty() { this.#decide("", "accept"); }

  choose(number) {
    if (this.alternatives[number]) this.#decide(this.alternatives[number].value, "accept");
  }

  edit() { this.root.querySelector(".correct input").focus(); }

  #decide(value, decision) {
    this.decisions.decide(this.cell, value, decision);
    this.next();
  }

  #choices() {
    const of = value => this.decisions.on(this.cell, value)?.decision;
    const choice = (name, label, pressed, action) => element("button",
      {type: "button", className: `choice ${name}`, ariaPressed: String(pressed), onclick: action}, label);
    const empty = choice("none", "Leave empty", of("") === "accept", () => this.leaveEmpty());
    return element("p", {className: "do"}, ...this.claim.is_nothing ? [empty] : [
      choice("yes", "✓ Accept", of(this.claim.value) === "accept", () => this.accept()), " ",
      choice("no", "✗ Reject", of(this.claim.value) === "reject" && !this.decisions.accepted(this.cell), () => this.reject()), " ", empty]);
  }

  #sentence(claim) {
    // Places count characters as Python does: a letter outside the basic plane is one, and two in a string of JavaScript.
    const letters = [...claim.sentence], [start, end] = [claim.start - claim.sentence_start, claim.end - claim.sentence_start];
    const title = claim.title || "untitled page", address = this.page(claim), normal = claim.normal;
    const meaning = normal && {page: () => `page ${normal.title} (${normal.page_id})`, date: () => `date ${normal.edtf}`,
      quantity: () => `quantity ${normal.number} ${normal.unit}`.trim()}[normal.type]();
    return [
      element("blockquote", {dir: "auto"}, letters.slice(0, start).join(""),
        element("mark", {}, letters.slice(start, end).join("")), letters.slice(end).join("")),
      element("p", {className: "source"},
        address ? element("a", {href: address, target: address.startsWith("/") ? "" : "_blank", rel: "noopener noreferrer", dir: "auto"}, title) : title,
        " · ", element("abbr", {title: `page ${claim.page_id}, paragraph ${claim.paragraph}, characters ${claim.start}–${claim.end}`},
          placeOf(claim))),
      element("p", {className: "source"}, [percent(claim) || "probability unknown",
        claim.says_the_same > 1 ? `${claim.says_the_same} places say the same` : "",
        this.#verdict(claim), meaning ?? ""].filter(Boolean).join(" · ")),
    ];
  }

  #verdict({accepted, normal}) {
    const whole = {date: "no whole date", quantity: "no whole number"}[this.cell.type];
    return accepted ? "filled by kbq" : whole && !normal ? `left empty: ${whole}` : "below the threshold: a guess";
  }

  #others() {
    return element("ol", {className: "alternatives"}, ...this.alternatives.map(other => {
      const pressed = this.decisions.on(this.cell, other.value)?.decision === "accept";
      return element("li", {},
        element("button", {type: "button", className: "choice yes", ariaPressed: String(pressed), dir: "auto", title: "Accept this value instead",
          onclick: () => this.#decide(other.value, "accept")}, other.value),
        element("small", {dir: "auto"}, ` ${[percent(other), other.title].filter(Boolean).join(" · ")}`),
        ...other.sentence ? [element("small", {className: "said", dir: "auto"}, other.sentence)] : []);
    }));
  }

  // What is typed where a relation wants a day or a number is asked about once, if it has no digit.
  #doubt(text) {
    const kind = {date: "date", quantity: "number"}[this.cell.type];
    return kind && !/\p{N}/u.test(text) ? `“${text}” is no ${kind}. Save again to keep it all the same.` : "";
  }

  #correction() {
    const doubt = element("p", {className: "warning doubtful", role: "alert"});
    let doubted = "";
    const titles = element("datalist", {id: "suggestions"});
    const input = element("input", {type: "text", dir: "auto", autocomplete: "off", maxLength: 4096});
    input.setAttribute("list", "suggestions");
    let asked = "";
    input.addEventListener("input", async () => {
      const prefix = asked = oneLine(input.value);
      const found = prefix ? await this.suggest(prefix).catch(() => []) : [];
      if (prefix === asked) titles.replaceChildren(...found.map(value => element("option", {value})));
    });
    return element("form", {className: "correct", onsubmit: event => {
      event.preventDefault();
      const typed = oneLine(input.value), said = this.#doubt(typed);
      if (!typed) return;
      doubt.textContent = typed === doubted ? "" : said;
      doubted = typed;
      if (doubt.textContent) return;
      input.value = "";
      input.blur();
      this.decisions.correct(this.cell, this.claim.by_hand || this.claim.is_nothing ? "" : this.claim.value, typed);
      this.next();
    }}, element("label", {}, "Correct to ", input), titles, element("button", {}, "Save"), doubt);
  }
}

// The keys; `view` has next(steps), undo(), search(), close(), past(), other() and mark().
function listen(evidence, view) {
  document.addEventListener("keydown", event => {
    const inField = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName) && !/^(checkbox|button)$/.test(event.target.type);
    if (event.ctrlKey || event.metaKey || event.altKey || inField) {
      if (event.key === "Escape") event.target.blur();
      return;
    }
    const one = evidence.claim;
    const action = {
      j: () => view.next(1), k: () => view.next(-1), u: () => view.undo(), "/": view.search, Escape: one && view.close,
      h: view.past, t: view.other, x: one && view.mark, a: one && (() => evidence.accept()), r: one && (() => evidence.reject()), n: one && (() => evidence.leaveEmpty()),
      c: one && (() => { view.next(0); evidence.edit(); }), ...Object.fromEntries([..."123456789"].map(digit =>
        [digit, one && (() => evidence.choose(digit - 1))])),
    }[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  });
}
