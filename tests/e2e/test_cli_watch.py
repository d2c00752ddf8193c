"""`steno watch` as a process: killed watchers, killed daemons, two at once."""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import steno
from steno_agents.following import lines_of
from support.command import Steno
from support.crowd import wait_until

SESSION = "11111111-2222-4333-8444-555555555555"
CLAUDE = f"claude-code/srv-shop/{SESSION}"
END_S = 60


def line(number: int) -> bytes:
    kind = "user" if number % 2 else "assistant"
    content: object = f"text {number}"
    record = {
        "type": kind, "uuid": str(number), "parentUuid": str(number - 1) if number > 1 else None,
        "sessionId": SESSION, "cwd": "/srv/shop", "isSidechain": False,
        "message": {
            "role": kind, "id": str(number),
            "content": content if number % 2 else [{"type": "text", "text": content}],
        },
    }  # fmt: skip
    return json.dumps(record).encode() + b"\n"


class World:
    """A transcript that grows, and the watchers of its folder."""

    def __init__(self, root: Path, folder: Path) -> None:
        self.root = root
        self.steno = Steno(root)
        self.folder = folder
        self.file = folder / "-srv-shop" / f"{SESSION}.jsonl"
        self.file.parent.mkdir(parents=True)
        self.lines = 0

    def grow(self, count: int) -> None:
        with self.file.open("ab") as file:
            for _ in range(count):
                self.lines += 1
                file.write(line(self.lines))

    @contextmanager
    def watcher(self, *words: str) -> "Generator[subprocess.Popen[str]]":
        process = self.steno.begin("watch", str(self.folder), "--json", *words)
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def wait_until_kept(self) -> None:
        """Wait until the stream has all of the file."""
        wait_until(lambda: self.kept() == self.file.read_bytes(), END_S)

    def wait_for(
        self, process: "subprocess.Popen[str]", is_it: Callable[[dict[str, Any]], bool]
    ) -> dict[str, Any]:
        assert process.stdout is not None
        for text in process.stdout:
            seen: dict[str, Any] = json.loads(text)
            if is_it(seen):
                return seen
        raise AssertionError("the watcher has ended")

    def kept(self) -> bytes:
        with steno.connect_sync(self.root) as client, suppress(steno.NotFound):
            stream = client.session(CLAUDE).stream("claude-code")
            return b"".join(lines_of(each.data for each in stream.records(strict=True)))
        return b""

    def check(self) -> None:
        """A last import completes it, and finds each line and message once."""
        assert self.steno("import", str(self.folder)).code == 0
        assert self.steno("import", str(self.folder), "--json").document["state"] == "there"
        assert self.kept() == self.file.read_bytes()
        with steno.connect_sync(self.root) as client:
            records = client.session(CLAUDE).records()
            assert [each.record["content"] for each in records] == [
                f"text {number + 1}" for number in range(self.lines)
            ]
            assert client.stat(CLAUDE).generation == 0
        self.steno("stop")


@pytest.fixture
def world(root: Path, tmp_path: Path) -> World:
    return World(root, tmp_path / "projects")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_watch_prints_what_it_does_and_ends_with_a_signal(world: World, number: int) -> None:
    world.grow(1)
    with world.watcher() as process:
        assert world.wait_for(process, lambda _: True) == {
            "session": CLAUDE, "path": str(world.file), "state": "imported", "bytes": 0,
            "messages": 0,
        }  # fmt: skip
        size = world.file.stat().st_size
        world.grow(2)
        seen = world.wait_for(process, lambda _: True)
        assert (seen["state"], seen["messages"]) == ("grown", 2)
        assert seen["bytes"] == world.file.stat().st_size - size
        process.send_signal(number)
        assert process.wait(END_S) == 0
    world.check()


def test_a_killed_watcher_and_a_killed_daemon_lose_and_repeat_nothing(world: World) -> None:
    world.grow(3)
    with world.watcher() as process:
        world.wait_for(process, lambda _: True)
        world.grow(500)
        # The look at it may have begun, or not.
        process.kill()
    with world.watcher():
        world.wait_until_kept()
        world.grow(500)
        os.kill(world.steno("status", "--json").document["pid"], signal.SIGKILL)
        world.grow(1)
        world.wait_until_kept()
    world.check()


def test_two_watchers_write_each_line_once(world: World) -> None:
    world.grow(1)
    # Whichever is faster: the other one finds nothing to do, and prints nothing.
    with world.watcher(), world.watcher() as second:
        for count in (0, 101, 101):
            world.grow(count)
            world.wait_until_kept()
        second.kill()
        world.grow(2)
        world.wait_until_kept()
    world.check()
