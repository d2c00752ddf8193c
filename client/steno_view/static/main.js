// The page: its login, its address and its views.

import { get, isKnown, login } from "./api.js";
import { at, h, parsePosition, prose } from "./dom.js";
import { Dashboard } from "./dashboard.js";
import { Now } from "./now.js";
import { Search } from "./search.js";
import { SessionPage } from "./session.js";
import { Sessions } from "./sessions.js";
import { Usage } from "./usage.js";

const main = document.getElementById("main");
let sessions = null;
let page = null;
let mayWrite = false;
let isWatching = false;
let shows = 0;

/** What a printed address has in its fragment: its token, and the session to show. */
function printed() {
  const given = new URLSearchParams(location.hash.slice(1));
  return { token: given.get("token"), session: given.get("session") };
}

/** Use the token of a printed address, and take it out of the address. */
async function enter() {
  const { token, session } = printed();
  if (!token) return isKnown();
  history.replaceState(null, "", session ? at(session) : "#/");
  try {
    await login(token);
  } catch (error) {
    // The address was used; this tab or another one may have done that.
    if (!await isKnown()) throw error;
  }
}

function fail(error) {
  const text = error.status === 401
    ? "This page is closed to you: open the last address that `steno view` printed in its terminal."
    : error.message;
  main.replaceChildren(h("p", { class: "empty", role: "alert" }, prose(text)));
}

/** What the address says: a view, and its parts. */
function route() {
  const [, kind, session, view = "transcript", ...rest] = location.hash.slice(1).split("/");
  if (kind === "s" && session) {
    return { kind: "session", session: decodeURIComponent(session), view, rest };
  }
  if (kind === "search") return { kind, text: session };
  return { kind: ["now", "usage", "sessions"].includes(kind) ? kind : "overview" };
}

async function show() {
  const where = route();
  document.body.dataset.view = where.kind;
  for (const link of document.querySelectorAll("#top nav a")) {
    const isCurrent = link.dataset.view === where.kind;
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
  }
  sessions.select(where.session ?? null);
  if (where.kind === "session") {
    if (!(page instanceof SessionPage) || page.session !== where.session) {
      replace(new SessionPage(main, where.session, { away: setAway, mayWrite }));
    }
    const [first, second] = where.rest;
    const position = parsePosition(first);
    await page.show(where.view, position, parsePosition(second), position ? null : first);
  } else if (where.kind === "now") {
    replace(new Now(main));
  } else if (where.kind === "search") {
    if (!(page instanceof Search)) {
      replace(new Search(main, { titleOf: (session) => sessions.titleOf(session) }));
    }
    page.show(where.text);
  } else if (where.kind === "usage") {
    replace(new Usage(main));
  } else if (where.kind === "overview") {
    replace(new Dashboard(main, { isWatching }));
  } else {
    replace(null);
    document.title = "steno";
    main.replaceChildren(h("p", { class: "empty" }, "The session that you choose is shown here."));
  }
}

/** Show what the address says; the late failure of an address that was left is dropped. */
async function go() {
  shows += 1;
  const mine = shows;
  try {
    await show();
  } catch (error) {
    if (mine !== shows) return;
    // The next address gets a page of its own, even that of the same session.
    replace(null);
    fail(error);
  }
}

/** `/` leads to the search from everywhere but an input. */
function searched(event) {
  const isTyping = event.target.closest?.("input, select, textarea, dialog");
  if (event.key !== "/" || isTyping || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  if (page instanceof Search) page.focus();
  else location.hash = "#/search";
}

function replace(next) {
  page?.close();
  page = next;
}

function setAway(isAway) {
  document.getElementById("away").hidden = !isAway;
}

async function begin() {
  // A page that the browser makes before it is asked for must not use up the token.
  if (document.prerendering) {
    await new Promise((done) => {
      document.addEventListener("prerenderingchange", done, { once: true });
    });
  }
  try {
    await enter();
    const { root, may_write, is_watching } = await get("hello");
    mayWrite = may_write;
    isWatching = is_watching;
    document.getElementById("root").textContent = root;
    document.getElementById("root").title = root;
  } catch (error) {
    fail(error);
    return;
  }
  if (!sessions) {
    sessions = new Sessions(document.getElementById("sessions"), {
      changed: ({ isAway }) => setAway(isAway),
    });
    addEventListener("keydown", searched);
  }
  go();
}

// A printed address may be opened in an open page, also in one that was closed to its reader.
addEventListener("hashchange", () => (!sessions || printed().token ? begin() : go()));
begin();
