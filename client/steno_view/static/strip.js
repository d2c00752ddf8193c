// The token strip: the size of the context over time, with its cuts; a click goes there.

import { get } from "./api.js";
import { at, count, h, moment, number, s } from "./dom.js";
import { answerFor } from "./pacing.js";

const HEIGHT = 64;
const POINTS_MAX = 2000;
const SIGNS = {
  reverted: "↶", compacted: "⇲", cleared: "∅", delivered: "✉", restored: "↷",
  prompted: "¶", mended: "✚", rotated: "◌",
};

export class Strip {
  constructor(place, session) {
    this.place = place;
    this.session = session;
    this.observer = new ResizeObserver(() => this.draw());
    this.observer.observe(place);
    this.load();
  }

  async load() {
    try {
      const outline = await answerFor(this, () => get("outline", { session: this.session }));
      if (this.isClosed) return;
      this.outline = outline;
      this.draw();
    } catch {
      // The last drawing stays; the header and the view show what is wrong with the session.
    }
  }

  /** Token counts, checkpoints and rewrites in the order in which they happened. */
  points() {
    const points = [];
    for (const generation of this.outline.generations) {
      if (generation.begun) {
        points.push({ kind: "cut", generation: generation.number, line: generation.first,
          begun: generation.begun, at: generation.begun.at });
      }
      for (const [line, kind, value, when] of generation.marks) {
        points.push({ kind, generation: generation.number, line, value, at: when });
      }
    }
    const counts = points.filter((point) => point.kind === "usage").length;
    const every = Math.ceil(counts / POINTS_MAX);
    let number_ = 0;
    return points.filter((point) => point.kind === "cut"
      || (point.kind === "usage" ? number_++ % every === 0 : every === 1));
  }

  draw() {
    if (!this.outline) return;
    const points = this.points();
    const counts = points.filter((point) => point.kind === "usage");
    const width = this.place.clientWidth;
    if (!width) return;
    if (!counts.length && !points.some((point) => point.kind === "cut")) {
      this.place.replaceChildren(h("p", { class: "muted strip-empty" }, "no token count was written yet"));
      return;
    }
    const most = Math.max(1, ...counts.map((point) => point.value));
    const step = (width - 16) / Math.max(1, points.length);
    const y = (tokens) => HEIGHT - 4 - (tokens / most) * (HEIGHT - 22);
    let line = `M8 ${HEIGHT - 4}`;
    let x = 8;
    const marks = [];
    for (const point of points) {
      point.x = x;
      if (point.kind === "usage") line += `V${y(point.value)}H${x + step}`;
      else {
        line += `H${x + step}`;
        marks.push(this.mark(point));
      }
      x += step;
    }
    const last = counts.at(-1);
    const cuts = points.filter((point) => point.kind === "cut").length;
    const title = last
      ? `Context size: ${count(last.value, "token")} now, ${number(most)} at most, ${cuts} rewrites`
      : `Context size: ${cuts} rewrites`;
    const drawing = s("svg", { viewBox: `0 0 ${width} ${HEIGHT}`, height: HEIGHT, width: "100%" },
      s("path", { d: `${line}V${HEIGHT - 4}Z`, class: "area" }),
      s("path", { d: line, class: "curve" }), marks);
    // Without a count the strip shows checkpoints and rewrites, and the scale means nothing.
    const largest = last ? `largest count: ${count(most, "token")}` : "no token count was written yet";
    const hint = h("span", { class: "strip-hint" }, largest);
    drawing.addEventListener("mousemove", (event) => {
      const found = this.nearest(points, event, drawing);
      hint.textContent = found ? describe(found) : "";
    });
    drawing.addEventListener("mouseleave", () => {
      hint.textContent = largest;
    });
    drawing.addEventListener("click", (event) => {
      const found = this.nearest(points, event, drawing);
      if (found) location.hash = this.address(found);
    });
    const focused = this.focused();
    this.place.replaceChildren(h("figure", { class: "strip", role: "group", "aria-label": title }, drawing, hint));
    // It is drawn anew whenever the session grows: the keyboard stays at its mark.
    if (focused !== null) this.marks().find((each) => addressOf(each) === focused)?.focus();
  }

  marks() {
    return [...this.place.querySelectorAll("a")];
  }

  /** The address of the mark that has the focus. */
  focused() {
    const found = this.marks().find((each) => each === document.activeElement);
    return found ? addressOf(found) : null;
  }

  mark(point) {
    if (point.kind === "checkpoint") {
      return s("path", { d: `M${point.x} ${HEIGHT - 4}v-6`, class: "tick" },
        s("title", {}, describe(point)));
    }
    const text = describe(point);
    return s("a", { href: this.address(point), class: `cutmark ${point.begun.kind}`, "aria-label": text },
      s("title", {}, text),
      s("path", { d: `M${point.x} 14V${HEIGHT - 4}` }),
      s("text", { x: point.x, y: 11, "text-anchor": point.x < 20 ? "start" : "middle" },
        SIGNS[point.begun.kind] ?? "•"));
  }

  nearest(points, event, drawing) {
    const x = event.clientX - drawing.getBoundingClientRect().left;
    let found = null;
    for (const point of points) {
      if (point.x <= x + 2) found = point;
    }
    return found;
  }

  address(point) {
    return at(this.session, "transcript", `${point.generation}:${point.line}`);
  }

  close() {
    this.isClosed = true;
    this.observer.disconnect();
  }
}

function addressOf(mark) {
  return mark.getAttribute("href");
}

function describe(point) {
  const when = point.at ? ` · ${moment(point.at)}` : "";
  const where = `${point.generation}:${point.line}`;
  if (point.kind === "usage") return `${count(point.value, "token")} · ${where}${when}`;
  if (point.kind === "checkpoint") return `checkpoint ${point.value} · ${where}${when}`;
  const { text, by } = point.begun;
  return `${text}${by ? ` by ${by}` : ""} · ${where}${when}`;
}
