"""The command in a cluster: it follows the owners, as it uses the blocking client."""

import json
from pathlib import Path

from support.command import Steno
from support.scripted_cluster import DEADLINE_S, HOME, ScriptedCluster, contents


def test_tail_follows_a_session_that_moves(root: Path, cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    steno, home = Steno(root), cluster.members[HOME].endpoint
    with steno.begin("tail", "-f", "demo", "--endpoint", home, "--json") as following:
        assert following.stdout is not None
        try:
            for number, owner in enumerate([1, 2, HOME]):
                if number:
                    cluster.move(owner)
                assert steno("append", "demo", str(number), "--endpoint", home).code == 0
            seen = [json.loads(following.stdout.readline()) for _ in range(3)]
        finally:
            following.kill()
    assert [str(number) in json.dumps(each) for number, each in enumerate(seen)] == [True] * 3
    assert contents(cluster.lines) == ["0", "1", "2"]


def test_the_command_says_who_was_named_as_the_owner(root: Path, cluster: ScriptedCluster) -> None:
    cluster.owner = 1
    cluster.kill(1)
    endpoint = cluster.members[HOME].endpoint
    words = ("append", "demo", "hi", "--endpoint", endpoint, "--timeout", str(DEADLINE_S))
    done = Steno(root)(*words)
    assert done.code == 1
    assert cluster.members[1].endpoint in done.err
    assert "steno cluster status" in done.err
    assert "[session demo]" in done.err
