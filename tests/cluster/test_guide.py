"""The guide on several hosts, followed by its commands, with the files that it lets be written.

Each host and each server has an address of its own in 127.0.0.0/8, as machines have, so that all of
them keep the ports that the guide names.
"""

import os
import random
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from stenod_cluster.subjects import stream_name
from support.command import Ran, Steno
from support.daemons import end_daemon_of, remove_root
from support.documents import blocks, code_lines
from support.nats_cluster import server_binary, wait_until
from support.nats_journals import skip_without_servers
from support.nats_requests import ask

pytest.importorskip("nats", reason="real NATS servers need the extra: pip install -e '.[cluster]'")

GUIDE = Path(__file__).parents[2] / "client/guide"
PAGES = [GUIDE / "cluster.md", GUIDE / "cluster-faults.md"]
COMMANDS = {
    line
    for page in PAGES
    for line in code_lines(page)
    if line.startswith("steno ") and not line.endswith("\\")
}
"""The commands of the guide, but the one that writes the files."""

PASSWORD = "right"
TEXT = "x" * 200_000
"""A record of which some fill the stream."""


class Servers:
    """The servers of the guide's files."""

    def __init__(self, files: Path, addresses: list[str]) -> None:
        self._files = [files / f"n{number}.conf" for number in range(1, len(addresses) + 1)]
        self._processes: list[subprocess.Popen[bytes] | None] = [None] * len(addresses)
        self._servers = [f"nats://steno:{PASSWORD}@{each}:4222" for each in addresses]

    @property
    def servers(self) -> list[str]:
        """Where clients with the login reach them."""
        return self._servers

    def start(self, number: int) -> None:
        binary = server_binary()
        assert binary is not None
        file = self._files[number]
        with file.with_suffix(".log").open("ab") as log:
            self._processes[number] = subprocess.Popen(
                [binary, "-c", str(file)], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                env={**os.environ, "STENO_PASSWORD": PASSWORD},
            )  # fmt: skip

    def stop(self, number: int) -> None:
        process, self._processes[number] = self._processes[number], None
        if process is not None:
            process.terminate()
            process.wait()

    def close(self) -> None:
        for number in range(len(self._processes)):
            self.stop(number)


class Host(NamedTuple):
    """A host: its address, the command on its root, and the guide's commands that ran."""

    address: str
    steno: Steno
    followed: set[str]

    @property
    def endpoint(self) -> str:
        return f"tcp://{self.address}:7117"

    @property
    def config(self) -> Path:
        return self.steno.root / "config.toml"

    def run(self, command: str, *more: str, **words: str) -> Ran:
        """Run a command of the guide with a reader's words in place of its capitals, and more."""
        assert command in COMMANDS, command
        self.followed.add(command)
        return self.steno(*(words.get(each, each) for each in shlex.split(command)[1:]), *more)

    def follow(self, command: str, *more: str, **words: str) -> Ran:
        """Run a command of the guide, which succeeds."""
        ran = self.run(command, *more, **words)
        assert ran.code == 0, (command, ran.out, ran.err)
        return ran

    def follow_json(self, command: str) -> Any:
        """Run one that prints a report, which counts also while it says that something fails."""
        return self.run(command, "--json").document

    def refuse(self, command: str, *more: str, says: str) -> None:
        """Run a command of the guide, which fails, and says why."""
        ran = self.run(command, *more)
        assert ran.code != 0, (command, ran.out)
        assert says in ran.out + ran.err, (command, ran.out, ran.err)

    def shows(self, command: str, text: str) -> bool:
        """Whether a command of the guide prints this, also while it says that something fails."""
        return text in self.run(command).out

    def append(self, session: str, text: str, *words: str) -> Ran:
        return self.steno("append", session, *words, stdin=text)

    def texts(self, session: str) -> list[str]:
        found = self.steno("read", session, "--json")
        assert found.code == 0, found.err
        return [each["record"]["content"] for each in found.documents]


class Place(NamedTuple):
    """A folder, three addresses of servers and two of hosts, which nobody else has."""

    folder: Path
    servers: list[str]
    hosts: list[str]


