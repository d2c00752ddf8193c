// The tree: generations, forks and D-Mails as a branch diagram.

import { get } from "./api.js";
import { at, button, count, h, moment, prose, s, size } from "./dom.js";
import { answerFor } from "./pacing.js";

const LANE = 18;

export class Tree {
  constructor(place, page) {
    this.page = page;
    this.chosen = [];
    this.compare = button("Compare the two", () => this.compareChosen(), { disabled: true });
    this.list = h("ol", { class: "tree" });
    this.scroller = h("div", { class: "scroller padded", tabindex: "0", "aria-label": "Generations" },
      h("div", { class: "tree-bar" },
        h("p", { class: "muted" }, "Each rewrite begins a generation; what it left behind stays readable."),
        this.compare),
      this.list);
    place.append(this.scroller);
    this.load();
  }

  async load() {
    try {
      const tree = await answerFor(this, () => get("tree", { session: this.page.session }));
      if (this.isClosed) return;
      this.tree = tree;
      this.draw();
    } catch (error) {
      this.list.replaceChildren(h("li", { role: "alert" }, prose(error.message)));
    }
  }

  grew() {
    const { head } = this.page;
    if (this.tree && Number(this.tree.head.split(":")[0]) !== head.generation) this.load();
  }

  rewritten() {
    this.load();
  }

  stale() {
    this.load();
  }

  draw() {
    const lanes = this.lanes();
    const present = Number(this.tree.head.split(":")[0]);
    const many = Math.max(...lanes.values()) + 1;
    // The present comes first, as in the history of a file.
    const generations = [...this.tree.generations].reverse();
    this.list.replaceChildren(...generations.map(
      (each, row) => this.generation(each, row, generations, lanes, many, present)));
    // One state has nothing beside it.
    this.compare.hidden = generations.length < 2;
    for (const each of this.list.querySelectorAll("label:has(input)")) each.hidden = this.compare.hidden;
  }

  /** A column for each generation: the way to the present is the first one. */
  lanes() {
    const by = new Map(this.tree.generations.map((each) => [each.number, each]));
    const lanes = new Map();
    for (let each = by.get(Number(this.tree.head.split(":")[0])); each; each = by.get(each.parent)) {
      lanes.set(each.number, 0);
    }
    let next = 1;
    for (const each of [...this.tree.generations].reverse()) {
      if (lanes.has(each.number)) continue;
      // A branch goes down its own column as far as it is its alone.
      for (let step = each; step && !lanes.has(step.number); step = by.get(step.parent)) {
        lanes.set(step.number, next);
      }
      next = next >= 8 ? 1 : next + 1;
    }
    return lanes;
  }

  generation(each, row, all, lanes, many, present) {
    const isPresent = each.number === present;
    const end = this.endOf(each);
    const box = h("input", { type: "checkbox", change: (event) => this.choose(each, event.target) });
    const story = [each.made, ...each.notes].filter(Boolean).sort((one, other) => one.at - other.at);
    return h("li", { class: isPresent ? "generation present" : "generation" },
      this.graph(each, row, all, lanes, many, isPresent),
      h("div", { class: "story" },
        h("h2", {},
          h("a", { href: isPresent ? at(this.page.session) : at(this.page.session, "transcript", `${each.number}:${each.made?.kept ?? 0}`) },
            `Generation ${each.number}`),
          isPresent ? h("span", { class: "label" }, "now") : null,
          h("span", { class: "muted" },
            each.lines !== null ? count(each.lines, "line") : each.bytes !== null ? size(each.bytes) : "")),
        h("ul", {}, story.map((entry) => this.entry(entry))),
        h("div", { class: "choose" },
          end ? h("label", {}, box, ` compare its end, ${end}`) : null,
          isPresent ? null : this.page.changes.ofGeneration(each))));
  }

  endOf(each) {
    return each.lines === null ? null : `${each.number}:${each.lines}`;
  }

  entry(entry) {
    const mail = entry.kind === "sent" || entry.kind === "delivered";
    return h("li", { class: mail ? "mail" : entry.kind },
      h("span", {}, entry.text, entry.by ? ` by ${entry.by}` : "", entry.why ? `: ${entry.why}` : "",
        entry.inferred ? " (inferred from the files)" : ""),
      entry.cut ? h("span", { class: "muted" }, ` · ${entry.cut}`) : null,
      entry.at ? h("time", { class: "muted" }, ` · ${moment(entry.at)}`) : null,
      entry.kind === "fork" && typeof entry.details.to === "string"
        ? [" ", h("a", { href: at(entry.details.to) }, "open the fork")] : null,
      entry.kind === "forked" && typeof entry.details.from === "string"
        ? [" ", h("a", { href: at(entry.details.from) }, "open its source")] : null);
  }

  graph(each, row, all, lanes, many, isPresent) {
    const x = (lane) => 10 + lane * LANE;
    const own = x(lanes.get(each.number));
    const parts = [];
    for (const other of all) {
      const lane = x(lanes.get(other.number));
      const from = all.indexOf(other);
      const until = all.findIndex((found) => found.number === other.parent);
      if (until < 0) continue;
      // The line of a generation runs down to its parent, and bends there.
      if (from < row && row < until) parts.push(s("line", { x1: lane, x2: lane, y1: 0, y2: "100%" }));
      if (from === row) parts.push(s("line", { x1: lane, x2: lane, y1: 14, y2: "100%" }));
      if (until === row) {
        parts.push(s("path", { d: lane === own ? `M${own} 0V14` : `M${lane} 0C${lane} 10 ${own} 2 ${own} 14` }));
      }
    }
    parts.push(s("circle", { cx: own, cy: 14, r: isPresent ? 6 : 5, class: isPresent ? "now" : "" }));
    const graph = h("div", { class: "graph", "aria-hidden": "true" }, s("svg", {}, parts));
    graph.style.width = `${10 + many * LANE}px`;
    return graph;
  }

  choose(each, box) {
    this.chosen = this.chosen.filter((one) => one.box !== box);
    if (box.checked) this.chosen.push({ box, position: this.endOf(each), number: each.number });
    if (this.chosen.length > 2) {
      this.chosen[0].box.checked = false;
      this.chosen.shift();
    }
    this.compare.disabled = this.chosen.length !== 2;
  }

  compareChosen() {
    const [left, right] = [...this.chosen].sort((one, other) => one.number - other.number);
    location.hash = at(this.page.session, "compare", left.position, right.position);
  }

  close() {
    this.isClosed = true;
  }
}
