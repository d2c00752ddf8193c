"""The viewer as a process: its door, its answers, its stream of events and its end."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path

import pytest

import steno as steno_client
from steno_view.limits import ROW_KEPT_BYTES_MAX, STREAMS_HELD_MAX
from steno_web.limits import STRANGERS_MAX
from support.command import Steno
from support.viewer import RunningViewer, Visit, token_of, viewing, wait_for

PATHS = ("/", "/static/main.js", "/api/hello", "/api/rows", "/nowhere", "/static/nowhere.js")


@pytest.fixture(scope="module")
def steno(shared_root: Path) -> Steno:
    """The command on a root with one session."""
    steno = Steno(shared_root)
    assert steno("append", "talk", "hello", "--create").code == 0
    return steno


@pytest.fixture(scope="module")
def viewer(steno: Steno) -> Iterator[RunningViewer]:
    """A viewer for all tests that leave it as it is."""
    with viewing(steno) as running:
        yield running


@pytest.fixture(scope="module")
def writing(steno: Steno) -> Iterator[RunningViewer]:
    """A viewer that changes sessions, for all tests with sessions of their own."""
    with viewing(steno, "--write") as running:
        yield running


def test_the_token_is_in_the_fragment_which_no_server_sees(viewer: RunningViewer) -> None:
    before, _, fragment = viewer.visit.printed.partition("#")
    assert viewer.visit.token not in before
    assert f"token={viewer.visit.token}" in fragment
    assert len(viewer.visit.token) >= 40


def test_no_answer_sets_a_cookie(viewer: RunningViewer) -> None:
    with closing(Visit(viewer.next_address())) as visit:
        answers = [visit.login(), visit.login(), visit.http.get("/"), visit.http.get("/api/hello")]
    assert [each.status_code for each in answers] == [200, 403, 200, 200]
    assert [each for each in answers if "set-cookie" in each.headers] == []
    assert visit.token not in answers[0].text


def test_a_printed_address_works_once_and_the_next_one_is_printed(viewer: RunningViewer) -> None:
    with closing(Visit(viewer.next_address())) as visit:
        assert visit.login().status_code == 200
        again = visit.login()
        assert again.status_code == 403
        assert "shows the address that works now" in again.json()["error"]["message"]
        assert visit.login(token_of(viewer.next_address())).status_code == 200


@pytest.mark.parametrize("token", ["x" * 43, "", "ü"])
def test_a_wrong_token_opens_nothing(viewer: RunningViewer, token: str) -> None:
    response = viewer.visit.login(token)
    assert response.status_code == 403
    assert set(response.json()) == {"error"}


def test_no_question_is_answered_without_the_token(viewer: RunningViewer) -> None:
    visit = viewer.visit
    for given in ("", "Bearer", f"Bearer {'x' * 43}", f"Basic {visit.token}"):
        for path in ("hello", "sessions", "events", "now", "doctor", "export", "image"):
            response = visit.http.get(f"/api/{path}", headers={"authorization": given})
            assert response.status_code == 401, (path, given)


@pytest.mark.parametrize(
    "body",
    ["[" * 50_000, '{"a":' * 10_000, '{"token": 5}', '{"token": "\\ud800"}', "{}", '"', ""],
)
def test_a_login_that_is_no_login_is_the_fault_of_its_sender(
    viewer: RunningViewer, body: str
) -> None:
    headers = {"origin": viewer.visit.address, "content-type": "application/json"}
    response = viewer.visit.http.post("/api/login", content=body, headers=headers)
    assert response.status_code in {400, 403}


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "127.0.0.1:1", "localhost.evil:1"]
)
def test_a_name_that_was_rebound_to_this_machine_is_refused(
    viewer: RunningViewer, host: str
) -> None:
    port = viewer.visit.address.rpartition(":")[2]
    response = viewer.visit.http.get("/", headers={"host": host.format(port=port)})
    assert response.status_code == 421


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:1"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
        {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "iframe"},
    ],
)
def test_requests_of_other_pages_are_refused(
    viewer: RunningViewer, headers: dict[str, str]
) -> None:
    assert viewer.visit.http.get("/api/hello", headers=headers).status_code == 403


def test_a_link_on_another_page_opens_the_viewer(viewer: RunningViewer) -> None:
    link = {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    response = viewer.visit.http.get("/", headers={**link, "sec-fetch-dest": "document"})
    assert response.status_code == 200


def test_a_form_of_another_page_cannot_send_a_change(viewer: RunningViewer) -> None:
    http, address = viewer.visit.http, viewer.visit.address
    assert http.post("/api/login", json={}).status_code == 403
    form = http.post("/api/login", data={"token": "x"}, headers={"origin": address})
    assert form.status_code == 415
    assert http.put("/api/login", json={}, headers={"origin": address}).status_code == 405


@pytest.mark.parametrize("path", PATHS)
def test_every_answer_has_the_headers_that_close_the_page(viewer: RunningViewer, path: str) -> None:
    headers = viewer.visit.http.get(path).headers
    policy = headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    assert headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize("name", ["..%2fserver.py", "%2e%2e/app.py", "../access.py"])
def test_no_file_beside_those_of_the_page_is_served(viewer: RunningViewer, name: str) -> None:
    response = viewer.visit.http.get(f"/static/{name}")
    assert response.status_code in {404, 401}
    assert "import" not in response.text


def test_a_huge_body_is_refused(viewer: RunningViewer) -> None:
    assert viewer.visit.post("login", token="x" * 100_000).status_code == 413


def test_connections_without_the_token_hold_nobody_up(viewer: RunningViewer, steno: Steno) -> None:
    visit = viewer.visit
    port = int(visit.address.rpartition(":")[2])
    steno("append", "held", "one", "--create")
    with ExitStack() as opened, visit.stream("held") as stream:
        stream.wait_for("heads")
        strangers: list[socket.socket] = []
        for number in range(4 * STRANGERS_MAX):
            stranger = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            head = f"POST /api/login HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n"
            body = f"origin: {visit.address}\r\ncontent-type: application/json\r\n"
            whole = f"{head}{body}content-length: 9\r\n\r\n"
            stranger.sendall((head if number % 2 else whole).encode())
            strangers.append(stranger)
        # A new visitor is served, and who is in stays in.
        with closing(Visit(viewer.next_address())) as other:
            assert other.login().status_code == 200
            assert other.get("hello")
        assert visit.get("hello")
        steno("append", "held", "two")
        stream.wait_for("heads", head="0:2")

        def is_closed(stranger: socket.socket) -> bool:
            stranger.setblocking(False)
            try:
                return stranger.recv(1) == b""
            except BlockingIOError:
                return False
            except ConnectionError:
                return True

        wait_for(lambda: is_closed(strangers[0]))
        open_ones = [each for each in strangers if not is_closed(each)]
        assert len(open_ones) <= STRANGERS_MAX


def test_an_unknown_session_is_not_found(viewer: RunningViewer) -> None:
    response = viewer.visit.http.get("/api/session", params={"session": "nowhere"})
    assert response.status_code == 404
    assert response.json()["error"]["code"] == "not_found"


@pytest.mark.parametrize(
    ("path", "parameters"),
    [
        ("rows", {"session": "talk", "first": "0:0", "until": "x"}),
        ("rows", {"session": "talk", "first": "0:0", "until": "1:1"}),
        ("rows", {"first": "0:0", "until": "0:1"}),
        ("events", {"session": "talk", "after": "nonsense"}),
        ("export", {"session": "talk", "until": "0:1", "format": "exe"}),
        ("image", {"session": "talk", "at": "0:0", "part": "-1"}),
    ],
)
def test_a_wrong_question_is_a_bad_request(
    viewer: RunningViewer, path: str, parameters: dict[str, str]
) -> None:
    response = viewer.visit.http.get(f"/api/{path}", params=parameters)
    assert response.status_code == 400, response.text


def test_rows_have_every_line_once_and_in_order(viewer: RunningViewer, steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("long")
        for number in range(0, 300, 50):
            session.append_message(
                [{"role": "user", "content": f"line {number + each}"} for each in range(50)]
            )
    rows = [
        row
        for first in range(0, 300, 70)
        for row in viewer.visit.get(
            "rows", session="long", first=f"0:{first}", until=f"0:{min(300, first + 70)}"
        )["rows"]
    ]
    assert [row["line"] for row in rows] == list(range(300))
    assert [row["parts"][0]["trees"] for row in rows] == [
        [["p", {}, f"line {number}"]] for number in range(300)
    ]


def test_rows_of_one_answer_are_bounded(viewer: RunningViewer) -> None:
    rows = viewer.visit.get("rows", session="talk", first="0:0", until="0:100000")["rows"]
    assert len(rows) <= 200


def test_a_line_that_was_asked_for_too_early_is_shown_later(
    viewer: RunningViewer, steno: Steno
) -> None:
    steno("append", "early", "one", "--create")
    incarnation = viewer_state(viewer, "early").partition("/")[0]
    asked = {"session": "early", "incarnation": incarnation, "first": "0:0", "until": "0:2"}
    assert [row["kind"] for row in viewer.visit.get("rows", **asked)["rows"]] == ["message", "hole"]
    steno("append", "early", "two")
    assert [row["kind"] for row in viewer.visit.get("rows", **asked)["rows"]] == ["message"] * 2


def test_rows_too_large_to_be_kept_are_read_each_time(viewer: RunningViewer, steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("large")
        for text in ("before", "x" * (ROW_KEPT_BYTES_MAX // 15), "after"):
            # Many parts: a single text is cut.
            session.append_message(
                {"role": "user", "content": [{"type": "text", "text": text}] * 16}
            )
    incarnation = viewer_state(viewer, "large").partition("/")[0]
    asked = {"session": "large", "incarnation": incarnation, "first": "0:0", "until": "0:3"}
    rows = viewer.visit.get("rows", **asked)["rows"]
    assert [row["kind"] for row in rows] == ["message"] * 3
    assert len(str(rows[1])) > ROW_KEPT_BYTES_MAX
    assert viewer.visit.get("rows", **asked)["rows"] == rows


def test_no_row_is_kept_under_a_name_that_no_session_has(
    viewer: RunningViewer, steno: Steno
) -> None:
    asked = {"session": "renamed", "incarnation": "invented", "first": "0:0", "until": "0:1"}
    with steno_client.connect_sync(steno.root, name="writer") as client:
        for text in ("old", "new"):
            client.open("renamed").append_message({"role": "user", "content": text})
            (row,) = viewer.visit.get("rows", **asked)["rows"]
            assert row["parts"][0]["trees"] == [["p", {}, text]]
            client.delete("renamed")


def test_damaged_and_blank_lines_are_holes_in_their_places(
    viewer: RunningViewer, steno: Steno
) -> None:
    folder = steno.root / "sessions" / "damaged"
    folder.mkdir(parents=True)
    good = b'{"role":"user","content":"good"}\n'
    (folder / "context.jsonl").write_bytes(good + b"{damaged\n\n" + good)
    rows = viewer.visit.get("rows", session="damaged", first="0:0", until="0:4")["rows"]
    assert [row["kind"] for row in rows] == ["message", "hole", "hole", "message"]
    assert [row["line"] for row in rows] == [0, 1, 2, 3]


def test_a_list_that_did_not_change_is_not_sent_again(viewer: RunningViewer) -> None:
    def is_known() -> bool:
        first = viewer.visit.http.get("/api/sessions")
        assert {each["session"] for each in first.json()["sessions"]} >= {"talk"}
        tag = first.headers["etag"]
        again = viewer.visit.http.get("/api/sessions", headers={"if-none-match": tag})
        return (again.status_code, again.content) == (304, b"")

    # The list says which sessions are followed, and the clients of an earlier test may leave now.
    wait_for(is_known)


def test_a_page_sees_appends_and_rewrites_in_order(viewer: RunningViewer, steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("watched")
        session.append_message({"role": "user", "content": "one"})
        with viewer.visit.stream("watched", viewer_state(viewer, "watched")) as stream:
            stream.wait_for("daemon", away=False)
            session.checkpoint()
            session.append_message({"role": "user", "content": "two"})
            stream.wait_for("heads", head="0:3")
            session.revert_to(0)
            rewrite = stream.wait_for("rewrite")
            assert (rewrite.data["generation"], rewrite.data["kept"]) == (1, 1)
            stream.wait_for("heads", head="1:1")


def viewer_state(viewer: RunningViewer, session: str) -> str:
    """The state that a page of the session begins with."""
    return str(viewer.visit.get("session", session=session)["state"])


def test_a_lost_stream_continues_where_it_ended(viewer: RunningViewer, steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("resumed")
        session.append_message({"role": "user", "content": "one"})
        with viewer.visit.stream("resumed", viewer_state(viewer, "resumed")) as stream:
            session.append_message({"role": "user", "content": "two"})
            last_id = stream.wait_for("heads", head="0:2").id
        session.checkpoint()
        session.revert_to(0)
        session.append_message({"role": "user", "content": "three"})
        session.clear()
        with viewer.visit.stream("resumed", after=last_id) as stream:
            rewrites = [stream.wait_for("rewrite").data for _ in range(2)]
            assert [(each["generation"], each["kept"]) for each in rewrites] == [(1, 2), (2, 0)]
            stream.wait_for("heads", head="2:0")


def test_a_state_of_a_session_made_again_is_read_anew(viewer: RunningViewer, steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        client.open("again").append_message({"role": "user", "content": "old"})
        state = viewer_state(viewer, "again")
        with viewer.visit.stream("again", state) as stream:
            stream.wait_for("daemon", away=False)
            client.delete("again")
            stream.wait_for("gone")
        client.open("again").append_message({"role": "user", "content": "new"})
        with viewer.visit.stream("again", after=state) as stream:
            rewrite = stream.wait_for("rewrite").data
            assert rewrite["kept"] == 0
            assert rewrite["incarnation"] != state.partition("/")[0]
            stream.wait_for("heads", head="0:1")


def test_a_browser_has_some_open_streams_and_the_others_end_at_once(
    viewer: RunningViewer, steno: Steno
) -> None:
    steno("append", "many", "one", "--create")
    visit = viewer.visit
    with ExitStack() as streams:
        held = [
            streams.enter_context(visit.stream("many", browser="one"))
            for _ in range(STREAMS_HELD_MAX)
        ]
        with visit.stream("many", browser="one") as ended:
            assert [event.name for event in ended] == ["heads", "daemon"]
        with visit.stream("many", browser="other") as other:
            steno("append", "many", "two")
            for each in (*held, other):
                each.wait_for("heads", head="0:2")
        with visit.stream("many", after=ended.last_id, browser="one") as ended:
            assert [event.name for event in ended] == ["heads", "daemon"]

    # A place is free again as soon as the viewer has seen that its stream is closed.
    def is_held() -> bool:
        with visit.stream("many", browser="one") as stream:
            events = iter(stream)
            assert next(events).name == "heads"
            steno("append", "many", "more")
            return "heads" in [event.name for event in islice(events, 2)]

    wait_for(is_held)


def test_a_change_of_a_dmail_between_two_streams_is_reported(
    viewer: RunningViewer, steno: Steno
) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("mailed")
        session.append_message({"role": "user", "content": "one"})
        session.checkpoint()
        with viewer.visit.stream("mailed") as other:
            with viewer.visit.stream("mailed") as stream:
                state = stream.wait_for("heads").id
            session.send_dmail(0, "wrong way")
            other.wait_for("mail")
            with viewer.visit.stream("mailed", after=state) as stream:
                stream.wait_for("mail")


def test_images_are_served_as_images_only(viewer: RunningViewer, steno: Steno) -> None:
    url = "data:image/png;base64,iVBORw0KGgo="
    script = "data:text/html;base64,PHNjcmlwdD4="
    with steno_client.connect_sync(steno.root, name="writer") as client:
        parts = [{"type": "image_url", "image_url": {"url": each}} for each in (url, script)]
        client.open("seen").append_message({"role": "user", "content": parts})
    asked = {"session": "seen", "at": "0:0"}
    image = viewer.visit.http.get("/api/image", params={**asked, "part": "0"})
    assert image.headers["content-type"] == "image/png"
    assert image.content == b"\x89PNG\r\n\x1a\n"
    assert viewer.visit.http.get("/api/image", params={**asked, "part": "1"}).status_code == 404


@pytest.mark.parametrize(
    ("form", "holds"),
    [("markdown", "## user"), ("json", '"role":"user"'), ("html", '<article id="0:0">')],
)
def test_a_state_is_exported_as_a_file(viewer: RunningViewer, form: str, holds: str) -> None:
    response = viewer.visit.http.get(
        "/api/export", params={"session": "talk", "until": "0:1", "format": form}
    )
    assert response.headers["content-disposition"].startswith('attachment; filename="talk-0-1.')
    assert holds in response.text


@pytest.mark.parametrize("until", ["9:0", "0:9"])
def test_the_file_of_a_state_that_is_not_there_is_refused(
    viewer: RunningViewer, until: str
) -> None:
    asked = {"session": "talk", "until": until, "format": "html"}
    response = viewer.visit.http.get("/api/export", params=asked)
    assert (response.status_code, response.json()["error"]["code"]) == (404, "not_found")


def test_others_are_answered_while_a_long_file_is_made(viewer: RunningViewer, steno: Steno) -> None:
    # Each text uses up the budget of its record.
    texts = ["[" * 20_000, "```c\n" + "\\\n" * 4_000 + "```"]
    with steno_client.connect_sync(steno.root, name="writer") as client:
        messages = [{"role": "user", "content": text} for text in texts * 20]
        client.open("slow").append_message(messages)
    asked = {"session": "slow", "until": "0:40", "format": "html"}
    with viewer.visit.http.stream("GET", "/api/export", params=asked) as response:
        pieces = response.iter_raw()
        next(pieces)
        waits: list[float] = []
        reader = threading.Thread(target=lambda: list(pieces))
        reader.start()
        while reader.is_alive():
            begun = time.monotonic()
            assert viewer.visit.get("hello")
            waits.append(time.monotonic() - begun)
        reader.join()
    # A record alone takes a quarter of a second, and the whole file many of them.
    assert len(waits) > 10
    assert sorted(waits)[len(waits) // 2] < 0.25


def test_the_page_gets_what_the_daemon_and_the_doctor_say(viewer: RunningViewer) -> None:
    now = viewer.visit.get("now")
    assert [each for each in now["clients"] if each["is_me"]]
    assert len(now["stats"]["sync_s"]["counts"]) == len(now["stats"]["sync_s"]["bounds"]) + 1
    assert {"root", "daemon"} <= {each["check"] for each in viewer.visit.get("doctor")["findings"]}


def test_two_states_are_compared_line_by_line(viewer: RunningViewer, steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("compared")
        session.append_message({"role": "user", "content": "kept"})
        session.checkpoint()
        session.append_message({"role": "user", "content": "left behind"})
        session.revert_to(0)
        session.append_message({"role": "user", "content": "instead"})
    found = viewer.visit.get("compare", session="compared", left="0:3", right="1:2")
    assert found["parts"] == [
        {"same": True, "left": [0, 1], "right": [0, 1]},
        {"same": False, "left": [1, 3], "right": [1, 2]},
    ]
    tree = viewer.visit.get("tree", session="compared")
    assert [each["number"] for each in tree["generations"]] == [0, 1]


def test_the_stream_outlives_a_killed_daemon(root: Path) -> None:
    steno = Steno(root)
    steno("append", "talk", "one", "--create")
    with viewing(steno) as viewer:
        with viewer.visit.stream("talk", viewer_state(viewer, "talk")) as stream:
            stream.wait_for("daemon", away=False)
            os.kill(steno("--json", "status").document["pid"], signal.SIGKILL)
            stream.wait_for("daemon", away=True)
            assert steno("append", "talk", "two").code == 0
            stream.wait_for_each({"heads": {"head": "0:2"}, "daemon": {"away": False}})
        with viewer.visit.stream("talk", after=stream.last_id) as stream:
            steno("append", "talk", "three")
            stream.wait_for("heads", head="0:3")


def test_a_viewer_starts_no_daemon_again(root: Path) -> None:
    steno = Steno(root)
    steno("append", "talk", "one", "--create")
    with viewing(steno) as viewer, viewer.visit.stream("talk") as stream:
        stream.wait_for("daemon", away=False)
        assert steno("stop").code == 0
        stream.wait_for("daemon", away=True)
        assert steno("status").code != 0
        assert viewer.visit.http.get("/api/hello").status_code == 200
        # Before the deadline of a request, which is the viewer's silence.
        refused = viewer.visit.http.get("/api/session", params={"session": "talk"}, timeout=20)
        assert refused.status_code == 503
        assert "steno start" in refused.json()["error"]["message"]


def test_ctrl_c_ends_a_viewer_with_open_streams(root: Path) -> None:
    steno = Steno(root)
    steno("append", "talk", "one", "--create")
    with viewing(steno) as viewer, viewer.visit.stream("talk") as stream:
        stream.wait_for("daemon", away=False)
        assert viewer.interrupt() == 0
        assert list(stream) == []
        assert viewer.process.stderr is not None
        assert viewer.process.stderr.read() == ""


def test_several_viewers_serve_at_once(steno: Steno, viewer: RunningViewer) -> None:
    with viewing(steno) as other:
        assert other.visit.address != viewer.visit.address
        assert other.visit.get("hello") == viewer.visit.get("hello")
        headers = {"authorization": viewer.visit.http.headers["authorization"]}
        assert other.visit.http.get("/api/hello", headers=headers).status_code == 401


def test_a_port_in_use_is_reported(steno: Steno) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = steno("view", "--no-browser", "--port", port)
    assert ran.code == 1
    assert f"127.0.0.1 port {port} is in use" in ran.err


def test_the_named_session_is_shown_first_by_its_prefix(steno: Steno) -> None:
    with viewing(steno, "tal") as running:
        assert running.visit.printed.endswith("&session=talk")
    assert steno("view", "--no-browser", "nowhere").code == 4


def test_a_missing_extra_is_named(steno: Steno) -> None:
    code = (
        "import sys; sys.modules['starlette'] = None\n"
        "from steno_cli.entry import main; sys.exit(main(['view', '--no-browser']))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code],
        env=steno.environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 1
    assert "pip install 'stenod[view]'" in ran.stderr


def test_a_viewer_that_only_reads_refuses_changes(viewer: RunningViewer) -> None:
    response = viewer.visit.post("change", kind="title", session="talk", title="x", was="")
    assert response.status_code == 403
    assert "--write" in response.json()["error"]["message"]
    assert viewer.visit.get("hello")["may_write"] is False


def test_changes_are_made_at_the_state_that_the_page_has_seen(
    writing: RunningViewer, steno: Steno
) -> None:
    steno("append", "moved", "one", "--create")
    visit = writing.visit
    on = {"session": "moved"}
    made = visit.post("change", kind="checkpoint", expect="0:1", **on)
    assert made.json() == {"session": "moved", "head": "0:2", "checkpoint": 0}
    steno("append", "moved", "two")
    incarnation = visit.get("session", session="moved")["incarnation"]
    shown = f"0@0:1@{incarnation}"
    stale = visit.post("change", kind="revert", checkpoint=shown, expect="0:2", **on)
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "conflict")
    assert steno("--json", "stat", "moved").document["head"] == "0:3"
    visit.post("change", kind="revert", checkpoint=shown, expect="0:3", why="wrong", **on)
    assert steno("--json", "stat", "moved").document["head"] == "1:1"
    visit.post("change", kind="restore", generation=0, expect="1:1", **on)
    assert steno("--json", "stat", "moved").document["head"] == "2:3"
    forked = visit.post("change", kind="fork", new="moved-fork", at="2:1", **on)
    assert forked.json()["session"] == "moved-fork"
    assert steno("--json", "stat", "moved-fork").document["head"].endswith(":1")


def test_a_page_of_a_session_that_was_made_anew_reverts_nothing(
    writing: RunningViewer, steno: Steno
) -> None:
    steno("append", "anew", "one", "--create")
    steno("checkpoint", "anew")
    incarnation = writing.visit.get("session", session="anew")["incarnation"]
    steno("delete", "anew")
    steno("append", "anew", "other", "--create")
    steno("checkpoint", "anew")
    stale = writing.visit.post(
        "change", kind="revert", session="anew", expect="0:2",
        checkpoint=f"0@0:1@{incarnation}",
    )  # fmt: skip
    assert (stale.status_code, stale.json()["error"]["code"]) == (409, "conflict")
    assert steno("--json", "stat", "anew").document["head"] == "0:2"


def test_a_checkpoint_that_a_revert_copied_is_named_where_the_page_shows_it(
    writing: RunningViewer, steno: Steno
) -> None:
    steno("append", "copied", "one", "--create")
    for _ in range(2):
        steno("checkpoint", "copied")
    steno("revert", "copied", "1")
    incarnation = writing.visit.get("session", session="copied")["incarnation"]
    made = writing.visit.post(
        "change", kind="revert", session="copied", expect="1:2",
        checkpoint=f"0@1:1@{incarnation}",
    )  # fmt: skip
    assert (made.status_code, made.json()["head"]) == (200, "2:1")


def test_titles_and_labels_of_somebody_else_are_not_overwritten(
    writing: RunningViewer, steno: Steno
) -> None:
    steno("append", "titled", "one", "--create")
    visit = writing.visit
    on = {"session": "titled"}
    assert visit.post("change", kind="title", title="a", was="", **on).status_code == 200
    assert visit.post("change", kind="title", title="b", was="", **on).status_code == 409
    given = visit.post("change", kind="labels", labels=["x", "y"], was=[], **on)
    assert given.status_code == 200
    assert visit.post("change", kind="labels", labels=[], was=["x"], **on).status_code == 409
    stat = steno("--json", "stat", "titled").document
    assert (stat["title"], stat["labels"]) == ("a", ["x", "y"])


@pytest.mark.parametrize(
    "document",
    [{"kind": "delete"}, {"kind": "revert", "checkpoint": 0, "expect": "0:1"},
     {"kind": "revert", "checkpoint": "0@now", "expect": "0:1"},
     {"kind": "checkpoint", "expect": "now"}, {"kind": "checkpoint"}],
)  # fmt: skip
def test_what_is_no_change_changes_nothing(
    writing: RunningViewer, steno: Steno, document: dict[str, object]
) -> None:
    before = steno("--json", "append", "unchanged", "one", "--create").document["head"]
    response = writing.visit.post("change", **{"session": "unchanged", **document})
    assert response.status_code == 400
    assert steno("--json", "stat", "unchanged").document["head"] == before
