// A list of any length: only the rows in sight are elements.

/** Heights of rows with sums of the first ones, as a Fenwick tree. */
export class Heights {
  constructor(estimate) {
    this.estimate = estimate;
    this.length = 0;
    this.values = new Float64Array(64);
    this.sums = new Float64Array(65);
  }

  /** Cut the rows to this many, or add rows of the estimated height. */
  resize(length) {
    if (length > this.values.length) {
      const values = new Float64Array(Math.max(length, 2 * this.values.length));
      values.set(this.values.subarray(0, this.length));
      this.values = values;
    }
    if (length > this.length) this.values.fill(this.estimate, this.length, length);
    // A few more rows at the end of a long list are added one by one.
    const isShort = length >= this.length && length - this.length < 64;
    const before = this.length;
    this.length = length;
    if (isShort && this.sums.length > length) {
      for (let index = before; index < length; index += 1) this.append(index);
    } else {
      this.rebuild();
    }
  }

  append(index) {
    const node = index + 1;
    const first = node - (node & -node);
    let sum = this.values[index];
    for (let child = index; child > first; child -= child & -child) sum += this.sums[child];
    this.sums[node] = sum;
  }

  rebuild() {
    this.sums = new Float64Array(this.values.length + 1);
    for (let index = 0; index < this.length; index += 1) {
      const node = index + 1;
      this.sums[node] += this.values[index];
      const parent = node + (node & -node);
      if (parent <= this.length) this.sums[parent] += this.sums[node];
    }
  }

  set(index, height) {
    const change = height - this.values[index];
    this.values[index] = height;
    for (let node = index + 1; node <= this.length; node += node & -node) {
      this.sums[node] += change;
    }
  }

  /** The height of the first rows together. */
  before(index) {
    let sum = 0;
    for (let node = Math.min(index, this.length); node > 0; node -= node & -node) {
      sum += this.sums[node];
    }
    return sum;
  }

  /** The row at this height. */
  find(height) {
    let node = 0;
    let rest = height;
    let step = 1;
    while (2 * step <= this.length) step *= 2;
    for (; step > 0; step >>= 1) {
      if (node + step <= this.length && this.sums[node + step] <= rest) {
        node += step;
        rest -= this.sums[node];
      }
    }
    return Math.min(node, Math.max(0, this.length - 1));
  }
}

const SLACK = 400;
const FOCUSABLE = "a, button, summary, input";

/** The rows of a scrolling element; `render(index)` makes one. */
export class VirtualList {
  constructor(scroller, canvas, { estimate, render, follows = false, painted = () => {} }) {
    this.scroller = scroller;
    this.canvas = canvas;
    this.render = render;
    this.painted = painted;
    this.follows = follows;
    this.isFollowing = follows;
    this.heights = new Heights(estimate);
    this.elements = new Map();
    this.lastTop = 0;
    this.frame = 0;
    this.observer = new ResizeObserver((entries) => this.resized(entries));
    this.observer.observe(scroller);
    scroller.addEventListener("scroll", () => this.scrolled(), { passive: true });
  }

  get length() {
    return this.heights.length;
  }

  get isAtEnd() {
    const { scrollTop, clientHeight, scrollHeight } = this.scroller;
    return scrollTop + clientHeight >= scrollHeight - 24;
  }

  setLength(length) {
    const anchor = this.anchor();
    this.heights.resize(length);
    for (const [index, element] of this.elements) {
      if (index >= length) this.drop(index, element);
    }
    this.paint(anchor);
  }

  /** Make the rows in sight from this one on again, or those of them that `isStale` finds. */
  refresh(from = 0, until = Infinity, isStale = () => true) {
    const anchor = this.anchor();
    const focus = this.focused();
    for (const [index, element] of this.elements) {
      if (index >= from && index < until && isStale(index, element)) this.drop(index, element, true);
    }
    this.paint(anchor);
    if (focus && !document.activeElement?.closest(".item")) this.refocus(focus);
  }

  /** The row with the focus, and which of its elements has it. */
  focused() {
    const active = document.activeElement;
    for (const [index, element] of this.elements) {
      if (element.contains(active)) {
        return { index, number: [...element.querySelectorAll(FOCUSABLE)].indexOf(active) };
      }
    }
    return null;
  }

