"""The client in the appendix of PROTOCOL.md, run by node."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from steno_protocol import credentials, paths
from support.command import Steno
from support.documents import blocks
from support.foreground import ForegroundDaemon
from support.project import PROJECT

NODE = shutil.which("node")
NPM = shutil.which("npm")
MESSAGES = 150
LISTENING = re.compile(r'listening endpoint="(tcp://127\.0\.0\.1:\d+)"')


FOLLOW_A_MAIL = """
(async () => {
  for await (const event of new Steno(process.argv[2]).follow("talk"))
    if (event.kind === "dmail") {
      console.log(event.id);
      process.exit();
    }
})();
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The program of the appendix, in a folder that has the package it needs."""
    if NODE is None or NPM is None:
        pytest.skip("needs node and npm")
    folder = tmp_path_factory.mktemp("node")
    source = "online" if os.environ.get("STENO_TEST_NPM") else "offline"
    installed = subprocess.run(
        [NPM, "install", f"--{source}", "--no-audit", "--no-fund", "zeromq@6"],
        cwd=folder,
        capture_output=True,
        timeout=100,
        check=False,
    )
    if installed.returncode != 0:
        pytest.skip("zeromq is not in npm's cache; STENO_TEST_NPM=1 lets npm fetch it")
    (shown,) = (
        block for block in blocks(PROJECT / "protocol" / "PROTOCOL.md") if block.language == "js"
    )
    program = folder / "steno.cjs"
    program.write_text(shown.code)
    return program


def _start(program: Path, *arguments: str, key: Path | None = None) -> subprocess.Popen[str]:
    environment = {**os.environ, "STENO_KEY_FILE": str(key or "")}
    return subprocess.Popen(
        [str(NODE), str(program), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def _contents(lines: str) -> list[str]:
    return [json.loads(line)["content"] for line in lines.splitlines()]


@pytest.mark.slow
def test_each_message_of_node_is_stored_once_while_the_daemon_is_killed(
    root: Path, program: Path
) -> None:
    texts = [f"step {number} – ünïcode" for number in range(MESSAGES)]
    daemon = ForegroundDaemon(root)
    with daemon:
        node = _start(program, daemon.endpoint, "talk", *texts)
        assert node.stderr is not None
        for line in node.stderr:
            if line.startswith("stored at 0:20"):
                break
        daemon.kill()
        daemon.start()
        out, err = node.communicate(timeout=90)
        assert node.returncode == 0, err
    stored = (root / paths.SESSIONS / "talk" / "context.jsonl").read_text()
    assert _contents(stored) == texts
    assert out == stored


def test_the_node_client_reads_the_pending_mail(root: Path, program: Path) -> None:
    follower = program.with_name("follower.cjs")
    follower.write_text(program.read_text().replace("main(process.argv.slice(2));", FOLLOW_A_MAIL))
    with ForegroundDaemon(root) as daemon:
        command = Steno(root)
        assert command("checkpoint", "talk").code == 0
        assert command("dmail", "send", "talk", "0", "turn back", "--key", "the-mail").code == 0
        out, err = _start(follower, daemon.endpoint).communicate(timeout=60)
    assert out == "the-mail\n", err


def test_node_client_is_admitted_by_key_and_limited_to_its_right(root: Path, program: Path) -> None:
    command = Steno(root)
    for right in ("read", "write"):
        assert command("keys", "new", right, "--right", right).code == 0
    (root / paths.CONFIG).write_text('[network]\nlisten = "tcp://127.0.0.1:*"\n')
    keys = root / credentials.KEYS_FOLDER
    with ForegroundDaemon(root) as daemon:
        found = LISTENING.search(daemon.wait_for("listening"))
        assert found is not None
        written = _start(program, found[1], "talk", "hi", key=keys / "write.key")
        out, err = written.communicate(timeout=60)
        assert _contents(out) == ["hi"], err
        refused = _start(program, found[1], "talk", "no", key=keys / "read.key")
        out, err = refused.communicate(timeout=60)
        assert refused.returncode == 1
        assert "code: 'unauthorized'" in err
