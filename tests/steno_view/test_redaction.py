"""No secret of a session leaves the viewer, by any of its answers."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno as steno_client
from steno_view.app import _Routes  # pyright: ignore[reportPrivateUsage]
from support.command import Steno
from support.viewer import RunningViewer, viewing, wait_for

KEY = "sk-proj-a1B2c3D4e5F6g7H8i9J0k1L2m3N4"
TICKET = "TICKET-4711"
SECRETS = (KEY, TICKET)
SECRET = f"{KEY} {TICKET}"
"""A secret that a built-in pattern finds, and one that the configuration names."""

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}


def write_secrets(root: Path) -> None:
    """A session with the secrets in all that a client may write."""
    call = {
        "type": "function", "id": SECRET,
        "function": {"name": SECRET, "arguments": json.dumps({"command": SECRET})},
    }  # fmt: skip
    parts = [
        {"type": "text", "text": f"long {'x' * 30_000} {SECRET}"},
        {"type": "think", "think": SECRET},
        {"type": SECRET, "input": {SECRET: SECRET}},
        {"type": "text", "text": f"split {KEY[:24]}"},
        {"type": "text", "text": f"{KEY[24:]} end"},
        IMAGE,
    ]
    with steno_client.connect_sync(root, name="writer") as client:
        session = client.open("talk")
        session.describe(title=f"title {SECRET}", labels=[KEY, TICKET])
        session.write_system_prompt(f"prompt {SECRET}")
        session.checkpoint()
        session.append_message({"role": "user", "content": f"```python\nkey = '{SECRET}'\n```"})
        session.append_message({"role": "assistant", "content": parts, "tool_calls": [call]})
        session.append_message({"role": "tool", "tool_call_id": SECRET, "content": SECRET})
        session.append_wire("TurnBegin", {"user_input": SECRET})
        session.append_wire("ToolCall", call)
        session.append_wire("ToolResult", {"tool_call_id": SECRET, "return_value": SECRET})
        session.append_wire(f"Odd {KEY}", {SECRET: SECRET}, durability="synced")
        mail = session.send_dmail(0, SECRET)
        session.checkpoint()
        session.revert_to(1, why=SECRET)
        session.deliver_dmail(mail.id)
        session.append_message({"role": "user", "content": SECRET})


@pytest.fixture(scope="module")
def steno(shared_root: Path, tmp_path_factory: pytest.TempPathFactory) -> Steno:
    """The command on a root with secrets, and with a pattern of its own."""
    write_secrets(shared_root)
    (shared_root / "config.toml").write_text("[redact]\nticket = 'TICKET-[0-9]+'\n")
    return Steno(shared_root, XDG_CACHE_HOME=str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="module")
def viewer(steno: Steno) -> Iterator[RunningViewer]:
    with viewing(steno) as running:
        wait_for(lambda: running.visit.get("search/progress")["complete"])
        yield running


ASKED = {
    "hello": {},
    "sessions": {},
    "counts": {"session": "talk"},
    "session": {"session": "talk"},
    "rows": {"session": "talk", "first": "0:0", "until": "0:100"},
    "outline": {"session": "talk"},
    "tree": {"session": "talk"},
    "end": {"session": "talk", "generation": "0"},
    "compare": {"session": "talk", "left": "0:2", "right": "0:5"},
    "wire": {"session": "talk"},
    "wire/events": {"session": "talk", "first": "0", "end": "100"},
    "now": {},
    "dashboard": {},
    "usage": {},
    "doctor": {},
    "search": {"q": "prompt"},
    "search/progress": {},
    **{
        f"export {form}": {"session": "talk", "until": "0:6", "format": form}
        for form in ("markdown", "html", "json")
    },
}
"""A question for each route of the API that answers with texts, and its parameters."""

OTHERS = {"image", "events", "login", "change"}
"""The bytes of an image are not text; the others have tests of their own."""


def answer(viewer: RunningViewer, asked: str) -> str:
    path = asked.partition(" ")[0]
    response = viewer.visit.http.get(f"/api/{path}", params=ASKED[asked])
    assert response.status_code == 200, response.text
    return response.text


def test_every_route_of_the_api_has_its_question() -> None:
    paths = {
        each.path.removeprefix("/api/")
        for each in _Routes.__new__(_Routes).all()
        if each.path.startswith("/api/")
    }
    assert paths - {each.partition(" ")[0] for each in ASKED} == OTHERS


@pytest.mark.parametrize("asked", ASKED)
def test_no_answer_contains_a_secret(viewer: RunningViewer, asked: str) -> None:
    text = answer(viewer, asked)
    assert [secret for secret in SECRETS if secret in text] == []
    assert KEY[8:20] not in text


@pytest.mark.parametrize("asked", ["session", "rows", "search", "tree", "wire", "wire/events",
                                   "export markdown", "export html", "export json"])  # fmt: skip
def test_a_mask_stands_where_a_secret_was(viewer: RunningViewer, asked: str) -> None:
    text = answer(viewer, asked)
    assert "[redacted: openai-key]" in text
    assert asked == "wire" or "[redacted: ticket]" in text


def test_a_whole_text_and_a_past_generation_are_masked_too(viewer: RunningViewer) -> None:
    asked = {"session": "talk", "first": "0:3", "until": "0:4", "whole": "1"}
    text = viewer.visit.http.get("/api/rows", params=asked).text
    assert "[redacted: ticket]" in text
    assert not any(secret in text for secret in SECRETS)


def test_an_error_is_masked(viewer: RunningViewer) -> None:
    asked = {"session": "talk", "until": "0:1", "format": TICKET}
    response = viewer.visit.http.get("/api/export", params=asked)
    assert response.status_code == 400
    assert "[redacted: ticket]" in response.text
    assert TICKET not in response.text


def test_the_stream_masks_why_a_session_is_gone(viewer: RunningViewer, steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        client.open("gone").append_message({"role": "user", "content": "one"})
        with viewer.visit.stream("gone") as stream:
            client.rename("gone", TICKET)
            why = stream.wait_for("gone").data["why"]
    assert TICKET not in why


def test_the_files_keep_their_secrets(steno: Steno) -> None:
    stored = b"".join(each.read_bytes() for each in steno.root.glob("sessions/talk/*.jsonl"))
    assert all(secret.encode() in stored for secret in SECRETS)


def test_no_redact_shows_everything(steno: Steno) -> None:
    with viewing(steno, "--no-redact") as running:
        for asked in ("rows", "session", "wire/events", "export markdown", "export json"):
            assert all(secret in answer(running, asked) for secret in SECRETS), asked


def test_a_mask_is_never_stored_in_place_of_what_it_hides(steno: Steno) -> None:
    with viewing(steno, "--write") as running:
        visit = running.visit
        shown = visit.get("session", session="talk")
        assert shown["title"] == "title [redacted: openai-key] [redacted: ticket]"
        on = {"session": "talk", "kind": "title", "was": shown["title"]}
        kept = visit.post("change", title=f"{shown['title']} more", **on)
        assert (kept.status_code, "mask" in kept.json()["error"]["message"]) == (400, True)
        assert visit.post("change", title=f"anew {SECRET}", **on).status_code == 200
    assert steno("--json", "stat", "talk").document["title"] == f"anew {SECRET}"


def test_a_wrong_pattern_keeps_the_viewer_from_showing_anything(root: Path) -> None:
    steno = Steno(root)
    steno("append", "talk", "one", "--create")
    (root / "config.toml").write_text("[redact]\nticket = '(a'\n")
    ran = steno("view", "--no-browser")
    assert ran.code == 1
    assert "redact.ticket is no regular expression" in ran.err


def test_no_word_of_a_secret_is_a_hit_or_counted(viewer: RunningViewer) -> None:
    assert viewer.visit.get("search", q="prompt")["count"] == 1
    for words in ("4711", "47*", "prompt 471*", "a1B2c3D4e5*"):
        answered = viewer.visit.http.get("/api/search", params={"q": words})
        if answered.status_code == 200:
            assert (answered.json()["hits"], answered.json()["count"]) == ([], 0), words
