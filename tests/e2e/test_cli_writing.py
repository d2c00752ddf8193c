"""The commands that change a session."""

import os
import re
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from steno_protocol.commands import Append
from steno_protocol.messages import Request
from support.command import Steno, lines_of
from support.scripted_daemon import Answers, ScriptedDaemon
from support.session_files import contents_in, records_in

pytestmark = pytest.mark.served

ACK_KEYS = {
    "session", "first", "last", "head", "durability", "duplicate", "checkpoint_id", "handle",
    "rotated", "overtaken", "key",
}  # fmt: skip


@pytest.mark.served(False)
def test_append_creates_a_missing_session(root: Path, steno: Steno) -> None:
    ran = steno("append", "demo", "--role", "assistant", "hi there", "--name", "planner")
    assert (ran.code, ran.out) == (0, "0:0\n")
    assert ran.err == "steno: the session demo was created: there was none\n"
    assert steno("append", "demo2", "hi", "--create").err == ""
    [record] = records_in(root, "demo")
    assert (record["role"], record["content"], record["_by"]) == (
        "assistant", "hi there", "planner",
    )  # fmt: skip


def test_a_created_session_is_reported_with_similar_ids(root: Path, steno: Steno) -> None:
    for session in ("demo", "team/a", "team/b"):
        steno("append", session, "hi", "--create")
    said = {
        session: steno("append", session, "hi").err for session in ("dmeo", "team", "unlike", "de")
    }
    made = "steno: the session {} was created: there was none"
    assert said["dmeo"] == (
        f"{made.format('dmeo')}; did you mean demo? Then `steno delete dmeo` removes it.\n"
    )
    assert "did you mean team/a or team/b?" in said["team"]
    assert said["unlike"] == f"{made.format('unlike')}\n"
    # Only what is two letters away is a suggestion.
    assert "did you mean" not in said["de"]
    assert contents_in(root, "demo") == {"hi": 1}


@pytest.mark.parametrize(
    "change", [("append", "hi"), ("checkpoint",), ("prompt", "be kind"), ("emit", "Noted")]
)
def test_a_change_under_a_short_id_goes_to_the_session_that_has_it(
    root: Path, steno: Steno, change: tuple[str, ...]
) -> None:
    whole = "8555b74f05c738770b377f99576cee00/803e46f3-d894-4f56-973b-263e6d9350ca"
    name, *arguments = change
    assert steno("open", whole).code == 0

    ran = steno(name, "8555/803e", *arguments)

    assert ran.code == 0
    assert ran.err.startswith(f"steno: there is no session 8555/803e; only {whole} begins with it")
    assert not (root / "sessions/8555").exists()
    made = steno(name, "8555/803e", *arguments, "--create")
    assert made.err.startswith("steno: its handle ") if name == "checkpoint" else made.err == ""
    assert (root / "sessions/8555/803e").is_dir()


def test_lines_of_stdin_under_a_short_id_go_to_the_session_that_has_it(
    root: Path, steno: Steno
) -> None:
    whole = "803e46f3-d894-4f56-973b-263e6d9350ca"
    assert steno("open", whole).code == 0
    lines = "".join(f'{{"role":"user","content":"{n}"}}\n' for n in range(3))
    assert steno("append", "803e", stdin=lines).code == 0
    assert contents_in(root, whole) == {"0": 1, "1": 1, "2": 1}


def test_an_id_that_is_no_short_form_of_a_generated_one_is_created(steno: Steno) -> None:
    assert steno("open", "803e46f3-d894-4f56-973b-263e6d9350ca").code == 0
    assert steno("open", "feed-the-cat").code == 0
    for session in ("803", "feed", "803f", "803e/0199"):
        assert f"the session {session} was created" in steno("append", session, "hi").err


