"use strict";
// Table view: the rows and columns of a table as they were given, with the cells that kbq fills coloured by probability.

class TableView {
  #given = {columns: [], rows: [], subject: 0};
  #filled = [];  // places of columns with cells
  #order = "";   // what the header shows

  // cellAt: gives the cell at a row and a column, if any; standing: gives its values; choose: called with a claim and the row it was
  // chosen in; isSelected, select: of rows; sort: called with the place of a column.
  constructor(root, {cellAt, standing, choose, isSelected, select, sort}) {
    Object.assign(this, {root, cellAt, standing, choose, isSelected, select, sort, head: root.tHead, body: root.tBodies[0]});
    root.addEventListener("keydown", event => this.#walk(event));
  }

  // given: {columns, rows, subject}; rows: places of those that are shown; matching: claims that fit the filters, or null for all.
  draw({given, rows, matching, sorted, isAny}, first, last) {
    Object.assign(this, {matching});
    this.#given = given;
    this.#drawHead(sorted, rows);
    this.body.replaceChildren(...rows.slice(first, last).map(row => this.#drawn(row)));
    const empty = isAny ? "No rows match the filters." : "There are no cells.";
    if (!rows.length) this.body.append(element("tr", {}, element("td", {colSpan: given.columns.length + 1, className: "empty"}, empty)));
  }

  redraw(isTouched) {
    for (const line of this.body.querySelectorAll("[data-row]")) {
      const row = Number(line.dataset.row);
      if (this.#given.columns.some((_, column) => this.#isTouched(row, column, isTouched))) line.replaceWith(this.#drawn(row));
    }
  }

  // Mark the cell of a claim as the one that keys act on, in this row if it is there, and return its button.
  mark(claim, row) {
    for (const last of this.body.querySelectorAll(".chosen")) last.classList.remove("chosen");
    this.body.querySelector("[aria-current]")?.removeAttribute("aria-current");
    const line = claim && this.body.querySelector(`tr[data-row="${row}"]`);
    line?.classList.add("chosen");
    const button = [...line?.querySelectorAll(".cell") ?? []].find(one => one.cell === claim.cell);
    button?.classList.add("chosen");
    button?.setAttribute("aria-current", "true");
    for (const one of this.body.querySelectorAll(".cell")) one.tabIndex = one === button ? 0 : -1;
    if (!button) this.body.querySelector(".cell")?.setAttribute("tabindex", "0");
    return button;
  }

  #isTouched(row, column, isTouched) {
    const cell = this.cellAt(row, column);
    return cell && isTouched(cell);
  }

  #drawHead(sorted, rows) {
    const {columns, subject} = this.#given, isAll = rows.length > 0 && rows.every(row => this.isSelected(row));
    const order = JSON.stringify([columns, subject, sorted, isAll]);
    if (order === this.#order) return;
    this.#order = order;
    const all = element("input", {type: "checkbox", ariaLabel: "Select all rows that are shown", checked: isAll,
      onchange: ({target}) => this.select(null, target.checked)});
    this.head.replaceChildren(element("tr", {}, element("td", {className: "select"}, all), ...columns.map((name, column) => {
      const header = element("th", {scope: "col", className: column === subject ? "subject" : ""},
        element("button", {type: "button", title: `Sort by ${name}`, dir: "auto", onclick: () => this.sort(column)}, name));
      if (sorted.by === column) header.ariaSort = sorted.descending ? "descending" : "ascending";
      return header;
    })));
  }

  #drawn(row) {
    const {columns, rows, subject} = this.#given, name = rows[row][subject];
    const box = element("input", {type: "checkbox", ariaLabel: `Select ${name}`, checked: this.isSelected(row),
      onchange: ({target}) => this.select(row, target.checked)});
    return element("tr", {dataset: {row}, className: this.isSelected(row) ? "selected" : ""}, element("td", {className: "select"}, box),
      ...columns.map((_, column) => {
        const text = rows[row][column] ?? "";
        if (column === subject) return element("th", {scope: "row", className: "subject", dir: "auto", title: text}, text);
        const cell = this.cellAt(row, column);
        return cell ? element("td", {className: "filled"}, this.#button(cell, row)) : element("td", {dir: "auto", title: text}, text);
      }));
  }

  #button(cell, row) {
    const claim = cell.listed[0], values = this.standing(cell).map(({value}) => value).join(" | ");
    const state = cell.listed.find(({state}) => state)?.state ?? "", isRejected = !values && state === "reject";
    const text = values || (state && !isRejected ? "left empty" : claim.value), isGuess = !values && !state;
    const look = state ? (values ? "decided" : isRejected ? "rejected" : "emptied") : values ? levelOf(claim.probability) : "open";
    const chance = state || claim.is_nothing ? "" : percent(claim), sign = {decided: "✓", rejected: "✗", emptied: "∅"}[look];
    const isFaded = this.matching && !cell.listed.some(one => this.matching.has(one));
    const unseen = said => element("span", {className: "unseen"}, said);
    const button = element("button", {type: "button", className: `cell ${look}${isFaded ? " faded" : ""}`, cell, row, title: text,
      onclick: () => this.choose(cell.listed.find(one => this.matching?.has(one)) ?? claim, row)},
      unseen(`${cell.relation}, ${isGuess ? `left empty${text && ", guess "}` : ""}`), element("span", {className: "text", dir: "auto"}, text),
      ...chance ? [unseen(", "), element("span", {className: "chance"}, chance)] : [], ...state ? [unseen(`, ${STATES[state].toLowerCase()}`)] : [],
      ...sign ? [element("span", {className: "sign", ariaHidden: "true"}, sign)] : []);
    if (claim.probability != null) button.style.setProperty("--p", claim.probability);  // by the object model: the page's policy allows it
    return button;
  }

  // The arrows walk from cell to cell.
  #walk(event) {
    const step = {ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0]}[event.key];
    const at = event.target.closest(".cell");
    if (!step || !at || event.ctrlKey || event.metaKey || event.altKey) return;
    event.preventDefault();
    const lines = [...this.body.rows], line = at.closest("tr"), {cellIndex} = at.closest("td");
    const next = step[0] ? this.#inColumn(lines, lines.indexOf(line) + step[0], step[0], cellIndex)
      : this.#inRow([...line.cells], cellIndex + step[1], step[1]);
    if (next) this.choose(next.cell.listed[0], next.row);
  }

  #inColumn(lines, place, step, cellIndex) {
    for (; lines[place]; place += step) {
      const found = lines[place].cells[cellIndex]?.querySelector(".cell");
      if (found) return found;
    }
    return null;
  }

  #inRow(cells, place, step) {
    for (; cells[place]; place += step) {
      const found = cells[place].querySelector(".cell");
      if (found) return found;
    }
    return null;
  }
}
