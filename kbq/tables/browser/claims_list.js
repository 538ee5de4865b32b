"use strict";
// Claims list: claims as rows, each with what is decided on it, its probability and its page.

class ClaimsList {
  #claims = [];
  #first = 0;

  // decide: called with a claim and a decision; choose: called with a claim, where somebody asks for its evidence; insteadOf: gives what
  // stands in the place of a claim, or null.
  constructor(root, {decide, choose, insteadOf}) {
    Object.assign(this, {root, decide, choose, insteadOf, body: root.tBodies[0]});
  }

  // The claims from `first` to `last` of those that are shown.
  draw({claims, isAny}, first, last) {
    this.#claims = claims;
    this.#first = first;
    this.body.replaceChildren(...claims.slice(first, last).map((_, row) => this.#drawn(first + row)));
    const empty = isAny ? "No claims match the filters." : "There are no claims.";
    if (!claims.length) this.body.append(element("tr", {}, element("td", {colSpan: 6, className: "empty"}, empty)));
  }

  redraw(isTouched) {
    for (const row of this.body.querySelectorAll("[data-place]")) {
      const place = Number(row.dataset.place);
      if (isTouched(this.#claims[place].cell)) row.replaceWith(this.#drawn(place));
    }
  }

  // Mark a claim as the one that keys act on, and return its button.
  mark(claim) {
    const last = this.body.querySelector(".chosen"), row = this.#rowOf(this.#claims.indexOf(claim));
    last?.classList.remove("chosen");
    last?.removeAttribute("aria-current");
    row?.classList.add("chosen");
    row?.setAttribute("aria-current", "true");
    return row?.querySelector(".value button");
  }

  #rowOf(place) { return this.body.querySelector(`tr[data-place="${place}"]`); }

  #drawn(place) {
    const claim = this.#claims[place], {state} = claim, instead = state === "corrected" ? this.insteadOf(claim) : null;
    const choice = (decision, look, sign, label) => element("button", {type: "button", className: `choice ${look}`,
      ariaLabel: `${label} ${claim.value}`, ariaPressed: String(state === decision), dataset: {choice: decision}, disabled: claim.is_nothing ?? false,
      onclick: () => this.decide(claim, decision)}, sign);
    const isStruck = instead !== null || state === "reject", level = levelOf(claim.probability);
    const choose = ({target}) => target.closest("button") || this.choose(claim);
    return element("tr", {className: claim.accepted ? "" : "left-empty", dataset: {place}, onclick: choose},
      element("td", {className: "decision"}, choice("accept", "yes", "✓", "Accept"), " ", choice("reject", "no", "✗", "Reject")),
      element("td", {dir: "auto", className: "subject"}, claim.subject, element("small", {className: "narrow"}, claim.relation)),
      element("td", {dir: "auto", className: "relation"}, claim.relation),
      element("td", {className: "value"},
        element("button", {type: "button", title: "Show the evidence", dir: "auto", className: isStruck && !claim.is_nothing ? "struck" : "",
          onclick: () => this.choose(claim)}, claim.value || "nothing found"),
        ...instead === null ? [] : [" ", element("span", {className: "instead", dir: "auto"}, instead || "left empty")]),
      element("td", {className: "probability"}, element("span", {className: `level ${claim.accepted ? level : "unlikely"}`},
        claim.is_nothing ? "–" : percent(claim) || "unknown")),
      element("td", {dir: "auto", className: "page"}, claim.title));
  }
}
