// What works without this: everything but pausing, the keys, and updates more often than every ten seconds.
(() => {
  "use strict";
  let paused = false;
  const button = document.getElementById("pause");

  function pause(yes) {
    paused = yes;
    button.setAttribute("aria-pressed", String(paused));
    button.textContent = paused ? "Resume" : "Pause";
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
  document.addEventListener("keydown", (e) => {
    if (e.ctrlKey || e.metaKey || e.altKey || /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName)) return;
    if (e.key === "p" && button) pause(!paused);
    const filter = document.getElementById("filter");
    if (e.key === "/" && filter) { e.preventDefault(); filter.focus(); }
  });
})();
