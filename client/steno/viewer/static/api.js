// Requests to the viewer, and its stream of events.

/** An answer that says why a request failed. */
export class Failure extends Error {
  constructor(status, document) {
    super(document?.message ?? `the viewer answered ${status}`);
    this.status = status;
    this.code = document?.code ?? null;
  }
}

async function answerOf(response) {
  if (response.ok) return response;
  let document = null;
  try {
    document = (await response.json()).error;
  } catch {
    document = null;
  }
  throw new Failure(response.status, document);
}

function address(path, parameters) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(parameters)) {
    for (const each of Array.isArray(value) ? value : [value]) query.append(name, each);
  }
  const text = query.toString();
  return `/api/${path}${text ? `?${text}` : ""}`;
}

/** The JSON answer to a question. */
export async function get(path, parameters = {}, signal = undefined) {
  const response = await fetch(address(path, parameters), { signal, cache: "no-store" });
  return (await answerOf(response)).json();
}

/** The answer to a question, or null when it is the one that had this tag. */
export async function getNew(path, tag) {
  const headers = tag ? { "If-None-Match": tag } : {};
  const response = await fetch(`/api/${path}`, { headers, cache: "no-store" });
  if (response.status === 304) return null;
  await answerOf(response);
  return { tag: response.headers.get("etag"), document: await response.json() };
}

/** Ask for a change. */
export async function post(path, document) {
  const response = await fetch(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(document),
  });
  await answerOf(response);
  return response.status === 204 ? null : response.json();
}

/** The address of a file that the viewer makes. */
export function link(path, parameters) {
  return address(path, parameters);
}

/**
 * The id that all pages of this browser share. The viewer holds only a few of their streams open,
 * because the browser has six connections to it; a page whose stream ends at once asks again.
 */
function browserId() {
  const id = localStorage.getItem("steno browser") ?? Math.random().toString(36).slice(2);
  localStorage.setItem("steno browser", id);
  return id;
}

/**
 * Follow a session from a state on while the page is visible. The browser opens a lost stream again
 * by itself, and names the state after the last event; where it gives up (the answer was an error),
 * this begins anew.
 */
export class Stream {
  constructor(session, state, listeners) {
    this.session = session;
    this.state = state;
    this.listeners = listeners;
    this.turned = () => this.turn();
    document.addEventListener("visibilitychange", this.turned);
    this.turn();
  }

  /** Follow while the page is visible: a hidden one leaves its connection to the others. */
  turn() {
    this.end();
    if (!document.hidden) this.open();
  }

  open() {
    const { session, state } = this;
    this.source = new EventSource(
      address("events", { session, after: state, browser: browserId() }));
    for (const [name, listener] of Object.entries(this.listeners)) {
      this.source.addEventListener(name, (event) => {
        if (event.lastEventId) this.state = event.lastEventId;
        if (event.data !== undefined) listener(JSON.parse(event.data));
      });
    }
    this.source.onerror = () => {
      if (this.source.readyState === EventSource.CLOSED) {
        this.timer = setTimeout(() => this.open(), 2000);
      }
    };
  }

  end() {
    clearTimeout(this.timer);
    this.source?.close();
  }

  close() {
    document.removeEventListener("visibilitychange", this.turned);
    this.end();
  }
}
