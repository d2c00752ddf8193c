// Two states of a session side by side.

import { get } from "./api.js";
import { at, button, count, h, prose } from "./dom.js";
import { VirtualList } from "./list.js";
import { answerFor } from "./pacing.js";
import { RowMaker } from "./transcript.js";

const CHUNK = 50;

export class Compare {
  constructor(place, page, left, right) {
    this.page = page;
    this.sides = [side(page, left), side(page, right)];
    this.items = [];
    this.canvas = h("div", { class: "canvas" });
    this.scroller = h("div", { class: "scroller", tabindex: "0", "aria-label": "Comparison" }, this.canvas);
    place.append(h("div", { class: "pair heads" }, this.sides.map(({ text }) => h("a", {
      href: at(page.session, "transcript", text),
    }, `as of ${text}`))), this.scroller);
    this.list = new VirtualList(this.scroller, this.canvas, {
      estimate: 80,
      render: (index) => this.render(this.items[index]),
      painted: (first, last) => this.sight(first, last),
    });
    this.load();
  }

  async load() {
    try {
      const found = await answerFor(this, () => get("compare", {
        session: this.page.session, left: this.sides[0].text, right: this.sides[1].text,
      }));
      if (this.isClosed) return;
      this.items = found.parts.flatMap((part) => (part.same ? [{ same: part }] : pairs(part)));
      if (!this.items.some((item) => item.lines)) this.items.push({ says: "The two states are the same." });
    } catch (error) {
      this.items = [{ says: error.message }];
    }
    this.list.setLength(this.items.length);
  }

  render(item) {
    if (item.says) return h("p", { class: "empty" }, prose(item.says));
    if (item.same) {
      const [first, end] = item.same.left;
      return h("p", { class: "same" }, `${count(end - first, "line")} the same `, button("Show", () => {
        const at_ = this.items.indexOf(item);
        const shown = pairs(item.same).map((pair) => ({ ...pair, isSame: true }));
        this.items.splice(at_, 1, ...shown);
        this.list.setLength(this.items.length);
        this.list.refresh(at_);
      }));
    }
    return h("div", { class: item.isSame ? "pair equal" : "pair" }, item.lines.map((line, number) => {
      const { rows, maker } = this.sides[number];
      const kind = number ? "added" : "removed";
      if (line === null) return h("div", { class: "none" });
      const row = rows.get(line);
      return h("div", { class: item.isSame ? "" : kind },
        item.isSame ? null : h("span", { class: "unseen" }, number ? "only on the right: " : "only on the left: "),
        row ? maker.make(row) : h("div", { class: "row-wait" }));
    }));
  }

  sight(first, last) {
    for (const item of this.items.slice(first, last)) {
      item.lines?.forEach((line, number) => {
        if (line !== null) this.read(this.sides[number], Math.floor(line / CHUNK));
      });
    }
  }

  async read(one, chunk) {
    if (one.asked.has(chunk)) return;
    one.asked.add(chunk);
    const { generation } = one.position;
    try {
      const { rows } = await get("rows", {
        session: this.page.session, incarnation: this.page.incarnation,
        first: `${generation}:${chunk * CHUNK}`,
        until: `${generation}:${Math.min((chunk + 1) * CHUNK, one.position.line)}`,
      });
      for (const row of rows) one.rows.set(row.line, row);
      if (!this.isClosed) this.list.refresh();
    } catch {
      setTimeout(() => {
        one.asked.delete(chunk);
        if (!this.isClosed) this.list.paint();
      }, 1000);
    }
  }

  close() {
    this.isClosed = true;
    this.list.close();
  }
}

function side(page, position) {
  const text = `${position.generation}:${position.line}`;
  const maker = new RowMaker(page.session, position.generation);
  return { position, text, maker, rows: new Map(), asked: new Set() };
}

/** The lines of a part beside each other; one side may have more. */
function pairs({ left, right }) {
  const found = [];
  const many = Math.max(left[1] - left[0], right[1] - right[0]);
  for (let index = 0; index < many; index += 1) {
    found.push({ lines: [left, right].map(([first, end]) => (first + index < end ? first + index : null)) });
  }
  return found;
}