@pytest.mark.served(False)
@pytest.mark.parametrize(
    "change", [("append", "hi"), ("checkpoint",), ("prompt", "be kind"), ("emit", "Noted")]
)
def test_a_change_in_a_mount_creates_a_session_only_with_create(
    root: Path, steno: Steno, change: tuple[str, ...]
) -> None:
    (root / "config.toml").write_text(f'[mounts]\nkimi = "{root}/tree"\n')
    name, *arguments = change
    refused = steno(name, "kimi:work/0a1b", *arguments)
    assert (refused.code, refused.out) == (4, "")
    assert f"`steno {name}` creates none in the mount kimi without --create" in refused.err
    assert steno("open", "kimi:work/0a1b2c").code == 0

    taken = steno(name, "kimi:work/0a1b", *arguments)
    nearly = steno(name, "kimi:work/0a1b2d", *arguments)

    assert taken.code == 0
    assert "only kimi:work/0a1b2c begins with it" in taken.err
    assert (nearly.code, nearly.out) == (4, "")
    assert "did you mean kimi:work/0a1b2c?" in nearly.err
    made = steno(name, "kimi:work/0a1b", *arguments, "--create")
    assert made.err.startswith("steno: its handle ") if name == "checkpoint" else made.err == ""
    assert sorted(folder.name for folder in (root / "tree/work").iterdir()) == ["0a1b", "0a1b2c"]


@pytest.mark.served(False)
@pytest.mark.parametrize(
    "reading",
    [
        ("sessions",), ("show", "demo"), ("read", "demo"), ("prompt", "demo"), ("usage", "demo"),
        ("stat", "demo"), ("verify", "--all"), ("tail", "demo"), ("revert", "demo", "0"),
        ("gc", "--trash"), ("grep", "x"),
        ("compact", "demo", "--model", "http://127.0.0.1:9/v1#model"),
    ],
)  # fmt: skip
def test_a_command_that_creates_no_session_creates_no_root(
    root: Path, reading: tuple[str, ...]
) -> None:
    ran = Steno(root)("--root", f"{root}/typo", *reading)
    assert (ran.code, ran.out) == (4, "")
    assert f"there is no root at {root}/typo, and this command creates none" in ran.err
    assert list(root.iterdir()) == []


def test_a_text_like_an_option_follows_two_dashes(root: Path, steno: Steno) -> None:
    assert steno("append", "demo", "--role", "user", "--", "--json").code == 0
    assert steno("append", "demo", "--", "-f").code == 0
    assert contents_in(root, "demo") == {"--json": 1, "-f": 1}


def test_an_ack_has_all_of_its_fields_as_json(root: Path) -> None:
    ack = Steno(root)("--json", "append", "demo", "hi", "--key", "k1").document
    assert set(ack) == ACK_KEYS
    assert ack == {
        "session": "demo", "first": "0:0", "last": "0:0", "head": "0:1", "durability": "synced",
        "duplicate": False, "checkpoint_id": None, "handle": None, "rotated": None,
        "overtaken": False, "key": "k1",
    }  # fmt: skip


def test_records_on_stdin_are_acknowledged_one_by_one(root: Path) -> None:
    ran = Steno(root)("append", "demo", stdin=lines_of("a", "b") + "\n" + lines_of("c"))
    assert (ran.code, ran.out) == (0, "0:0\n0:1\n0:2\n")
    assert [record["content"] for record in records_in(root, "demo")] == ["a", "b", "c"]


def test_a_batch_on_stdin_is_appended_as_one(root: Path, steno: Steno) -> None:
    ack = steno("append", "demo", "--batch", "--json", stdin=lines_of("a", "b")).document
    assert (ack["first"], ack["last"]) == ("0:0", "0:1")
    ran = steno("append", "demo", "--batch", stdin=lines_of("c") + '{"role":"nobody"}\n')
    assert ran.code == 1
    assert contents_in(root, "demo").keys() == {"a", "b"}


def test_stdin_repeated_with_its_key_is_applied_once(root: Path, steno: Steno) -> None:
    for _ in range(2):
        assert steno("append", "demo", "--key", "k", stdin=lines_of("a", "b")).code == 0
    acks = steno("append", "demo", "--key", "k", "--json", stdin=lines_of("a", "b")).documents
    assert [(ack["key"], ack["duplicate"], ack["head"]) for ack in acks] == [
        ("k-1", True, "0:1"), ("k-2", True, "0:2"),
    ]  # fmt: skip
    assert contents_in(root, "demo") == {"a": 1, "b": 1}


