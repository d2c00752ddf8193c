// Where a session comes from, and the line that goes on with it in its program.

import { button, h, say } from "./dom.js";

/** A button that copies the line for a shell. */
export function resumeButton({ resume }) {
  if (!resume) return null;
  return button("Copy how to resume", async (event) => {
    const { target } = event;
    try {
      await navigator.clipboard.writeText(resume);
      target.textContent = "Copied";
      say(`Copied: ${resume}`);
    } catch {
      // Without a secure context there is no clipboard: the line can be selected.
      target.replaceWith(h("code", { class: "resume", tabindex: "0" }, resume));
    }
  }, { class: "copy", title: resume });
}

/** The elements that describe an origin; none for a session of steno itself. */
export function originOf(origin) {
  if (!origin) return [];
  const states = [origin.is_gone && "deleted", origin.is_masked && "kept with masks"];
  const what = states.filter(Boolean).join(", ");
  const path = origin.path && what ? `${origin.path} (${what})` : origin.path;
  return [
    h("span", { class: "label program" }, origin.program),
    origin.work_dir ? h("code", { class: "dir", title: "directory" }, origin.work_dir) : null,
    origin.branch ? h("span", { title: "branch" }, `⎇ ${origin.branch}`) : null,
    origin.model ? h("span", { title: "model" }, origin.model) : null,
    resumeButton(origin),
    path ? h("details", { class: "file" }, h("summary", {}, "File"), h("code", {}, path)) : null,
  ].filter(Boolean);
}
