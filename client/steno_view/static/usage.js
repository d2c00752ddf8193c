// Tokens and cost of all sessions.

import { get } from "./api.js";
import { compact, count, h, money, number, prose } from "./dom.js";

const POLL_MS = 10_000;
const BYS = ["program", "model", "day", "session"];
const SPANS = [["today", 0], ["7 days", 6], ["30 days", 29], ["all time", null]];
const ROWS_MAX = 500;

export class Usage {
  constructor(main) {
    document.title = "Usage · steno";
    this.by = new Set(["program", "model"]);
    this.days = 6;
    this.chips = h("div", { class: "chips", role: "group", "aria-label": "Sums by" });
    this.cards = h("div", { class: "cards" });
    this.says = h("p", { class: "muted", role: "status" }, "reading…");
    this.table = h("div", { class: "table", tabindex: "0", role: "region", "aria-label": "Sums" });
    main.replaceChildren(h("div", { class: "scroller padded now usage", tabindex: "0", "aria-label": "Usage" },
      h("h1", {}, "Usage"), this.chips, this.cards, this.says, this.table));
    this.choose();
    this.poll();
  }

  /** The buttons that choose the sums and the time. */
  choose() {
    const chip = (text, isOn, act) => h("button", {
      type: "button", class: "chip", "aria-pressed": String(isOn), click: () => {
        act();
        this.choose();
        this.poll();
      },
    }, text);
    this.chips.replaceChildren(
      ...BYS.map((each) => chip(`by ${each}`, this.by.has(each), () => {
        if (!this.by.delete(each)) this.by.add(each);
        if (!this.by.size) this.by.add(each);
      })),
      h("span", { class: "space" }),
      ...SPANS.map(([text, days]) => chip(text, this.days === days, () => { this.days = days; })));
  }

  async poll() {
    clearTimeout(this.timer);
    let pauseMs = POLL_MS;
    const asked = { by: BYS.filter((each) => this.by.has(each)) };
    if (this.days !== null) asked.since = dayBefore(this.days);
    const key = this.asked = JSON.stringify(asked);
    try {
      if (!document.hidden) {
        const found = await get("usage", asked);
        if (this.isClosed || key !== this.asked) return;
        this.draw(found);
        if (!found.is_complete) pauseMs = 0;
      }
    } catch (error) {
      if (this.isClosed || key !== this.asked) return;
      this.says.replaceChildren(...prose(error.message));
    }
    this.timer = setTimeout(() => this.poll(), pauseMs);
  }

  draw({ by, currency, rows, total, is_complete: isComplete, read, sessions }) {
    const cost = total.cost === null ? "–" : money(total.cost, currency);
    this.cards.replaceChildren(...[
      ["tokens", compact(total.tokens), count(total.requests, "request")],
      ["cost", cost, total.unpriced ? `${compact(total.unpriced)} tokens without a price` : "of all tokens"],
      ["read", compact(total.input + total.cache_read + total.cache_write), `${compact(total.cache_read)} from a cache`],
      ["written", compact(total.output), "by models"],
    ].map(([name, value, more]) => h("div", { class: "card" },
      h("span", { class: "muted" }, name), h("strong", {}, value), h("span", { class: "muted" }, more))));
    const says = isComplete ? "" : `${number(read)} of ${count(sessions, "session")} read… `;
    const prices = total.unpriced
      ? "Prices are those in the file prices.toml of the root: `steno help usage`." : "";
    const hidden = rows.length > ROWS_MAX
      ? `The first ${number(ROWS_MAX)} of ${number(rows.length)} rows; \`steno usage --csv\` has all. ` : "";
    this.says.replaceChildren(...prose(`${says}${hidden}${prices}`));
    // The sums first: a narrow screen shows the rest after a move to the side.
    const columns = ["tokens", "cost", "requests", "input", "from cache", "to cache", "output"];
    const cells = (row) => [
      compact(row.tokens), row.cost === null ? "–" : money(row.cost, currency), compact(row.requests),
      compact(row.input), compact(row.cache_read), compact(row.cache_write), compact(row.output),
    ].map((text) => h("td", { class: "figure" }, text));
    this.table.replaceChildren(h("table", {},
      h("thead", {}, h("tr", {},
        by.map((each) => h("th", { scope: "col" }, each)),
        columns.map((each) => h("th", { scope: "col", class: "figure" }, each)))),
      h("tbody", {}, rows.slice(0, ROWS_MAX).map((row) => h("tr", {},
        by.map((each) => h("td", { class: "name" }, row[each] ?? `no ${each}`)), cells(row))))));
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }
}

/** The day some days ago, in the zone of this browser. */
function dayBefore(days) {
  const date = new Date();
  date.setDate(date.getDate() - days);
  const two = (value) => String(value).padStart(2, "0");
  return `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
}
