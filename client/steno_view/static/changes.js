// Changes, with `steno view --write`: each says what will happen before it happens.

import { post } from "./api.js";
import { at, button, count, h, say } from "./dom.js";

/** Ask for a change in a dialog; `fields` are inputs, `send` gets their values. */
function ask(page, { title, says, fields = {}, act, send }) {
  const inputs = Object.fromEntries(Object.entries(fields).map(([name, { value }]) => [name,
    h("input", { id: `change-${name}`, value: value ?? "", autocomplete: "off", spellcheck: "false" })]));
  const trouble = h("p", { class: "trouble", role: "alert", hidden: true });
  const go = h("button", { type: "submit", class: "go" }, act);
  const dialog = h("dialog", { "aria-labelledby": "change-title" },
    h("form", { method: "dialog", submit: async (event) => {
      event.preventDefault();
      go.disabled = true;
      try {
        const values = Object.fromEntries(
          Object.entries(inputs).map(([name, input]) => [name, input.value.trim()]));
        const wanted = send(values);
        const done = await post("change", wanted);
        // The next change names what the page shows then, and a description moves no head.
        await page.refreshNumbers();
        dialog.close();
        say(`${title}: done`);
        if (done.session !== wanted.session) location.hash = at(done.session);
      } catch (error) {
        page.numbers.ask();
        trouble.hidden = false;
        trouble.textContent = error.code === "conflict"
          ? `Nothing was changed. ${error.message}` : error.message;
        go.disabled = false;
      }
    } },
    h("h2", { id: "change-title" }, title),
    h("p", {}, says),
    Object.entries(fields).map(([name, { label }]) => [
      h("label", { for: `change-${name}` }, label), inputs[name]]),
    trouble,
    h("div", { class: "actions" }, button("Cancel", () => dialog.close()), go)));
  dialog.addEventListener("close", () => dialog.remove());
  document.body.append(dialog);
  dialog.showModal();
}

/** The changes of one session; without `--write` there is none. */
export class Changes {
  constructor(page, mayWrite) {
    this.page = page;
    this.mayWrite = mayWrite;
  }

  get head() {
    return `${this.page.head.generation}:${this.page.head.line}`;
  }

  /** The menu beside the views. */
  menu() {
    if (!this.mayWrite) return null;
    const { session } = this.page;
    const menu = h("details", { class: "menu" }, h("summary", {}, "Change"), h("div", { class: "panel" },
      button("Set a checkpoint", () => this.checkpoint()),
      button("Title", () => this.title()),
      button("Labels", () => this.labels()),
      button("Fork", () => this.fork(this.page.end))));
    menu.dataset.session = session;
    menu.addEventListener("click", (event) => {
      if (event.target.closest("button")) menu.open = false;
    });
    return menu;
  }

  checkpoint() {
    const { session } = this.page;
    const expect = this.head;
    ask(this.page, {
      title: "Set a checkpoint",
      says: `Appends checkpoint ${this.page.stat.n_checkpoints} at ${expect}. Nothing is removed.`,
      act: "Set it",
      send: () => ({ kind: "checkpoint", session, expect }),
    });
  }

  /** The buttons of a checkpoint's row. */
  ofCheckpoint(row) {
    if (!this.mayWrite) return null;
    return h("span", { class: "acts" }, button("Revert", () => this.revert(row)),
      button("Fork", () => this.fork({ generation: this.page.head.generation, line: row.line })));
  }

  revert(row) {
    const { session, head } = this.page;
    const expect = this.head;
    // The handle of what the page shows: another session under this id is refused, too.
    const checkpoint = `${row.id}@${head.generation}:${row.line}@${this.page.stat.incarnation}`;
    ask(this.page, {
      title: `Revert to checkpoint ${row.id}`,
      says: `Removes the checkpoint and everything after it: ${count(head.line - row.line, "line")}, from `
        + `${head.generation}:${row.line} to ${expect}. They stay readable as generation ${head.generation}, `
        + "and can be restored.",
      fields: { why: { label: "Reason, for the timeline (may be empty)" } },
      act: "Revert",
      send: ({ why }) => ({ kind: "revert", session, checkpoint, expect, why }),
    });
  }

  /** The button of a past generation in the tree. */
  ofGeneration(generation) {
    if (!this.mayWrite) return null;
    return button("Restore", () => this.restore(generation));
  }

  restore({ number, lines }) {
    const { session, head } = this.page;
    const expect = this.head;
    ask(this.page, {
      title: `Restore generation ${number}`,
      says: `Makes ${lines === null ? "its lines" : `its ${count(lines, "line")}`} the present ones again, as a new `
        + `generation. The ${count(head.line, "line")} of now stay readable as generation ${head.generation}.`,
      fields: { why: { label: "Reason, for the timeline (may be empty)" } },
      act: "Restore",
      send: ({ why }) => ({ kind: "restore", session, generation: number, expect, why }),
    });
  }

  fork(position) {
    const { session } = this.page;
    const end = `${position.generation}:${position.line}`;
    ask(this.page, {
      title: "Fork",
      says: `Creates a new session with everything before ${end}. This one stays as it is.`,
      fields: { id: { label: "Id of the new session", value: `${session}-fork` } },
      act: "Fork",
      send: ({ id }) => ({ kind: "fork", session, new: id, at: end }),
    });
  }

  title() {
    const { session, stat } = this.page;
    ask(this.page, {
      title: "Title",
      says: "Sets the title of the session; an empty one removes it.",
      fields: { title: { label: "Title", value: stat.title } },
      act: "Set it",
      send: ({ title }) => ({ kind: "title", session, title, was: stat.title }),
    });
  }

  labels() {
    const { session, stat } = this.page;
    ask(this.page, {
      title: "Labels",
      says: "Sets all labels of the session, divided by spaces.",
      fields: { labels: { label: "Labels", value: stat.labels.join(" ") } },
      act: "Set them",
      send: ({ labels }) => ({
        kind: "labels", session, labels: labels.split(/\s+/).filter(Boolean), was: stat.labels,
      }),
    });
  }
}
