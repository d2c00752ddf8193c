// Search over all sessions: words, filters, results with their context, and the index as it grows.

import { get } from "./api.js";
import { at, button, count, h, number, say, size, time } from "./dom.js";

const TYPING_MS = 250;
const BUSY_MS = 700;
const IDLE_MS = 2500;
const COUNTED_MAX = 10000;
const ROLES = ["user", "assistant", "tool", "system", "_system_prompt"];
const FIELDS = ["q", "role", "session", "from", "to", "order"];

/** The beginning of a local day as Unix seconds, some days later. */
function day(text, later = 0) {
  const found = /^(\d{4})-(\d{2})-(\d{2})$/.exec(text);
  if (!found) return "";
  return String(new Date(Number(found[1]), found[2] - 1, Number(found[3]) + later).getTime() / 1000);
}

export class Search {
  constructor(main, { titleOf }) {
    document.title = "Search · steno";
    this.titleOf = titleOf;
    this.inputs = {
      q: this.input("search", "Words, \"a phrase\", prefix*", { id: "search-words", "aria-describedby": "search-help" }),
      role: this.select([["", "every role"], ...ROLES.map((role) => [role, role.replaceAll("_", " ").trim()])]),
      session: this.input("text", "id, or its beginning"),
      from: this.input("date"),
      to: this.input("date"),
      order: this.select([["relevance", "best first"], ["time", "newest first"]]),
    };
    this.index = h("p", { class: "muted index", role: "status" });
    this.summary = h("p", { class: "muted", role: "status" });
    this.results = h("ol", { class: "results", keydown: (event) => this.moved(event) });
    this.more = button("Show more results", () => this.load(), { class: "more", hidden: true });
    this.form = h("form", { role: "search", class: "search-form", submit: (event) => this.submitted(event) },
      this.field("Search in all sessions", "q"),
      h("p", { id: "search-help", class: "muted" },
        "Records with all words; upper case and accents make no difference."),
      h("div", { class: "filters" },
        this.field("Role", "role"), this.field("Session", "session"),
        this.field("From", "from"), this.field("To", "to"), this.field("Order", "order")));
    main.replaceChildren(h("div", { class: "scroller padded search", tabindex: "-1" },
      h("h1", {}, "Search"), this.form, this.index, this.summary, this.results, this.more));
    this.added = null;
    this.next = 0;
    this.many = 0;
    this.watch();
  }

  /** Results under the reader's hands stay as they are. */
  get isRead() {
    return this.results.contains(document.activeElement);
  }

  input(type, placeholder = null, attributes = {}) {
    return h("input", {
      type, placeholder, autocomplete: "off", spellcheck: "false", input: () => this.typed(),
      keydown: (event) => this.into(event), ...attributes,
    });
  }

  select(options) {
    return h("select", { change: () => this.typed() },
      options.map(([value, text]) => h("option", { value }, text)));
  }

  field(text, name) {
    return h("label", { class: `field for-${name}` }, h("span", {}, text), this.inputs[name]);
  }

  /** Show the search of an address: `q=...&role=...`. */
  show(text) {
    const given = new URLSearchParams(text ?? "");
    for (const name of FIELDS) {
      this.inputs[name].value = given.get(name) ?? (name === "order" ? "relevance" : "");
    }
    this.run();
    if (!given.get("q")) this.focus();
  }

  focus() {
    this.inputs.q.focus();
    this.inputs.q.select();
  }

  address() {
    const given = new URLSearchParams();
    for (const name of FIELDS) {
      const { value } = this.inputs[name];
      if (value && !(name === "order" && value === "relevance")) given.set(name, value);
    }
    return `#/search/${given}`;
  }

  typed() {
    clearTimeout(this.typing);
    this.typing = setTimeout(() => {
      history.replaceState(null, "", this.address());
      this.run();
    }, TYPING_MS);
  }

  submitted(event) {
    event.preventDefault();
    clearTimeout(this.typing);
    // A search that was sent off is a step of the history.
    if (location.hash === this.address()) this.run();
    else location.hash = this.address();
  }

  parameters() {
    const value = (name) => this.inputs[name].value;
    return {
      q: value("q"), role: value("role"), session: value("session").trim(),
      since: day(value("from")), until: day(value("to"), 1), order: value("order"),
    };
  }

  /** Search anew; results of an older search that arrive later are dropped. */
  async run(isRenewal = false) {
    this.asking?.abort();
    if (!this.inputs.q.value.trim()) {
      this.next = 0;
      this.many = 0;
      this.results.replaceChildren();
      this.summary.textContent = "";
      this.more.hidden = true;
      return;
    }
    await this.load(0, isRenewal);
  }

