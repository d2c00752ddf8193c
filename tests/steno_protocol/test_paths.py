"""Session ids, keys and names, and the paths of root and socket."""

import os
import posixpath
import re
import stat
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steno_protocol import limits, paths
from steno_protocol.errors import BadRequest, Unauthorized

SESSION_ALPHABET = "aZ09_.@+=,-/:~ \\\n\0é"
OWN_FILES = [
    paths.CONTEXT, paths.WIRE, paths.TIMELINE, paths.STATE, paths.QUARANTINE, paths.MARK,
    paths.REWRITE, paths.generation_file(1), paths.generation_file(12),
]  # fmt: skip


# --- session ids ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("session", "mount", "segments"),
    [
        ("demo", None, ("demo",)),
        ("team/planner-1", None, ("team", "planner-1")),
        ("kimi:2f1a/7c9e", "kimi", ("2f1a", "7c9e")),
        ("2f1a/7c9e/subagents/a1", None, ("2f1a", "7c9e", "subagents", "a1")),
        ("a.b", None, ("a.b",)),
        ("_", None, ("_",)),
        ("x@host+1=2,3", None, ("x@host+1=2,3",)),
        ("a" * 128 + "/" + "b" * 126, None, ("a" * 128, "b" * 126)),
    ],
)
def test_a_session_id_is_cut_into_mount_and_folders(
    session: str, mount: str | None, segments: tuple[str, ...]
) -> None:
    assert paths.split_session(session) == (mount, segments)


@pytest.mark.parametrize(
    "session",
    [
        "", ".", "..", "../x", "a/../b", "a/..", "/etc/passwd", "/", "a/", "/a", "a//b", "./a",
        "a/./b", ".hidden", "a/.hidden", "~", "~/x", "a b", "a\nb", "a\n", "a\0b", "a\x1bb", "a\\b",
        "a:b:c", ":a", "Kimi:a", "1k:a", "kimi:", "kimi:/a", "kimi:../a", "-a", "a/-b", "é", "a?b",
        "a*b", "a|b", "m" * 33 + ":a", "x" * 10_000, "x" * 129, "a/" + "x" * 129, "a/" * 200 + "a",
        *OWN_FILES, *(f"team/{name}" for name in OWN_FILES), f"{paths.QUARANTINE}/x",
        "context.jsonl.new", "state.json.new", "wire.anything", "other.jsonl",
    ],
)  # fmt: skip
def test_invalid_session_id_is_refused_briefly_with_advice(session: str) -> None:
    with pytest.raises(BadRequest) as refused:
        paths.split_session(session)
    assert re.search(r"use |choose ", refused.value.message)
    assert len(refused.value.message) < 400
    assert refused.value.message.isprintable()


@given(session=st.text(alphabet=SESSION_ALPHABET, max_size=300))
def test_no_session_id_leads_out_of_its_folder_or_into_another_sessions_files(
    session: str,
) -> None:
    try:
        mount, segments = paths.split_session(session)
    except BadRequest:
        return
    path = posixpath.join("/sessions", *segments)
    assert posixpath.normpath(path) == path
    assert not any(segment.startswith(".") for segment in segments)
    assert not {*segments} & {*OWN_FILES}
    assert "/".join(segments) == session.removeprefix(f"{mount}:" if mount else "")


# --- generations ---------------------------------------------------------------------------------


@given(number=st.integers(1, 10**9 - 1))
def test_a_generation_file_has_its_number(number: int) -> None:
    assert paths.generation_of(paths.generation_file(number)) == number


@pytest.mark.parametrize(
    "name",
    [
        "context.jsonl", "context_0.jsonl", "context_01.jsonl", "context_.jsonl",
        "context_1.jsonl\n", "context_1.jsonl.bak", "xcontext_1.jsonl", "context_-1.jsonl",
        "context_١.jsonl", "wire_1.jsonl",
    ],
)  # fmt: skip
def test_no_other_file_is_a_generation(name: str) -> None:
    assert paths.generation_of(name) is None


# --- keys and names ------------------------------------------------------------------------------


@pytest.mark.parametrize("key", ["a", "A-Z_0", "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11", "k" * 64])
def test_a_key_is_returned_as_it_is(key: str) -> None:
    assert paths.check_key(key) == key


