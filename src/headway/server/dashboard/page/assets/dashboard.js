"use strict";
// Fetches the page's fragment again and again and changes what differs. What has the focus, is open
// or is scrolled stays as it is, because elements that are the same stay in the page.
(() => {
  const EVERY = 3000, PATIENCE = 10000; // milliseconds
  const main = document.getElementById("page"), live = document.getElementById("live");
  const said = document.getElementById("said"), stale = document.getElementById("stale");
  let timer = 0, busy = false;

  function show(element, text) {
    if (element.textContent !== text) element.textContent = text;
  }

  function alike(one, other) {
    return one.nodeType === other.nodeType && one.nodeName === other.nodeName
      && (one.id || "") === (other.id || "");
  }

  function attributes(old, fresh) {
    for (const { name } of [...old.attributes])
      if (name !== "open" && !fresh.hasAttribute(name)) old.removeAttribute(name);
    for (const { name, value } of fresh.attributes)
      if (old.getAttribute(name) !== value) old.setAttribute(name, value);
  }

  function change(old, fresh) {
    if (old.isEqualNode(fresh)) return;
    if (old.nodeType !== Node.ELEMENT_NODE) {
      old.data = fresh.data;
      return;
    }
    attributes(old, fresh);
    const known = new Map([...old.children].filter(each => each.id).map(each => [each.id, each]));
    let at = old.firstChild;
    for (const next of [...fresh.childNodes]) {
      const mine = next.id ? known.get(next.id) : at && alike(at, next) ? at : null;
      if (!mine || !alike(mine, next)) {
        old.insertBefore(document.importNode(next, true), at);
      } else {
        if (mine === at) at = at.nextSibling;
        else old.insertBefore(mine, at);
        change(mine, next);
      }
    }
    while (at) {
      const rest = at.nextSibling;
      at.remove();
      at = rest;
    }
  }

  function put(text) {
    const fresh = new DOMParser().parseFromString(`<main id="page">${text}</main>`, "text/html");
    const focused = document.activeElement, owner = focused && focused.closest("[id]");
    change(main, fresh.getElementById("page"));
    if (owner && owner.id && document.activeElement !== focused && main.contains(owner)) {
      focused.focus({ preventScroll: true });
    }
    show(said, main.querySelector("[data-said]").dataset.said);
  }

  async function refresh() {
    clearTimeout(timer);
    if (busy || !live.checked || document.hidden) return;
    busy = true;
    try {
      const answer = await fetch("/dashboard/live", { signal: AbortSignal.timeout(PATIENCE) });
      if (answer.status === 401) return location.reload(); // it asks for the key
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      put(await answer.text());
      show(stale, "");
    } catch {
      show(stale, "Not up to date: the server does not answer. The page tries again.");
    } finally {
      busy = false;
      timer = setTimeout(refresh, EVERY);
    }
  }

  document.getElementById("live-box").hidden = false;
  live.addEventListener("change", refresh);
  document.addEventListener("visibilitychange", refresh);
  timer = setTimeout(refresh, EVERY);
})();