@pytest.fixture
def place() -> Iterator[Place]:
    skip_without_servers()
    if sys.platform != "linux":
        pytest.skip("only Linux has all addresses of 127.0.0.0/8")
    network = ".".join(str(random.SystemRandom().randrange(1, 255)) for _ in range(2))
    folder = Path(tempfile.mkdtemp(prefix="guide-")).resolve()
    yield Place(folder, *([f"127.{network}.{n}" for n in each] for each in ((1, 2, 3), (5, 6))))
    shutil.rmtree(folder, ignore_errors=True)


def written_files(place: Place) -> Path:
    """Run the block of the guide that writes the files, for these addresses."""
    (block,) = [each.code for each in blocks(PAGES[0]) if "steno cluster config" in each.code]
    command = block.replace("\\\n", "").replace(
        "10.0.0.", f"{place.servers[0].rpartition('.')[0]}."
    )
    files = place.folder / "files"
    words = shlex.split(command.replace("--folder files", f"--folder {files}"))
    ran = Steno(place.folder / "none")(*words[1:], "--store", str(place.folder / "store"))
    assert ran.code == 0, ran.err
    return files


def choose_login(files: Path) -> None:
    """Read the comments, and let the servers have the login that they show."""
    for file in files.glob("n*.conf"):
        text = file.read_text()
        assert "# authorization {" in text
        file.write_text(text.replace("# authorization {", "authorization {"))


def made_host(files: Path, root: Path, address: str, followed: set[str]) -> Host:
    """A root with the table of its host, whose login is wrong as yet."""
    root.mkdir(mode=0o700, exist_ok=True)
    host = Host(address, Steno(root), followed)
    table = (files / f"{address}.toml").read_text()
    host.config.write_text(table.replace("nats://", "nats://steno:wrong@"))
    return host


def use_before(root: Path) -> None:
    """Let a root be used before it is in a cluster."""
    steno = Steno(root)
    for session in ("plan", "notes"):
        assert steno("append", session, stdin="older").code == 0


def correct(host: Host) -> None:
    host.config.write_text(host.config.read_text().replace(":wrong@", f":{PASSWORD}@"))


def are_current(host: Host) -> bool:
    """Whether `steno cluster status` says that all servers are current."""
    (stream,) = host.follow_json("steno cluster status")["streams"]
    states = [each["leader"] or each["current"] for each in stream["replicas"]]
    return states == [True] * 3 and not any(each["offline"] for each in stream["replicas"])


@pytest.mark.slow
def test_the_guide_is_followed_from_its_files_to_leaving(place: Place) -> None:
    followed: set[str] = set()
    files = written_files(place)
    choose_login(files)
    servers = Servers(files, place.servers)
    with ExitStack() as held:
        held.callback(servers.close)
        for number in range(3):
            servers.start(number)
        roots = [place.folder / name for name in "ab"]
        for root in roots:
            held.callback(remove_root, root)
        use_before(roots[1])
        one, two = (
            made_host(files, root, address, followed)
            for root, address in zip(roots, place.hosts, strict=True)
        )
        _try_out(one, place.folder)
        _set_up(one, two)
        _join_used(one, two)
        _use(one, two, place.folder)
        _share_family(one, two)
        _lose_disk(one, two)
        _import(one, two, place.folder)
        _fill(one, servers)
        _upgrade(one, two, servers)
        _lose_majority(one, two, servers)
        _lose_stream(one, two, servers)
        _leave(one, two)
    assert COMMANDS - followed == set()


def _try_out(one: Host, folder: Path) -> None:
    trial = Host("", Steno(folder / "none", TMPDIR=str(folder)), one.followed)
    trial.follow("steno cluster try", "--turns", "10")


def _set_up(one: Host, two: Host) -> None:
    # Wrong credentials are named, and corrected ones work.
    wrong = one.steno("--timeout", "12", "cluster", "join", "--create")
    assert wrong.code != 0
    assert "refuses the credentials" in wrong.err
    for host in (one, two):
        correct(host)
    one.follow("steno keys new NAME", NAME="laptop")
    shutil.copytree(one.steno.root / "keys", two.steno.root / "keys")
    one.follow("steno cluster join --create")
    assert one.append("plan", "newer").code == 0
    two.follow("steno restart")
    wait_until(lambda: are_current(one), "the status does not show three servers")
    for endpoint in (one.endpoint, two.endpoint):
        wait_until(lambda at=endpoint: one.shows("steno cluster status", at), "a host is not shown")