@pytest.mark.parametrize(
    "key", ["", "k" * 65, "a.b", "a/b", "a b", "k\n", "\nk", "k\0", "ä", '"', "٣"]
)
def test_invalid_key_is_refused(key: str) -> None:
    with pytest.raises(BadRequest, match="use 1 to 64 of A-Z a-z 0-9 _ -"):
        paths.check_key(key)


@pytest.mark.parametrize("name", ["planner", "agent@host:1/2", "a+b.c-d", "n" * 64])
def test_a_name_is_returned_as_it_is(name: str) -> None:
    assert paths.check_name(name) == name


@pytest.mark.parametrize("name", ["", "n" * 65, "a b", "n\n", "n\0", "ä", '"', "\\", "{"])
def test_invalid_name_is_refused(name: str) -> None:
    with pytest.raises(BadRequest, match="use 1 to 64 letters"):
        paths.check_name(name)


@pytest.mark.parametrize("check", [paths.check_key, paths.check_name])
@pytest.mark.parametrize("value", [5, b"key", 1.5, ["key"], {"key": 1}], ids=repr)
def test_only_text_is_a_key_or_a_name(check: Callable[[Any], str], value: object) -> None:
    with pytest.raises(BadRequest, match=rf"the {type(value).__name__} .* is not a .*: use 1 to"):
        check(value)


def test_a_uuid7_contains_its_creation_time() -> None:
    assert paths.key_time_ms("0199f1c2-5b1e-7a90-8000-3d1c5e9b7a11") == 0x0199F1C25B1E


@pytest.mark.parametrize(
    "key",
    [
        "", "mine", "0199f1c2-5b1e-4a90-8000-3d1c5e9b7a11", "0199f1c25b1e7a9080003d1c5e9b7a11",
        "0199f1cg-5b1e-7a90-8000-3d1c5e9b7a11", "0199f1c2-5b1e-7a90-8000-3d1c5e9b7a111",
        "0_99f1c2-5b1e-7a90-8000-3d1c5e9b7a11", "0199f1c2x5b1e-7a90-8000-3d1c5e9b7a11",
    ],
)  # fmt: skip
def test_other_keys_contain_no_time(key: str) -> None:
    assert paths.key_time_ms(key) is None


@given(key=st.text(max_size=40) | st.from_regex(r".{14}7.{21}", fullmatch=True))
def test_no_key_makes_the_reading_of_its_time_fail(key: str) -> None:
    time_ms = paths.key_time_ms(key)
    assert time_ms is None or 0 <= time_ms < 2**48


def test_an_invalid_daemon_note_is_ignored() -> None:
    note = paths.LockNote(pid=1, version="0", root="/r", endpoint="ipc:///r/stenod.sock")
    assert paths.decode_lock_note(msgspec.json.encode(note)) == note
    for data in (b"", b"{}", b'{"pid":', b'{"pid":1,"version":"\xff"}', b"\xff"):
        assert paths.decode_lock_note(data) is None


# --- roots and sockets ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given_root", "environ", "root"),
    [
        ("/given", {"STENO_HOME": "/home", "XDG_STATE_HOME": "/state"}, "/given"),
        (None, {"STENO_HOME": "/home", "XDG_STATE_HOME": "/state"}, "/home"),
        (None, {"STENO_HOME": "", "XDG_STATE_HOME": "/state"}, "/state/steno"),
        (None, {"XDG_STATE_HOME": ""}, "/users/ada/.local/state/steno"),
        (None, {"XDG_STATE_HOME": "state"}, "/users/ada/.local/state/steno"),
        ("", {}, "/users/ada/.local/state/steno"),
    ],
)
def test_the_root_is_the_first_that_is_given(
    given_root: str | None, environ: dict[str, str], root: str
) -> None:
    assert paths.root_folder(given_root, environ, "/users/ada") == root


