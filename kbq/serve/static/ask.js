"use strict";
// Titles are suggested while somebody types, and the button says that a search is under way.

const subject = document.getElementById("subject"), titles = document.getElementById("titles");
let waiting = 0, asked = "";

async function suggest() {
  const prefix = subject.value.trim();
  if (!prefix || prefix === asked) return;
  asked = prefix;
  const query = new URLSearchParams({prefix, kb: document.getElementById("kb").value, limit: 8});
  const answer = await fetch(`/v1/titles?${query}`).catch(() => null);
  if (!answer?.ok || prefix !== asked) return;
  const found = (await answer.json()).titles;
  titles.replaceChildren(...found.map(({title}) => Object.assign(document.createElement("option"), {value: title})));
}

subject.addEventListener("input", () => {
  clearTimeout(waiting);
  waiting = setTimeout(suggest, 120);
});
const form = document.querySelector("form.ask"), button = form.querySelector("button");
form.addEventListener("submit", () => {
  button.textContent = "Searching…";
  form.setAttribute("aria-busy", "true");
});
addEventListener("pageshow", () => {  // also when somebody comes back
  button.textContent = "Ask";
  form.removeAttribute("aria-busy");
});
