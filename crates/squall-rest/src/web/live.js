// Keeps pages fresh: loads the page when something happened, and replaces what has changed.
"use strict";
(() => {
  const main = document.getElementById("main");
  document.addEventListener("keydown", event => {
    if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches("input,textarea,select")) return;
    const links = [...main.querySelectorAll("table.rows tbody th a")];
    const at = links.indexOf(document.activeElement);
    if (event.key === "j" && links.length) links[Math.min(at + 1, links.length - 1)].focus();
    else if (event.key === "k" && links.length) links[Math.max(at - 1, 0)].focus();
    else if (event.key === "/") { const find = main.querySelector("form[role=search] input:not([type=hidden])"); if (find) { event.preventDefault(); find.focus(); } }
  });
  if (!main.matches("[data-live]")) return;
  const say = text => { const live = document.getElementById("live"); if (live) live.textContent = text; };
  let due = false, last = 0, busy = false;

  // A part with an open or filled form, or with details that are open, is left as it is.
  const inUse = part => {
    const active = document.activeElement;
    if (active && part.contains(active) && active.matches("input,select,textarea")) return true;
    return [...part.querySelectorAll("input:not([type=hidden])")].some(i => i.value !== i.defaultValue);
  };

  const place = active => {
    if (!active || active === document.body || !main.contains(active)) return null;
    const all = [...main.querySelectorAll("a,button,input,summary")];
    return { id: active.id, href: active.getAttribute("href"), at: all.indexOf(active) };
  };
  const restore = was => {
    if (!was || main.contains(document.activeElement)) return;
    const all = [...main.querySelectorAll("a,button,input,summary")];
    const same = (was.id && document.getElementById(was.id)) ||
      (was.href && all.find(one => one.getAttribute("href") === was.href)) || all[was.at];
    if (same) same.focus({ preventScroll: true });
  };

  // Replaces what differs, part by part, so that what is the same keeps its state.
  const renew = (old, fresh) => {
    if (old.isEqualNode(fresh)) return;
    const alike = old.children.length === fresh.children.length && old.children.length > 0 &&
      [...old.children].every((one, at) => one.tagName === fresh.children[at].tagName && one.id === fresh.children[at].id);
    const split = alike && (old === main || old.matches("section,div"));
    if (split) {
      const next = [...fresh.children];
      [...old.children].forEach((one, at) => renew(one, next[at]));
      return;
    }
    if (inUse(old)) return;
    if (old === main) { old.replaceChildren(...fresh.childNodes); return; }
    const open = old.matches("details") && old.open;
    const box = old.querySelector(".scroll"), left = box ? box.scrollLeft : 0;
    old.replaceWith(fresh);
    if (open) fresh.open = true;
    if (left) { const now = fresh.querySelector(".scroll"); if (now) now.scrollLeft = left; }
  };

  const refresh = async () => {
    due = false; busy = true; last = Date.now();
    try {
      const answer = await fetch(location.href, { credentials: "same-origin", redirect: "manual" });
      if (answer.type === "opaqueredirect") { location.reload(); return; }
      if (!answer.ok) throw new Error(answer.status);
      const page = new DOMParser().parseFromString(await answer.text(), "text/html");
      const fresh = page.querySelector("main[data-live]");
      const was = place(document.activeElement);
      if (fresh) renew(main, fresh);
      restore(was);
      say(polling ? "Refreshed every 5 s" : "Live");
      const time = document.querySelector("footer time"), now = page.querySelector("footer time");
      if (time && now) time.replaceWith(now);
    } catch { say("The server does not answer."); }
    busy = false;
  };
  // What was said after a deed is not said again.
  if (location.search.includes("done=")) history.replaceState(null, "", location.pathname);

  // At most once a second, and not while the page is hidden.
  const soon = () => {
    if (due) return;
    due = true;
    const wait = Math.max(0, 1000 - (Date.now() - last));
    setTimeout(() => {
      if (document.hidden || busy || !getSelection().isCollapsed) { due = false; return; }
      refresh();
    }, wait);
  };

  let polling = null;
  const poll = () => {
    if (polling) return;
    say("Refreshed every 5 s");
    polling = setInterval(() => { if (!document.hidden && !busy) refresh(); }, 5000);
  };
  const kinds = ["job-submitted", "job-started", "job-ending", "job-ended", "job-requeued", "job-held", "job-released",
    "job-changed", "job-suspended", "job-resumed", "job-preempted", "step-started", "step-ended", "node-registered",
    "node-up", "node-down", "node-drained", "node-resumed", "node-changed", "partition-changed", "partition-deleted",
    "reservation-changed", "reservation-ended", "accounts-changed", "configured", "controller-started", "job-node-silent", "job-node-lost", "missed"];
  let events = null, later = null;
  const listen = () => {
    if (!window.EventSource) return poll();
    events = new EventSource("/squall/v1/events");
    events.onopen = () => { say("Live"); clearInterval(polling); polling = null; };
    events.onerror = poll;
    // The server may show what it read some seconds ago.
    const happened = () => { soon(); clearTimeout(later); later = setTimeout(soon, 6000); };
    for (const kind of kinds) events.addEventListener(kind, happened);
  };
  listen();
  // Browsers allow few connections to a server: a page that nobody sees has none.
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) { if (events) events.close(); events = null; return; }
    if (!events) listen();
    soon();
  });
  // Times and usage move without events.
  setInterval(() => { if (!document.hidden && !busy && Date.now() - last > 15000) soon(); }, 5000);
})();