@pytest.mark.parametrize(
    ("owner", "mode", "is_safe"),
    [
        (1000, 0o700, True),
        (1000, 0o770, True),
        (1000, 0o777, False),
        (0, 0o755, True),
        (0, 0o1777, True),
        (0, 0o777, False),
        (1001, 0o700, False),
        (1001, 0o1777, False),
        (1000, stat.S_IFLNK | 0o777, True),
        (1001, stat.S_IFLNK | 0o777, False),
    ],
)
def test_socket_lies_where_no_other_user_can_replace_it(
    owner: int, mode: int, is_safe: bool
) -> None:
    wanted = nullcontext() if is_safe else pytest.raises(Unauthorized, match="/tmp/steno-1000")
    with wanted:
        paths.check_socket_folder("/tmp/steno-1000", owner=owner, mode=mode, own=1000)


@pytest.mark.parametrize("home", ["~", "", "users/ada"])
def test_an_unknown_home_is_needed_only_where_nothing_else_is_given(home: str) -> None:
    with pytest.raises(BadRequest, match="choose a root with STENO_HOME"):
        paths.root_folder(None, {}, home)
    assert paths.root_folder("/given", {}, home) == "/given"
    assert paths.root_folder(None, {"STENO_HOME": "/home"}, home) == "/home"
    assert paths.root_folder(None, {"XDG_STATE_HOME": "/state"}, home) == "/state/steno"


def test_a_root_is_no_folder_called_tilde() -> None:
    for given_root, environ in (("~/steno", {}), (None, {"STENO_HOME": "~ada/steno"})):
        with pytest.raises(BadRequest, match="begins with ~"):
            paths.root_folder(given_root, environ, "/users/ada")
    assert paths.root_folder("./~", {}, "/users/ada") == "./~"


def test_the_socket_of_a_short_root_lies_in_it() -> None:
    root = "/" + "r" * (limits.SOCKET_PATH_BYTES_MAX - len("//stenod.sock"))
    assert paths.socket_path(root, None, {}, 1000) == f"{root}/stenod.sock"
    assert len(f"{root}/stenod.sock") == limits.SOCKET_PATH_BYTES_MAX


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({}, "/tmp/steno-1000"),
        ({"XDG_RUNTIME_DIR": "/run/user/1000"}, "/run/user/1000/steno-1000"),
        ({"XDG_RUNTIME_DIR": "/run/" + "x" * 90}, "/tmp/steno-1000"),
    ],
)
def test_the_socket_of_a_long_root_lies_in_a_folder_of_its_user(
    environ: dict[str, str], folder: str
) -> None:
    path = paths.socket_path("/" + "r" * 100, None, environ, 1000)
    assert posixpath.dirname(path) == folder
    assert len(path) <= limits.SOCKET_PATH_BYTES_MAX


@pytest.mark.parametrize(
    ("given_socket", "environ"),
    [("/x/s.sock", {"STENO_SOCKET": "/y/s.sock"}), (None, {"STENO_SOCKET": "/x/s.sock"})],
)
def test_a_socket_that_is_given_is_taken(given_socket: str | None, environ: dict[str, str]) -> None:
    assert paths.socket_path("/disk", given_socket, environ, 0) == "/x/s.sock"


@pytest.mark.parametrize(
    ("given_socket", "environ"),
    [("/" + "s" * 107, {}), (None, {"STENO_SOCKET": "/" + "é" * 54})],
)
def test_a_socket_that_is_given_and_too_long_is_refused(
    given_socket: str | None, environ: dict[str, str]
) -> None:
    with pytest.raises(BadRequest, match="at most 107 are possible: choose a shorter one"):
        paths.socket_path("/disk", given_socket, environ, 0)


def test_a_path_that_is_no_utf8_is_refused_where_it_was_given() -> None:
    odd = os.fsdecode(b"/disk/\xff")
    with pytest.raises(BadRequest, match=r"the root '/disk/\\udcff' is not UTF-8: rename"):
        paths.check_path(odd, "root")
    with pytest.raises(BadRequest, match="choose another socket"):
        paths.socket_path("/disk", odd, {}, 0)
    assert paths.check_path("/disk/é", "root") == "/disk/é"


@given(root=st.binary(min_size=1, max_size=200))
def test_a_root_of_any_bytes_has_a_socket_that_fits(root: bytes) -> None:
    path = paths.socket_path("/" + root.decode(errors="surrogateescape"), None, {}, 0)
    assert len(path.encode(errors="surrogateescape")) <= limits.SOCKET_PATH_BYTES_MAX
