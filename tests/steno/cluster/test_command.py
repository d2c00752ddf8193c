"""The command in a cluster: it follows the owners, as it uses the blocking client."""

import json
import subprocess
import sys

from support.scripted_cluster import DEADLINE_S, HOME, ScriptedCluster, contents


def steno(*words: str) -> list[str]:
    return [sys.executable, "-m", "steno_cli", *words]


def test_tail_follows_a_session_that_moves(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    home = cluster.members[HOME].endpoint
    command = steno("tail", "-f", "demo", "--endpoint", home, "--json")
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        try:
            for number, owner in enumerate([1, 2, HOME]):
                if number:
                    cluster.move(owner)
                append = steno("append", "demo", str(number), "--endpoint", home)
                subprocess.run(append, check=True, capture_output=True)
            seen = [json.loads(following.stdout.readline()) for _ in range(3)]
        finally:
            following.kill()
    assert [str(number) in json.dumps(each) for number, each in enumerate(seen)] == [True] * 3
    assert contents(cluster.lines) == ["0", "1", "2"]


def test_the_command_says_who_was_named_as_the_owner(cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.kill(1)
    endpoint = cluster.members[HOME].endpoint
    done = subprocess.run(
        steno("append", "demo", "hi", "--endpoint", endpoint, "--timeout", str(DEADLINE_S)),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert cluster.members[1].endpoint in done.stderr
    assert "steno cluster status" in done.stderr
    assert "[session demo]" in done.stderr
