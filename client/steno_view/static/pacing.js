// When requests are repeated: while the daemon is away, and while a session grows.

const RETRY_MS = 1000;
const PAUSE_MS_MAX = 2000;

function pause(ms) {
  return new Promise((done) => { setTimeout(done, ms); });
}

/**
 * The answer that `ask` gets, asked again while the daemon is away; null once `view` is closed.
 * `waits` runs whenever the daemon was away.
 */
export async function answerFor(view, ask, waits = () => {}) {
  while (!view.isClosed) {
    try {
      const answer = await ask();
      return view.isClosed ? null : answer;
    } catch (error) {
      if (view.isClosed) return null;
      if (error.status !== 503) throw error;
      waits();
    }
    await pause(RETRY_MS);
  }
  return null;
}

/**
 * Runs `act` a pause after it was asked for. Requests during the pause or the run do not postpone
 * it: those during a run lead to one more, so that the last one always takes effect.
 */
export class Throttle {
  constructor(act, pauseMs) {
    this.act = act;
    this.pauseMs = pauseMs;
    this.tookMs = 0;
    this.isRunning = false;
    this.timer = null;
  }

  ask() {
    this.isAsked = true;
    if (this.timer !== null || this.isRunning) return;
    // A run that takes long is repeated less often.
    const pauseMs = Math.max(this.pauseMs, Math.min(this.tookMs, PAUSE_MS_MAX));
    this.timer = setTimeout(() => this.run(), pauseMs);
  }

  async run() {
    this.timer = null;
    this.isAsked = false;
    this.isRunning = true;
    const begun = performance.now();
    try {
      await this.act();
    } finally {
      this.tookMs = performance.now() - begun;
      this.isRunning = false;
      if (this.isAsked && !this.isClosed) this.ask();
    }
  }

  close() {
    this.isClosed = true;
    clearTimeout(this.timer);
  }
}