def _join_used(one: Host, two: Host) -> None:
    """Let the sessions of a used root join, one of which has a name that is taken."""
    two.refuse("steno cluster join", says="plan-kept-1")
    for command in ("steno cluster status", "steno doctor"):
        assert two.shows(command, "plan-kept-1")
    for host in (one, two):
        assert host.texts("plan") == ["newer"]
        assert host.texts("plan-kept-1") == host.texts("notes") == ["older"]
    two.follow("steno rename", "plan-kept-1", "mine")
    two.follow("steno cluster join")
    assert one.texts("mine") == ["older"]


def _use(one: Host, two: Host, folder: Path) -> None:
    for text in ("first", "second"):
        ran = one.append("s", text, "--durability", "replicated")
        assert ran.code == 0, ran.err
    one.follow("steno cluster move SESSION HOST", SESSION="s", HOST=two.endpoint)
    assert one.append("s", "third").code == 0
    assert two.texts("s") == one.texts("s") == ["first", "second", "third"]
    # A client elsewhere has the addresses of both hosts, and a key.
    key = next(iter((one.steno.root / "keys").glob("laptop*.key")))
    places = f"{two.endpoint},{one.endpoint}"
    laptop = Steno(folder / "laptop", STENO_ENDPOINT=places, STENO_KEY_FILE=str(key))
    # The owner dies, and the client goes on at the other host.
    end_daemon_of(two.steno.root)
    assert laptop("append", "s", stdin="fourth").code == 0
    assert one.texts("s")[-1] == "fourth"
    assert two.steno("start").code == 0
    assert two.texts("s")[-1] == "fourth"
    assert one.append("gone", "x").code == 0
    one.follow("steno delete", "gone")
    assert one.shows("steno sessions --trash", "gone")
    two.follow("steno undelete", "gone")
    assert two.texts("gone") == ["x"]


def _share_family(one: Host, two: Host) -> None:
    """Let the session below one have another owner than that."""
    for session in ("tree", "tree/below"):
        assert one.append(session, "x").code == 0
    move = "steno cluster move SESSION HOST"
    one.follow(move, SESSION="tree/below", HOST=two.endpoint)
    one.refuse("steno delete", "tree", says="tree/below")
    one.refuse("steno rename", "tree", "other", says="tree/below")
    one.follow(move, SESSION="tree/below", HOST=one.endpoint)
    one.follow("steno rename", "tree", "other")
    assert two.texts("other/below") == ["x"]


def _import(one: Host, two: Host, folder: Path) -> None:
    """Bring a session out, and take it in under another name, which another host has, too."""
    assert "fourth" in one.follow("steno export SESSION --format json", SESSION="s").out
    copy = folder / "copy.jsonl"
    one.follow("steno export", "s", "-o", str(copy))
    one.follow("steno import", str(copy), "copied")
    assert two.texts("copied") == one.texts("s")


