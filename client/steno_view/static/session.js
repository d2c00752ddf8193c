// One session: its head, its stream of events, and its views.

import { get, save, Stream } from "./api.js";
import { at, button, count, h, parsePosition, prose, say } from "./dom.js";
import { Changes } from "./changes.js";
import { Compare } from "./compare.js";
import { originOf } from "./origin.js";
import { answerFor, Throttle } from "./pacing.js";
import { Strip } from "./strip.js";
import { Transcript } from "./transcript.js";
import { Tree } from "./tree.js";
import { Wire } from "./wire.js";

const NUMBERS_MS = 400;
const DESCRIPTION_MS = 5000;
const VIEWS = { transcript: "Transcript", tree: "Tree", wire: "Events" };

export class SessionPage {
  constructor(main, session, { away, mayWrite }) {
    this.session = session;
    this.away = away;
    this.view = null;
    this.changes = new Changes(this, mayWrite);
    this.stat = null;
    this.numbers = new Throttle(() => this.refreshNumbers(), NUMBERS_MS);
    this.statsAsked = 0;
    this.statShown = 0;
    this.title = h("h1", {}, session);
    this.facts = h("p", { class: "facts" });
    this.origin = h("div", { class: "origin" });
    this.tabs = h("nav", { class: "tabs", "aria-label": "Views of the session" });
    this.stripPlace = h("div", { class: "strip-place" });
    this.notice = h("p", { class: "notice", role: "alert", hidden: true });
    this.repairs = h("p", { class: "notice", role: "status", hidden: true });
    this.place = h("div", { class: "view" });
    this.menu = h("details", { class: "menu" }, h("summary", {}, "Export"));
    this.panel = h("div", { class: "panel" });
    this.menu.append(this.panel);
    main.replaceChildren(
      h("div", { class: "session-head" },
        h("div", { class: "titles" }, this.title, this.facts, this.origin),
        h("div", { class: "tools" }, this.tabs, h("span", { class: "space" }), this.changes.menu(), this.menu)),
      this.stripPlace, this.notice, this.repairs, this.place);
    this.ready = this.load();
  }

  async load() {
    const stat = await answerFor(this, () => get("session", { session: this.session }), () => {
      this.facts.textContent = "waiting for the daemon";
    });
    if (this.isClosed) return;
    this.begin(stat);
    this.strip = new Strip(this.stripPlace, this.session);
    this.stream = new Stream(this.session, this.stat.state, {
      heads: (data) => this.grew(data),
      rewrite: (data) => this.rewritten(data),
      mail: () => this.view?.stale?.(),
      gone: ({ why }) => this.gone(why),
      daemon: ({ away }) => this.followed(away),
    });
    // The stream has no event of a new title or label.
    this.polling = setInterval(() => {
      if (!document.hidden && this.notice.hidden) this.numbers.ask();
    }, DESCRIPTION_MS);
  }

  begin(stat) {
    this.stat = stat;
    const [incarnation, head, wire] = this.stat.state.split("/");
    this.incarnation = incarnation;
    this.head = parsePosition(head);
    this.wireHead = parsePosition(wire);
    this.describe();
  }

  describe() {
    const { stat } = this;
    document.title = `${stat.title || stat.session} · steno`;
    this.title.textContent = stat.title || stat.session;
    this.facts.replaceChildren(...[
      stat.title ? h("code", {}, stat.session) : null,
      ...stat.labels.map((label) => h("span", { class: "label" }, `#${label}`)),
      stat.archived ? h("span", { class: "label" }, "archived") : null,
      stat.forked_from
        ? h("span", {}, "fork of ", h("a", { href: at(stat.forked_from) }, stat.forked_from)) : null,
      h("span", { title: "the last count that was written, and an estimate of the messages after it" },
        `about ${count(stat.token_count_with_pending, "token")}`),
      h("span", {}, count(this.head.line, "line")),
      h("span", { title: "how often the session was rewritten: see Tree" },
        `generation ${this.head.generation}`),
    ].filter(Boolean));
    this.repairs.textContent = stat.repairs.join(" ");
    this.repairs.hidden = stat.repairs.length === 0;
    const origin = JSON.stringify(stat.origin);
    if (origin === this.originShown) return;
    this.originShown = origin;
    this.origin.replaceChildren(...originOf(stat.origin));
  }

