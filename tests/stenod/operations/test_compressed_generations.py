"""Past generations that a rule compresses: everything that reads them reads them as before."""

import errno
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

import steno
from steno_protocol import compression, paths
from steno_protocol.commands import Fork, Gc, Verify
from steno_protocol.errors import BadRequest, Corrupt, StorageFailed
from steno_protocol.replies import GcReport, SessionStat, Verification
from steno_protocol.settings import read_settings
from stenod.store.compressing import compress_generation
from stenod.store.posix import PosixDisk
from support.daemon_in_thread import DaemonInThread

RULE = "generations_compressed_days = 1e-9"
NAMED = "retention.generations_compressed_days = 1e-09"


@pytest.fixture
def client(root: Path, daemon: DaemonInThread) -> Iterator[steno.BlockingClient]:
    """A client of the daemon of this root."""
    with steno.connect_sync(root, spawn=False) as connected:
        yield connected


def follow(
    client: steno.BlockingClient,
    daemon: DaemonInThread,
    rules: str = RULE,
    *,
    dry_run: bool = False,
) -> GcReport:
    """Set the rules, and follow them."""
    (daemon.root / paths.CONFIG).write_text(f"[retention]\n{rules}\n")
    daemon.reload()
    return client.request(Gc(retention=True, dry_run=dry_run), GcReport)[0]


def message(number: int) -> dict[str, str]:
    return {"role": "user", "content": f"{number} " + "the same words again " * 20}


def rewritten(client: steno.BlockingClient) -> Path:
    """A session with the generations 0 to 3, of which a compaction made the second one."""
    session = client.open("demo", follow=False)
    session.append_message(message(0))
    session.checkpoint()
    for number in range(1, 40):
        session.append_message(message(number), key=f"key-{number}")
    assert session.compact(lambda _: "in short") is not None
    for number in range(40, 80):
        session.append_message(message(number))
    session.write_system_prompt("be brief")
    session.write_system_prompt("be briefer")
    return Path(client.stat("demo").folder)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("context_*"))


def lines(client: steno.BlockingClient, generation: int, session: str = "demo") -> list[bytes]:
    return list(client.session(session).lines(steno.Position(generation, 0)))


def check(client: steno.BlockingClient, session: str = "demo") -> Verification:
    return client.request(Verify(session=session), Verification)[0]