def _fill(one: Host, servers: Servers) -> None:
    """Fill the stream, and do what the error advises."""
    for _ in range(8):
        assert one.append("long", TEXT).code == 0
        assert one.steno("clear", "long").code == 0
    stream = stream_name("team")
    state = ask(servers, f"$JS.API.STREAM.INFO.{stream}", {})
    config = {**state["config"], "max_bytes": state["state"]["bytes"] * 8 // 7}
    assert "error" not in ask(servers, f"$JS.API.STREAM.UPDATE.{stream}", config)
    # The daemon learns of the limit at its next look.
    wait_until(lambda: one.append("long", "tiny").code != 0, "the daemon sees no limit")
    refused = one.append("long", "tiny")
    assert f"stream {stream} is full" in refused.err
    assert one.texts("s")[0] == "first"
    for command in ("steno doctor", "steno cluster status"):
        assert one.shows(command, "that it may have")
    assert "steno gc --keep-generations 1" in refused.err
    one.follow("steno gc", "--keep-generations", "1")
    wait_until(lambda: one.append("long", "after").code == 0, "gc has made no room")


def _upgrade(one: Host, two: Host, servers: Servers) -> None:
    """Upgrade the first host and each server: here each of them is only started again."""
    one.follow("steno cluster move SESSION HOST", SESSION="s", HOST=two.endpoint)
    assert one.steno("stop").code == 0
    wait_until(lambda: two.append("s", "fifth").code == 0, "the other host sees no room")
    assert one.steno("start").code == 0
    assert one.texts("s")[-1] == "fifth"
    for number in range(3):
        servers.stop(number)
        assert two.append("s", f"without {number}").code == 0
        lost = f"n{number + 1}"
        wait_until(lambda at=lost: two.shows("steno doctor", at), "doctor names no lost server")
        servers.start(number)
        wait_until(lambda: are_current(two), "a server does not come back")
    assert two.texts("s")[-3:] == ["without 0", "without 1", "without 2"]
    assert one.follow("steno doctor").code == 0


def _lose_majority(one: Host, two: Host, servers: Servers) -> None:
    """Read without a majority of the servers, which is marked as stale."""
    for number in (0, 1):
        servers.stop(number)
    for host in (one, two):
        stat = partial(host.steno, "stat", "s", "--json")
        # A reply without the mark is fresh: a majority has answered a moment ago.
        wait_until(lambda of=stat: "stale" in of().document, "no read is stale")
        read = host.steno("read", "s")
        assert read.code == 0
        assert "may be older than what other hosts have" in read.err
    for number in (0, 1):
        servers.start(number)
    wait_until(lambda: are_current(two), "the servers do not come back")
    assert one.append("s", "after").code == 0


def _lose_disk(one: Host, two: Host) -> None:
    """Lose a session of the second host from its disk, and let the first one have it."""
    assert two.append("far", "x").code == 0
    assert one.append("older", "x").code == 0
    one.follow("steno cluster move SESSION HOST", SESSION="older", HOST=two.endpoint)
    assert two.append("older", "y").code == 0
    end_daemon_of(two.steno.root)
    for session in ("far", "older"):
        shutil.rmtree(two.steno.root / "sessions" / session)
    assert not (one.steno.root / "sessions/far").exists()
    listed = one.follow("steno sessions --json").document["sessions"]
    owners = {each["session"]: each.get("owner") for each in listed}
    assert owners["far"] == owners["older"] == two.endpoint
    one.follow("steno open ID", ID="far")
    assert (one.steno.root / "sessions/far/context.jsonl").read_text()
    assert two.steno("start").code == 0


def _lose_stream(one: Host, two: Host, servers: Servers) -> None:
    """Delete the stream, and bring it back from the files of the hosts."""
    assert two.append("theirs", "x").code == 0
    texts = one.texts("s")
    assert ask(servers, f"$JS.API.STREAM.DELETE.{stream_name('team')}", {})["success"]
    advice = "steno cluster join --again"
    for host in (one, two):
        for command in ("steno status", "steno doctor", "steno cluster status"):
            wait_until(partial(host.shows, command, advice), f"{command} does not say {advice}")
    # The first one leaves out what it knows to be newer on the other.
    assert "older did not join: the newest records of the session are on" in one.run(advice).err
    two.follow(advice)
    for host in (one, two):
        host.follow("steno restart")
    one.follow("steno cluster join")
    assert one.texts("older") == two.texts("older") == ["x"]
    for host in (one, two):
        assert host.texts("s") == texts
        assert host.texts("theirs") == host.texts("far") == ["x"]
        assert host.append(f"new-{host.address}", "x").code == 0


def _leave(one: Host, two: Host) -> None:
    """Let a host leave: without its table its root is a plain one, which needs no server."""
    table = two.config.read_text()
    two.config.write_text(table[: table.index("[replication]")])
    assert two.steno("restart").code == 0
    assert two.texts("s")[0] == "first"
    assert two.append("s", "alone").code == 0
    assert "alone" in two.follow("steno export", "s").out
    assert "no cluster" in two.steno("cluster", "status").err
    assert one.steno("stop").code == 0