  async load(first = this.next, isRenewal = false) {
    const asking = new AbortController();
    this.asking = asking;
    let found;
    try {
      found = await get("search", { ...this.parameters(), offset: first }, asking.signal);
    } catch (error) {
      if (asking.signal.aborted || this.isClosed) return;
      this.next = 0;
      this.many = 0;
      this.results.replaceChildren();
      this.more.hidden = true;
      this.summary.textContent = error.message;
      return;
    }
    if (asking.signal.aborted || this.isClosed || (isRenewal && this.isRead)) return;
    const rows = found.hits.map((hit) => this.row(hit));
    if (first) this.results.append(...rows);
    else this.results.replaceChildren(...rows);
    if (first) rows[0]?.querySelector("a").focus();
    this.many = first ? this.many + rows.length : rows.length;
    this.next = found.next;
    this.more.hidden = found.next === null;
    this.summary.textContent = this.summarised(found);
    say(this.summary.textContent);
  }

  summarised({ count: many, ranked, next }) {
    if (!this.many) return next === null ? "Nothing found." : "Nothing found yet.";
    const all = many >= COUNTED_MAX ? `${number(many)} or more` : number(many);
    const shown = next === null ? count(this.many, "result") : `${number(this.many)} of ${all} results`;
    const isTooMany = !ranked && this.inputs.order.value === "relevance";
    return isTooMany ? `${shown}: too many to order, so that the newest come first` : shown;
  }

  /** One result; its words are marked element by element. */
  row(hit) {
    const title = this.titleOf(hit.session);
    return h("li", { class: "result" },
      h("a", { href: at(hit.session, "transcript", hit.at), "data-session": hit.session, "data-at": hit.at },
        h("span", { class: "line" },
          h("span", { class: "title" }, title || hit.session),
          h("span", { class: `role ${hit.role}` }, hit.role.replaceAll("_", " ").trim()),
          hit.by ? h("span", { class: "by" }, hit.by) : null,
          h("span", { class: "end" }, time(hit.time), h("span", { class: "place" }, hit.at))),
        title ? h("span", { class: "id muted" }, hit.session) : null,
        h("span", { class: "snippet" }, hit.before ? "… " : null,
          hit.parts.map((part, index) => (index % 2 ? h("mark", {}, part) : part)),
          hit.after ? " …" : null)));
  }

  /** Fill the index while this page is shown, and show how far it is. */
  async watch() {
    let isBusy = false;
    try {
      if (!document.hidden) {
        const progress = await get("search/progress");
        if (this.isClosed) return;
        isBusy = progress.running && !progress.complete;
        this.tell(progress);
        const isNew = this.added !== null && (progress.added !== this.added || progress.complete !== this.wasComplete);
        if (isNew && !this.isRead && this.many <= 20) this.run(true);
        this.added = progress.added;
        this.wasComplete = progress.complete;
      }
    } catch (error) {
      this.index.textContent = error.message;
    }
    if (!this.isClosed) this.watching = setTimeout(() => this.watch(), isBusy ? BUSY_MS : IDLE_MS);
  }

  tell({ complete, done, total, error, elsewhere, failed }) {
    const parts = [];
    if (error) parts.push(error);
    else if (!complete && elsewhere) parts.push("Another process fills the index: results may be missing.");
    else if (!complete) {
      const part = total ? Math.floor((100 * done) / total) : 0;
      parts.push(`Reading the sessions for the first time: ${part} % (${size(done)} of ${size(total)}).`
        + " Results may be missing.");
    }
    if (failed) parts.push(`${count(failed, "session")} could not be read: steno verify says why.`);
    this.index.hidden = !parts.length;
    const text = parts.join(" ");
    if (this.index.textContent !== text) this.index.textContent = text;
  }

  /** From the words, the arrow leads into the results. */
  into(event) {
    if (event.key === "ArrowDown" && event.target.type !== "date") {
      this.results.querySelector("a")?.focus();
      event.preventDefault();
    }
  }

  /** Arrows, and j and k, go from result to result; Escape goes back to the words. */
  moved(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "Escape") {
      this.focus();
      return;
    }
    const step = { ArrowDown: 1, j: 1, ArrowUp: -1, k: -1 }[event.key];
    const from = event.target.closest(".result");
    if (!step || !from) return;
    event.preventDefault();
    const to = step > 0 ? from.nextElementSibling : from.previousElementSibling;
    if (to) to.querySelector("a").focus();
    else if (step < 0) this.focus();
    else if (!this.more.hidden) this.more.focus();
  }

  close() {
    this.isClosed = true;
    this.asking?.abort();
    clearTimeout(this.typing);
    clearTimeout(this.watching);
  }
}
