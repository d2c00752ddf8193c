// The events of the wire file as a timeline: by turn, tool by tool.

import { get } from "./api.js";
import { at, button, count, duration, h, moment, number, prose } from "./dom.js";
import { VirtualList } from "./list.js";
import { answerFor, Throttle } from "./pacing.js";

const CHUNK = 100;
const GROWTH_MS = 250;

export class Wire {
  constructor(place, page) {
    this.page = page;
    this.hidden = new Set();
    this.items = [];
    this.rendered = new WeakMap();
    this.forget();
    this.filters = h("div", { class: "chips", role: "group", "aria-label": "Types of events" });
    this.canvas = h("div", { class: "canvas", role: "list", "aria-label": "Events" });
    this.scroller = h("div", { class: "scroller", tabindex: "0", "aria-label": "Events" }, this.canvas);
    place.append(this.filters, this.scroller);
    this.list = new VirtualList(this.scroller, this.canvas, {
      estimate: 34,
      follows: true,
      render: (index) => this.render(this.items[index]),
      painted: (first, last) => this.sight(first, last),
    });
    this.growth = new Throttle(() => this.load(), GROWTH_MS);
    this.growth.run();
  }

  async load() {
    try {
      const { session } = this.page;
      const found = await answerFor(this, () => Promise.all([
        get("wire", { session }), get("outline", { session }),
      ]));
      if (this.isClosed) return;
      const [index, outline] = found;
      if (index.end < this.index?.end) this.forget();
      this.index = index;
      this.counts = outline.generations
        .flatMap((each) => each.marks).filter((mark) => mark[1] === "usage" && mark[3]);
    } catch (error) {
      this.show([{ error: error.message }]);
      return;
    }
    this.types();
    this.arrange();
  }

  /** Other events come at the lines of those that were taken from the file. */
  forget() {
    this.open = new Set();
    this.payloads = new Map();
    this.asked = new Set();
  }

  wireGrew() {
    this.growth.ask();
  }

  types() {
    const many = new Map();
    for (const event of this.index.events) many.set(event[1], (many.get(event[1]) ?? 0) + 1);
    const { types } = this.index;
    const names = types.join("\n");
    if (names !== this.names) this.filters.replaceChildren(...types.map((name) => this.chip(name)));
    this.names = names;
    this.filters.hidden = !types.length;
    types.forEach((name, type) => {
      this.filters.children[type].textContent = `${name} ${number(many.get(type) ?? 0)}`;
    });
  }

  chip(name) {
    const chip = button(name, () => {
      const isShown = this.hidden.delete(name);
      if (!isShown) this.hidden.add(name);
      chip.setAttribute("aria-pressed", String(isShown));
      this.arrange();
    }, { "aria-pressed": String(!this.hidden.has(name)), class: "chip", title: "show or hide these events" });
    return chip;
  }

  /** The rows: a head for each turn, and its events that the filter shows. */
  arrange() {
    const hidden = new Set(this.index.types.map((name, type) => (this.hidden.has(name) ? type : -1)));
    this.items = [];
    let turn = null;
    let turns = 0;
    for (const event of this.index.events) {
      const [line, type, when, seconds, name, mark, tokens] = event;
      if (mark === "turn") {
        if (turn) turn.next = when;
        turn = { turn: turns, line, begin: when, end: when, next: Infinity, tools: 0, troubles: 0 };
        turns += 1;
        this.items.push(turn);
      }
      if (turn) {
        turn.end = Math.max(turn.end, when);
        if (this.index.types[type] === "ToolCall") turn.tools += 1;
        if (mark === "trouble") turn.troubles += 1;
        turn.tokens = tokens ?? turn.tokens;
      }
      if (!hidden.has(type)) this.items.push({ line, type, when, seconds, name, mark, in: turn });
    }
    this.show(this.items.length ? this.items : [{ none: true }]);
  }

  show(items) {
    this.items = items;
    this.list.setLength(this.items.length);
    this.refresh();
  }

  /** Make the rows again that say something else now; the others keep a selection and the focus. */
  refresh() {
    this.list.refresh(0, Infinity,
      (index, element) => this.rendered.get(element) !== this.content(this.items[index]));
    for (const [index, element] of this.list.elements) {
      const bar = element.querySelector(".bar");
      if (bar) this.lay(bar, this.items[index]);
    }
  }

  render(item) {
    const element = this.make(item);
    this.rendered.set(element, this.content(item));
    return element;
  }

  /** Everything that the row of an item shows, but the place of its bar. */
  content(item) {
    const known = this.payloads.get(item.line);
    if (item.turn !== undefined) return JSON.stringify([item, this.counted(item), said(known?.payload)]);
    const { in: turn, ...own } = item;
    const type = this.index?.types[item.type];
    return JSON.stringify([own, type, turn?.begin, this.span(item) > 0, known !== undefined, known?.at]);
  }

