"use strict";
// The page on which documents become a knowledge base: they are sent, shown as they will be read, and built.
// What has arrived stays where the tab is closed: of the same folder, dropped again, only the rest is sent.

const byId = id => document.getElementById(id);
const number = count => count.toLocaleString("en");
const counted = (count, thing) => `${number(count)} ${thing}${count === 1 ? "" : "s"}`;
const SENDERS = 4, OFFERED = 1000, SHOWN = 200;  // at once; files in a request; those that are left out, listed
let kb = byId("new").dataset.name;  // the name of the new knowledge base, once there is one
let stopped = false;                // whether somebody has stopped the sending
let busy = false;                   // whether documents are being sent
let unread = [];                    // files that the browser cannot read

function element(name, properties, ...children) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

async function asked(address, given = null) {
  const options = given && {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify(given)};
  const answer = await fetch(address, options ?? {});
  const content = await answer.json();
  if (!answer.ok) throw new Error(content.detail);
  return content;
}

const address = part => `/new/${encodeURIComponent(kb)}${part}`;

function complain(text) {
  byId("problem").textContent = text;
  byId("problem").hidden = !text;
}

// What is dropped

async function filesIn(entry, folder, found) {
  if (entry.isFile) {
    try {
      found.push([folder + entry.name, await new Promise((done, failed) => entry.file(done, failed))]);
    } catch {
      unread.push(folder + entry.name);
    }
    return;
  }
  const reader = entry.createReader();
  for (;;) {
    const some = await new Promise((done, failed) => reader.readEntries(done, failed));
    if (!some.length) return;
    for (const one of some) await filesIn(one, `${folder}${entry.name}/`, found);
  }
}

async function dropped(items) {
  const entries = [...items].filter(({kind}) => kind === "file").map(item => item.webkitGetAsEntry?.() ?? item.getAsFile());
  const found = [];
  for (const entry of entries) {
    if (entry instanceof File) found.push([entry.name, entry]);
    else await filesIn(entry, "", found);
  }
  return found;
}

// The name of the one folder that everything lies in, and the files without it.
function withoutFolder(files) {
  const tops = new Set(files.map(([path]) => path.split("/")[0]));
  if (tops.size !== 1 || files.some(([path]) => !path.includes("/"))) return {folder: "", files};
  const [folder] = tops;
  return {folder, files: files.map(([path, file]) => [path.slice(folder.length + 1), file])};
}

async function take(given) {
  if (busy || !given.length) return;
  const {folder, files} = withoutFolder(given.map(([path, file]) => [path.normalize("NFC"), file]));
  complain("");
  busy = true;
  stopped = false;
  try {
    if (!kb) {
      const single = files.length === 1 ? files[0][0].replace(/\.[^.]*$/, "") : "documents";
      kb = (await asked("/new", {name: folder || single})).name;
      history.replaceState(null, "", `/new?name=${encodeURIComponent(kb)}`);
    }
    await send(files);
  } catch (error) {
    complain(`The documents were not all sent: ${told(error)} Drop them again, and only the rest is sent.`);
  } finally {
    busy = false;
    byId("sending").hidden = true;
  }
  await look();
}

const told = error => error instanceof TypeError ? "the service does not answer: is it still running?" : `${error.message}.`;

async function send(files) {
  const byPath = new Map(files), wanted = [];
  for (let first = 0; first < files.length; first += OFFERED) {
    const some = files.slice(first, first + OFFERED).map(([path, {size}]) => [path, size]);
    wanted.push(...(await asked(address("/offer"), {files: Object.fromEntries(some)})).wanted);
  }
  const total = wanted.length;
  let done = 0;
  const tell = () => {
    byId("sent").max = total || 1;
    byId("sent").value = done;
    byId("sent-text").textContent = `${number(done)} of ${counted(total, "document")} sent`;
  };
  byId("sending").hidden = !total;
  tell();
  const sender = async () => {
    while (wanted.length && !stopped) {
      const path = wanted.shift();
      if (!await sendOne(path, byPath.get(path))) unread.push(path);
      done++;
      tell();
    }
  };
  await Promise.all(Array.from({length: SENDERS}, sender));
}

async function sendOne(path, file) {  // false: the browser cannot read it
  let content;
  try {
    content = await file.arrayBuffer();
  } catch {
    return false;
  }
  const headers = {"Content-Type": "application/octet-stream"};
  const answer = await fetch(`${address("/file")}?${new URLSearchParams({path})}`, {method: "POST", headers, body: content});
  if (!answer.ok) throw new Error((await answer.json()).detail);
  return true;
}

// What the service has

let seen = "";  // the number of documents whose preview is shown

async function look() {
  if (!kb) return;
  try {
    const facts = await asked(address(""));
    show(facts);
    if (["waiting", "building"].includes(facts.state)) setTimeout(look, 700);
  } catch (error) {
    complain(`The service cannot say how far it is: ${told(error)}`);
    if (error instanceof TypeError) setTimeout(look, 3000);  // it may be started again
  }
}

function show(facts) {
  const {state, files} = facts, isOpen = ["open", "failed"].includes(state), isMaking = ["waiting", "building"].includes(state);
  byId("drop").hidden = !isOpen;
  byId("dropping").textContent = files ? `${counted(files, "document")} there: drop more, or go on` : "Drop a folder here";
  byId("drop").classList.toggle("small", files > 0);
  byId("preview").hidden = !isOpen || !files;
  byId("making").hidden = !isMaking;
  byId("ready").hidden = state !== "ready";
  if (byId("unfinished")) byId("unfinished").hidden = true;
  const step = state === "ready" ? "use" : isMaking ? "build" : files ? "preview" : "documents";
  for (const one of document.querySelectorAll(".steps li")) one.removeAttribute("aria-current");
  byId(`step-${step}`).setAttribute("aria-current", "step");
  if (isOpen && files) preview(facts);
  if (isMaking) tellBuild(facts);
  if (state === "ready") tellReady(facts);
  complain(facts.problem ? `It could not be built: ${facts.problem}` : !isOpen || files || !facts.skipped.length ? ""
    : "None of these files is a document that kbq reads.");
  byId("left-out").replaceChildren(...leftOut(facts));
}

