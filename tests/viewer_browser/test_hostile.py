"""A transcript is hostile input: nothing in it runs, and nothing in it is asked for."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import steno as steno_client
from support.browser import ViewerPage
from support.command import Steno

OpenPage = Callable[..., ViewerPage]

ATTACKS = (
    "<img src=x onerror=window.HIT=1>",
    "<script>window.HIT=1</script>",
    '"><svg onload=window.HIT=1>',
    "</pre></code></title></style><iframe srcdoc='<script>parent.HIT=1</script>'></iframe>",
    "[click](javascript:window.HIT=1) ![x](https://evil.example/x.png) <https://evil.example>",
    "```html\n<img src=x onerror=window.HIT=1>\n```",
    "{{constructor.constructor('window.HIT=1')()}}",
)
VIEWS = {
    "transcript": ".transcript .message",
    "tree": ".story",
    "wire": ".event",
    "transcript/0:0": ".marked",
    "compare/0:5/1:9": ".pair .message",
}
"""The address of each view, with an element that the one before it has not."""


def attack(field: str) -> str:
    """Attacks that leave a trace with the name of the field through which they got in."""
    return " ".join(ATTACKS).replace("HIT", f"hit_{field}")


UNSEEN = {"stamp", "image_data", "call_type", "unseen_id", "event_id", "event_at"}
"""Fields that no view shows as a text."""

DESCRIBED = {"title", "labels", "mail", "why"}
"""Fields that a client sets beside records."""


def hostile_lines() -> list[dict[str, Any]]:
    """Records with an attack in every field that a record may have."""
    arguments = json.dumps({attack("argument_name"): attack("argument")})
    calls = [
        {"id": attack("unseen_id"), "type": attack("call_type"),
         "function": {"name": attack("call_name"), "arguments": attack("raw_arguments")}},
        attack("bare_call"), {},
    ]  # fmt: skip
    data = attack("image_data")
    parts = [
        {"type": "text", "text": attack("text")},
        {"type": "think", "think": attack("think")},
        {"type": attack("part_type"), attack("part_key"): attack("part_value")},
        {"type": "tool_use", "id": attack("unseen_id"), "name": attack("tool_name"),
         "input": {attack("input_name"): attack("input")}},
        {"type": "image_url", "image_url": {"url": attack("url")}},
        {"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zy8+"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,PHN2Zy8+"}},
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}},
        attack("bare_part"),
    ]  # fmt: skip
    by = {"_by": attack("author"), "_id": attack("stamp")}
    return [
        {"role": "_system_prompt", "content": attack("prompt"), **by},
        {"role": "_checkpoint", "id": 0, **by},
        {"role": attack("role"), "content": attack("content_of_a_role"), **by},
        *({"role": role, "content": attack(f"content_{role}"), **by}
          for role in ("user", "assistant", "system")),
        {"role": "assistant", "content": parts, "tool_calls": calls, **by},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "function": {"name": attack("function"), "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c", "content": "\n".join([attack("result")] * 20), **by},
        {"role": "_usage", "token_count": 7, **by},
        {"role": "_checkpoint", "id": attack("checkpoint_id")},
        {"role": "_usage", "token_count": attack("tokens")},
    ]  # fmt: skip


def hostile_events() -> list[dict[str, Any]]:
    value = attack("result_value")
    kinds = {
        "TurnBegin": {"user_input": attack("user_input")},
        "ToolCall": {"id": "c", "function": {
            "name": attack("event_function"), "arguments": attack("event_arguments")}},
        "ToolResult": {"tool_call_id": "c", "return_value": {"is_error": True, "output": value}},
        "StatusUpdate": {"context_tokens": attack("context_tokens")},
        f"Error{attack('event_type')}": {attack("payload_name"): attack("payload")},
    }  # fmt: skip
    return [
        {"timestamp": float(number), "message": {"type": kind, "payload": payload},
         "_at": attack("event_at"), "_id": attack("event_id")}
        for number, (kind, payload) in enumerate(kinds.items())
    ]  # fmt: skip


FIELDS = set(re.findall(r"hit_(\w+?)=", json.dumps([hostile_lines(), hostile_events()])))


@pytest.fixture
def hostile(steno: Steno) -> Steno:
    """A root with a session that another program wrote, and attacks in what clients say."""
    folder = steno.root / "sessions" / "evil"
    folder.mkdir(parents=True)
    for name, lines in (("context", hostile_lines()), ("wire", hostile_events())):
        text = "".join(json.dumps(each) + "\n" for each in lines)
        (folder / f"{name}.jsonl").write_text(text)
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("evil")
        session.describe(title=attack("title")[:200], labels=["<b>hit_labels</b>"])
        number = session.checkpoint().checkpoint_id
        assert number is not None
        mail = session.send_dmail(number, attack("mail"))
        session.deliver_dmail(mail.id)
        session.checkpoint()
        session.revert_to(session.n_checkpoints - 1, why=attack("why")[:200])
        session.fork("evil-fork")
    return steno


_UNFOLDED = """
async () => {
  for (const each of document.querySelectorAll("details")) each.open = true;
  await new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  return document.body.textContent;
}
"""
_IS_WHOLE = """
() => {
  const all = [...document.querySelectorAll("details")];
  for (const each of all) each.open = true;
  // What is in a fold is made once it opens, and the payload of an event arrives after its row.
  return !document.querySelector(".row-wait") && all.every((each) => each.childElementCount > 1);
}
"""
_HITS = "() => Object.keys(window).filter((name) => name.startsWith('hit_'))"


def test_no_field_of_a_record_runs_or_loads_anything(hostile: Steno, open_page: OpenPage) -> None:
    page = open_page("evil")
    # All of a view in sight at once, so that each of its rows is made.
    page.page.set_viewport_size({"width": 1280, "height": 16_000})
    shown = ""
    for view, element in VIEWS.items():
        page.show(f"#/s/evil/{view}")
        page.page.wait_for_selector(element)
        page.wait_for(_IS_WHOLE)
        shown += page.page.evaluate(_UNFOLDED)
    page.show("#/now")
    page.page.wait_for_selector(".health li")
    assert page.page.evaluate(_HITS) == []
    assert page.page.query_selector("#main iframe, #main script, #main svg[onload]") is None
    own = page.page.url.partition("#")[0]
    assert [each for each in page.requests if not each.startswith(own)] == []
    unseen = {field for field in FIELDS | DESCRIBED if f"hit_{field}" not in shown}
    assert unseen <= UNSEEN


def test_every_link_of_a_transcript_leads_to_the_web_only(
    hostile: Steno, open_page: OpenPage
) -> None:
    page = open_page("evil")
    page.page.wait_for_selector(".message a[target]")
    links: list[list[str]] = page.page.evaluate(
        "() => [...document.querySelectorAll('#main a')].map("
        "each => [new URL(each.getAttribute('href'), location).href, each.rel])"
    )
    own = page.page.url.partition("#")[0]
    for href, rel in links:
        assert href.startswith((own, "https://evil.example"))
        assert href.startswith(own) or "noopener" in rel


def test_attacks_in_the_list_and_the_filter_are_text(hostile: Steno, open_page: OpenPage) -> None:
    page = open_page()
    page.page.fill("#filter", "<img src=x")
    page.wait_for_text("of 2 sessions")
    assert "<img src=x onerror" in page.page.inner_text("a[data-session=evil] .title")
    assert page.page.evaluate(_HITS) == []


def test_a_page_without_the_token_shows_nothing(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "secret words", "--create")
    page = open_page()
    stranger = page.context.browser.new_context().new_page()  # type: ignore[union-attr]
    stranger.goto(page.page.url.partition("#")[0])
    stranger.wait_for_selector("[role=alert]")
    assert "open the last address that" in stranger.inner_text("#main")
    assert "talk" not in stranger.inner_text("body")
    stranger.context.close()


def test_an_exported_file_runs_and_loads_nothing(
    hostile: Steno, open_page: OpenPage, tmp_path: Path
) -> None:
    page = open_page()
    file = tmp_path / "evil.html"
    for generation in (0, 1):
        until = f"{generation}:{14 if generation == 0 else 1}"
        ran = hostile("export", "evil", "--format", "html", "-o", str(file))
        assert ran.code == 0, (until, ran.err)
        shown = ViewerPage.of_file(page.context, file)
        text: str = shown.page.evaluate(_UNFOLDED)
        assert shown.page.evaluate(_HITS) == []
        assert "hit_" in text
        assert [each for each in shown.requests if not each.startswith(("file:", "data:"))] == []
        file.unlink()
