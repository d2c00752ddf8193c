"""Blows: what a crash run does to daemons and servers, by a seed."""

import base64
import json
import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

import steno
from crash import families
from crash.world import CLUSTER, REPORT_S, STREAM, Host, World
from steno_protocol import paths
from steno_protocol.commands import HandOver
from steno_protocol.replies import Done
from stenod_cluster.journal import REMEDY, subject_of_name
from stenod_cluster.subjects import names_subjects, sessions_subjects, subject_of
from support.command import Steno
from support.nats_cluster import Node, wait_until
from support.nats_requests import ask, rebuild, stream_info
from support.pacing import wait_for_s
from support.proxy import Proxy

OUTAGES_S: Final = (0.0, 0.3, 1.0, 2.6, 3.0, 4.0, 6.0)
"""How long a blow lasts: shorter and longer than the time after which a daemon counts as dead."""

SLOW_S: Final = 0.2
"""Delay of each piece on a slow network, in each direction."""

HAND_OVER_S: Final = 60.0

LATER_S: Final = 60.0
LATER_ACKS: Final = 20
"""Acks of each session that an old copy of the servers' disks lacks, and the time for them."""

ROOM_BYTES: Final = 20_000
"""What a stream has room for until it is full: the work of the agents for a moment."""


@dataclass(frozen=True, slots=True)
class Blow:
    """One blow.

    Attributes:
        kind: a name of `KINDS`.
        session: whose owner is meant.
        outage_s: seconds until what was harmed goes on.
    """

    kind: str
    session: str
    outage_s: float

    def __str__(self) -> str:
        return f"{self.kind} ({self.session}, {self.outage_s} s)"


def drawn(count: int, seed: int, sessions: Sequence[str]) -> list[Blow]:
    """Draw blows; each kind comes before any comes twice."""
    chance = random.Random(seed)
    found: list[Blow] = []
    while len(found) < count:
        kinds = list(KINDS)
        chance.shuffle(kinds)
        found += [Blow(kind, chance.choice(sessions), chance.choice(OUTAGES_S)) for kind in kinds]
    return found[:count]


def strike(world: World, blow: Blow) -> None:
    """Do it, and undo it: everything runs on return."""
    KINDS[blow.kind](world, blow)


def _kill_hosts(world: World, blow: Blow, hosts: Sequence[Host]) -> None:
    del world
    for host in hosts:
        host.kill()
    wait_for_s(blow.outage_s)
    for host in hosts:
        host.start()


def _stop_hosts(world: World, blow: Blow, hosts: Sequence[Host]) -> None:
    del world
    for host in hosts:
        host.stop()
    wait_for_s(blow.outage_s)
    for host in hosts:
        host.resume()


