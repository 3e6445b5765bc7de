// What works without this: everything but freezing the page, the keys, and updates more often than every ten seconds.
(() => {
  "use strict";
  let paused = false;
  const button = document.getElementById("pause");

  function pause(yes) {
    paused = yes;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Frozen" : "Live";
    document.body.classList.toggle("paused", paused);
  }
  if (button) {
    button.hidden = false;
    button.addEventListener("click", () => pause(!paused));
    document.addEventListener("htmx:sse:before:message", (e) => { if (paused) e.preventDefault(); });
    const lost = (yes) => document.body.classList.toggle("lost", yes);
    document.addEventListener("htmx:sse:error", () => lost(true));
    document.addEventListener("htmx:sse:after:connection", () => lost(false));
  }
  // next goes to the link of the next row of a table that has one, or of the one before.
  function next(by) {
    const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));
    const here = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[here < 0 ? 0 : here + by];
    if (row) row.querySelector("a").focus();
  }
  document.addEventListener("keydown", (e) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName) && e.target.type !== "checkbox";
    if (e.ctrlKey || e.metaKey || e.altKey || typing) return;
    if (e.key === "j") next(1);
    if (e.key === "k") next(-1);
    if (e.key === "p" && button) pause(!paused);
    const filter = document.getElementById("filter");
    if (e.key === "/" && filter) { e.preventDefault(); filter.focus(); }
  });
})();