  make(item) {
    if (item.none) return h("p", { class: "empty" }, "No event yet: agents write them with ", h("code", {}, "append_wire"), " or ", h("code", {}, "steno emit"), ".");
    if (item.error) return h("p", { class: "empty", role: "alert" }, prose(item.error));
    return item.turn === undefined ? this.event(item) : this.turn(item);
  }

  turn(item) {
    const input = said(this.payloads.get(item.line)?.payload);
    const tokens = item.tokens ?? this.counted(item);
    return h("div", { class: "turn", role: "listitem" },
      h("h2", {}, `Turn ${item.turn}`),
      input ? h("span", { class: "hint" }, input) : null,
      h("span", { class: "end muted" },
        [`${moment(item.begin)}`, duration(item.end - item.begin),
          item.tools ? count(item.tools, "tool") : null,
          tokens === null ? null : count(tokens, "token")].filter(Boolean).join(" · "),
        item.troubles ? h("span", { class: "trouble" }, ` · ${count(item.troubles, "problem")}`) : null));
  }

  /** The last token count of the transcript that was written during a turn. */
  counted({ begin, next }) {
    const found = this.counts.filter(([, , , at_]) => at_ >= begin && at_ < next);
    return found.at(-1)?.[2] ?? null;
  }

  event(item) {
    const known = this.payloads.get(item.line);
    const type = this.index.types[item.type];
    const isCall = type === "ToolCall";
    const since = item.in ? `+${duration(item.when - item.in.begin)}` : moment(item.when).slice(11);
    const details = h("details", { class: "event-body" }, h("summary", {},
      h("span", { class: "since muted" }, since),
      h("span", { class: "type" }, item.mark === "trouble" ? "⚠ " : item.mark === "approval" ? "◆ " : "", type),
      h("span", { class: "tag" }, item.name),
      h("span", { class: "took" }, item.seconds !== null ? duration(item.seconds) : ""),
      this.lane(item, isCall)));
    const fill = () => {
      const found = this.payloads.get(item.line);
      if (found && details.childElementCount === 1) {
        details.append(h("pre", { class: "code" }, JSON.stringify(found.payload, null, 2)));
      }
    };
    if (this.open.has(item.line)) {
      details.open = true;
      fill();
    }
    details.addEventListener("toggle", () => {
      if (details.open) this.open.add(item.line);
      else this.open.delete(item.line);
      fill();
    });
    return h("div", { class: `event ${item.mark}`, role: "listitem" }, details,
      known?.at
        ? h("a", { class: "place", href: at(this.page.session, "transcript", known.at) },
          h("span", { class: "unseen" }, "transcript at "), known.at) : h("span", { class: "place" }));
  }

  /** When in its turn an event happened, and how long its tool ran. */
  lane(item, isCall) {
    const lane = h("span", { class: "lane", "aria-hidden": "true" });
    if (this.span(item) <= 0) return lane;
    const bar = h("span", { class: isCall ? "bar" : "bar point" });
    this.lay(bar, item);
    lane.append(bar);
    return lane;
  }

  lay(bar, item) {
    const span = this.span(item);
    bar.style.left = `min(calc(100% - 3px), ${(100 * (item.when - item.in.begin)) / span}%)`;
    const hasWidth = item.seconds !== null && !bar.classList.contains("point");
    if (hasWidth) bar.style.width = `${Math.max(0.5, (100 * item.seconds) / span)}%`;
  }

  /** The seconds that the turn of an event has taken. */
  span(item) {
    return item.in ? item.in.end - item.in.begin : 0;
  }

  sight(first, last) {
    const lines = this.items.slice(first, last).map((item) => item.line).filter((line) => line !== undefined);
    for (const chunk of new Set(lines.map((line) => Math.floor(line / CHUNK)))) this.read(chunk);
  }

  async read(chunk) {
    const first = chunk * CHUNK;
    const end = Math.min(first + CHUNK, this.index.end);
    const key = `${chunk}/${end}`;
    const { asked } = this;
    if (asked.has(key)) return;
    asked.add(key);
    try {
      const { events } = await get("wire/events", { session: this.page.session, first, end });
      if (this.isClosed || asked !== this.asked) return;
      for (const event of events) this.payloads.set(event.line, event);
      this.refresh();
    } catch {
      setTimeout(() => {
        asked.delete(key);
        if (!this.isClosed) this.list.paint();
      }, 1000);
    }
  }

  close() {
    this.isClosed = true;
    this.growth.close();
    this.list.close();
  }
}

function said(payload) {
  const input = payload?.user_input;
  if (typeof input === "string") return input.slice(0, 200);
  if (!Array.isArray(input)) return "";
  return input.map((part) => (typeof part?.text === "string" ? part.text : "")).join(" ").slice(0, 200);
}