def _kill_nodes(world: World, blow: Blow, nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.kill()
    wait_for_s(blow.outage_s)
    for node in nodes:
        node.start()
    world.cluster.wait_ready()


def _stop_nodes(world: World, blow: Blow, nodes: Sequence[Node]) -> None:
    for node in nodes:
        node.stop()
    wait_for_s(blow.outage_s)
    for node in nodes:
        node.resume()
    world.cluster.wait_ready()


def _part(world: World, blow: Blow, part: Callable[[Proxy], None]) -> None:
    """Disturb what lies between an owner and the servers."""
    proxies = world.owner(blow.session).proxies
    for proxy in proxies:
        part(proxy)
    wait_for_s(blow.outage_s)
    for proxy in proxies:
        proxy.heal()


def _lose_data(world: World, blow: Blow) -> None:
    """A follower comes back with an empty disk."""
    node = world.followers()[0]
    node.kill()
    wait_for_s(blow.outage_s)
    node.lose_data()
    node.start()
    world.cluster.wait_ready()
    wait_until(lambda: _is_whole(world), "the server with a new disk does not get the stream")


def _is_whole(world: World) -> bool:
    """Whether each server has what the leader has."""
    info = stream_info(world.cluster, STREAM)
    return all(each.get("current") for each in info["cluster"]["replicas"])


def _rebuild_stream(world: World, blow: Blow) -> None:
    """The stream is deleted and made again, without a message."""
    owner = world.owner(blow.session)
    rebuild(world.cluster, STREAM)
    _join_again(world, blow, owner, {})


def _restore_stream(world: World, blow: Blow) -> None:
    """All servers go back to an old copy of their disks."""
    _begin_again(world, Node.copy_data)
    copied = stream_info(world.cluster, STREAM)["state"]["last_seq"]
    began_s = time.monotonic()
    stuck = world.agents.wait_for_acks(world.sessions, began_s, LATER_S, LATER_ACKS)
    assert not stuck, f"no acks in {stuck} that the old copy lacks"
    for host in world.hosts:
        # A host that knows nothing beyond the copy cannot tell it from the stream.
        wait_until(
            lambda host=host: _known(host) > copied, f"{host.name} knows what the copy has only"
        )
    owner = world.owner(blow.session)
    proxies = [proxy for host in world.hosts for proxy in host.proxies]
    for proxy in proxies:
        proxy.cut()
    _begin_again(world, Node.restore_data)
    old = _messages(world)
    world.has_old_names = True
    for proxy in proxies:
        proxy.heal()
    _join_again(world, blow, owner, old)


def _known(host: Host) -> int:
    """The last message that a root has noted of the stream."""
    return json.loads((host.root / paths.CLUSTER_STREAMS).read_bytes())[STREAM]["last"]


def _begin_again(world: World, change: Callable[[Node], None]) -> None:
    """End all servers, change each one's disk, and start them."""
    for node in world.cluster.nodes:
        node.kill()
    for node in world.cluster.nodes:
        change(node)
        node.start()
    world.cluster.wait_ready()
    world.leader()


def _join_again(world: World, blow: Blow, first: Host, old: dict[str, int]) -> None:
    """Look that no daemon uses the stream that the servers have now, and let all of them join it.

    Args:
        world: the world.
        blow: the blow.
        first: the daemon that joins before the others.
        old: what the stream has from before, as `_messages` says.
    """
    for host in world.hosts:
        wait_until(lambda host=host: _is_refusing(host), f"{host.name} uses another stream")
    wait_for_s(blow.outage_s)
    if (found := _messages(world)) != old:
        world.faults.append(f"{blow}: daemons published to another stream: {old}, then {found}")
    for host in sorted(world.hosts, key=lambda host: host is not first):
        host.end()
        joined = Steno(host.root)("cluster", "join", "--again", "--json")
        if not joined.out:
            world.faults.append(f"{blow}: {host.name} does not join: {joined.err}")
    for host in world.hosts:
        Steno(host.root)("stop")
        host.start()
    for host in world.hosts:
        # Of a session whose newest files went with a host's disk, older ones may be left.
        Steno(host.root)("cluster", "join")


def _messages(world: World) -> dict[str, int]:
    """The number of messages of each session and name on the servers."""
    found: dict[str, int] = {}
    for subjects in (sessions_subjects(CLUSTER), names_subjects(CLUSTER, None)):
        info = stream_info(world.cluster, STREAM, {"subjects_filter": subjects})
        found.update(info["state"].get("subjects") or {})
    return found


def _is_refusing(host: Host) -> bool:
    """Whether a daemon says that it uses nothing of the stream."""
    with steno.connect_sync(endpoint=host.endpoint, timeout=REPORT_S) as client:
        return REMEDY in client.cluster(limit=0).trouble


def _lose_root(world: World, blow: Blow) -> None:
    """A host comes back with an empty disk."""
    owner = world.owner(blow.session)
    owner.kill()
    wait_for_s(blow.outage_s)
    owner.lose_root()
    owner.start()
    # Where hosts joined again after an earlier blow, a new one begins sessions from here on.
    owner.end()
    owner.start()
    _read_again(world, owner)


def _read_again(world: World, host: Host) -> None:
    """Let a host open what only the servers have, which a later blow may take from them."""
    with steno.connect_sync(endpoint=host.endpoint, timeout=REPORT_S) as client:

        def is_read(session: str) -> bool:
            try:
                client.open(session, create=False, follow=False)
            except steno.NotFound:
                # It was moved or deleted meanwhile, and opened for that.
                return True
            except steno.StenoError:
                # The host that lost its disk is not dead yet for the others.
                return False
            return True

        for each in client.sessions():
            session = each.session
            below = Path("sessions", session, paths.CONTEXT)
            is_somewhere = any((known.root / below).exists() for known in world.hosts)
            # Of what this host owned before it lost its disk, others have older copies at best.
            if each.owner == host.endpoint or not is_somewhere:
                wait_until(partial(is_read, session), f"{host.name} cannot read {session} again")


def _owner(world: World, blow: Blow) -> list[Host]:
    return [world.owner(blow.session)]


def _others(world: World, blow: Blow) -> list[Host]:
    return [host for host in world.hosts if host is not world.owner(blow.session)][:1]


def _end_owner(world: World, blow: Blow) -> None:
    owner = world.owner(blow.session)
    owner.end()
    wait_for_s(blow.outage_s)
    owner.start()


def _partition_owner(world: World, blow: Blow) -> None:
    """The owner and the leader go together, as if a network had parted in two."""
    owner, leader = world.owner(blow.session), world.leader()
    leader.stop()
    owner.stop()
    wait_for_s(blow.outage_s)
    owner.resume()
    wait_for_s(blow.outage_s / 4)
    leader.resume()
    world.cluster.wait_ready()


def _kill_owner_and_leader(world: World, blow: Blow) -> None:
    owner, leader = world.owner(blow.session), world.leader()
    leader.kill()
    owner.kill()
    wait_for_s(blow.outage_s)
    leader.start()
    owner.start()
    world.cluster.wait_ready()


def _hand_over(world: World, blow: Blow) -> None:
    owner, (other, *_) = world.owner(blow.session), _others(world, blow)
    command = HandOver(session=blow.session, host=other.endpoint)
    # A daemon that just went on is not known to live yet.
    refused = suppress(steno.NotFound, steno.Held, steno.Busy)
    with refused, steno.connect_sync(endpoint=owner.endpoint, timeout=HAND_OVER_S) as client:
        client.request(command, Done)


def _rename(world: World, blow: Blow) -> None:
    owner, family = _new_family(world, blow)
    families.cut_short(owner, family, families.rename, blow.outage_s)


def _rename_elsewhere(world: World, blow: Blow) -> None:
    owner, family = _new_family(world, blow)
    (other,) = _others(world, blow)
    families.cut_short(owner, family, families.rename, blow.outage_s, other)


def _delete_elsewhere(world: World, blow: Blow) -> None:
    owner, family = _new_family(world, blow)
    (other,) = _others(world, blow)
    families.cut_short(owner, family, families.delete_for_good, blow.outage_s, other)


def _delete(world: World, blow: Blow) -> None:
    owner, family = _new_family(world, blow)
    families.cut_short(owner, family, families.delete, blow.outage_s)
    families.repeat(owner, family, families.undelete)


def _undelete(world: World, blow: Blow) -> None:
    owner, family = _new_family(world, blow)
    families.repeat(owner, family, families.delete)
    families.cut_short(owner, family, families.undelete, blow.outage_s)


def _new_family(world: World, blow: Blow) -> tuple[Host, families.Family]:
    owner = world.owner(blow.session)
    family = families.create(owner, len(world.families))
    world.families.append(family)
    return owner, family


def _fill_stream(world: World, blow: Blow) -> None:
    """Let the stream run full, and give it room again."""
    info = stream_info(world.cluster, STREAM)
    config, used = info["config"], info["state"]["bytes"]
    for max_bytes in (used + ROOM_BYTES, config["max_bytes"]):
        updated = ask(
            world.cluster, f"$JS.API.STREAM.UPDATE.{STREAM}", {**config, "max_bytes": max_bytes}
        )
        assert "error" not in updated, updated
        wait_for_s(blow.outage_s)


def _publish_foreign(world: World, blow: Blow) -> None:
    """Another program publishes to a session's subject, and an operator removes its message."""
    place = subject_of(CLUSTER, subject_of_name(blow.session))
    named = ask(world.cluster, f"$JS.API.STREAM.MSG.GET.{STREAM}", {"last_by_subj": place})
    identity = base64.b64decode(named["message"]["data"]).decode().partition(" ")[0]
    foreign = ask(world.cluster, subject_of(CLUSTER, identity), "hello")
    wait_for_s(blow.outage_s)
    removal = {"seq": foreign["seq"]}
    removed = ask(world.cluster, f"$JS.API.STREAM.MSG.DELETE.{STREAM}", removal)
    assert "error" not in removed, removed


KINDS: Final[dict[str, Callable[[World, Blow], None]]] = {
    "kill the owner": lambda world, blow: _kill_hosts(world, blow, _owner(world, blow)),
    "stop the owner": lambda world, blow: _stop_hosts(world, blow, _owner(world, blow)),
    "end the owner": _end_owner,
    "kill another daemon": lambda world, blow: _kill_hosts(world, blow, _others(world, blow)),
    "stop another daemon": lambda world, blow: _stop_hosts(world, blow, _others(world, blow)),
    "kill all daemons": lambda world, blow: _kill_hosts(world, blow, world.hosts),
    "kill the leader": lambda world, blow: _kill_nodes(world, blow, [world.leader()]),
    "stop the leader": lambda world, blow: _stop_nodes(world, blow, [world.leader()]),
    "kill a follower": lambda world, blow: _kill_nodes(world, blow, world.followers()[:1]),
    "stop a follower": lambda world, blow: _stop_nodes(world, blow, world.followers()[:1]),
    "kill the majority": lambda world, blow: _kill_nodes(
        world, blow, [world.leader(), *world.followers()[:1]]
    ),
    "stop the majority": lambda world, blow: _stop_nodes(
        world, blow, [world.leader(), *world.followers()[:1]]
    ),
    "kill all servers": lambda world, blow: _kill_nodes(world, blow, world.cluster.nodes),
    "stop all servers": lambda world, blow: _stop_nodes(world, blow, world.cluster.nodes),
    "part owner and leader from the rest": _partition_owner,
    "kill the owner and the leader": _kill_owner_and_leader,
    "cut the owner off": lambda world, blow: _part(world, blow, Proxy.cut),
    "half open": lambda world, blow: _part(
        world, blow, lambda proxy: proxy.mute(to=True, back=True)
    ),
    "the owner is not heard": lambda world, blow: _part(
        world, blow, lambda proxy: proxy.mute(to=True)
    ),
    "the owner does not hear": lambda world, blow: _part(
        world, blow, lambda proxy: proxy.mute(back=True)
    ),
    "a slow network": lambda world, blow: _part(world, blow, lambda proxy: proxy.slow(SLOW_S)),
    "a server with a new disk": _lose_data,
    "a host with a new disk": _lose_root,
    "a stream that was made again": _rebuild_stream,
    "a stream from an old copy": _restore_stream,
    "hand over": _hand_over,
    "kill the owner in a rename": _rename,
    "kill the owner in a rename, repeat it elsewhere": _rename_elsewhere,
    "kill the owner in a deletion": _delete,
    "kill the owner in a deletion, repeat it elsewhere": _delete_elsewhere,
    "kill the owner in an undeletion": _undelete,
    "fill the stream": _fill_stream,
    "another program's message": _publish_foreign,
}
"""Each kind of blow."""
