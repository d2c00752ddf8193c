"""Durable names of the folders above an acknowledged session."""

import pytest

from steno_protocol.commands import Append
from steno_protocol.replies import Ack
from support.asking import ask
from support.daemon_in_process import ROOT, DaemonInProcess
from support.lines import foreign, user
from support.simulated_disk import SimulatedDisk, Survival

pytestmark = pytest.mark.anyio

FOLDER = f"{ROOT}/sessions/team/demo"


async def test_session_from_another_program_survives_a_power_cut() -> None:
    daemon = DaemonInProcess(SimulatedDisk())
    disk = daemon.disk
    disk.foreign.make_folder(FOLDER)
    disk.foreign.replace(f"{FOLDER}/context.jsonl", foreign("one"))
    async with daemon.running():
        assert isinstance(
            await ask(daemon, b"a", Append(session="team/demo", key="k"), user("two")), Ack
        )
        disk.crash(Survival.LOST)
        assert b"two" in disk.content(f"{FOLDER}/context.jsonl")