  refocus({ index, number }) {
    const element = this.elements.get(index);
    const target = number < 0 ? element : element?.querySelectorAll(FOCUSABLE)[number];
    target?.focus({ preventScroll: true });
  }

  scrollTo(index, offset = 80) {
    this.isFollowing = false;
    this.paint({ index: Math.max(0, Math.min(index, this.length - 1)), offset: -offset });
  }

  toEnd() {
    this.isFollowing = this.follows;
    this.paint({ index: this.length, offset: 0 });
  }

  /** The first row in sight, and how much of it is above. */
  anchor() {
    const index = this.heights.find(this.scroller.scrollTop);
    return { index, offset: this.scroller.scrollTop - this.heights.before(index) };
  }

  scrolled() {
    const top = this.scroller.scrollTop;
    if (top < this.lastTop - 1) this.isFollowing = this.follows && this.isAtEnd;
    else if (this.isAtEnd) this.isFollowing = this.follows;
    this.lastTop = top;
    if (!this.frame) {
      this.frame = requestAnimationFrame(() => {
        this.frame = 0;
        this.paint();
      });
    }
  }

  resized(entries) {
    const anchor = this.anchor();
    let isChanged = false;
    for (const { target } of entries) {
      const index = target === this.scroller ? -1 : Number(target.dataset.index);
      if (index < 0) isChanged = true;
      else if (this.elements.get(index) === target) {
        isChanged = this.measure(index, target) || isChanged;
      }
    }
    if (isChanged) this.paint(anchor);
  }

  measure(index, element) {
    const height = element.offsetHeight;
    if (!height || Math.abs(height - this.heights.values[index]) < 0.5) return false;
    this.heights.set(index, height);
    return true;
  }

  drop(index, element, always = false) {
    // A row with the focus stays, so that the keyboard keeps its place.
    if (!always && index < this.length && element.contains(document.activeElement)) return;
    this.observer.unobserve(element);
    element.remove();
    this.elements.delete(index);
  }

  paint(anchor = null) {
    let goal = anchor;
    // The heights of new rows change what is in sight; a few rounds settle it.
    for (let round = 0; round < 6; round += 1) {
      this.canvas.style.height = `${this.heights.before(this.length)}px`;
      this.place(goal);
      if (!this.fill()) break;
      goal = goal ?? anchor ?? this.lastAnchor;
    }
    for (const [index, element] of this.elements) {
      element.style.transform = `translateY(${this.heights.before(index)}px)`;
    }
    this.lastTop = this.scroller.scrollTop;
    const first = this.heights.find(this.scroller.scrollTop);
    const last = this.heights.find(this.scroller.scrollTop + this.scroller.clientHeight);
    this.painted(first, Math.min(this.length, last + 1));
  }

  place(anchor) {
    const { scroller } = this;
    let top = null;
    if (this.isFollowing) top = this.heights.before(this.length) - scroller.clientHeight;
    else if (anchor) top = this.heights.before(anchor.index) + anchor.offset;
    if (top !== null && Math.abs(scroller.scrollTop - top) >= 0.5) scroller.scrollTop = top;
    this.lastAnchor = this.anchor();
  }

  /** Make the rows that came into sight; returns whether a height was not as estimated. */
  fill() {
    const top = this.scroller.scrollTop;
    const first = this.heights.find(Math.max(0, top - SLACK));
    const last = this.heights.find(top + this.scroller.clientHeight + SLACK);
    for (const [index, element] of this.elements) {
      if (index < first || index > last) this.drop(index, element);
    }
    const made = [];
    let next = null;
    for (let index = Math.min(last, this.length - 1); index >= first; index -= 1) {
      let element = this.elements.get(index);
      if (!element) {
        element = this.render(index);
        element.dataset.index = index;
        element.classList.add("item");
        this.canvas.insertBefore(element, next ?? this.after(index));
        this.elements.set(index, element);
        made.push([index, element]);
      }
      next = element;
    }
    let isChanged = false;
    for (const [index, element] of made) isChanged = this.measure(index, element) || isChanged;
    for (const [, element] of made) this.observer.observe(element);
    return isChanged;
  }

  /** The element that a row comes before. */
  after(index) {
    let found = null;
    let least = Infinity;
    for (const [each, element] of this.elements) {
      if (each > index && each < least) {
        least = each;
        found = element;
      }
    }
    return found;
  }

  close() {
    this.observer.disconnect();
    cancelAnimationFrame(this.frame);
  }
}
