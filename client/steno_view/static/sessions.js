// The list of the sessions: filtered as one types, mounts and archived sessions apart.

import { get, getNew } from "./api.js";
import { ago, at, count, h, number, size } from "./dom.js";
import { VirtualList } from "./list.js";

const POLL_MS = 2500;
const ROW = 68;

export class Sessions {
  constructor(element, { changed }) {
    this.changed = changed;
    this.entries = [];
    this.live = new Set();
    this.counts = new Map();
    this.items = [];
    this.current = null;
    this.filter = h("input", {
      type: "search",
      id: "filter",
      placeholder: "Filter by title, id or label",
      "aria-label": "Filter sessions",
      autocomplete: "off",
      spellcheck: "false",
      input: () => this.arrange(),
      keydown: (event) => this.typed(event),
    });
    this.summary = h("p", { id: "found", class: "muted", role: "status" }, "loading…");
    this.canvas = h("div", { class: "canvas", role: "list", "aria-label": "Sessions" });
    this.scroller = h("div", { class: "scroller" }, this.canvas);
    this.none = h("p", { class: "empty", hidden: true },
      "No session yet. One is listed here as soon as an agent writes to it; ",
      h("code", {}, "steno append"), " writes one by hand.");
    element.append(h("div", { class: "filter" }, this.filter, this.summary), this.none, this.scroller);
    this.list = new VirtualList(this.scroller, this.canvas, {
      estimate: ROW,
      render: (index) => this.render(this.items[index]),
      painted: (first, last) => this.sight(first, last),
    });
    this.canvas.addEventListener("keydown", (event) => this.moved(event));
    this.poll();
  }

  async poll() {
    clearTimeout(this.timer);
    try {
      if (!document.hidden) await this.load();
    } catch {
      this.changed({ isAway: true });
    }
    this.renewAges();
    this.timer = setTimeout(() => this.poll(), POLL_MS);
  }

  /** The ages grow while nothing else changes; the rows stay, and the focus with them. */
  renewAges() {
    for (const [index, element] of this.list.elements) {
      const when = element.querySelector(".when");
      if (when) when.textContent = ago(this.items[index].modified_at);
    }
  }

  async load() {
    const news = await getNew("sessions", this.tag);
    if (!news) return;
    this.tag = news.tag;
    this.entries = news.document.sessions;
    this.live = new Set(news.document.live);
    this.changed({ isAway: news.document.away });
    for (const entry of this.entries) {
      entry.words = [entry.session, entry.title, ...entry.labels.map((each) => `#${each}`)]
        .join("\n").toLowerCase();
    }
    this.arrange();
  }

  /** The rows of the list: groups with their heads. */
  arrange() {
    const words = this.filter.value.toLowerCase().split(/\s+/).filter(Boolean);
    const found = this.entries.filter((each) => words.every((word) => each.words.includes(word)));
    const groups = new Map([["", []]]);
    for (const each of found) {
      const group = each.archived ? "archived" : each.mount ? `mount ${each.mount}` : "";
      if (!groups.has(group)) groups.set(group, []);
      groups.get(group).push(each);
    }
    const names = [...groups.keys()].sort(
      (one, other) => (one === "archived") - (other === "archived") || (one < other ? -1 : 1),
    );
    this.items = [];
    for (const name of names) {
      const group = groups.get(name).sort((one, other) => other.modified_at - one.modified_at);
      if (name && group.length) this.items.push({ head: name, many: group.length });
      this.items.push(...group);
    }
    const all = count(this.entries.length, "session");
    this.summary.textContent =
      words.length ? `${number(found.length)} of ${all}` : all;
    this.none.hidden = this.entries.length > 0;
    const keys = this.items.map((item) => this.keyOf(item)).join("\0");
    if (keys === this.keys) return;
    this.keys = keys;
    this.list.setLength(this.items.length);
    this.list.refresh();
  }

  keyOf(item) {
    if (item.head) return `${item.head} ${item.many}`;
    const live = this.live.has(item.session);
    return `${item.session} ${item.modified_at} ${item.title} ${item.labels} ${live}`;
  }

  titleOf(session) {
    return this.entries.find((each) => each.session === session)?.title ?? "";
  }

  select(session) {
    this.current = session;
    this.list.refresh();
  }

  render(item) {
    if (item.head) {
      return h("div", { class: "group", role: "listitem" }, `${item.head} · ${number(item.many)}`);
    }
    const isLive = this.live.has(item.session);
    const isCurrent = item.session === this.current;
    const labels = item.labels.map((label) => `#${label}`);
    const link = h("a", {
      href: at(item.session),
      class: isCurrent ? "session current" : "session",
      "aria-current": isCurrent ? "page" : null,
      "data-session": item.session,
    },
    h("span", { class: "line" },
      h("span", { class: isLive ? "dot live" : "dot", title: isLive ? "a client follows it" : "no client follows it" },
        isLive ? h("span", { class: "unseen" }, "live, ") : null),
      h("span", { class: "title" }, item.title || item.session),
      h("span", { class: "when muted" }, ago(item.modified_at))),
    h("span", { class: "line small" },
      item.title ? h("span", { class: "id muted" }, item.session) : null,
      h("span", { class: "labels", title: labels.join(" ") },
        labels.map((label) => h("span", { class: "label" }, label))),
      h("span", { class: "numbers muted" }, `${this.tokens(item)}${size(item.bytes)}`)));
    return h("div", { role: "listitem" }, link);
  }

  tokens(item) {
    const counted = this.counts.get(item.session);
    return counted ? `${count(counted.token_count_with_pending, "token")} · ` : "";
  }

  /** Ask for the token counts of the sessions in sight; the list of the daemon has none. */
  sight(first, last) {
    clearTimeout(this.counting);
    this.counting = setTimeout(async () => {
      const wanted = this.items.slice(first, last)
        .filter((item) => !item.head && this.counts.get(item.session)?.at !== item.modified_at)
        .slice(0, 40);
      if (!wanted.length) return;
      try {
        const { counts } = await get("counts", { session: wanted.map((item) => item.session) });
        for (const item of wanted) {
          const found = counts[item.session] ?? { token_count_with_pending: 0 };
          this.counts.set(item.session, { ...found, at: item.modified_at });
        }
        this.list.refresh();
      } catch {
        // The next paint asks again.
      }
    }, 120);
  }

  /** From the filter, the arrow leads into the list. */
  typed(event) {
    if (event.key === "ArrowDown") {
      this.canvas.querySelector("a")?.focus();
      event.preventDefault();
    } else if (event.key === "Enter") {
      this.canvas.querySelector("a")?.click();
    }
  }

  moved(event) {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    const from = event.target.closest(".item");
    if (!step || !from) return;
    event.preventDefault();
    let index = Number(from.dataset.index) + step;
    while (this.items[index]?.head) index += step;
    if (index < 0) this.filter.focus();
    this.list.elements.get(index)?.querySelector("a")?.focus();
  }
}
