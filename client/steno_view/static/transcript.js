// The transcript: one row for each line, live and of any length.

import { get, showImage } from "./api.js";
import { at, build, button, count, duration, h, moment, parsePosition, prose, time } from "./dom.js";
import { VirtualList } from "./list.js";
import { answerFor } from "./pacing.js";

const CHUNK = 50;
const FADE_MS = 700;
const KINDS = { assistant: "assistant", user: "user", tool: "tool", "system prompt": "system", system: "system" };

/** Makes the element of a row; the transcript and the comparison share it. */
export class RowMaker {
  constructor(session, generation, changes = null) {
    this.changes = changes;
    this.session = session;
    this.generation = generation;
    this.open = new Set();
  }

  position(row) {
    return `${this.generation}:${row.line}`;
  }

  place(row) {
    const text = this.position(row);
    return h("a", { class: "place", href: at(this.session, "transcript", text),
      title: `generation ${this.generation}, line ${row.line}: an address to share` },
      h("span", { class: "unseen" }, "position "), text);
  }

  make(row) {
    switch (row.kind) {
      case "checkpoint":
        return this.rule(row, "checkpoint", `checkpoint ${row.id}`);
      case "usage":
        return this.rule(row, "usage", count(row.tokens, "token"));
      case "hole":
        return this.rule(row, "hole", "a blank or damaged line: steno verify says which");
      default:
        return this.message(row);
    }
  }

  rule(row, kind, text) {
    return h("div", { class: `rule ${kind}` },
      h("span", { class: "what" }, text),
      row.by && kind === "checkpoint" ? h("span", { class: "by" }, row.by) : null,
      kind === "checkpoint" ? this.changes?.ofCheckpoint(row) : null,
      h("span", { class: "end" }, kind === "checkpoint" ? time(row.time) : null, this.place(row)));
  }

  message(row) {
    const name = row.name ? `${row.role} · ${row.name}` : row.role;
    const kind = KINDS[row.role] ?? "other";
    return h("div", { class: `message ${kind}` },
      h("header", {},
        h("span", { class: "role" }, name),
        row.by ? h("span", { class: "by" }, row.by) : null,
        row.duration !== undefined
          ? h("span", { class: "took", title: "from its call to its result" }, duration(row.duration))
          : null,
        h("span", { class: "end" }, time(row.time), this.place(row))),
      row.parts.map((part, number_) => this.part(row, part, number_)),
      this.more(row, row, "more part"));
  }

  part(row, part, index) {
    switch (part.kind) {
      case "text":
        return h("div", { class: "text" }, build(part.trees), this.more(row, part));
      case "thought":
        return this.folded(row, index, "thought",
          [h("span", { class: "tag" }, "thought"), h("span", { class: "hint" }, part.hint)],
          () => [h("div", { class: "text" }, build(part.trees), this.more(row, part))]);
      case "call":
        return this.folded(row, index, "call",
          [h("span", { class: "tag" }, part.name), h("span", { class: "hint" }, part.hint)],
          () => [h("pre", { class: "code" }, build(part.trees)), this.more(row, part)]);
      case "result":
        return this.result(row, part, index);
      case "image":
        return this.image(row, part);
      default:
        return this.folded(row, index, "json", [h("span", { class: "tag" }, part.title)],
          () => [h("pre", { class: "code" }, build(part.trees)), this.more(row, part)]);
    }
  }

  image(row, part) {
    const image = h("img", { alt: part.text });
    const asked = { session: this.session, at: this.position(row), part: part.part };
    // Without the daemon the description stands alone, until the row comes into sight again.
    showImage(image, asked).catch(() => {});
    return h("figure", {}, image, h("figcaption", { class: "muted" }, part.text));
  }

  result(row, part, index) {
    if (part.head === null) {
      return h("pre", { class: "output" }, part.text, this.more(row, part));
    }
    const key = `${row.line}/${index}`;
    const text = h("pre", { class: "output" });
    const toggle = button("", () => {
      if (!this.open.delete(key)) this.open.add(key);
      update();
    }, { class: "more" });
    const more = this.more(row, part);
    const update = () => {
      const isOpen = this.open.has(key);
      text.replaceChildren(isOpen ? part.text : part.head, ...(isOpen && more ? [more] : []));
      toggle.textContent = isOpen ? "Fold" : `Show all ${count(part.lines, "line")}`;
      toggle.setAttribute("aria-expanded", String(isOpen));
    };
    update();
    return h("div", {}, text, toggle);
  }

