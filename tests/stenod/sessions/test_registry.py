"""Open sessions: as many as there are handles for."""

import msgspec
import pytest

from steno_protocol import limits
from steno_protocol.commands import Append, Command, Open, Subscribe
from steno_protocol.messages import encode_request
from steno_protocol.replies import Ack, AnyReply, ErrorReply, SessionStat
from support.daemon_in_process import DaemonInProcess
from support.lines import append, user
from support.simulated_disk import SimulatedDisk

pytestmark = pytest.mark.anyio

ROOM = 20
"""Sessions that may be open of `HANDLES`."""

HANDLES = ROOM * limits.HANDLES_PER_SESSION_MAX * 2


def append_to(session: str) -> Append:
    return msgspec.structs.replace(append("k"), session=session)


async def ask(daemon: DaemonInProcess, name: str, command: Command, *records: bytes) -> AnyReply:
    daemon.handle(encode_request(name.encode(), command, records))
    await daemon.wait_for_answer(name.encode())
    answer = daemon.answers[name.encode()][0]
    assert isinstance(answer, (Ack, SessionStat, ErrorReply)) or name.startswith("follow")
    return answer


async def test_opening_beyond_the_limit_closes_only_unused_sessions() -> None:
    daemon = DaemonInProcess(SimulatedDisk(), handles_max=HANDLES)
    async with daemon.running():
        await ask(daemon, "o-followed", Open(session="followed"))
        follow = Subscribe(session="followed", subscription="mine")
        await ask(daemon, "follow", follow)
        for number in range(5 * ROOM):
            daemon.now_s += 1
            assert isinstance(
                await ask(daemon, f"o{number}", Open(session=f"s{number}")), SessionStat
            )
            assert len(daemon.registry) <= ROOM

        assert daemon.registry.writers("followed")
        assert daemon.registry.writers(f"s{5 * ROOM - 1}")
        assert not daemon.registry.writers("s0")
        # A closed session is unchanged when it is opened again.
        assert isinstance(await ask(daemon, "a", append_to("s0"), user("one")), Ack)


async def test_sessions_that_are_all_in_use_leave_handles_for_others() -> None:
    daemon = DaemonInProcess(SimulatedDisk(), handles_max=HANDLES)
    refused: ErrorReply | None = None
    async with daemon.running():
        for number in range(2 * ROOM):
            opened = await ask(daemon, f"o{number}", Open(session=f"s{number}"))
            if isinstance(opened, ErrorReply):
                refused = opened
                break
            follow = Subscribe(session=f"s{number}", subscription=f"f{number}")
            await ask(daemon, f"follow{number}", follow)

        assert refused is not None
        assert (refused.code, refused.outcome) == ("busy", "not_applied")
        assert refused.session == f"s{len(daemon.registry)}"
        assert "ulimit -n" in refused.message
        assert ROOM < len(daemon.registry) < 2 * ROOM
        left = HANDLES - len(daemon.registry) * limits.HANDLES_PER_SESSION_MAX
        assert HANDLES // 8 <= left < HANDLES // 8 + limits.HANDLES_PER_SESSION_MAX
        # Those that are open go on.
        assert isinstance(await ask(daemon, "a", append_to("s0"), user("one")), Ack)
