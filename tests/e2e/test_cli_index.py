"""`steno grep --index`: words in the full-text index, and how it notices changes."""

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest

import steno as steno_client
from support.command import Steno

pytestmark = pytest.mark.served

WORDS = "no space left on the device"


@pytest.fixture
def steno(root: Path, tmp_path: Path) -> Steno:
    """The command on a root with two sessions, and a cache folder of this test's own."""
    steno = Steno(root, XDG_CACHE_HOME=str(tmp_path / "cache"))
    for session, text in (("team/a", f"Hello\n{WORDS}"), ("team/b", "café 今天会议 Hello")):
        assert steno("append", session, text, "--create").code == 0
    return steno


def found(steno: Steno, *arguments: str) -> list[tuple[str, str, str]]:
    """Session, cursor and line of each hit."""
    ran = steno("grep", "--index", "--json", *arguments)
    assert ran.code == (0 if ran.out else 4), ran.err
    return [(hit["session"], hit["cursor"], hit["line"]) for hit in ran.documents]


def index_file(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "cache").rglob("index-*.db")
    return path


def is_half_written(cache: Path) -> bool:
    """Whether SQLite's log of an index is long; the process that ends removes it at any time."""
    with suppress(FileNotFoundError):
        return any(file.stat().st_size > 100_000 for file in cache.rglob("index-*.db-wal"))
    return False


def test_hits_have_the_form_of_grep(steno: Steno) -> None:
    ran = steno("grep", "--index", "SPACE device")
    session, cursor, _, line = ran.out.rstrip("\n").split("  ")
    assert (ran.code, session, cursor, line) == (0, "team/a", "0:0", WORDS)
    (hit,) = steno("grep", "--index", "space", "--json").documents
    assert hit.pop("at") == pytest.approx(time.time(), abs=300)
    assert hit == {"session": "team/a", "cursor": "0:0", "role": "user", "line": WORDS}


def test_words_phrases_prefixes_and_filters(steno: Steno) -> None:
    steno("append", "team/b", "hello again", "--role", "assistant")
    assert found(steno, "left space") == [("team/a", "0:0", WORDS)]
    assert found(steno, '"left space"') == []
    assert found(steno, "devi*") == [("team/a", "0:0", WORDS)]
    assert [hit[0] for hit in found(steno, "CAFE")] == ["team/b"]
    assert [hit[0] for hit in found(steno, "会议")] == ["team/b"]
    assert [hit[:2] for hit in found(steno, "hello", "--order", "time")] == [
        ("team/b", "0:1"), ("team/b", "0:0"), ("team/a", "0:0"),
    ]  # fmt: skip
    assert [hit[1] for hit in found(steno, "hello", "--role", "assistant")] == ["0:1"]
    assert [hit[0] for hit in found(steno, "hello", "team/a")] == ["team/a"]
    assert len(found(steno, "hello", "--since", "1h")) == 3
    assert found(steno, "hello", "--since", "2199-01-01") == []


def test_it_says_what_it_takes(steno: Steno) -> None:
    ran = steno("grep", "--index", "spa.*|left")
    assert ran.code == 4
    assert "takes no regular expression" in ran.err
    assert steno("grep", "spa.*|left").code == 0


def test_limit_bounds_the_output_and_says_so(steno: Steno) -> None:
    ran = steno("grep", "--index", "hello", "--limit", "1")
    assert len(ran.out.splitlines()) == 1
    assert "the best 1 of 2 matches" in ran.err
    assert sorted(steno("grep", "--index", "-l", "hello").out.split()) == ["team/a", "team/b"]


def test_every_kind_of_change_is_noticed(steno: Steno) -> None:
    assert len(found(steno, "hello")) == 2
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("team/a", follow=False)
        session.checkpoint()
        session.append_message({"role": "user", "content": "zebra one"})
        assert [hit[:2] for hit in found(steno, "zebra")] == [("team/a", "0:2")]
        session.revert_to(0)
        assert found(steno, "zebra") == []
        session.append_message({"role": "user", "content": "zebra two"})
        assert [hit[1:] for hit in found(steno, "zebra")] == [("1:1", "zebra two")]
        session.restore_generation(0)
        assert [hit[1:] for hit in found(steno, "zebra")] == [("2:2", "zebra one")]
        fork = session.fork("copy")
        assert {hit[0] for hit in found(steno, "zebra")} == {"team/a", "copy"}
        del fork
        client.rename("copy", "moved")
        assert {hit[0] for hit in found(steno, "zebra")} == {"team/a", "moved"}
        client.delete("moved")
        client.open("moved", follow=False).append_message({"role": "user", "content": "new zebra"})
        assert [hit[2] for hit in found(steno, "zebra", "moved")] == ["new zebra"]
        session.clear()
        assert [hit[0] for hit in found(steno, "zebra")] == ["moved"]


