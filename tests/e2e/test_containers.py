"""One daemon beside the agents of several containers, each in namespaces of its own."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

import steno
from steno_protocol import paths
from support.command import Steno
from support.project import PROJECT

_CONTAINER = ("unshare", "--mount", "--pid", "--net", "--ipc", "--uts", "--fork", "--kill-child")

_AGENT = """
import os, steno, sys
with steno.connect_sync(endpoint=os.environ["STENO_ENDPOINT"], name=sys.argv[1]) as client:
    session = client.open("team", follow=False)
    for number in range(20):
        session.append_message({"role": "user", "content": f"{sys.argv[1]} {number}"})
    print(os.getpid())
"""


# The modules are imported before: another user may not read the folder of the project.
_BECOME_ANOTHER_USER = """
import importlib, os, pkgutil
for name in ("steno._connect", "steno._sansio", "steno._sync", "steno_protocol"):
    for module in pkgutil.iter_modules(importlib.import_module(name).__path__, f"{name}."):
        importlib.import_module(module.name)
os.setgroups([])
os.setgid(12345)
os.setuid(12345)
"""


def _are_possible() -> bool:
    if shutil.which("unshare") is None or os.geteuid() != 0:
        return False
    ran = subprocess.run([*_CONTAINER, "true"], capture_output=True, check=False)
    return ran.returncode == 0


pytestmark = pytest.mark.skipif(
    not _are_possible(), reason="this system allows no namespaces to this user"
)


@pytest.fixture
def volume(root: Path) -> Path:
    """A folder that all containers share."""
    folder = root / "volume"
    folder.mkdir(mode=0o700)
    return folder


def _begin(volume: Path, *words: str) -> "subprocess.Popen[str]":
    """Begin a program in a container of its own: no network, no process of another container."""
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": "/nonexistent",
        "PYTHONPATH": os.pathsep.join([str(PROJECT / "tests"), *sys.path]),
        "STENO_ENDPOINT": f"ipc://{volume}/{paths.SOCKET}",
    }
    return subprocess.Popen(
        [*_CONTAINER, sys.executable, *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def _serving(volume: Path) -> Generator[None]:
    """A daemon in a container, which is killed at the end of the block."""
    container = _begin(volume, "-m", "stenod", "--foreground", "--root", str(volume))
    try:
        assert container.stderr is not None
        assert any(" ready " in line for line in container.stderr)
        yield
    finally:
        container.kill()
        # The end of its messages is the end of the daemon in it.
        container.communicate()


def _ended(container: "subprocess.Popen[str]") -> str:
    out, err = container.communicate(timeout=100)
    assert container.returncode == 0, err
    return out


def test_agents_of_several_containers_share_one_daemon(volume: Path) -> None:
    call = Steno(volume)
    with _serving(volume):
        agents = [_begin(volume, "-c", _AGENT, f"agent-{number}") for number in range(3)]
        # Each container counts its processes for itself.
        assert {int(_ended(agent)) for agent in agents} == {1}
        lines = [json.loads(line) for line in call("read", "team").out.splitlines()]
        assert call("verify", "team").code == 0
    for number in range(3):
        own = [line["content"] for line in lines if line["_by"] == f"agent-{number}"]
        assert own == [f"agent-{number} {each}" for each in range(20)]


def test_container_of_a_killed_daemon_is_replaced(volume: Path) -> None:
    with _serving(volume):
        _ended(_begin(volume, "-c", _AGENT, "before"))
    # The namespace ends with its first process, so nothing in it has time to clean up.
    with _serving(volume):
        _ended(_begin(volume, "-c", _AGENT, "after"))
        assert len(Steno(volume)("read", "team").out.splitlines()) == 40


def test_agent_of_another_user_is_refused(volume: Path) -> None:
    with _serving(volume):
        # It may reach the folder above the volume.
        volume.parent.chmod(0o755)
        agent = _begin(volume, "-c", _BECOME_ANOTHER_USER + _AGENT, "other")
        _, err = agent.communicate(timeout=100)
    assert agent.returncode != 0
    assert "may not connect to" in err or "Permission denied" in err
    assert list((volume / paths.SESSIONS).glob("*")) == []


def test_second_container_cannot_serve_the_same_volume(volume: Path) -> None:
    with _serving(volume):
        second = _begin(volume, "-m", "stenod", "--foreground", "--root", str(volume))
        _, err = second.communicate(timeout=100)
        assert second.returncode == 3, err
        with steno.connect_sync(endpoint=f"ipc://{volume}/{paths.SOCKET}") as client:
            client.open("team", follow=False)
