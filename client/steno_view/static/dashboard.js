// The first page: what runs now, and what ran today, by project and program.

import { getNew } from "./api.js";
import { ago, at, compact, count, h, money, number, prose } from "./dom.js";
import { resumeButton } from "./origin.js";

const POLL_MS = 2000;
const AGES_MS = 5000;

export class Dashboard {
  constructor(main, { isWatching }) {
    document.title = "steno";
    this.cards = h("div", { class: "cards" });
    this.running = h("div", {});
    this.today = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Projects of today" });
    this.trouble = h("p", { class: "notice", role: "alert", hidden: true });
    main.replaceChildren(h("div", { class: "scroller padded dashboard now", tabindex: "0", "aria-label": "Overview" },
      h("h1", {}, "Running now"), this.trouble, this.cards, this.running,
      h("h2", {}, "Today"), this.today,
      h("p", { class: "muted hint" }, ...prose(isWatching
        ? "The transcripts of other agents are followed while this viewer runs."
        : "`steno view --watch` also follows the transcripts of Claude Code, Codex and other agents;"
          + " `steno service install --watch` does so all the time."))));
    this.ages = setInterval(() => this.renewAges(), AGES_MS);
    this.poll();
  }

  async poll() {
    try {
      if (!document.hidden) {
        const news = await getNew("dashboard", this.tag);
        if (this.isClosed) return;
        this.trouble.hidden = true;
        if (news) {
          this.tag = news.tag;
          this.draw(news.document);
        }
      }
    } catch (error) {
      if (this.isClosed) return;
      this.trouble.replaceChildren(...prose(error.message));
      this.trouble.hidden = false;
    }
    this.timer = setTimeout(() => this.poll(), POLL_MS);
  }

  draw({ running, not_shown: more, projects, today }) {
    const failed = running.flatMap((each) => [each, ...each.subagents])
      .reduce((sum, each) => sum + each.failed, 0);
    const cost = today.cost === null ? "no price known" : money(today.cost, today.currency);
    this.cards.replaceChildren(
      card("running", number(running.length), more ? `${number(more)} more` : "in the last 5 minutes"),
      card("sessions today", number(today.sessions), count(projects.length, "project")),
      card("tokens today", today.is_complete ? compact(today.tokens) : `${compact(today.tokens)} …`,
        today.is_complete ? cost : "still reading"),
      card("failed calls", number(failed), "of what runs now"));
    this.drawRunning(running);
    this.drawToday(projects);
  }

  /** The sessions that run, under their projects. */
  drawRunning(running) {
    const focus = this.running.contains(document.activeElement)
      ? document.activeElement.closest("[data-session]")?.dataset.session : null;
    const groups = new Map();
    for (const each of running) {
      const key = `${each.project}\0${programOf(each)}`;
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(each);
    }
    const parts = [];
    for (const sessions of groups.values()) {
      parts.push(h("section", { class: "project" },
        h("h2", {}, nameOf(sessions[0].project), h("span", { class: "muted" }, programOf(sessions[0])),
          sessions[0].project ? h("code", { class: "dir muted" }, sessions[0].project) : null),
        sessions.map((each) => running_(each))));
    }
    if (!parts.length) {
      parts.push(h("p", { class: "muted" }, "No session was written in the last 5 minutes."));
    }
    this.running.replaceChildren(...parts);
    if (focus) this.running.querySelector(`[data-session="${CSS.escape(focus)}"] a`)?.focus();
  }

  drawToday(projects) {
    if (!projects.length) {
      this.today.replaceChildren(h("p", { class: "muted" }, "No session was written today."));
      return;
    }
    const head = ["Project", "Program", "Sessions", "Tokens", "Last"];
    const rows = projects.map((each) => h("tr", {},
      h("td", { title: each.project }, h("a", { href: at(each.latest) }, nameOf(each.project))),
      h("td", {}, each.program),
      h("td", {}, number(each.sessions),
        each.running ? h("span", { class: "label" }, `${number(each.running)} running`) : null),
      h("td", {}, compact(each.tokens)),
      h("td", { class: "when", "data-at": each.modified_at }, ago(each.modified_at))));
    this.today.replaceChildren(h("table", {},
      h("thead", {}, h("tr", {}, head.map((each) => h("th", { scope: "col" }, each)))),
      h("tbody", {}, rows)));
  }

  renewAges() {
    for (const each of document.querySelectorAll(".dashboard [data-at]")) {
      each.textContent = ago(Number(each.dataset.at));
    }
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    clearInterval(this.ages);
  }
}

function card(name, value, more) {
  return h("div", { class: "card" },
    h("span", { class: "muted" }, name), h("strong", {}, value), h("span", { class: "muted" }, more));
}

function programOf({ origin }) {
  return origin?.program ?? "steno";
}

/** The last part of a directory. */
function nameOf(project) {
  return project.split("/").filter(Boolean).at(-1) ?? (project || "no directory");
}

/** A session that runs, and its subagents. */
function running_(each, isBelow = false) {
  const { origin } = each;
  return h("article", { class: isBelow ? "run below" : "run", "data-session": each.session },
    h("div", { class: "line" },
      h("span", { class: "dot live" }),
      h("a", { class: "title", href: at(each.session) }, each.title || each.session),
      h("span", { class: "when muted", "data-at": each.modified_at }, ago(each.modified_at))),
    h("div", { class: "facts" },
      origin?.model ? h("span", {}, origin.model) : null,
      origin?.branch ? h("span", {}, `⎇ ${origin.branch}`) : null,
      each.tokens === null ? null : h("span", {}, `${compact(each.tokens)} tokens today`),
      origin && !isBelow ? resumeButton(origin) : null),
    each.words ? h("p", { class: "words" }, h("span", { class: `role ${each.role}` }, each.role), ` ${each.words}`) : null,
    each.failed ? h("p", { class: "trouble" },
      `${count(each.failed, "failed call")}${each.error ? `: ${each.error}` : ""}`) : null,
    (each.subagents ?? []).map((below) => running_(below, true)));
}
