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
 * Follow a session from a state on. The browser opens a lost stream again by itself, and names the
 * state after the last event; where it gives up (the answer was an error), this begins anew.
 */
export class Stream {
  constructor(session, state, listeners) {
    this.session = session;
    this.state = state;
    this.listeners = listeners;
    this.isClosed = false;
    this.open();
  }

  open() {
    this.source = new EventSource(address("events", { session: this.session, after: this.state }));
    for (const [name, listener] of Object.entries(this.listeners)) {
      this.source.addEventListener(name, (event) => {
        if (event.lastEventId) this.state = event.lastEventId;
        if (event.data !== undefined) listener(JSON.parse(event.data));
      });
    }
    this.source.onopen = () => this.listeners.opened?.();
    this.source.onerror = () => {
      this.listeners.lost?.();
      if (this.source.readyState === EventSource.CLOSED && !this.isClosed) {
        this.timer = setTimeout(() => this.open(), 2000);
      }
    };
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
    this.source.close();
  }
}