  /** A part that is built when it is first unfolded, and stays so while the row comes and goes. */
  folded(row, index, kind, summary, body) {
    const key = `${row.line}/${index}`;
    const element = h("details", { class: `fold ${kind}` }, h("summary", {}, summary));
    let isBuilt = false;
    const fill = () => {
      if (!isBuilt) element.append(...body().filter(Boolean));
      isBuilt = true;
    };
    if (this.open.has(key)) {
      element.open = true;
      fill();
    }
    element.addEventListener("toggle", () => {
      if (element.open) {
        this.open.add(key);
        fill();
      } else this.open.delete(key);
    });
    return element;
  }

  /** The button for what a row leaves out of a part, or of its parts. */
  more(row, part, what = "more character") {
    if (!part.more) return null;
    return button(`Show ${count(part.more, what)}`, async (event) => {
      const own = event.target.closest(".item");
      const { rows } = await get("rows", {
        session: this.session, first: this.position(row),
        until: `${this.generation}:${row.line + 1}`, whole: 1,
      });
      own.querySelector(".message").replaceWith(this.make(rows[0]));
    }, { class: "more" });
  }
}

export class Transcript {
  constructor(place, page, position) {
    this.page = page;
    this.rows = new Map();
    this.asked = new Set();
    this.epoch = 0;
    this.isPast = position !== null && position.generation !== page.head.generation;
    this.generation = this.isPast ? position.generation : page.head.generation;
    this.maker = new RowMaker(page.session, this.generation, this.isPast ? null : page.changes);
    this.end = this.isPast ? position : null;
    this.marked = position?.line ?? null;
    this.canvas = h("div", { class: "canvas", role: "feed", "aria-label": "Transcript" });
    this.scroller = h("div", { class: "scroller transcript", tabindex: "0", "aria-label": "Transcript" }, this.canvas);
    this.follow = button("Follow the end ↓", () => this.list.toEnd(), { class: "follow", hidden: true });
    if (this.isPast) {
      this.notice = this.banner();
      place.append(this.notice);
    }
    place.append(this.scroller, this.follow);
    this.list = new VirtualList(this.scroller, this.canvas, {
      estimate: 96,
      follows: !this.isPast,
      render: (index) => this.render(index),
      painted: (first, last) => this.sight(first, last),
    });
    this.scroller.addEventListener("keydown", (event) => this.key(event));
    this.shownCuts = JSON.stringify(page.stat.cuts);
    this.begin(position);
  }

  async begin(position) {
    if (this.isPast && !await this.findEnd()) return;
    this.list.setLength(this.length);
    if (position) this.go(position);
    else this.list.toEnd();
  }

  /** Say that a position is behind the end of its generation; returns whether it is. */
  isBehindEnd(position) {
    this.absent?.remove();
    if (position.line <= this.lines) return false;
    const end = `${this.generation}:${this.lines}`;
    this.absent = h("p", { class: "notice", role: "status" },
      `There is no position ${this.generation}:${position.line}: generation ${this.generation} ends at ${end}. `,
      h("a", { href: at(this.page.session, "transcript", end) }, "Go there"));
    this.scroller.before(this.absent);
    return true;
  }

  /** Find the end of a past generation; returns whether there is one, and the view is still open. */
  async findEnd() {
    const { session } = this.page;
    try {
      const found = await answerFor(this, () => get("end", { session, generation: this.generation }));
      if (this.isClosed) return false;
      this.end = parsePosition(found.end);
    } catch (error) {
      this.notice.replaceChildren(...prose(error.message), " ", this.toPresent());
      this.end = null;
    }
    this.page.exports();
    return this.end !== null;
  }

  get lines() {
    if (!this.isPast) return this.page.head.line;
    return this.end?.line ?? 0;
  }

  /** One row more than lines: what is after the last one. */
  get length() {
    return this.lines + 1;
  }