def test_a_compacted_session_shows_its_summary_alone(steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("long")
        session.append_message([{"role": "user", "content": f"giraffe {n}"} for n in range(9)])
        assert len(found(steno, "giraffe")) == 9
        session.compact(lambda _: steno_client.Summary("an elephant", output_tokens=2))
    assert len(found(steno, "elephant")) == 1
    lines = "".join(each["record"]["content"] if isinstance(each["record"]["content"], str) else ""
                    for each in steno("read", "long", "--json").documents
                    if "content" in each["record"])  # fmt: skip
    assert len(found(steno, "giraffe")) == lines.count("giraffe")


@pytest.mark.served(False)
@pytest.mark.parametrize("is_daemon_there", [True, False], ids=["running", "stopped"])
def test_a_change_by_another_program_is_noticed(steno: Steno, is_daemon_there: bool) -> None:
    assert len(found(steno, "hello")) == 2
    if not is_daemon_there:
        assert steno("stop").code == 0
    path = steno.root / "sessions" / "team" / "a" / "context.jsonl"
    other = path.with_name("other")
    other.write_text(json.dumps({"role": "user", "content": "giraffe"}) + "\n")
    other.replace(path)
    assert [hit[0] for hit in found(steno, "hello")] == ["team/b"]
    assert [hit[2] for hit in found(steno, "giraffe")] == ["giraffe"]


def test_a_hit_that_is_no_longer_there_is_not_shown(steno: Steno, tmp_path: Path) -> None:
    assert len(found(steno, "hello")) == 2
    path = steno.root / "sessions" / "team" / "a" / "context.jsonl"
    before = path.stat()
    path.write_bytes(path.read_bytes().replace(b"Hello", b"Jelly"))
    # Its size and time say that nothing happened.
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert [hit[0] for hit in found(steno, "hello")] == ["team/b"]
    # The contradiction lets the next pass read it again.
    assert [hit[0] for hit in found(steno, "jelly")] == ["team/a"]


def test_a_damaged_index_is_made_again(steno: Steno, tmp_path: Path) -> None:
    assert len(found(steno, "hello")) == 2
    index_file(tmp_path).write_bytes(b"\xff" * 9000)
    assert len(found(steno, "hello")) == 2
    assert index_file(tmp_path).name == "index-2-2.db"


@pytest.mark.served(False)
def test_a_killed_indexer_leaves_a_good_index(steno: Steno) -> None:
    with steno_client.connect_sync(steno.root, name="writer") as client:
        session = client.open("many", follow=False)
        for first in range(0, 1500, 500):
            session.append_message(
                [
                    {"role": "user", "content": f"okapi {first + n} {'x ' * 1500}"}
                    for n in range(500)
                ],
                durability="written",
            )
    cache = Path(steno.environment["XDG_CACHE_HOME"])
    for _ in range(2):
        process = subprocess.Popen(
            steno.words("grep", "--index", "okapi", "--limit", "1"), env=steno.environment,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        while process.poll() is None and not is_half_written(cache):
            os.sched_yield()
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert [hit[1] for hit in found(steno, '"okapi 1499"')] == ["0:1499"]
    assert [hit[1] for hit in found(steno, '"okapi 0"')] == ["0:0"]
    assert "of 1500 matches" in steno("grep", "--index", "okapi", "--limit", "1").err


def test_two_searches_at_once_are_right(steno: Steno) -> None:
    running = [steno.begin("grep", "--index", "hello", "--json") for _ in range(4)]
    for process in running:
        out, _ = process.communicate(timeout=60)
        assert len(out.splitlines()) == 2


def test_a_plain_grep_imports_no_sqlite(steno: Steno) -> None:
    code = (
        "import sys; from steno_cli.entry import main; assert main(['grep', 'space']) == 0;"
        "assert 'sqlite3' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], env=steno.environment, check=True)


def test_no_prefix_of_a_secret_is_found_or_counted(steno: Steno, tmp_path: Path) -> None:
    steno("append", "team/a", "the password=swordfish8 of the desk")
    assert len(found(steno, "desk")) == 1
    for prefix in ("swordfish8", "swo*", "sword*", "desk swordf*", '"password swordfish8"'):
        assert found(steno, prefix) == [], prefix
    stored = b"".join(each.read_bytes() for each in (tmp_path / "cache").rglob("index-*"))
    assert b"swordfish" not in stored


def test_other_patterns_make_the_index_anew(steno: Steno) -> None:
    steno("append", "team/a", "the ticket TX4711 is open")
    assert len(found(steno, "TX4711")) == 1
    (steno.root / "config.toml").write_text("[redact]\nticket = 'TX[0-9]+'\n")
    assert found(steno, "TX4711") == []
    assert len(found(steno, "open")) == 1


def test_the_index_forgets_the_words_of_a_deleted_session(steno: Steno, tmp_path: Path) -> None:
    steno("append", "team/c", "a zanzibarian word", "--create")
    assert len(found(steno, "zanzibarian")) == 1
    before = b"".join(each.read_bytes() for each in (tmp_path / "cache").rglob("index-*"))
    assert b"zanzibarian" in before
    assert steno("delete", "team/c").code == 0
    assert len(found(steno, "Hello")) == 2
    after = b"".join(each.read_bytes() for each in (tmp_path / "cache").rglob("index-*"))
    assert b"zanzibarian" not in after
