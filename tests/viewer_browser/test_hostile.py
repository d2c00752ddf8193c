"""A transcript is hostile input: nothing in it runs, and nothing in it is asked for."""

import json
from collections.abc import Callable
from typing import Any

import pytest

import steno as steno_client
from support.browser import ViewerPage
from support.command import Steno

OpenPage = Callable[..., ViewerPage]

ATTACKS = (
    "<img src=x onerror=window.hit=1>",
    "<script>window.hit=1</script>",
    '"><svg onload=window.hit=1>',
    "</pre></code></title></style><iframe srcdoc='<script>parent.hit=1</script>'></iframe>",
    "[click](javascript:window.hit=1) ![x](https://evil.example/x.png) <https://evil.example>",
    "```html\n<img src=x onerror=window.hit=1>\n```",
    "{{constructor.constructor('window.hit=1')()}}",
)
ATTACK = " ".join(ATTACKS)
VIEWS = ("transcript", "tree", "wire")


def hostile_lines() -> list[dict[str, Any]]:
    """Records with an attack in every field that a record may have."""
    call = {"id": ATTACK, "type": ATTACK, "function": {"name": ATTACK, "arguments": ATTACK}}
    arguments = json.dumps({ATTACK: ATTACK})
    parts = [
        {"type": "text", "text": ATTACK},
        {"type": "think", "think": ATTACK},
        {"type": ATTACK, ATTACK: ATTACK},
        {"type": "tool_use", "id": ATTACK, "name": ATTACK, "input": {ATTACK: ATTACK}},
        {"type": "image_url", "image_url": {"url": ATTACK}},
        {"type": "image_url", "image_url": {"url": "https://evil.example/x.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/svg+xml;base64,PHN2Zy8+"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,PHN2Zy8+"}},
        ATTACK,
    ]
    by = {"_by": ATTACK, "_id": ATTACK}
    return [
        {"role": "_system_prompt", "content": ATTACK, **by},
        {"role": "_checkpoint", "id": 0, **by},
        {"role": ATTACK, "content": ATTACK, **by},
        *({"role": role, "content": ATTACK, **by} for role in ("user", "assistant", "system")),
        {"role": "assistant", "content": parts, "tool_calls": [call, ATTACK, {}], **by},
        {"role": "assistant", "content": "", "tool_calls": [
            {"id": "c", "function": {"name": ATTACK, "arguments": arguments}}]},
        {"role": "tool", "tool_call_id": "c", "content": "\n".join([ATTACK] * 20), **by},
        {"role": "_usage", "token_count": 7, **by},
        {"role": "_checkpoint", "id": ATTACK},
        {"role": "_usage", "token_count": ATTACK},
    ]  # fmt: skip


def hostile_events() -> list[dict[str, Any]]:
    kinds = {
        "TurnBegin": {"user_input": ATTACK},
        "ToolCall": {"id": "c", "function": {"name": ATTACK, "arguments": ATTACK}},
        "ToolResult": {"tool_call_id": "c", "return_value": {"is_error": True, "output": ATTACK}},
        "StatusUpdate": {"context_tokens": ATTACK},
        f"Error{ATTACK}": {ATTACK: ATTACK},
    }
    return [
        {"timestamp": float(number), "message": {"type": kind, "payload": payload}, "_at": ATTACK}
        for number, (kind, payload) in enumerate(kinds.items())
    ]


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
        session.describe(title=ATTACK[:200])
        number = session.checkpoint().checkpoint_id
        assert number is not None
        mail = session.send_dmail(number, ATTACK)
        session.deliver_dmail(mail.id)
        session.checkpoint()
        session.revert_to(session.n_checkpoints - 1, why=ATTACK[:200])
        session.fork("evil-fork")
    return steno


def test_no_field_of_a_record_runs_or_loads_anything(hostile: Steno, open_page: OpenPage) -> None:
    page = open_page("evil")
    for view in VIEWS:
        page.show(f"#/s/evil/{view}")
        page.page.wait_for_selector(".tabs a[aria-current]")
        page.wait_for("() => !document.querySelector('.row-wait')")
        page.page.evaluate(
            "() => document.querySelectorAll('details').forEach(each => each.open = true)"
        )
        page.page.wait_for_selector(".message, .story, .event")
    page.show("#/s/evil/transcript/0:0")
    page.wait_for_text("onerror=window.hit=1")
    page.transcript()
    page.show("#/s/evil/compare/0:5/1:9")
    page.page.wait_for_selector(".same")
    page.show("#/now")
    page.page.wait_for_selector(".health li")
    assert page.page.evaluate("() => window.hit") is None
    assert page.page.query_selector("#main iframe, #main script, #main svg[onload]") is None
    own = page.page.url.partition("#")[0]
    assert [each for each in page.requests if not each.startswith(own)] == []


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
    assert page.page.evaluate("() => window.hit") is None


def test_the_token_leaves_the_address_and_the_page_cannot_read_the_cookie(
    steno: Steno, open_page: OpenPage
) -> None:
    steno("append", "talk", "one", "--create")
    page = open_page("talk")
    page.wait_for_text("one")
    assert "token" not in page.page.url
    assert page.page.evaluate("() => document.cookie") == ""
    assert page.page.evaluate("() => history.length") <= 2


def test_a_page_without_the_token_shows_nothing(steno: Steno, open_page: OpenPage) -> None:
    steno("append", "talk", "secret words", "--create")
    page = open_page()
    stranger = page.context.browser.new_context().new_page()  # type: ignore[union-attr]
    stranger.goto(page.page.url.partition("#")[0])
    stranger.wait_for_selector("[role=alert]")
    assert "open the address that" in stranger.inner_text("#main")
    assert "talk" not in stranger.inner_text("body")
    stranger.context.close()