  shows(position) {
    if (!position) return !this.isPast;
    // Until a rewrite's lines have faded, `generation` is the one that it left behind.
    return position.generation === (this.isPast ? this.generation : this.page.head.generation);
  }

  banner() {
    const head = `${this.page.head.generation}:${this.page.head.line}`;
    return h("p", { class: "notice" },
      `Generation ${this.generation}, which a rewrite left behind. `,
      this.toPresent(), " · ",
      h("a", { href: at(this.page.session, "tree") }, "Tree"), " · ",
      h("a", { href: at(this.page.session, "compare", `${this.generation}:${this.end.line}`, head) },
        "Compare with the present"));
  }

  toPresent() {
    return h("a", { href: at(this.page.session) }, "Back to the present");
  }

  go(position) {
    if (this.isBehindEnd(position)) {
      this.marked = null;
      this.list.toEnd();
      return;
    }
    this.marked = position.line;
    this.list.scrollTo(position.line);
    this.list.refresh();
    const element = this.list.elements.get(position.line);
    element?.focus({ preventScroll: true });
  }

  render(index) {
    if (index >= this.lines) return this.last();
    const row = this.rows.get(index);
    const article = h("article", {
      tabindex: "-1",
      "aria-posinset": index + 1,
      "aria-setsize": this.lines,
      "data-line": index,
    });
    const made = row ? this.maker.make(row) : h("div", { class: "row-wait", "aria-hidden": "true" });
    article.append(...this.cuts(index), made);
    article.setAttribute("aria-label", label(row, index));
    if (index === this.marked) article.classList.add("marked");
    return article;
  }

  last() {
    const text = this.isPast ? "end of this generation"
      : this.lines ? "new records appear here" : "no record yet";
    return h("article", {
      class: "last muted", tabindex: "-1", "aria-posinset": this.length, "aria-setsize": this.length,
    }, ...this.cuts(this.lines), h("span", { class: "dot" }), text, this.openCalls());
  }

  /** The calls without a result among the rows before the end that are there. */
  openCalls() {
    const answered = new Set();
    const open = [];
    for (let line = this.lines - 1; this.rows.has(line); line -= 1) {
      const row = this.rows.get(line);
      for (const id of row.answers ?? []) answered.add(id);
      for (const part of row.parts ?? []) {
        if (part.kind === "call" && !answered.has(part.id)) open.unshift({ row, name: part.name });
      }
    }
    if (!open.length) return null;
    const places = open.map(({ row, name }) => h("span", {}, ` ${name} `, this.maker.place(row)));
    return h("span", { class: "open-calls" }, ` · no result yet of${open.length > 1 ? ":" : ""}`, places);
  }

  /** The rewrites whose cut lies before a line. */
  cuts(line) {
    if (this.isPast) return [];
    return this.page.stat.cuts
      .filter((cut) => cut.kept === line && cut.generation <= this.generation)
      .map((cut) => h("div", { class: "cut" },
        h("span", { class: "sign", "aria-hidden": "true" }, "✂"),
        h("span", {}, h("strong", {}, cut.text), cut.by ? ` by ${cut.by}` : "",
          cut.why ? `: ${cut.why}` : "", cut.cut ? ` · ${cut.cut}` : "",
          cut.at ? ` · ${moment(cut.at)}` : ""),
        h("a", { href: at(this.page.session, "transcript", `${cut.generation - 1}:${line}`) },
          `read generation ${cut.generation - 1}`)));
  }

  /** Show new notes of cuts; rows are made again for nothing else, so that a selection stays. */
  cutsChanged() {
    const cuts = JSON.stringify(this.page.stat.cuts);
    if (cuts === this.shownCuts) return;
    this.shownCuts = cuts;
    this.list.refresh();
  }

  sight(first, last) {
    this.follow.hidden = this.isPast || this.list.isFollowing;
    if (this.isFading) return;
    const from = Math.floor(first / CHUNK);
    const until = Math.floor(Math.max(first, Math.min(last, this.lines) - 1) / CHUNK);
    for (let chunk = from; chunk <= until; chunk += 1) this.load(chunk);
  }

