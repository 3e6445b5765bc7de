// What works without this: everything but freezing the page, the keys, values of a touched chart, times in the zone of who looks, and
// updates more often than every ten seconds.
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
    // An error is the first answer: the page keeps its figures, and asks again.
    document.addEventListener("htmx:before:response", (e) => {
      if (e.detail.ctx.response.raw.ok) return;
      e.preventDefault();
      lost(true);
      setTimeout(() => {
        const live = e.detail.ctx.sourceElement, again = live.cloneNode(true);
        live.replaceWith(again);
        window.htmx.process(again);
      }, 5000);
    });
  }
  const here = document.querySelector("header a[aria-current]");
  if (here) here.parentNode.scrollLeft = here.offsetLeft - 60; // on a small screen the menu may be wider
  const zones = document.getElementById("zones");
  if (zones && Intl.supportedValuesOf) {
    const all = new Set([...zones.options].map((option) => option.value).concat(Intl.supportedValuesOf("timeZone")));
    zones.replaceChildren(...[...all].map((zone) => new Option("", zone)));
  }
  // local writes the times in the zone of who looks, also those that the stream brings.
  const two = (n) => String(n).padStart(2, "0");
  const day = (at) => at.getDate() + " " + at.toLocaleString("en", { month: "short" });
  const clock = (at) => two(at.getHours()) + ":" + two(at.getMinutes());
  const stamp = (at) => at.getFullYear() + "-" + two(at.getMonth() + 1) + "-" + two(at.getDate()) + " " + clock(at) + ":" + two(at.getSeconds());
  function write(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }
  function local() {
    for (const element of document.querySelectorAll("time.stamp, time.clock, time.when")) {
      const at = new Date(element.dateTime), zone = Intl.DateTimeFormat().resolvedOptions().timeZone;
      const title = stamp(at) + " " + zone;
      if (element.title !== title) element.title = title;
      if (element.className === "stamp") write(element, stamp(at));
      if (element.className === "clock") write(element, Math.abs(at - Date.now()) > 72e6 ? day(at) + " " + clock(at) : clock(at));
    }
    for (const tick of document.querySelectorAll("text[data-at]")) {
      const at = new Date(tick.dataset.at);
      write(tick, tick.dataset.day ? day(at) : clock(at));
    }
    for (const title of document.querySelectorAll(".plot title")) { // which a browser would show late, beside what is shown below
      const text = document.createElementNS(title.namespaceURI, "desc");
      text.textContent = title.textContent.replace(/^\d{4}-.*Z$/m, (at) => day(new Date(at)) + " " + clock(new Date(at)));
      title.replaceWith(text);
    }
  }
  // A step of a chart shows its values at the pointer, and below the page when it is touched.
  const tip = document.createElement("output");
  tip.className = "tip";
  document.getElementById("content").append(tip);
  function show(e) {
    const mouse = e.pointerType === "mouse";
    write(tip, e.target.closest(".plot rect")?.textContent ?? "");
    tip.style.left = mouse ? Math.min(e.clientX + 14, window.innerWidth - tip.offsetWidth - 8) + "px" : "";
    tip.style.top = mouse ? Math.min(e.clientY + 14, window.innerHeight - tip.offsetHeight - 8) + "px" : "";
    tip.style.bottom = mouse ? "auto" : "";
  }
  document.addEventListener("click", show);
  document.addEventListener("pointermove", (e) => { if (e.pointerType === "mouse") show(e); });
  local();
  new MutationObserver(local).observe(document.getElementById("content"), { childList: true, subtree: true, characterData: true });
  // next goes to the link of the next row of a table that has one, or of the one before.
  function next(by) {
    const rows = [...document.querySelectorAll("main tbody tr")].filter((row) => row.querySelector("a"));
    const here = rows.findIndex((row) => row.contains(document.activeElement));
    const row = rows[here < 0 ? 0 : here + by];
    if (row) row.querySelector("a").focus();
  }
  document.addEventListener("keydown", (e) => {
    const typing = /^(INPUT|SELECT|TEXTAREA)$/.test(e.target.tagName);
    if (e.ctrlKey || e.metaKey || e.altKey || typing) return;
    if (e.key === "j") next(1);
    if (e.key === "k") next(-1);
    if (e.key === "p" && button) pause(!paused);
    const filter = document.getElementById("filter");
    if (e.key === "/" && filter) { e.preventDefault(); filter.focus(); }
  });
})();