def test_a_missing_session_is_not_created_with_no_create(root: Path, steno: Steno) -> None:
    for arguments in (
        ("append", "nope", "hi", "--no-create"),
        ("checkpoint", "nope", "--no-create"),
        ("prompt", "nope", "hi", "--no-create"),
        ("usage", "nope", "12"),
        ("revert", "nope", "0"),
        ("clear", "nope"),
        ("restore", "nope", "0"),
        ("read", "nope"),
        ("show", "nope"),
        ("tail", "nope"),
        ("timeline", "nope"),
    ):
        ran = steno(*arguments)
        assert (ran.code, ran.out) == (4, ""), arguments
        assert "no such session" in ran.err
        # The error names the session and the root, in which another session exists.
        assert f"{root}/sessions/nope; `steno sessions`" in ran.err
    assert not (root / "sessions" / "nope").exists()


@pytest.mark.parametrize(
    ("code", "arguments", "stdin"),
    [
        (4, ("append", "fresh", "hi", "--expect", "5:5"), b""),
        (4, ("append", "fresh", "--batch", "--expect", "0:1"), b'{"role":"user","content":"x"}'),
        (4, ("checkpoint", "fresh", "--expect", "0:1"), b""),
        (4, ("prompt", "fresh", "hi", "--expect", "1:0"), b""),
        (4, ("emit", "fresh", "Noted", "--expect", "0:1"), b""),
        (1, ("append", "fresh"), b"{no json"),
        (1, ("append", "fresh"), b" \n\n"),
        (1, ("append", "fresh", "--batch"), b'{"role":"user","content":"x"}\n{"role":"nobody"}'),
        (1, ("append", "fresh", "--batch"), b""),
        (2, ("append", "fresh", b"\xff"), b""),
        (2, ("prompt", "fresh", b"\xff"), b""),
        (1, ("emit", "fresh", ""), b""),
        (2, ("emit", "fresh", "Noted", "--timestamp", "nan"), b""),
    ],
)
def test_a_refused_change_leaves_no_empty_session_behind(
    root: Path, code: int, arguments: tuple[str | bytes, ...], stdin: bytes
) -> None:
    ran = Steno(root)(*map(os.fsdecode, arguments), stdin=stdin)
    assert (ran.code, ran.out) == (code, "")
    assert not (root / "sessions" / "fresh").exists()


def test_expect_zero_creates_a_session(steno: Steno) -> None:
    assert steno("append", "demo", "hi", "--expect", "0:0").out == "0:0\n"
    assert steno("emit", "events", "Noted", "--expect", "0:0").out == "0:2\n"


def test_a_conflict_names_the_head(root: Path, steno: Steno) -> None:
    head = steno("append", "demo", "one", "--json").document["head"]
    assert steno("append", "demo", "two", "--expect", head).code == 0
    ran = steno("append", "demo", "three", "--expect", head)
    assert ran.code == 3
    assert "0:2" in ran.err
    assert steno("append", "demo", "three", "--expect", head, "--json").error["head"] == "0:2"
    assert contents_in(root, "demo") == {"one": 1, "two": 1}


def test_a_checkpoint_prints_its_id_and_a_revert_goes_back_to_it(root: Path, steno: Steno) -> None:
    steno("append", "demo", "kept")
    made = steno("checkpoint", "demo")
    assert made.out == "0\n"
    handle = re.search(r"its handle (0@0:1@[0-9a-f]+) names", made.err)
    assert handle is not None
    assert steno("checkpoint", "demo", "--add-user-message", "--json").document[
        "checkpoint_id"
    ] == 1  # fmt: skip
    steno("append", "demo", "dropped")
    ran = steno("revert", "demo", handle[1], "--why", "wrong turn")
    assert (ran.code, ran.out) == (0, "1:1\n")
    assert str(root / "sessions" / "demo" / "context_1.jsonl") in ran.err
    assert contents_in(root, "demo") == {"kept": 1}


def test_an_error_about_a_missing_checkpoint_names_the_valid_ones(steno: Steno) -> None:
    steno("checkpoint", "demo")
    for wrong in ("1", "-1"):
        ran = steno("revert", "demo", wrong)
        assert ran.code == 4
        assert "0 to 0 were assigned" in ran.err


