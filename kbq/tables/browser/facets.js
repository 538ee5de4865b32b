"use strict";
// Facets: what claims have in common, with how many there are of each, to choose from. Choices of one facet add up; those of several
// narrow each other. A count says what would be seen if that were chosen.

const MOST_OPTIONS = 8;  // of a facet that are seen at first
const STATES = {likely: "Likely", unsure: "Unsure", empty: "Left empty", accept: "Accepted", reject: "Rejected", corrected: "Corrected"};

class Facets {
  #chosen = {};    // of each facet, the keys that were chosen
  #whole = new Set();  // facets with all their options

  // facets: [{name, title, of, label, order}], `of` gives the key of a claim, `label` its words; changed: called after each choice.
  constructor(root, facets, changed) {
    Object.assign(this, {root, facets, changed});
    for (const {name} of facets) this.#chosen[name] = new Set();
    root.addEventListener("click", ({target}) => {
      const {facet, key, whole} = target.closest("button")?.dataset ?? {};
      if (whole) this.#whole.add(whole);
      else if (facet) this.#toggle(facet, key);
      if (whole || facet) this.changed();
    });
  }

  clear() { for (const keys of Object.values(this.#chosen)) keys.clear(); }

  // The claims that were chosen of these; the counts are drawn again.
  chosen(claims) {
    const counts = Object.fromEntries(this.facets.map(({name}) => [name, new Map()])), shown = [];
    for (const claim of claims) {
      const keys = this.facets.map(({of}) => of(claim));
      const failing = this.facets.filter(({name}, place) => this.#chosen[name].size && !this.#chosen[name].has(keys[place]));
      if (!failing.length) shown.push(claim);
      this.facets.forEach(({name}, place) => {
        const isCounted = failing.every(facet => facet.name === name);
        counts[name].set(keys[place], (counts[name].get(keys[place]) ?? 0) + isCounted);
      });
    }
    this.#draw(counts);
    return shown;
  }

  #toggle(facet, key) {
    const keys = this.#chosen[facet];
    if (!keys.delete(key)) keys.add(key);
  }

  #draw(counts) {
    const focused = this.root.contains(document.activeElement) ? {...document.activeElement.dataset} : null;
    this.root.replaceChildren(...this.facets.map(facet => this.#drawn(facet, counts[facet.name])));
    if (!focused) return;
    const again = [...this.root.querySelectorAll("button")]
      .find(({dataset}) => dataset.facet === (focused.facet ?? focused.whole) && (focused.whole || dataset.key === focused.key));
    again?.focus({preventScroll: true});
  }

  #drawn({name, title, label, order}, counts) {
    const chosen = this.#chosen[name], all = new Map(counts);
    for (const key of chosen) if (!all.has(key)) all.set(key, 0);
    const sorted = order ? order.filter(key => all.has(key)) : [...all.keys()].sort((a, b) => all.get(b) - all.get(a) || collator.compare(a, b));
    const isWhole = this.#whole.has(name) || sorted.length <= MOST_OPTIONS + 1;
    const seen = isWhole ? sorted : sorted.filter((key, place) => place < MOST_OPTIONS || chosen.has(key));
    const heading = element("h2", {id: `facet-${name}`}, title);
    const group = element("div", {className: "facet"}, heading, ...seen.map(key => element("button",
      {type: "button", ariaPressed: String(chosen.has(key)), dataset: {facet: name, key}},
      element("span", {className: name === "state" ? `swatch ${key}` : "words", dir: "auto"}, label(key)),
      element("span", {className: "count"}, number(all.get(key))))));
    if (!isWhole) group.append(element("button", {type: "button", className: "whole", dataset: {whole: name}}, `${number(sorted.length - seen.length)} more`));
    group.setAttribute("role", "group");
    group.setAttribute("aria-labelledby", heading.id);
    return group;
  }
}