def test_rule_compresses_all_but_the_newest_past_generation(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    sizes = {path.name: path.stat().st_size for path in folder.glob("context_*")}
    dry = follow(client, daemon, dry_run=True)
    assert names(folder) == ["context_1.jsonl", "context_2.jsonl", "context_3.jsonl"]
    assert [(each.file, each.bytes, each.rule, each.compressed) for each in dry.entries] == [
        (name, sizes[name], NAMED, True) for name in ("context_1.jsonl", "context_2.jsonl")
    ]
    assert (dry.files, dry.bytes, dry.compressed) == (0, 0, 2)
    report = follow(client, daemon)
    assert names(folder) == ["context_1.jsonl.zst", "context_2.jsonl.zst", "context_3.jsonl"]
    assert [(each.file, each.rule) for each in report.entries] == [
        (each.file, each.rule) for each in dry.entries
    ]
    assert (report.files, report.compressed, report.failed) == (0, 2, [])
    assert sum(sizes.values()) > report.bytes == sum(each.bytes for each in report.entries) > 0
    assert follow(client, daemon).entries == []


def test_compressed_generations_are_read_as_before_while_open_and_closed(
    root: Path, client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    rewritten(client)
    before = [lines(client, number) for number in range(4)], check(client)
    listed = list(client.sessions())
    follow(client, daemon)
    assert ([lines(client, number) for number in range(4)], check(client)) == before
    assert list(client.sessions()) == listed
    assert not check(client).findings
    with client.session("demo").subscribe(after=steno.Position(0, 0)) as events:
        assert next(iter(events))
    daemon.stop()
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as other:
        assert ([lines(other, number) for number in range(4)], check(other)) == before


def test_keys_and_checkpoints_in_compressed_generations_are_found(
    root: Path, client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    follow(client, daemon)
    daemon.stop()
    # The recovery point knows the newest keys; without it they are looked up in the files.
    (folder / paths.MARK).unlink()
    with DaemonInThread(root), steno.connect_sync(root, spawn=False) as other:
        session = other.session("demo")
        ack = session.append_message(message(5), key="key-5")
        assert ack.duplicate
        assert ack.first.generation == 0
        session.revert_to(0)
        assert [b'"content":"0 ' in line for line in session.lines()] == [True]


def test_restore_and_fork_take_compressed_generations(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    before = [lines(client, number) for number in range(2)]
    follow(client, daemon)
    client.session("demo").fork("whole")
    fork = Path(client.stat("whole").folder)
    assert names(fork) == names(folder)
    assert (fork / "context_1.jsonl.zst").samefile(folder / "context_1.jsonl.zst")
    assert [lines(client, number, "whole") for number in range(2)] == before
    client.session("demo").fork("early", at=steno.Position(0, 10))
    assert list(client.session("early").lines())[:10] == before[0][:10]
    client.session("demo").restore_generation(0)
    assert list(client.session("demo").lines()) == before[0]
    for session in ("demo", "whole", "early"):
        assert not check(client, session).findings


@pytest.mark.parametrize("has_links", [True, False], ids=["links", "no links"])
@pytest.mark.parametrize("is_late", [True, False], ids=["meanwhile", "before"])
def test_fork_has_the_generations_whenever_they_are_compressed(
    client: steno.BlockingClient,
    daemon: DaemonInThread,
    monkeypatch: pytest.MonkeyPatch,
    has_links: bool,
    is_late: bool,
) -> None:
    folder = rewritten(client)
    before = [lines(client, number) for number in range(3)]
    linked = PosixDisk.link

    def link(disk: PosixDisk, origin: int, name: str, new: str, *, into: int | None = None) -> None:
        if into is not None and (folder / "context_1.jsonl").exists():
            for number in range(2):
                compress_generation(disk, origin, number)
        if into is not None and not has_links:
            os.stat(name, dir_fd=origin)
            raise OSError(errno.EXDEV, "another file system")
        linked(disk, origin, name, new, into=into)

    if not is_late:
        follow(client, daemon)
    monkeypatch.setattr(PosixDisk, "link", link)
    client.session("demo").fork("fork")
    assert names(folder) == ["context_1.jsonl.zst", "context_2.jsonl.zst", "context_3.jsonl"]
    assert [lines(client, number, "fork") for number in range(3)] == before
    assert not check(client, "fork").findings


def test_repeated_fork_answers_from_its_compressed_generation(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    rewritten(client)
    wanted = Fork(session="demo", new_session="other", key="fork-1")
    first = client.request(wanted, SessionStat)[0]
    fork = client.session("other")
    fork.clear()
    fork.clear()
    # Its present file then is its own, and that of its source gets smaller.
    assert follow(client, daemon).compressed > 0
    again = client.request(wanted, SessionStat)[0]
    assert again == first


def test_opening_finds_a_rewrite_whose_old_file_is_compressed(
    root: Path, client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    head = client.stat("demo").head
    daemon.stop()
    # Another program rotates the file, so the last rewrite left the newest file but one.
    (folder / paths.CONTEXT).rename(folder / "context_4.jsonl")
    (folder / paths.CONTEXT).touch()
    (folder / paths.MARK).unlink()
    with DaemonInThread(root) as other, steno.connect_sync(root, spawn=False) as late:
        assert follow(late, other).compressed == 3
        session = late.open("demo", follow=False)
        session.append_message(message(0))
        assert [entry.kind for entry in session.timeline()].count("prompted") == 2
        assert head.startswith("3:")
        assert late.stat("demo").head.startswith("4:")


def test_generation_that_a_fork_shares_stays_plain(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    client.session("demo").fork("other")
    assert follow(client, daemon).compressed == 0
    assert len(list(folder.glob("*.zst"))) == 0


def test_generation_that_another_program_left_stays_plain(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    # Its age is that of its file, which a compressed one would not have.
    folder = rewritten(client)
    shutil.copy(folder / "context_1.jsonl", folder / "context_8.jsonl")
    shutil.copy(folder / "context_1.jsonl", folder / "context_9.jsonl")
    follow(client, daemon)
    assert {"context_8.jsonl", "context_9.jsonl"} < set(names(folder))


def test_other_rules_and_options_remove_compressed_generations(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    follow(client, daemon)
    packed = (folder / "context_2.jsonl.zst").stat().st_size
    report = client.request(Gc(keep_generations=1, with_lineage=True), GcReport)[0]
    assert names(folder) == ["context_3.jsonl"]
    assert [each.file for each in report.entries] == ["context_1.jsonl", "context_2.jsonl"]
    assert report.entries[1].bytes == packed


def test_rule_that_removes_goes_before_the_one_that_compresses(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    report = follow(client, daemon, f"{RULE}\ngenerations_days = 1e-9", dry_run=True)
    assert [(each.file, each.compressed) for each in report.entries] == [
        ("context_2.jsonl", False),
        ("context_1.jsonl", True),
    ]
    assert len(names(folder)) == 3


def test_deleted_session_comes_back_with_its_compressed_generations(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    rewritten(client)
    before = lines(client, 0)
    follow(client, daemon)
    client.delete("demo")
    client.undelete("demo")
    assert lines(client, 0) == before
    client.delete("demo")
    (deleted,) = (daemon.root / paths.SESSIONS / paths.TRASH).iterdir()
    deleted.rename(deleted.with_name(f"1700000000.{deleted.name.split('.', 1)[1]}"))
    assert client.request(Gc(trash=True), GcReport)[0].files == 1


def test_damaged_compressed_generation_is_an_error_and_a_finding(
    client: steno.BlockingClient, daemon: DaemonInThread
) -> None:
    folder = rewritten(client)
    follow(client, daemon)
    packed = folder / "context_1.jsonl.zst"
    packed.write_bytes(packed.read_bytes()[:-9])
    with pytest.raises(Corrupt, match=r"context_1\.jsonl\.zst is damaged.*from a backup") as caught:
        lines(client, 0)
    assert caught.value.session == "demo"
    assert "repair the disk" not in caught.value.message
    (finding,) = [each for each in check(client).findings if each.damage]
    assert finding.file == "context_1.jsonl"
    client.session("demo").append_message(message(100))


def test_without_zstd_the_report_names_the_command_that_installs_it(
    client: steno.BlockingClient, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = rewritten(client)

    def missing(what: str) -> object:
        raise BadRequest(f"{what} needs zstd")

    monkeypatch.setattr(compression, "_package", missing)
    report = follow(client, daemon)
    assert report.failed == ["compressing files needs zstd"]
    assert len(list(folder.glob("*.zst"))) == 0


def test_without_zstd_a_compressed_generation_is_an_error_that_names_the_command(
    client: steno.BlockingClient, daemon: DaemonInThread, monkeypatch: pytest.MonkeyPatch
) -> None:
    rewritten(client)
    follow(client, daemon)

    def missing(what: str) -> object:
        raise BadRequest(f"{what} needs zstd: install it")

    monkeypatch.setattr(compression, "_package", missing)
    with pytest.raises(StorageFailed, match=r"context_1\.jsonl\.zst needs zstd: install it"):
        lines(client, 0)
    with (
        client.session("demo").subscribe(after=steno.Position(0, 0)) as events,
        pytest.raises(steno.NotFound, match="needs zstd: install it"),
    ):
        list(events)
    found = check(client)
    assert found.damage == 0
    assert [(each.file, each.kind, each.what.partition(": ")[2]) for each in found.findings] == [
        (name, "unchecked", f"reading {name}.zst needs zstd: install it")
        for name in ("context_1.jsonl", "context_2.jsonl")
    ]
    client.session("demo").append_message(message(1))


@pytest.mark.parametrize("rule", ["generations_compressed_days", "streams_compressed_days"])
def test_cluster_refuses_the_rule(rule: str) -> None:
    text = (
        f'[replication]\ncluster = "team"\nservers = ["nats://a:4222"]\n[retention]\n{rule} = 30\n'
    )
    with pytest.raises(BadRequest, match=f"{rule} is set, and a cluster"):
        read_settings(text, "config.toml", {})
