// The page: its login, its address and its views.

import { get, post } from "./api.js";
import { h, parsePosition, prose } from "./dom.js";
import { Now } from "./now.js";
import { Search } from "./search.js";
import { SessionPage } from "./session.js";
import { Sessions } from "./sessions.js";

const main = document.getElementById("main");
let sessions = null;
let page = null;
let mayWrite = false;
let shows = 0;

/** Exchange the token of the printed address for the cookie, and take it out of the address. */
async function enter() {
  const given = new URLSearchParams(location.hash.slice(1));
  const token = given.get("token");
  if (!token) return;
  const session = given.get("session");
  history.replaceState(null, "", session ? `#/s/${encodeURIComponent(session)}/transcript` : "#/");
  await post("login", { token });
}

function fail(error) {
  const text = error.status === 401 || error.status === 403
    ? "This page is closed to you: open the address that `steno view` printed."
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
  return { kind: kind === "now" ? "now" : "sessions" };
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
    const position = parsePosition(where.rest[0]);
    await page.show(where.view, position, parsePosition(where.rest[1]));
  } else if (where.kind === "now") {
    replace(new Now(main));
  } else if (where.kind === "search") {
    if (!(page instanceof Search)) {
      replace(new Search(main, { titleOf: (session) => sessions.titleOf(session) }));
    }
    page.show(where.text);
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
  try {
    await enter();
    const { root, may_write } = await get("hello");
    mayWrite = may_write;
    document.getElementById("root").textContent = root;
    document.getElementById("root").title = root;
  } catch (error) {
    fail(error);
    return;
  }
  sessions = new Sessions(document.getElementById("sessions"), {
    changed: ({ isAway }) => setAway(isAway),
  });
  addEventListener("hashchange", go);
  addEventListener("keydown", searched);
  go();
}

begin();
