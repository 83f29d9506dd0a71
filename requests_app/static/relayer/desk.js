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