  /** Read the lines of a part of the list that are missing. */
  async load(chunk) {
    const end = Math.min((chunk + 1) * CHUNK, this.lines);
    let first = chunk * CHUNK;
    while (first < end && this.rows.has(first)) first += 1;
    if (first >= end || this.asked.has(chunk)) return;
    this.asked.add(chunk);
    const { epoch } = this;
    try {
      const { rows } = await get("rows", {
        session: this.page.session, incarnation: this.page.incarnation,
        first: `${this.generation}:${first}`, until: `${this.generation}:${end}`,
      });
      if (epoch !== this.epoch || this.isClosed) return;
      for (const row of rows) this.rows.set(row.line, row);
      this.asked.delete(chunk);
      this.list.refresh(first, end);
      // What is behind the last line names the calls in the rows before it.
      this.list.refresh(this.lines, this.length);
    } catch (error) {
      if (epoch !== this.epoch || this.isClosed) return;
      // The daemon is away: the rows in sight are asked for again.
      setTimeout(() => {
        this.asked.delete(chunk);
        if (!this.isClosed) this.list.paint();
      }, 1000);
    }
  }

  grew() {
    if (this.isPast || this.isFading) return;
    this.generation = this.maker.generation = this.page.head.generation;
    const before = this.list.length;
    if (before === this.length) return;
    this.list.setLength(this.length);
    this.list.refresh(Math.max(0, before - 1), before);
  }

  /** Let the lines that a rewrite left behind fade, then take them out. */
  rewritten(generation, kept, { why, gone, from }) {
    if (this.isPast) return;
    this.epoch += 1;
    this.asked.clear();
    this.isFading = true;
    const isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    for (const [index, element] of this.list.elements) {
      if (index >= kept && index < this.list.length - 1) element.classList.add("leaving");
    }
    this.toast(`${why}: ${count(gone, "line")} moved to `, from);
    clearTimeout(this.fading);
    this.kept = Math.min(this.kept ?? Infinity, kept);
    this.fading = setTimeout(() => this.cut(generation), isStill ? 0 : FADE_MS);
  }

  cut() {
    this.isFading = false;
    for (const line of [...this.rows.keys()]) if (line >= this.kept) this.rows.delete(line);
    this.epoch += 1;
    this.asked.clear();
    this.generation = this.maker.generation = this.page.head.generation;
    // The kept rows stay; what follows them now is other lines, even where the number is the same.
    this.list.setLength(Math.min(this.list.length, this.kept));
    this.kept = undefined;
    this.list.setLength(this.length);
    this.list.refresh();
  }

  toast(text, generation) {
    this.note?.remove();
    this.note = h("div", { class: "toast" }, text,
      h("a", { href: at(this.page.session, "transcript", `${generation}:0`) }, `generation ${generation}`));
    this.scroller.before(this.note);
    clearTimeout(this.noting);
    this.noting = setTimeout(() => this.note.remove(), 8000);
  }

  /** j and k go from row to row. */
  key(event) {
    const step = { j: 1, k: -1 }[event.key];
    if (!step || event.ctrlKey || event.metaKey || event.altKey) return;
    const focused = document.activeElement?.closest?.(".item");
    const from = focused ? Number(focused.dataset.index) : this.list.anchor().index - (step > 0 ? 1 : 0);
    const index = Math.max(0, Math.min(this.length - 1, from + step));
    if (!this.list.elements.has(index) || !inSight(this.list.elements.get(index), this.scroller)) {
      this.list.scrollTo(index);
    }
    this.list.elements.get(index)?.focus({ preventScroll: true });
    event.preventDefault();
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.fading);
    clearTimeout(this.noting);
    this.list.close();
  }
}

function label(row, line) {
  if (!row) return `line ${line}`;
  if (row.kind === "checkpoint") return `checkpoint ${row.id}`;
  if (row.kind === "usage") return count(row.tokens, "token");
  if (row.kind === "hole") return "damaged line";
  return `${row.role}${row.name ? ` ${row.name}` : ""}${row.by ? ` by ${row.by}` : ""}`;
}

function inSight(element, scroller) {
  const { top, bottom } = element.getBoundingClientRect();
  const frame = scroller.getBoundingClientRect();
  return top >= frame.top && bottom <= frame.bottom;
}
