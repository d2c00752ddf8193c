"""Commands with the address of a daemon: they act on that daemon, or refuse."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from steno_protocol import credentials, paths
from support.command import Steno

LISTEN = '[network]\nlisten = "tcp://127.0.0.1:*"\n'
ABOUT_FILES = [["restart"], ["logs"], ["keys", "list"], ["keys", "new", "one"], ["doctor"]]
NOWHERE = "tcp://127.0.0.1:1"


class Neighbours:
    """Two roots: that of the caller, whose daemon may run, and another one, whose daemon does."""

    def __init__(self, folder: Path) -> None:
        self.own = Steno(_made(folder / "own"))
        self.other = Steno(_made(folder / "other"))
        assert self.other("keys", "new", "far", "--right", "admin").code == 0
        (self.other.root / paths.CONFIG).write_text(LISTEN)
        assert self.other("start").code == 0
        self.near = ("--endpoint", f"ipc://{self.other.root}/{paths.SOCKET}")
        endpoint = self.other("status", "--json").document["remote_endpoint"]
        key = self.other.root / credentials.KEYS_FOLDER / "far.key"
        self.far = ("--endpoint", endpoint, "--key-file", str(key))


def _made(folder: Path) -> Path:
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def neighbours(root: Path) -> Iterator[Neighbours]:
    neighbours = Neighbours(root)
    yield neighbours
    neighbours.own("stop")
    neighbours.other("stop")


def test_a_daemon_is_stopped_by_its_address_and_no_other(neighbours: Neighbours) -> None:
    own = neighbours.own("start", "--json").document["pid"]
    for address, printed in ((neighbours.near, "is free"), (neighbours.far, "there ended")):
        pid = neighbours.other("start", "--json").document["pid"]
        # Another one with each start.
        endpoint = neighbours.other("status", "--json").document["remote_endpoint"]
        words = [endpoint if word.startswith("tcp") else word for word in address]
        ran = neighbours.own("stop", *words)
        assert (ran.code, ran.err.startswith(f"steno: stenod (pid {pid})")) == (0, True), ran
        assert printed in ran.err
        assert neighbours.other("status").code == 5
        assert neighbours.own("stop", *words).code == 5
    assert neighbours.own("status", "--json").document["pid"] == own


@pytest.mark.parametrize("command", [["stop"], ["config"], ["status"], ["start"]])
def test_an_address_without_a_daemon_is_an_error_not_the_default_daemon(
    root: Path, command: list[str]
) -> None:
    ran = Steno(root)(*command, "--endpoint", NOWHERE)
    assert (ran.code, ran.out) == (5, "")
    assert NOWHERE in ran.err
    assert Steno(root, STENO_ENDPOINT=NOWHERE)(*command).code == 5
    assert list(root.iterdir()) == []


def test_the_remedy_for_a_missing_daemon_starts_the_named_one(root: Path) -> None:
    own, other = root / "own", root / "my other"
    for endpoint in (f"ipc://{other}/x.sock", NOWHERE):
        for command in (["start"], ["append", "demo", "hi"], ["stop"]):
            printed = Steno(own)(*command, "--endpoint", endpoint).err
            assert endpoint in printed
            assert "`steno start`" not in printed
            remedy = "on that machine" if endpoint == NOWHERE else "`steno start --root DIR`"
            assert remedy in printed
    assert "start it with `steno start`" in Steno(own)("status").err
    for command in ("status", "logs"):
        printed = Steno(own)(command, "--root", str(other)).err
        assert f"with `steno start --root '{other}'`" in printed
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("command", ABOUT_FILES)
def test_commands_on_files_are_refused_for_another_machine(root: Path, command: list[str]) -> None:
    ran = Steno(root)(*command, "--endpoint", NOWHERE)
    assert (ran.code, ran.out) == (2, "")
    assert NOWHERE in ran.err
    assert "--root" in ran.err
    assert Steno(root, STENO_ENDPOINT=NOWHERE)(*command).code == 2
    assert list(root.iterdir()) == []


def test_commands_on_files_use_the_root_of_the_daemon_at_a_socket(
    neighbours: Neighbours,
) -> None:
    own, other = neighbours.own, neighbours.other
    before = other("status", "--json").document["pid"]
    for address in (neighbours.near, ("--socket", f"{other.root}/{paths.SOCKET}")):
        assert f"pid={before}" in own("logs", *address).out
        assert own("keys", "list", *address).out.startswith("far ")
        assert own("doctor", "--json", *address).document["root"] == str(other.root)
        assert own("config", "--json", *address).document["pid"] == before
    restarted = own("restart", "--json", *neighbours.near).document
    assert (restarted["root"], restarted["pid"] != before) == (str(other.root), True)
    again = own("restart", "--json", "--socket", f"{other.root}/{paths.SOCKET}").document
    assert (again["root"], again["endpoint"]) == (restarted["root"], restarted["endpoint"])
    assert list(own.root.iterdir()) == []


def test_config_shows_the_options_of_a_daemon_on_another_machine(neighbours: Neighbours) -> None:
    (neighbours.own.root / paths.CONFIG).write_text("nonsense")
    shown = neighbours.own("config", "--json", *neighbours.far).document
    assert shown["file"] == f"{neighbours.other.root}/{paths.CONFIG}"
    assert shown["options"][0]["source"] == "option --endpoint"


def test_an_invalid_endpoint_of_the_environment_is_wrong_usage(root: Path) -> None:
    ran = Steno(root, STENO_ENDPOINT="tcp://host")("sessions")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("steno: STENO_ENDPOINT: 'tcp://host' is not an endpoint")
