// Copy buttons and the reader's local time. Everything works without it.
"use strict";

document.addEventListener("click", async (event) => {
  const button = event.target.closest(".rl-copy");
  if (!button) return;
  event.preventDefault();
  event.stopPropagation();
  try {
    await navigator.clipboard.writeText(button.dataset.copy);
    button.dataset.done = "";
    setTimeout(() => delete button.dataset.done, 1500);
  } catch {
    window.prompt("Copy:", button.dataset.copy); // no clipboard without TLS
  }
});

function addLocalTimes(root) {
  for (const time of root.querySelectorAll("time.rl-time[datetime]:not([data-local])")) {
    const moment = new Date(time.dateTime);
    if (Number.isNaN(moment.getTime())) continue;
    time.dataset.local = "";
    const utc = time.title ? `${time.title}\n` : "";
    time.title = `${utc}${moment.toLocaleString()} (your time)`;
  }
}

document.addEventListener("DOMContentLoaded", () => addLocalTimes(document));
document.addEventListener("htmx:afterSwap", (event) => addLocalTimes(event.target));

// A form that changes something is sent once; the server refuses a second one anyway.
document.addEventListener("submit", (event) => {
  if (!event.target.matches("form[data-once]")) return;
  for (const button of event.target.querySelectorAll("button")) setTimeout(() => (button.disabled = true));
});
window.addEventListener("pageshow", (event) => {
  if (event.persisted) for (const button of document.querySelectorAll("form[data-once] button")) button.disabled = false;
});

// Lists by keyboard: j and k move, Enter opens (the focused link's own), / goes to the search.
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input, textarea, select")) return;
  if (event.key === "/") {
    const search = document.querySelector("#searchbar");
    if (search) { event.preventDefault(); search.focus(); }
    return;
  }
  if (event.key !== "j" && event.key !== "k") return;
  const links = [...document.querySelectorAll("#result_list tbody tr")].map((row) => row.querySelector("th a, td a")).filter(Boolean);
  if (!links.length) return;
  const at = links.indexOf(document.activeElement);
  links[Math.max(0, Math.min(links.length - 1, at + (event.key === "j" ? 1 : -1)))].focus();
});