  async show(name, position, other, odd = null) {
    await this.ready;
    if (this.isClosed) return;
    this.shownAt = { position, other };
    const isCompared = name === "compare" && position && other;
    const kind = isCompared ? "compare" : VIEWS[name] ? name : "transcript";
    this.tabs.replaceChildren(...Object.entries(VIEWS).map(([each, title]) => h("a", {
      href: at(this.session, each),
      "aria-current": each === kind ? "page" : null,
    }, title)));
    this.stripPlace.hidden = kind !== "transcript";
    this.odd?.remove();
    if (odd && kind === "transcript") {
      this.odd = h("p", { class: "notice", role: "status" },
        `“${odd}” is no position: one is generation:line, for example 0:12.`);
      this.place.before(this.odd);
    }
    if (kind === "transcript" && this.view instanceof Transcript && this.view.shows(position)) {
      if (position) this.view.go(position);
    } else {
      this.open(kind);
    }
    this.exports();
  }

  open(kind) {
    this.kind = kind;
    this.view?.close();
    this.place.replaceChildren();
    this.view = this.make(kind, this.shownAt);
  }

  make(kind, { position, other }) {
    switch (kind) {
      case "tree": return new Tree(this.place, this);
      case "wire": return new Wire(this.place, this);
      case "compare": return new Compare(this.place, this, position, other);
      default: return new Transcript(this.place, this, position);
    }
  }

  /** The end of what is shown: of the present, or of a past generation. */
  get end() {
    return this.view?.end ?? this.head;
  }

  exports() {
    const file = (format, text) => button(text, async (event) => {
      event.target.disabled = true;
      try {
        await save("export", {
          session: this.session, format, until: `${this.end.generation}:${this.end.line}`,
        });
      } catch (error) {
        this.panel.append(h("p", { role: "alert" }, prose(error.message)));
      }
      event.target.disabled = false;
    });
    this.panel.replaceChildren(file("markdown", "Markdown"), file("html", "HTML"), file("json", "JSON"));
  }

  grew({ head, wire }) {
    const before = this.wireHead;
    this.head = parsePosition(head);
    this.wireHead = parsePosition(wire);
    if (this.isNew) this.reopen();
    else this.view?.grew?.();
    // The events of a new session may reach the viewer after its lines.
    if (this.isNew || before.line !== this.wireHead.line) this.view?.wireGrew?.();
    this.isNew = false;
    this.numbers.ask();
  }

  /** Numbers, title and the strip follow a little later, however fast the session grows. */
  async refreshNumbers() {
    this.statsAsked += 1;
    const mine = this.statsAsked;
    try {
      const stat = await get("session", { session: this.session });
      // A change asks beside the throttle: an older answer that comes later is dropped.
      if (this.isClosed || mine < this.statShown) return;
      this.statShown = mine;
      this.stat = stat;
      const shown = JSON.stringify([stat, this.head]);
      // What has not changed stays, with the selection in it.
      if (shown === this.shown) return;
      this.shown = shown;
      this.describe();
      this.view?.cutsChanged?.();
      this.exports();
      await this.strip.load();
    } catch {
      // The stream says when the daemon is back; the next event asks again.
    }
  }

  rewritten({ incarnation, generation, kept, why }) {
    if (incarnation !== this.incarnation) {
      this.incarnation = incarnation;
      this.isNew = true;
    }
    if (this.isNew || generation <= this.head.generation) return;
    const gone = Math.max(0, this.head.line - kept);
    const from = this.head.generation;
    this.head = { generation, line: Math.min(kept, this.head.line) };
    say(`${words(why)}: ${count(gone, "line")} moved to generation ${from}`);
    this.view?.rewritten?.(generation, kept, { why: words(why), gone, from });
  }

  /** Make the view anew for the session that has this id now: each of its lines is another one. */
  reopen() {
    say("The session was created anew");
    if (this.kind) this.open(this.kind);
  }

  gone(why) {
    say("The session is gone");
    this.notice.textContent = why;
    this.notice.hidden = false;
  }

  /** Each stream begins with this event: the viewer can follow the session. */
  followed(isAway) {
    this.notice.hidden = true;
    this.away(isAway);
  }

  close() {
    this.isClosed = true;
    this.numbers.close();
    clearInterval(this.polling);
    this.stream?.close();
    this.view?.close();
    this.strip?.close();
  }
}

const WORDS = {
  revert_to: "Reverted", clear: "Cleared", write_system_prompt: "System prompt set",
  restore_generation: "Restored", compact_commit: "Compacted", deliver_dmail: "D-Mail delivered",
  repair: "Repaired", away: "Changed meanwhile",
};

function words(why) {
  return WORDS[why] ?? `Rewritten (${why})`;
}