def test_a_cleared_session_can_be_restored(root: Path, steno: Steno) -> None:
    steno("append", "demo", "precious")
    assert steno("clear", "demo").out == "1:0\n"
    assert records_in(root, "demo") == []
    ack = steno("restore", "demo", "0", "--json").document
    assert (ack["head"], ack["rotated"]) == (
        "2:1", str(root / "sessions" / "demo" / "context_2.jsonl"),
    )  # fmt: skip
    assert contents_in(root, "demo") == {"precious": 1}


def test_token_counts_are_appended_and_listed(steno: Steno) -> None:
    steno("append", "demo", "12345678")
    assert steno("usage", "demo", "--durability", "written", "1472").out == "0:2\n"
    steno("append", "demo", "12345678")
    ran = steno("usage", "demo")
    assert (ran.code, ran.out) == (0, "0:1  1472\n")
    assert ran.err == "steno: 1 472 tokens, and about 2 not yet counted\n"
    assert steno("usage", "demo", "--json").document == {
        "session": "demo",
        "token_count": 1472,
        "token_count_with_pending": 1474,
        "usages": [{"cursor": "0:1", "token_count": 1472}],
    }


def test_a_system_prompt_is_written_from_text_or_stdin_and_printed(steno: Steno) -> None:
    assert steno("prompt", "demo", "be kind").out == "0:1\n"
    steno("append", "demo", "hi")
    assert steno("prompt", "demo", "-", stdin="be\nbrief").out == "1:2\n"
    assert steno("prompt", "demo").out == "be\nbrief\n"
    assert steno("prompt", "demo", "--json").document == {
        "session": "demo", "system_prompt": "be\nbrief",
    }  # fmt: skip


def test_an_invalid_id_is_refused_and_changes_nothing(root: Path) -> None:
    ran = Steno(root)("append", "../etc", "hi", "--json")
    assert ran.code == 1
    assert (ran.error["code"], ran.error["outcome"]) == ("bad_request", "not_applied")
    assert not (root / "etc").exists()


def test_an_unprinted_ack_leaves_the_outcome_unknown(root: Path, steno: Steno) -> None:
    with Path("/dev/full").open("w") as full:
        ran = subprocess.run(
            [*steno.words("append", "demo", "hi"), "--root", str(root)],
            stdin=subprocess.DEVNULL,
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    assert ran.returncode == 6
    assert b"No space left on device" in ran.stderr
    assert contents_in(root, "demo") == {"hi": 1}


def test_a_missing_answer_leaves_the_outcome_unknown_and_names_the_key(
    root: Path, steno: Steno
) -> None:
    def mute(request: Request) -> Answers | None:
        return [] if isinstance(request.command, Append) else None

    # Enough for a connection, without which the outcome would be known.
    arguments = ("append", "demo", "hi", "--timeout", "5", "--socket", f"{root}/scripted.sock")
    with ScriptedDaemon(root, mute), ThreadPoolExecutor(2) as threads:
        forms = (("--key", "mine"), ("--json",))
        ran, printed = threads.map(lambda form: steno(*arguments, *form), forms)
    assert (ran.code, ran.out) == (6, "")
    assert "repeat it with the key mine" in ran.err
    assert printed.error["outcome"] == "unknown"
    assert len(printed.error["key"]) == 36
    lost = steno(*arguments)
    assert lost.code == 5
    assert "steno start" in lost.err


def test_a_session_that_a_refused_change_created_stays_and_is_named(root: Path) -> None:
    # Another root than that of the daemon that serves this module, for the configuration.
    own = root / "own"
    own.mkdir(mode=0o700)
    (own / "config.toml").write_text("[disk]\nsession_bytes = 65536\n")
    steno = Steno(own)
    ran = steno("append", "new", "-", stdin="x" * 100_000)
    assert ran.code == 1
    assert "disk.session_bytes" in ran.err
    assert "new was created and stays empty: `steno delete new" in ran.err
    assert [each["session"] for each in steno("sessions", "--json").document["sessions"]] == ["new"]
    assert steno("read", "new").out == ""
    assert steno("stop").code == 0
