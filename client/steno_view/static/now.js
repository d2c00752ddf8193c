// The daemon now: its clients, its load, its disk and its health.

import { get } from "./api.js";
import { at, button, count, duration, h, number, prose, size } from "./dom.js";

const POLL_MS = 2000;
const SIGNS = { ok: "✓", warning: "●", problem: "✗" };

export class Now {
  constructor(main) {
    document.title = "Now · steno";
    this.numbers = h("div", { class: "cards" });
    this.clients = h("div", { class: "table" });
    this.syncs = h("div", {});
    this.errors = h("div", {});
    this.health = h("ul", { class: "health" });
    this.check = button("Check again", () => this.diagnose());
    main.replaceChildren(h("div", { class: "scroller padded now", tabindex: "0", "aria-label": "Now" },
      h("h1", {}, "Now"), this.numbers,
      h("h2", {}, "Clients"), this.clients,
      h("div", { class: "columns" },
        h("section", {}, h("h2", {}, "Sync times"), this.syncs),
        h("section", {}, h("h2", {}, "Errors and rewrites"), this.errors)),
      h("h2", {}, "Health"), this.check, this.health));
    this.poll();
    this.diagnose();
  }

  async poll() {
    try {
      if (!document.hidden) this.draw(await get("now"));
    } catch (error) {
      this.numbers.replaceChildren(h("p", { role: "alert" }, error.message));
    }
    if (!this.isClosed) this.timer = setTimeout(() => this.poll(), POLL_MS);
  }

  draw({ status, stats, clients }) {
    if (this.isClosed) return;
    const cards = [
      ["daemon", `stenod ${status.version}`, `pid ${status.pid}, up ${duration(status.uptime_s)}`],
      ["clients", number(stats.clients), count(stats.subscribers, "subscription")],
      ["open sessions", number(stats.sessions_open), count(stats.open_files, "file handle")],
      ["queued requests", number(stats.queued), `${number(stats.queued_most)} for the busiest file`],
      ["appended records", number(stats.appended_records), `${size(stats.appended_bytes)} since the start`],
      ["memory", size(stats.resident_bytes), status.draining ? "draining" : "of the daemon"],
    ];
    this.numbers.replaceChildren(...cards.map(([name, value, more]) => h("div", { class: "card" },
      h("span", { class: "muted" }, name), h("strong", {}, value), h("span", { class: "muted" }, more))));
    this.clients.replaceChildren(table(["Name", "PID", "Connected", "Requests", "Messages dropped", "Follows"], clients.map(
      (client) => [
        h("span", {}, client.name ?? "?", client.is_me ? h("span", { class: "label" }, "this viewer") : null),
        String(client.pid ?? "?"), duration(client.connected_s), number(client.requests),
        number(client.dropped),
        h("span", {}, client.subscriptions.map((session) => h("a", { href: at(session) }, session)).flatMap(
          (link, index) => (index ? [", ", link] : [link]))),
      ])));
    this.syncs.replaceChildren(histogram(stats.sync_s));
    const named = [...Object.entries(stats.errors).map(([name, many]) => [`error ${name}`, number(many)]),
      ...Object.entries(stats.rewrites).map(([name, many]) => [name, number(many)]),
      ["messages dropped", number(stats.dropped)], ["followers lagged", number(stats.lagged)],
      ["slow syncs", number(stats.slow_syncs)]];
    this.errors.replaceChildren(table(["What", "Since the start"], named));
  }

  async diagnose() {
    this.check.disabled = true;
    try {
      const { findings } = await get("doctor");
      this.health.replaceChildren(...findings.map((each) => h("li", { class: each.state },
        h("span", { class: "sign", "aria-hidden": "true" }, SIGNS[each.state]),
        h("span", {}, h("strong", {}, each.check), " ", prose(each.text),
          each.remedy ? h("span", { class: "remedy" }, prose(each.remedy)) : null),
        h("span", { class: "unseen" }, each.state))));
    } catch (error) {
      this.health.replaceChildren(h("li", { role: "alert" }, error.message));
    }
    this.check.disabled = false;
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }
}

function table(heads, rows) {
  return h("table", {}, h("thead", {}, h("tr", {}, heads.map((head) => h("th", { scope: "col" }, head)))),
    h("tbody", {}, rows.map((cells) => h("tr", {}, cells.map((cell) => h("td", {}, cell))))));
}

function histogram({ bounds, counts }) {
  const filled = counts.map((many, index) => (many ? index : -1)).filter((index) => index >= 0);
  if (!filled.length) return h("p", { class: "muted" }, "none yet");
  const most = Math.max(...counts);
  const names = [...bounds.map((bound) => `≤ ${duration(bound)}`), `> ${duration(bounds.at(-1))}`];
  const rows = [];
  for (let index = filled[0]; index <= filled.at(-1); index += 1) {
    const bar = h("span", { class: "bar" });
    bar.style.width = `${(100 * counts[index]) / most}%`;
    rows.push(h("tr", {}, h("th", { scope: "row" }, names[index]), h("td", {}, number(counts[index])),
      h("td", { class: "bars" }, bar)));
  }
  return h("table", { class: "histogram" }, h("tbody", {}, rows));
}
