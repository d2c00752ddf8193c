// Requests to the viewer, and its stream of events.

const SECRET = "steno token";
const ANSWER_MS = 300;
const RETRY_MS = 2000;

/** An answer that says why a request failed. */
export class Failure extends Error {
  constructor(status, document) {
    super(document?.message ?? `the viewer answered ${status}`);
    this.status = status;
    this.code = document?.code ?? null;
  }
}

/**
 * The tabs of this viewer give each other its token. It lives in `sessionStorage`: a tab keeps it
 * over a reload, and no other server gets it, not even one on another port of this machine.
 */
const tabs = new BroadcastChannel("steno");
tabs.addEventListener("message", ({ data }) => {
  const token = sessionStorage.getItem(SECRET);
  if (data === "wanted" && token) tabs.postMessage({ token });
});

/** Exchange the token of the printed address for the one of requests. */
export async function login(printed) {
  const { token } = await post("login", { token: printed });
  sessionStorage.setItem(SECRET, token);
}

/** Whether this tab may ask: it has the token, or another tab of this viewer gives it. */
export async function isKnown() {
  if (!sessionStorage.getItem(SECRET)) {
    const given = await new Promise((done) => {
      tabs.addEventListener("message", ({ data }) => { if (data.token) done(data.token); });
      tabs.postMessage("wanted");
      setTimeout(done, ANSWER_MS);
    });
    if (given) sessionStorage.setItem(SECRET, given);
  }
  return sessionStorage.getItem(SECRET) !== null;
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

/** A request with the token. */
async function ask(target, options = {}) {
  const token = sessionStorage.getItem(SECRET);
  const authorization = token ? { authorization: `Bearer ${token}` } : {};
  const response = await fetch(target, {
    cache: "no-store", ...options, headers: { ...authorization, ...options.headers },
  });
  // The token of an earlier viewer on this port: other tabs must not get it.
  if (response.status === 401) sessionStorage.removeItem(SECRET);
  return response;
}

/** The JSON answer to a question. */
export async function get(path, parameters = {}, signal = undefined) {
  const response = await ask(address(path, parameters), { signal });
  return (await answerOf(response)).json();
}

/** The answer to a question, or null when it is the one that had this tag. */
export async function getNew(path, tag) {
  const response = await ask(`/api/${path}`, { headers: tag ? { "If-None-Match": tag } : {} });
  if (response.status === 304) return null;
  await answerOf(response);
  return { tag: response.headers.get("etag"), document: await response.json() };
}

/** Ask for a change. */
export async function post(path, document) {
  const response = await ask(`/api/${path}`, {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(document),
  });
  return (await answerOf(response)).json();
}

/** A file that the viewer makes: its name, if it has one, and an address inside this page. */
async function fetched(path, parameters, cache) {
  const response = await answerOf(await ask(address(path, parameters), { cache }));
  const name = /filename="([^"]*)"/.exec(response.headers.get("content-disposition"))?.[1];
  return { name, url: URL.createObjectURL(await response.blob()) };
}

/** Show an image of the viewer in an element. */
export async function showImage(element, parameters) {
  const { url } = await fetched("image", parameters, "default");
  const forget = () => URL.revokeObjectURL(url);
  element.addEventListener("load", forget, { once: true });
  element.addEventListener("error", forget, { once: true });
  element.src = url;
}

/** Save a file that the viewer makes. */
export async function save(path, parameters) {
  const { name, url } = await fetched(path, parameters, "no-store");
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  // The browser reads the file after this turn.
  setTimeout(() => URL.revokeObjectURL(url), 60_000);
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

/** The fields of each server-sent event of a stream. */
async function* eventsOf(body) {
  let rest = "";
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const texts = (rest + value).split("\n\n");
    rest = texts.pop();
    for (const text of texts) {
      yield Object.fromEntries(text.split("\n").map((line) => {
        const colon = line.indexOf(": ");
        return [line.slice(0, colon), line.slice(colon + 2)];
      }));
    }
  }
}

/**
 * Follow a session from a state on while the page is visible. A stream that ended is opened again
 * from the state after the last event. It is no `EventSource`, which sends no token.
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

  async open() {
    const ended = new AbortController();
    this.ended = ended;
    let pauseMs = RETRY_MS;
    try {
      const { session, state } = this;
      const target = address("events", { session, after: state, browser: browserId() });
      const response = await answerOf(await ask(target, { signal: ended.signal }));
      for await (const { event, id, data, retry } of eventsOf(response.body)) {
        if (ended.signal.aborted) return;
        if (retry) pauseMs = Number(retry);
        if (id) this.state = id;
        if (event) this.pass(event, JSON.parse(data));
      }
    } catch {
      // The viewer is away, or it refused: the next attempt finds out.
      pauseMs = RETRY_MS;
    }
    if (!ended.signal.aborted) this.timer = setTimeout(() => this.open(), pauseMs);
  }

  pass(event, data) {
    try {
      this.listeners[event]?.(data);
    } catch (error) {
      // A fault of the page is none of the stream.
      reportError(error);
    }
  }

  end() {
    clearTimeout(this.timer);
    this.ended?.abort();
  }

  close() {
    document.removeEventListener("visibilitychange", this.turned);
    this.end();
  }
}