async function preview({name, files, bytes}) {
  if (seen === `${files} ${bytes}`) return;
  seen = `${files} ${bytes}`;
  byId("name").value ||= name;
  byId("build").textContent = `Build from ${counted(files, "document")}`;
  byId("read").replaceChildren(element("p", {className: "note"}, "Reading some of them …"));
  try {
    const {documents, notes} = await asked(address("/preview"));
    byId("read").replaceChildren(...documents.map(card), ...notes.map(note => element("p", {className: "note"}, note)));
  } catch (error) {
    byId("read").replaceChildren(element("p", {className: "warning"}, told(error)));
  }
}

function card({id, title, words, left_out}) {
  const parts = Object.entries(left_out).map(([reason, count]) => `${reason} (${number(count)})`).join(", ");
  return element("article", {className: "card"}, element("h3", {dir: "auto"}, title), element("p", {className: "source"}, id),
    element("p", {dir: "auto"}, words), ...parts ? [element("p", {className: "note"}, `Left out of it: ${parts}`)] : []);
}

function tellBuild({state, files, read, done, stage, documents, left_out_count}) {
  const bar = byId("built");
  bar.max = files || 1;
  if (done > left_out_count || stage) bar.value = done;
  else bar.removeAttribute("value");  // the first ones are not encoded yet
  const left = left_out_count ? `, ${number(left_out_count)} left out` : "";
  byId("built-text").textContent = state === "waiting" ? "Another one is being built first."
    : stage ? `${counted(documents, "document")} read${left}; ${stage} …`
      : `${number(read)} of ${counted(files, "document")} read, ${number(done - left_out_count)} encoded${left} …`;
}

async function tellReady({name, documents, pages, left_out_count}) {
  const query = new URLSearchParams({kb: name}), left = left_out_count ? `; ${counted(left_out_count, "document")} left out` : "";
  byId("ready-text").textContent = `${name} is ready: ${counted(documents, "document")}, ${counted(pages, "page")}${left}.`;
  byId("to-table").href = `/table?${query}`;
  byId("to-ask").href = `/?${query}`;
  byId("to-pages").href = `/pages?${query}`;
  byId("ready-text").focus();
  const {titles} = await asked(`/v1/titles?${query}&limit=50`);
  const subjects = [...new Set(titles.map(({title}) => title))].join("\n").slice(0, 5000);
  byId("to-titles").href = `/table?${new URLSearchParams({kb: name, subjects})}`;
}

function leftOut({skipped, left_out, left_out_count, notes, state}) {
  const lists = [];
  const listed = (title, lines, isOpen) => lines.length && lists.push(element("details", {open: isOpen}, element("summary", {}, title),
    element("ul", {}, ...lines.map(line => element("li", {dir: "auto"}, line)))));
  const files = skipped.reduce((sum, [, , count]) => sum + count, 0);
  listed(`${counted(files, "file")} not sent`, skipped.map(([kind, why, count]) => `${kind} (${number(count)}): ${why}`), state === "open");
  listed(`${counted(unread.length, "file")} that the browser cannot read`, unread.slice(0, SHOWN), false);
  const more = left_out_count > SHOWN ? [`… and ${number(left_out_count - SHOWN)} more`] : [];
  listed(`${counted(left_out_count, "document")} left out, as kbq cannot read ${left_out_count === 1 ? "it" : "them"}`,
    [...left_out.slice(0, SHOWN).map(([name, why]) => `${name}: ${why}`), ...more], false);
  if (state !== "open") listed("Notes on the reading", notes, false);
  return lists;
}

// What people do

const drop = byId("drop");
for (const name of ["dragenter", "dragover"]) {
  addEventListener(name, event => {
    event.preventDefault();
    drop.classList.add("over-it");
  });
}
addEventListener("dragleave", event => { if (!event.relatedTarget) drop.classList.remove("over-it"); });
addEventListener("drop", async event => {
  event.preventDefault();
  drop.classList.remove("over-it");
  if (!drop.hidden) take(await dropped(event.dataTransfer.items));
});
for (const id of ["folder", "files"]) {
  byId(id).addEventListener("change", ({target}) => {
    const files = [...target.files].map(file => [file.webkitRelativePath || file.name, file]);
    take(files).then(() => { target.value = ""; });
  });
}
byId("pause").addEventListener("click", () => { stopped = true; });
byId("building").addEventListener("submit", async event => {
  event.preventDefault();
  try {
    const facts = await asked(address("/build"), {name: byId("name").value.trim()});
    kb = facts.name;
    history.replaceState(null, "", `/new?name=${encodeURIComponent(kb)}`);
    look();
  } catch (error) {
    complain(told(error));
  }
});
byId("stop").addEventListener("click", () => asked(address("/stop"), {}).catch(error => complain(told(error))));
byId("discard").addEventListener("click", async () => {
  if (!confirm(`Throw the documents of ${kb} away, as they lie here? Those on your disk stay.`)) return;
  try {
    await asked(address("/discard"), {});
    location.assign("/new");
  } catch (error) {
    complain(told(error));
  }
});
look();
