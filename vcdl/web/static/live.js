"use strict";
// Fills the parts of a page that change: its own address tells them, as a stream. A page is whole without it.
const live = document.querySelector("[data-live]");
const connection = document.getElementById("connection");

function say(words) {
  connection.textContent = words;
  connection.hidden = !words;
}

async function reloadRows() {
  const answer = await fetch(location.href, { credentials: "same-origin" });
  const found = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("[data-names]");
  if (answer.ok && found) {
    const chosen = [...live.querySelectorAll("input:checked")].map((box) => box.value);
    live.tHead.replaceWith(found.tHead);
    live.tBodies[0].replaceWith(found.tBodies[0]);
    for (const box of live.querySelectorAll("input")) box.checked = chosen.includes(box.value);
    live.dataset.names = found.dataset.names;
  }
}

function fill(parts) {
  if (live.dataset.names !== undefined && parts.names !== undefined && parts.names !== live.dataset.names) {
    reloadRows();
    return;
  }
  for (const [id, html] of Object.entries(parts)) {
    const element = document.getElementById(id);
    if (element === null) continue;
    const focused = element.contains(document.activeElement) ? document.activeElement.getAttribute("formaction") : null;
    const isChosen = element.querySelector("input:checked") !== null;
    element.innerHTML = html;
    if (isChosen) element.querySelector("input").checked = true;
    if (focused !== null) element.querySelector(`[formaction="${CSS.escape(focused)}"]`)?.focus();
  }
}

if (live !== null) {
  const source = new EventSource(location.href);
  source.addEventListener("open", () => say(""));
  source.addEventListener("error", () => say("not connected: trying again"));
  source.addEventListener("parts", (event) => fill(JSON.parse(event.data)));
}
