// Elements by name, trees of the server, and numbers and times in words.
//
// No text is ever parsed as HTML: the policy of the page forbids it, and nothing here could do it.

/** Make an element; `attributes` with a function are listeners, children may be texts. */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (typeof value === "function") element.addEventListener(name, value);
    else element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...children.flat(2).filter((child) => child !== null && child !== undefined));
  return element;
}

/** A text of the daemon: what stands between backquotes is a command or a path. */
export function prose(text) {
  return text.split("`").map((part, index) => (index % 2 ? h("code", {}, part) : part));
}

const SVG = "http://www.w3.org/2000/svg";

/** Make an element of a drawing. */
export function s(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.flat());
  return element;
}

const TAGS = new Set(
  ("p ul ol li blockquote em strong s table thead tbody tr th td h4 h5 h6" +
    " span br hr code pre a").split(" "),
);
const LINK = /^(https?|mailto):/i;

/** Build the trees of the server: `[tag, attributes, ...children]` or a text. */
export function build(trees) {
  return trees.map((tree) => {
    if (typeof tree === "string") return document.createTextNode(tree);
    const [tag, attributes, ...children] = tree;
    const element = document.createElement(TAGS.has(tag) ? tag : "span");
    if (typeof attributes.class === "string") element.className = attributes.class;
    if (tag === "ol" && Number.isInteger(attributes.start)) element.start = attributes.start;
    if (tag === "a" && LINK.test(attributes.href)) {
      element.href = attributes.href;
      element.target = "_blank";
      element.rel = "noopener noreferrer nofollow";
    }
    element.append(...build(children));
    return element;
  });
}

/** A number with its thousands apart. */
export function number(value) {
  return String(value).replace(/\B(?=(\d{3})+(?!\d))/g, " ");
}

/** A number in at most five characters. */
export function compact(value) {
  const units = ["", "k", "M", "G", "T"];
  let amount = value;
  let unit = 0;
  while (amount >= 999.5 && unit < units.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${unit && amount < 9.95 ? amount.toFixed(1) : Math.round(amount)}${units[unit]}`;
}

/** An amount of money, with parts of a cent if it is small. */
export function money(amount, currency) {
  return `${amount.toFixed(amount >= 0.1 || amount === 0 ? 2 : 4)} ${currency}`.trim();
}

export function count(value, noun) {
  return `${number(value)} ${noun}${value === 1 ? "" : "s"}`;
}

export function size(bytes) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let amount = bytes;
  let unit = 0;
  while (amount >= 999.5 && unit < units.length - 1) {
    amount /= 1000;
    unit += 1;
  }
  return `${unit && amount < 9.95 ? amount.toFixed(1) : Math.round(amount)} ${units[unit]}`;
}

export function duration(seconds) {
  if (seconds < 0.00995) return `${Number((Math.max(0, seconds) * 1000).toPrecision(2))} ms`;
  if (seconds < 0.9995) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  if (seconds < 60) return `${Math.round(seconds)} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${Math.floor(seconds % 60)} s`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} h ${minutes % 60} min` : `${Math.floor(hours / 24)} d`;
}

export function ago(at) {
  const seconds = Date.now() / 1000 - at;
  if (seconds < 5) return "now";
  if (seconds < 60) return `${Math.floor(seconds)} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  if (seconds < 30 * 86400) return `${Math.floor(seconds / 86400)} d ago`;
  return moment(at).slice(0, 10);
}

/** A Unix time as local date and time; beyond the calendar as a number. */
export function moment(at) {
  const date = new Date(at * 1000);
  if (Number.isNaN(date.getTime())) return String(at);
  const two = (value) => String(value).padStart(2, "0");
  const day = `${date.getFullYear()}-${two(date.getMonth() + 1)}-${two(date.getDate())}`;
  return `${day} ${two(date.getHours())}:${two(date.getMinutes())}:${two(date.getSeconds())}`;
}

/** A time element; short on narrow screens. */
export function time(at) {
  if (at === null || at === undefined) return null;
  const text = moment(at);
  const date = new Date(at * 1000);
  const machine = Number.isNaN(date.getTime()) ? null : date.toISOString();
  return h("time", { datetime: machine, title: text },
    h("span", { class: "day" }, `${text.slice(0, 10)} `), text.slice(11) || text);
}

/** Let a screen reader say something. */
export function say(text) {
  document.getElementById("says").textContent = text;
}

/** A position as two numbers. */
export function parsePosition(text) {
  const found = /^(\d{1,9}):(\d{1,15})$/.exec(text ?? "");
  return found ? { generation: Number(found[1]), line: Number(found[2]) } : null;
}

/** The address of a view of a session. */
export function at(session, view = "transcript", ...rest) {
  return ["#/s", encodeURIComponent(session), view, ...rest].join("/");
}

export function button(text, act, attributes = {}) {
  return h("button", { type: "button", click: act, ...attributes }, text);
}
